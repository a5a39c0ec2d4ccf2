"""A directory beside nginx, with curl; and clients that still send when it answers."""

import contextlib
import os
import socket
import ssl
import time

import nginx
import pytest
from firstflight import PORT, Command
from net import Pair, url
from process import run

AT = ("127.0.0.1", PORT)
OURS, THEIRS = f"http://127.0.0.1:{PORT}", "http://127.0.0.1:80"
#: When `ten.txt` was changed.
MODIFIED, BEFORE, AFTER = (f"Sun, 06 Nov 1994 08:49:{second} GMT" for second in (37, 36, 38))
REFUSED = b"PUT /nothing HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
LARGE_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: %s\r\n" % (b"x" * 990) * 120 + b"\r\n"


@pytest.fixture
def ns(testbed):
    return testbed.namespace("directory")


@pytest.fixture
def root(testbed):
    root = testbed.root(small=1000)
    for name in ("sub", "sub/deep", ".well-known", ".git"):
        os.mkdir(os.path.join(root, name))
    for name in ("sub/index.html", ".well-known/token", ".git/HEAD", ".env"):
        with open(os.path.join(root, name), "w") as file:
            file.write(name)
    path = os.path.join(root, "ten.txt")
    with open(path, "w") as file:
        file.write("0123456789")
    os.utime(path, (784111777, 784111777))
    return root


def serve(testbed, ns, root, *options):
    listen = ("--root", root, "--listen", f"127.0.0.1:{PORT}", "--udp-port", 0, "--json-log")
    return testbed.start(Command(ns, "serve", *listen, *options))


def curl(ns, *arguments):
    """The status, the fields and the content of an answer."""
    text = run("curl", "-gsSi", "-m", 20, "--path-as-is", *arguments, ns=ns).stdout
    head, _, content = text.replace("\r\n", "\n").partition("\n\n")
    status, *lines = head.splitlines()
    fields = dict(line.lower().split(": ", 1) if ": " in line else (line, "") for line in lines)
    return int(status.split()[1]), fields, content


@pytest.mark.needs("curl", "nginx")
def test_parts_and_conditions_are_those_of_nginx(testbed, ns, root):
    nginx.start(testbed, ns, root, "127.0.0.1:80", "listen 127.0.0.1:80;", http="default_type text/plain;")
    serve(testbed, ns, root)
    ask = lambda site, *arguments: curl(ns, *arguments, f"{site}/ten.txt")  # noqa: E731
    wanted = ("content-length", "content-range", "last-modified")
    shown = lambda answer: (answer[0], {name: answer[1].get(name) for name in wanted}, answer[2])  # noqa: E731
    for arguments in (
        (),
        ("-I",),
        ("-r", "0-0"),
        ("-r", "2-4"),
        ("-r", "7-"),
        ("-r", "-3"),
        ("-r", "-30"),
        ("-r", "0-"),
        ("-r", "9-100"),
        ("-H", f"If-Modified-Since: {MODIFIED}"),
        ("-H", f"If-Modified-Since: {BEFORE}"),
        ("-H", f"If-Unmodified-Since: {MODIFIED}"),
        ("-H", f"If-Unmodified-Since: {AFTER}"),
        ("-H", f"If-Range: {MODIFIED}", "-r", "1-2"),
        ("-H", f"If-Range: {AFTER}", "-r", "1-2"),
        ("-H", 'If-Range: "other"', "-r", "1-2"),
        ("-H", "If-None-Match: *"),
        ("-H", 'If-None-Match: "other"'),
        ("-H", "If-Match: *"),
    ):
        ours, theirs = (shown(ask(site, *arguments)) for site in (OURS, THEIRS))
        assert ours == theirs, arguments
    # Their pages of errors differ.
    for arguments in (
        ("-r", "10-"),
        ("-H", 'If-Match: "other"'),
        ("-H", f"If-Unmodified-Since: {BEFORE}"),
    ):
        ours, theirs = (ask(site, *arguments) for site in (OURS, THEIRS))
        assert (ours[0], ours[1].get("content-range")) == (theirs[0], theirs[1].get("content-range")), arguments
    for site in (OURS, THEIRS):
        # The tag of a file that was changed just now is weak.
        while (tag := ask(site)[1]["etag"]).startswith("w/"):
            time.sleep(0.05)
        assert ask(site, "-H", f"If-None-Match: {tag}")[0] == 304, site
        assert ask(site, "-H", f"If-None-Match: W/{tag}, \"x\"")[0] == 304, site
        assert ask(site, "-H", f"If-Match: {tag}")[0] == 200, site
        assert ask(site, "-H", f"If-Range: {tag}", "-r", "1-2")[::2] == (206, "12"), site
        several = ask(site, "-r", "0-1,4-4")
        boundary = several[1]["content-type"].removeprefix("multipart/byteranges; boundary=")
        part = f"\n--{boundary}\ncontent-type: text/plain%s\ncontent-range: bytes %s/10\n\n%s"
        kind = "; charset=utf-8" if site == OURS else ""
        parts = part % (kind, "0-1", "01") + part % (kind, "4-4", "4")
        assert (several[0], several[2].lower()) == (206, f"{parts}\n--{boundary}--\n"), site


@pytest.mark.needs("curl", "nginx")
def test_directories_and_hidden_names(testbed, ns, root):
    nginx.start(testbed, ns, root, "127.0.0.1:80", "listen 127.0.0.1:80;")
    process = serve(testbed, ns, root)
    leads = lambda site, path: run(  # noqa: E731
        "curl", "-gsS", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", site + path, ns=ns
    ).stdout
    for path in ("/sub", "/sub/deep", "/sub?a=b"):
        ours, theirs = (leads(site, path).replace(site, "") for site in (OURS, THEIRS))
        theirs = theirs.replace("http://127.0.0.1", "")
        assert ours == theirs, path
    os.mkdir(os.path.join(root, "example.com"))
    # On the same host. curl takes one of the slashes away.
    assert leads(OURS, "//example.com") == f"301 {OURS}/example.com/"
    hidden = ("/.env", "/%2eenv", "/.git/HEAD", "/.git", "/sub/../.env")
    assert [curl(ns, OURS + path)[0] for path in hidden] == [404, 404, 404, 404, 403]
    assert curl(ns, OURS + "/.well-known/token")[::2] == (200, ".well-known/token")
    process.terminate()
    serve(testbed, ns, root, "--hidden")
    assert [curl(ns, OURS + path)[0] for path in hidden[:3]] == [200, 200, 200]


def answer(sent):
    """What the server says to a client that sends all of this first."""
    with socket.create_connection(AT, 20) as client:
        client.sendall(sent)
        return everything(client)


def everything(client):
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.needs("curl")
def test_clients_that_still_send_get_the_refusal(testbed, ns, root):
    serve(testbed, ns, root)
    upload = os.path.join(root, "upload")
    with open(upload, "wb") as file:
        file.write(bytes(3_000_000))
    with ns.entered():
        for _ in range(10):
            assert answer(REFUSED).startswith(b"HTTP/1.1 405 ")
            assert answer(LARGE_HEAD).startswith(b"HTTP/1.1 431 ")
    for expect in ("Expect:", "Expect: 100-continue"):
        status = run("curl", "-gsS", "-m", 20, "-H", expect, "-T", upload, "-o", "/dev/null", "-w", "%{http_code}",
                     f"{OURS}/nothing", ns=ns).stdout  # fmt: skip
        assert status == "405", expect


def test_requests_that_servers_read_differently_are_refused(testbed, ns, root):
    serve(testbed, ns, root)
    host = "Host: x\r\n"
    chunked = lambda lines: f"{host}{lines}\r\n0\r\n\r\n"  # noqa: E731
    with ns.entered():
        for line, rest, status in (
            ("GET /nothing-here", "\r\n", 400),
            ("GET /nothing-here", f"{host}{host}\r\n", 400),
            ("GET /nothing-here", "Host: a b/c\r\n\r\n", 400),
            ("GET /nothing-here", "Host: a.example:abc\r\n\r\n", 400),
            ("GET /nothing-here", "Host: a,b\r\n\r\n", 400),
            ("GET /nothing-here", "Host: a.example:8080\r\nConnection: close\r\n\r\n", 404),
            ("GET *", f"{host}\r\n", 400),
            ("CONNECT x:80", f"{host}\r\n", 405),
            ("OPTIONS *", f"{host}Connection: close\r\n\r\n", 405),
            ("POST /echo", chunked("Transfer-Encoding: chunked\r\nConnection: close\r\n"), 200),
            ("POST /echo", chunked("Transfer-Encoding: gzip, chunked\r\n"), 501),
            ("POST /echo", chunked("Transfer-Encoding: JUNK, chunked\r\n"), 501),
            ("POST /echo", chunked("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), 501),
            ("POST /echo", chunked("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400),
            ("POST /echo", f"{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400),
            ("GET /nothing-here", f"{host}Expect: a-miracle\r\nConnection: close\r\n\r\n", 417),
        ):
            got = answer(f"{line} HTTP/1.1\r\n{rest}".encode())
            assert got.startswith(b"HTTP/1.1 %d " % status), (line, rest, got)
        # RFC 9110 §10.1.1.
        assert answer(b"GET /nothing-here HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").startswith(b"HTTP/1.0 404 ")
        # A body that cannot be read ends the connection.
        with pytest.raises(ConnectionResetError):
            answer(b"PUT /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnone")


def test_a_body_is_asked_for_only_if_it_is_wanted(testbed, ns, root):
    serve(testbed, ns, root)
    head = b"%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with ns.entered():
        for line, first, last in (
            (b"POST /echo", b"100 Continue", b"\r\n\r\nhi"),
            (b"PUT /sink", b"100 Continue", b'"sha256":"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"}\n'),
            (b"PUT /nothing", b"405 ", b"405 Method Not Allowed\n"),
            (b"GET /nothing-here", b"404 ", b"404 Not Found\n"),
        ):
            with socket.create_connection(AT, 20) as client:
                client.sendall(head % line)
                got = client.recv(12)
                # After a refusal the client keeps its body.
                if got.endswith(b"100"):
                    client.sendall(b"hi")
                client.shutdown(socket.SHUT_WR)
                got += everything(client)
            assert got.startswith(b"HTTP/1.1 " + first) and got.endswith(last), (line, got)


def test_a_client_that_half_closes_within_its_request_is_let_go(testbed, ns, root):
    serve(testbed, ns, root)
    upload = b"PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"
    with ns.entered():
        for sent in (b"", b"GET / HT", upload):
            with socket.create_connection(AT, 20) as client:
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):
                    assert not everything(client).startswith(b"HTTP/1.1 200"), sent


@pytest.mark.needs("openssl")
def test_clients_of_tls_that_still_send_get_the_refusal(testbed, ns, root):
    name = "www.example.com"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", 2,
        "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", f"{root}/key.pem", "-out",
        f"{root}/chain.pem")  # fmt: skip
    os.chmod(f"{root}/key.pem", 0o600)
    serve(testbed, ns, root, "--tls-cert", f"{root}/chain.pem", "--tls-key", f"{root}/key.pem")
    context = ssl.create_default_context(cafile=f"{root}/chain.pem")
    with ns.entered():
        for sent, status in ((REFUSED, b"405"), (LARGE_HEAD, b"431")) * 5:
            with context.wrap_socket(socket.create_connection(AT, 20), server_hostname=name) as client:
                client.sendall(sent)
                assert everything(client).startswith(b"HTTP/1.1 %s " % status)


@pytest.mark.needs("curl")
def test_clients_of_the_engine_that_still_send_get_the_refusal(testbed, root):
    pair, ns = Pair(78), testbed.namespace("directory")
    testbed.serve(ns, pair, root)
    at = (pair.peer[4], PORT)
    with ns.entered():
        for sent, status in ((REFUSED, b"405"), (LARGE_HEAD, b"431")) * 10:
            with socket.create_connection(at, 20) as client:
                client.sendall(sent)
                assert everything(client).startswith(b"HTTP/1.1 %s " % status)
    upload = os.path.join(root, "upload")
    with open(upload, "wb") as file:
        file.write(bytes(100_000))
    shown = run("curl", "-gsSv", "-m", 20, "-H", "Expect: 100-continue", "--expect100-timeout", 19, "-T", upload,
                url(pair.peer[4], PORT, "/sink"), ns=ns)  # fmt: skip
    assert "HTTP/1.1 100 Continue" in shown.stderr and '"bytes":100000' in shown.stdout


def test_a_server_that_stops_does_not_wait_for_idle_clients(testbed, ns, root):
    process = serve(testbed, ns, root)
    with ns.entered(), socket.create_connection(AT, 20) as idle, socket.create_connection(AT, 20) as silent:
        idle.sendall(b"HEAD /ten.txt HTTP/1.1\r\nHost: x\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += idle.recv(65536)
        assert head.startswith(b"HTTP/1.1 200 ")
        # Neither client closes by itself.
        assert process.terminate() == 0
        assert idle.recv(1) == silent.recv(1) == b""


def test_a_file_without_a_descriptor_is_unavailable(testbed, ns, root):
    process = serve(testbed, ns, root)
    with ns.entered(), socket.create_connection(AT, 20) as client:

        def ask(path):
            client.sendall(b"HEAD %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(65536)
            return head

        assert ask(b"/nothing").startswith(b"HTTP/1.1 404 ")
        used = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}
        free = min(set(range(len(used) + 1)) - used)
        limit = lambda most: run("prlimit", f"--nofile={most}:4096", "--pid", process.pid)  # noqa: E731
        limit(free)
        head = ask(b"/ten.txt").lower()
        assert head.startswith(b"http/1.1 503 ") and b"\r\nretry-after: 1\r\n" in head, head
        limit(4096)
        assert ask(b"/ten.txt").startswith(b"HTTP/1.1 200 ")
