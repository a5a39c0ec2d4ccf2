#!/usr/bin/env python3
"""Sends requests near every edge of framing (edges.py), and gives what the gateway forwards to other servers.

    tests/gateway/framing.py [--seed N] [--count N] [--bin PATH] [--json]

A backend that reads as strictly as possible keeps what it gets, byte for byte. What was refused must not be among it, and each
answer belongs to one request. Then the same bytes go to nginx, HAProxy and another gateway, which is hyper behind the same
reader, many requests on a connection: each must read the requests that the first gateway meant, by method, target, host and body.
A request that a server does not take at all is counted by its reason. Needs root; HAProxy is left out if it is missing.
"""

import asyncio
import collections
import hashlib
import os
import random
import re
import shutil
import socket

import edges
from place import BACKENDS, GLOBAL, PORT, Gateway, Place, Result, listener, main, service
from process import Process
from recorder import Unclear, read_chunks, read_head
from nginx import start as start_nginx  # place.py says where it is

COUNT, QUICK_COUNT, SEED = 4000, 300, 46
#: Requests of one connection to a server.
BATCH = 40
#: Seconds for an answer that should come.
PATIENCE = 20

#: A server before which the bytes of the gateway come, and the port of the backend behind it.
Reference = collections.namedtuple("Reference", "name port behind")
NGINX, HAPROXY, AGAIN = Reference("nginx", 8021, 8011), Reference("HAProxy", 8022, 8012), Reference("gateway", 8023, 8013)


class Read(collections.namedtuple("Read", "method target host length digest raw")):
    """A request, as a backend reads it, and its bytes."""

    def meaning(self):
        return self[:5]


class Tape:
    """A reader that keeps what was read."""

    def __init__(self, reader):
        self.reader, self.taken = reader, b""

    async def readuntil(self, end):
        self.taken += (piece := await self.reader.readuntil(end))
        return piece

    async def readexactly(self, count):
        self.taken += (piece := await self.reader.readexactly(count))
        return piece


class Backend:
    """Reads strictly, and answers with the target."""

    def __init__(self):
        self.seen, self.unclear, self.partial = [], [], 0

    async def serve(self, reader, writer):
        tape = Tape(reader)
        try:
            while True:
                tape.taken = b""
                request, fields, length, chunked = read_head(await tape.readuntil(b"\r\n\r\n"))
                body = (await read_chunks(tape))[0] if chunked else await tape.readexactly(length)
                host = next((value for name, value in fields if name == "host"), None)
                digest = hashlib.sha256(body).hexdigest()[:16]
                self.seen.append(Read(request[1], request[2], host, len(body), digest, tape.taken))
                writer.write(f"HTTP/1.1 200 OK\r\nX-Target: {request[2]}\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
        except Unclear as error:
            self.unclear.append(f"{error} in {tape.taken[:300]!r}")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.partial += bool(tape.taken or getattr(error, "partial", b""))
        except asyncio.CancelledError:
            # At the end.
            pass
        finally:
            writer.close()


def answers(got):
    """The statuses of the answers in these bytes, and the targets that the backend says, or None."""
    found = []
    for head in re.finditer(r"HTTP/1\.[01] (\d{3})[^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n", got.decode("latin-1")):
        target = re.search(r"x-target: ([^\r]*)", head[2], re.IGNORECASE)
        if int(head[1]) >= 200:
            found.append((int(head[1]), target and target[1]))
    return found


async def talk(port, sent, ends, enough=None):
    """Sends bytes, and the end if `ends`. Returns what comes until the end, or until `enough` answers are there."""
    # asyncio's streams forget what has come if the connection is reset.
    loop, got = asyncio.get_running_loop(), b""
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        sending = asyncio.create_task(send(loop, sock, sent, ends))
        try:
            while enough is None or len(answers(got)) < enough:
                if not (piece := await asyncio.wait_for(loop.sock_recv(sock, 65536), PATIENCE)):
                    break
                got += piece
        except ConnectionError:
            pass
        except TimeoutError:
            got += b"HTTP/1.1 599 Nothing\r\n\r\n"
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return got


async def send(loop, sock, sent, ends):
    try:
        await loop.sock_sendall(sock, sent)
        if ends:
            sock.shutdown(socket.SHUT_WR)
    except OSError:
        # Who refuses may close. What it has said is read all the same.
        pass


async def one_case(result, case, backend):
    """What the backend has got is what was answered with 200, in this order."""
    before, unclear = len(backend.seen), len(backend.unclear)
    got = answers(await talk(PORT, case.sent, True))
    seen = [read.target for read in backend.seen[before:]]
    about = f"case {case.number} {case.damage} {case.sent[:1500]!r}"
    result.must(len(backend.unclear) == unclear, f"the backend got {backend.unclear[unclear:]} of {about}")
    answered = [target for status, target in got if status == 200]
    result.must(seen == answered, f"the backend saw {seen}, and {got} were the answers to {about}")
    result.must(599 not in dict(got), f"nothing came to {about}")
    if not case.damage:
        statuses = [status for status, _ in got]
        result.must(statuses == [200] * case.count, f"{statuses} for {about}")
    return [status for status, _ in got]


async def send_cases(result, seed, count, backend):
    source, statuses = random.Random(seed), collections.Counter()
    for number in range(count):
        statuses.update(await one_case(result, edges.case(source, number), backend))
    result.numbers["requests forwarded"] = len(backend.seen)
    result.numbers["begun, and cut"] = backend.partial
    for status, times in sorted(statuses.items()):
        result.numbers[f"answered with {status}"] = times


def reason(read, status):
    """Why a server need not take a request that is clear. None: it must."""
    if status == 405 and read.method == "TRACE":
        return "TRACE"
    if status != 400:
        return None
    if not re.fullmatch(r"[A-Z_-]+", read.method):
        return "odd method"
    if not read.target.startswith("/"):
        return "target *"
    if re.search(r"%(?![0-9A-Fa-f]{2})|%00", read.target):
        return "bad percent-encoding"
    if b"\r\nupgrade: websocket\r\n" in read.raw:
        return "WebSocket without a key"
    return None


async def compare(result, reference, reads, backend):
    """Gives the requests to a server, many on a connection."""
    at, taken, refused = 0, 0, collections.Counter()
    while at < len(reads) and len(result.failures) < 20:
        batch, before = reads[at : at + BATCH], len(backend.seen)
        got = answers(await talk(reference.port, b"".join(read.raw for read in batch), False, len(batch)))
        seen = iter(backend.seen[before:])
        about = lambda read: f"{reference.name} about {read.raw[:1500]!r}: "  # noqa: E731
        for read, (status, _) in zip(batch, got):
            if status == 200:
                theirs = next(seen, None)
                same = theirs and theirs.meaning() == read.meaning()
                result.must(same, about(read) + f"reads {theirs and theirs.meaning()}, not {read.meaning()}")
                taken += 1
                continue
            why = reason(read, status) if reference is not AGAIN else None
            result.must(why, about(read) + f"answers {status}")
            refused[f"{status}, {why or 'not known'}"] += 1
        result.must(got, about(batch[0]) + "answers nothing")
        rest = [read.meaning() for read in seen]
        result.must(not rest, f"{reference.name} reads {rest[:3]} in addition to {[read.target for read in batch]}")
        at += max(1, len(got))
    result.must(not backend.unclear, f"{reference.name} forwards {backend.unclear[:3]}")
    result.numbers["requests read in the same way"] = taken
    for why, times in sorted(refused.items()):
        result.numbers[f"not taken: {why}"] = times


def start_haproxy(at):
    with open(at.path("haproxy.cfg"), "w") as file:
        file.write(
            "defaults\n  mode http\n  timeout client 20s\n  timeout server 20s\n  timeout connect 20s\n"
            f"frontend f\n  bind 127.0.0.1:{HAPROXY.port}\n  default_backend b\n"
            f"backend b\n  server s 127.0.0.1:{HAPROXY.behind}\n"
        )
    process = at.start(Process(["haproxy", "-db", "-f", at.path("haproxy.cfg")], ns=at.ns))
    process.wait_until(lambda: f"127.0.0.1:{HAPROXY.port} " in at.sockets(at.ns), "listening socket")


def start_servers(at):
    """The gateway, and the servers that there are."""
    at.gateway(GLOBAL, listener(), service(BACKENDS[:1]))
    again = at.write(GLOBAL, listener(port=AGAIN.port), service([AGAIN.behind]), name="again.toml")
    at.start(Gateway([at.binary, "gateway", again], ns=at.ns))
    server = (
        f"listen 127.0.0.1:{NGINX.port}; client_max_body_size 0; keepalive_requests 1000000; location / {{ "
        f"proxy_pass http://127.0.0.1:{NGINX.behind}; proxy_http_version 1.1; proxy_set_header Host $http_host; "
        'proxy_set_header Connection ""; }'
    )
    start_nginx(at, at.ns, at.directory, f"127.0.0.1:{NGINX.port}", server, "access_log off;")
    if shutil.which("haproxy") is None:
        return [AGAIN, NGINX]
    start_haproxy(at)
    return [AGAIN, NGINX, HAPROXY]


async def campaign(results, references, seed, count):
    backends, servers = {}, []
    for port in (BACKENDS[0], *(reference.behind for reference in references)):
        backends[port] = Backend()
        servers.append(await asyncio.start_server(backends[port].serve, "127.0.0.1", port))
    await send_cases(results[0], seed, count, backends[BACKENDS[0]])
    reads = backends[BACKENDS[0]].seen
    work = [compare(result, reference, reads, backends[reference.behind]) for result, reference in zip(results[1:], references)]
    await asyncio.gather(*work)
    for server in servers:
        server.close()


def check(binary, quick=False, seed=SEED, count=None):
    count = count or (QUICK_COUNT if quick else COUNT)
    with Place(binary) as at:
        references = start_servers(at)
        results = [Result(f"edges of framing: {count} connections, seed {seed}")]
        results += [Result(f"what was forwarded, at {reference.name}") for reference in references]
        with at.ns.entered():
            asyncio.run(campaign(results, references, seed, count))
        if HAPROXY not in references:
            results.append(Result("what was forwarded, at HAProxy"))
            results[-1].numbers["left out"] = "apt-get install --no-install-recommends haproxy"
        yield from results


if __name__ == "__main__":
    os.umask(0o022)
    main(check, __doc__, (("--seed", SEED, "the seed of the requests"), ("--count", COUNT, "connections")))
