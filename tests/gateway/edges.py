"""Requests of HTTP/1.1 near every edge of framing, made from a seed.

A case is what one client sends on one connection: up to four requests, some of them damaged, and then a last one. Whatever two
servers could read in two ways hides a request, `/smuggled`, in a body.
"""

import collections

#: `damage` says what is wrong or odd about it. Without, each request must be answered with 200.
Case = collections.namedtuple("Case", "number sent damage count")

METHODS = ("GET", "GET", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "M-SEARCH", "TRACE")
HOSTS = ("a", "a.example", "A.example:8443", "a.example.", "[::1]", "[2001:db8::1]:80", "127.0.0.1", "a_b.example", "a:")
BAD_HOSTS = ("a b", "a,b", "a/b", "user@a", "*", "a:99999", "a:x", ".", "a..b", "", "a\tb", "[::1", "a%2eb", "ä")
PATHS = (
    "",
    "/",
    "/b%20c",
    "?x=y",
    "?x=%0d%0a",
    "/%2e%2e/b",
    "/a//b",
    "/.",
    "/b;c=d",
    "?a=b?c",
    "/~_-",
    "/a:b@c",
    "/|",
    "/{x}",
    '/"',
    "/^",
    "?[]",
    "/\\",
)
ODD_PATHS = ("/<b>", "/`", "/\xe4", "/\xff?<", "#x", "/#?y", "/a b", "/\0", "/\r", "/\x7f", "/\t", "/%zz", "/%")
NAMES = (
    "X-A",
    "x-b",
    "X_Odd",
    "X.Odd",
    "!#$%&'*+-.^_`|~",
    "Content_Length",
    "Transfer_Encoding",
    "Cookie",
    "Accept",
    "Via",
    "Keep-Alive",
    "TE",
    "Trailer",
)
VALUES = ("y", "", "a, b", "\xe4\xf6", '"a\\"b"', " \t x \t ", "5", "chunked", "a;b=c", "x" * 300, "trailers")
SPACES = ("", " ", "\t", "  ", " \t ", "\x0b", "\x0c", "\xa0", "\0", "\r", "\r\n ", "\n ")
CODINGS = (
    "chunked",
    "Chunked",
    "CHUNKED",
    "identity",
    "gzip",
    "gzip, chunked",
    "chunked, gzip",
    "chunked, chunked",
    ", chunked",
    "chunked,",
    "xchunked",
    "chunked;q=1",
    '"chunked"',
    "chunked x",
    "\x0bchunked",
    "chunked\0",
    "",
    ",",
    "chun ked",
    "deflate,chunked",
    "chunked, identity",
)
LENGTHS = (
    "{n}",
    "0{n}",
    "000{n}",
    " {n} ",
    "\t{n}",
    "+{n}",
    "-{n}",
    "{n}.0",
    "0x{n}",
    "{n}, {n}",
    "{n},{n}",
    "{n};x",
    "{n} {n}",
    "",
    "{m}",
    "{n}\0",
    "{n}_0",
    "18446744073709551616",
    "18446744073709551615",
    "9223372036854775808",
    "1e1",
    "{n}\r",
    "²",
)
SIZES = (
    "{n:x}",
    "{n:X}",
    "0{n:x}",
    "00000000{n:x}",
    "{n:x};a",
    '{n:x};a="b;c"',
    "{n:x} ;a=b",
    "{n:x} ",
    "{n:x}\t",
    "0x{n:x}",
    "+{n:x}",
    "-{n:x}",
    " {n:x}",
    "{n:x};\0",
    "{n:x};a\n",
    "{n:x};a\r",
    "{n:x} x",
    "",
    "{n:x}g",
    "{m:x}",
    "ffffffffffffffff",
    "8000000000000000",
    "10000000000000000{n:x}",
    "{n:x},{n:x}",
    "{n:x}\0",
    "{n:x};" + "x" * 1100,
    "00000000000000000{n:x}",
)
ENDS = ("\n", "\r", "\r\r\n", "\n\r", "\0\r\n", " \r\n", "\r \n")
TRAILERS = (
    "",
    "X-Sum: 1\r\n",
    "X-Sum: 1\r\nHost: b\r\nContent-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "X : y\r\n",
    " X: y\r\n",
    "X: y\n",
    "nothing\r\n",
    "X: y\r\n z\r\n",
    "X: \0\r\n",
)
CONNECTIONS = ("keep-alive", "close", "X-A, host", "content-length", "transfer-encoding", "upgrade", "te", "\xe4, x-b")
EXPECTS = ("100-continue", "100-Continue", "200-ok", "100-continue, x")
VERSIONS = (
    "HTTP/1.0",
    "HTTP/1.2",
    "HTTP/2.0",
    "http/1.1",
    "HTTP/1.1 ",
    "HTTP/01.1",
    "HTTP/1.10",
    "HTTP/0.9",
    "",
    "HTTP/1,1",
    "HTTP 1.1",
    "HTTP/1.1\0",
)
SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


class Request:
    """One request, in parts that damage can change."""

    def __init__(self, random, name):
        self.random, self.name, self.damage = random, name, []
        self.method = random.choice(METHODS)
        self.target, self.version, self.spaces = f"/{name}{random.choice(PATHS)}", "HTTP/1.1", (" ", " ")
        self.fields = [("Host", ": ", random.choice(HOSTS))]
        for _ in range(random.randrange(4)):
            self.fields.append((random.choice(NAMES), random.choice((": ", ":", ":\t")), random.choice(VALUES)))
        if random.random() < 0.1:
            self.fields.append(("Connection", ": ", random.choice(("keep-alive", "X-A, host", "te"))))
        self.end, self.body, self.front = "\r\n", "", random.choice(("", "", "", "\r\n", "\r\n\r\n"))
        if random.random() < 0.15:
            self.target = f"http://{random.choice(HOSTS)}{self.target}"
        kind = random.randrange(3) if self.method not in ("TRACE",) else 0
        self.content = random.choice(("", "hello", SMUGGLED, "0\r\n\r\n" + SMUGGLED, "x" * 3000))
        if kind == 1:
            self.length("{n}")
        elif kind == 2:
            self.chunks()

    def length(self, form):
        self.body = self.content
        n = len(self.content)
        self.fields.append(("Content-Length", ": ", form.format(n=n, m=self.random.choice((0, 1, n + 1, max(0, n - 1))))))

    def chunks(self, size=None, trailers=None, end="\r\n"):
        """In one to three chunks. `size` is the form of one of them."""
        random = self.random
        cuts = sorted(random.randrange(len(self.content) + 1) for _ in range(random.randrange(3)))
        parts = [self.content[a:b] for a, b in zip([0, *cuts], [*cuts, len(self.content)])]
        odd = random.randrange(len(parts)) if size or end != "\r\n" else None
        self.body = ""
        for number, part in enumerate(parts):
            if not part and number != odd:
                continue
            n = len(part)
            form = (number == odd and size) or random.choice(SIZES[:6])
            behind = end if number == odd else "\r\n"
            self.body += form.format(n=n, m=n + random.choice((1, 2, 9))) + behind + part + random.choice(("\r\n", behind))
        self.body += (
            random.choice(("0", "0", "000", "0;x"))
            + "\r\n"
            + (random.choice(TRAILERS[:3]) if trailers is None else trailers)
            + "\r\n"
        )
        self.fields.append(("Transfer-Encoding", ": ", random.choice(CODINGS[:3])))

    def sent(self):
        line = self.spaces[0].join((self.method, self.target)) + (self.spaces[1] + self.version if self.version else "")
        head = "".join(name + colon + value + self.end for name, colon, value in self.fields)
        return self.front + line + self.end + head + self.end + self.body

    def insert(self, *field):
        self.fields.insert(self.random.randrange(len(self.fields) + 1), field)


def _spaces(request):
    request.spaces = (request.random.choice(SPACES[1:]), request.random.choice(SPACES[1:]))


def _field_space(request):
    if not request.fields:
        return
    at = request.random.randrange(len(request.fields))
    name, _, value = request.fields[at]
    around = request.random.choice(SPACES)
    request.fields[at] = request.random.choice(
        (
            (name, around + ":", value),
            (name, ":" + around, value),
            (around + name, ":", value),
            (name, ": ", value + around),
            (name, "", value),
        )
    )


def _host(request):
    request.fields = [field for field in request.fields if field[0] != "Host"]
    request.insert("Host", ": ", request.random.choice(BAD_HOSTS))


def _hosts(request):
    if request.random.random() < 0.5:
        request.fields = [field for field in request.fields if field[0] != "Host"]
    else:
        request.insert("Host", ": ", request.random.choice(HOSTS))


def _target(request):
    forms = (
        f"/{request.name}",
        request.name,
        "*",
        "a:80",
        f"http:/{request.name}",
        f"http:///{request.name}",
        f"ftp://a/{request.name}",
        f"http://u@a/{request.name}",
        "http://a",
        "http://a?x",
        "//a/b",
        "a[",
        "",
    )
    request.target = request.random.choice((request.target + request.random.choice(ODD_PATHS), request.random.choice(forms)))


def _method(request):
    request.method = request.random.choice(
        ("get", "Get", "CONNECT", "PRI", "G@T", "", "GET\0", "POST/", "!", "X" * 40, "Ä", " GET")
    )


def _version(request):
    request.version = request.random.choice(VERSIONS)


def _end(request):
    request.end = request.random.choice(("\n", *ENDS))


def _reframe(request, work):
    request.fields = [field for field in request.fields if field[0] not in ("Content-Length", "Transfer-Encoding")]
    request.content = request.content or request.random.choice(("hello", SMUGGLED))
    work()


def _length(request):
    _reframe(request, lambda: request.length(request.random.choice(LENGTHS)))


def _both(request):
    def work():
        if request.random.random() < 0.5:
            request.chunks()
            request.insert("Content-Length", ": ", request.random.choice((str(len(request.body)), "0", "5")))
        else:
            request.length("{n}")
            request.insert(
                "Transfer-Encoding", request.random.choice((": ", " : ", ":\x0b", ":")), request.random.choice(CODINGS)
            )

    _reframe(request, work)


def _two_lengths(request):
    def work():
        request.length("{n}")
        n = len(request.content)
        request.insert("content-length", ": ", request.random.choice((str(n), f"0{n}", "0", str(n + 1), f"{n},{n}")))

    _reframe(request, work)


def _coding(request):
    def work():
        request.chunks()
        at = next(n for n, field in enumerate(request.fields) if field[0] == "Transfer-Encoding")
        request.fields[at] = ("Transfer-Encoding", request.random.choice((": ", ":", ":\t")), request.random.choice(CODINGS))
        if request.random.random() < 0.3:
            request.insert("transfer-encoding", ": ", request.random.choice(CODINGS))

    _reframe(request, work)


def _size(request):
    _reframe(request, lambda: request.chunks(size=request.random.choice(SIZES)))


def _chunk_end(request):
    _reframe(request, lambda: request.chunks(end=request.random.choice(("", *ENDS, "X\r\n"))))


def _trailers(request):
    _reframe(request, lambda: request.chunks(trailers=request.random.choice(TRAILERS)))


def _connection(request):
    request.insert("Connection", ": ", request.random.choice(CONNECTIONS))
    if request.random.random() < 0.5:
        request.insert("Upgrade", ": ", request.random.choice(("websocket", "h2c", "x, y", "HTTP/2.0")))


def _expect(request):
    request.insert("Expect", ": ", request.random.choice(EXPECTS))


def _cut(request):
    request.body = request.body[: request.random.randrange(len(request.body) + 1)]


def _flip(request):
    """One byte of a field becomes another one."""
    if not request.fields:
        return
    at = request.random.randrange(len(request.fields))
    field = list(request.fields[at])
    part = request.random.randrange(3)
    if field[part]:
        where = request.random.randrange(len(field[part]))
        byte = chr(request.random.choice((0, 9, 10, 11, 13, 32, 44, 45, 58, 59, 95, 127, 133, 160, 255)))
        field[part] = field[part][:where] + byte + field[part][where + request.random.randrange(2) :]
        request.fields[at] = tuple(field)


DAMAGE = (
    _spaces,
    _field_space,
    _host,
    _hosts,
    _target,
    _method,
    _version,
    _end,
    _length,
    _both,
    _two_lengths,
    _coding,
    _size,
    _chunk_end,
    _trailers,
    _connection,
    _expect,
    _cut,
    _flip,
)


def case(random, number):
    """One connection. The last request, which asks for its end, is not damaged."""
    sent, damage, count = "", [], 0
    for n in range(random.randrange(1, 5)):
        request = Request(random, f"c{number}-{n}")
        if random.random() < 0.6:
            for one in random.sample(DAMAGE, random.choice((1, 1, 1, 2))):
                one(request)
                damage.append(one.__name__.strip("_"))
        sent += request.sent()
        count += 1
    sent += f"GET /c{number}-last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    return Case(number, sent.encode("latin-1", "replace"), damage, count + 1)
