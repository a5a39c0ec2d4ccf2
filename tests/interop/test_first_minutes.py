"""What a new user tries first: `run`, `test-certificate`, `get` with curl's options, `doctor` with a URL."""

import json
import os
import signal
import socket
import stat
import sys
import time

import pytest

import firstflight
import name_server
from firstflight import Command
from net import Pair
from process import Process, run
from test_proxy import NAME, A, wire_name

PAIR = Pair(87)
SERVER = "203.0.113.7"


class Place:
    """A client, and on the other end of a cable a server whose address is not private."""

    def __init__(self, testbed):
        self.testbed = testbed
        self.client, self.server = testbed.namespace("client"), testbed.namespace("server")
        testbed.cable(self.client, self.server, PAIR, "veth0")
        self.server.ip("addr", "add", f"{SERVER}/32", "dev", "lo")
        self.client.ip("route", "add", SERVER, "via", PAIR.peer[4])
        self.root = testbed.root(small=5000)
        names = {(wire_name(NAME), A): socket.inet_aton(SERVER)}
        testbed.enter_context(name_server.answering(self.client, "127.0.0.1", names))

    def serve(self, *options, port=80):
        listen = ("--root", self.root, "--listen", f"{SERVER}:{port}", "--json-log")
        return self.testbed.start(Command(self.server, "serve", *listen, *options))

    def certificate(self, *names):
        """The two files, made by the command."""
        path = os.path.join(self.testbed.root(), "test")
        run(firstflight.BINARY, "test-certificate", *names, "-o", path)
        return f"{path}.pem", f"{path}.key"

    def firstflight(self, *arguments, expect=0):
        process = Process([firstflight.BINARY, *arguments], ns=self.client)
        with process:
            assert process.wait() == expect, process.text()
        return process


@pytest.mark.needs("curl")
def test_run_saves_a_round_trip_and_passes_the_exit_code_on(testbed):
    place = Place(testbed)
    certificate, key = place.certificate(SERVER)
    place.serve("--tls-cert", certificate, "--tls-key", key, port=443)
    # Three programs, so three connections.
    fetch = f"curl -sS --cacert {certificate} https://{SERVER}/small | wc -c"
    process = place.firstflight("run", "--", "sh", "-c", f"{fetch}; {fetch}; {fetch}; exit 7", expect=7)
    assert process.text("out").split() == ["5000"] * 3, process.text()
    (last,) = [line for line in process.text("err").splitlines() if line.startswith("firstflight: ")]
    assert "3 connections, 2 round trips saved: " in last and last.endswith("ordinary handshakes: 1 first contact"), last


@pytest.mark.needs("curl")
@pytest.mark.parametrize("tunnel", (True, False), ids=("tunnel", "http"))
def test_run_says_that_a_server_grants_no_cookies(testbed, tunnel):
    """Otherwise each connection would look like a first one, behind which something can be gained."""
    place = Place(testbed)
    place.server.sysctl("net.ipv4.tcp_fastopen", 1)
    place.serve()
    # A kept connection of the proxy would serve the next request, too.
    how = "-p" if tunnel else "-H 'Connection: close'"
    fetch = f"curl -sS {how} http://{SERVER}/small | wc -c"
    process = place.firstflight("run", "--", "sh", "-c", "; ".join([fetch] * 3))
    assert process.text("out").split() == ["5000"] * 3, process.text()
    (last,) = [line for line in process.text("err").splitlines() if line.startswith("firstflight: ")]
    if tunnel:
        told = "3 connections, no round trip saved; ordinary handshakes: 1 first contact, 2 peer-without-fast-open"
        assert last.endswith(told), last
    else:
        assert "1 first contact" in last and "2 first" not in last and "3 first" not in last, last


def test_run_reaches_private_networks_but_not_by_the_proxy_this_machine(testbed):
    place = Place(testbed)
    at = f"{PAIR.peer[4]}:8080"
    testbed.start(Command(place.server, "serve", "--root", place.root, "--listen", at))
    program = "import sys, urllib.request; print(len(urllib.request.urlopen(sys.argv[1]).read()))"
    process = place.firstflight("run", "--", sys.executable, "-c", program, f"http://{at}/small")
    assert process.text("out").strip() == "5000"
    assert "1 connection, " in process.text("err")


@pytest.mark.parametrize("name", ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"))
def test_run_passes_signals_on(testbed, name):
    ns = testbed.namespace("client")
    program = (
        f"import signal, sys; signal.signal(signal.{name}, lambda *_: sys.exit(9)); print('ready', flush=True)\n"
        "while True: signal.pause()"
    )
    process = testbed.start(Process([firstflight.BINARY, "run", "--", sys.executable, "-c", program], ns=ns))
    process.wait_until(lambda: "ready" in process.text(), "the command")
    os.kill(process.pid, getattr(signal, name))
    assert process.wait() == 9, process.text()


def test_run_says_what_cannot_be_run(testbed):
    place = Place(testbed)
    assert "cannot run no-such-program: " in place.firstflight("run", "--", "no-such-program", expect=127).text()
    assert "cannot run /: " in place.firstflight("run", "--", "/", expect=126).text()
    place.firstflight("run", "--", "sh", "-c", "kill -KILL $$", expect=128 + 9)


@pytest.mark.needs("curl")
def test_get_and_curl_accept_a_test_certificate(testbed):
    place = Place(testbed)
    certificate, key = place.certificate(NAME, SERVER)
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    place.serve("--tls-cert", certificate, "--tls-key", key, port=443)
    for host in (NAME, SERVER):
        resolve = ("--resolve", f"{NAME}:443:{SERVER}")
        done = run("curl", "-sS", "--cacert", certificate, *resolve, "-o", "/dev/null", "-w", "%{http_code}",
                   f"https://{host}/small", ns=place.client)  # fmt: skip
        assert done.stdout == "200", host
    dns = ("--dns", "127.0.0.1:53")
    place.firstflight("get", f"https://{NAME}/small", *dns, "--cacert", certificate)
    assert "certificate" in place.firstflight("get", f"https://{NAME}/small", *dns, expect=1).text()
    place.firstflight("get", f"https://{NAME}/small", *dns, "-k")
    again = Process([firstflight.BINARY, "test-certificate", NAME, "-o", certificate[: -len(".pem")]])
    with again:
        assert again.wait() == 2 and "exists" in again.text()


@pytest.mark.needs("curl")
def test_a_gateway_takes_a_test_certificate(testbed):
    place = Place(testbed)
    certificate, key = place.certificate(NAME)
    backend = "127.0.0.1:8000"
    testbed.start(Command(place.server, "serve", "--root", place.root, "--listen", backend))
    path = os.path.join(testbed.root(), "gateway.toml")
    with open(path, "w") as file:
        file.write(
            f'[[listener]]\nname = "web"\naddress = ["{SERVER}:443"]\nmode = "http"\nservice = "app"\n'
            f'[listener.tls]\ncertificate = [{{ chain = "{certificate}", key = "{key}" }}]\n'
            f'[[service]]\nname = "app"\nbackend = ["{backend}"]\n'
        )
    testbed.start(Command(place.server, "gateway", path))
    resolve = ("--resolve", f"{NAME}:443:{SERVER}")
    done = run("curl", "-sS", "--cacert", certificate, *resolve, f"https://{NAME}/small", "-o", "/dev/null",
               "-w", "%{http_code}", ns=place.client)  # fmt: skip
    assert done.stdout == "200"


HEADS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        moved = {"/a": "/b", "/b": "c", "/loop": "/loop", "/away": f"http://127.0.0.1:{sys.argv[2]}/c"}.get(self.path)
        code = (303 if self.command == "POST" else 302) if moved else 200
        seen = f"{self.command} {self.path} {self.headers.get('X-Mine')} {self.headers.get('Cookie')}\\n".encode()
        self.send_response(code)
        if moved: self.send_header("Location", moved)
        self.send_header("Content-Length", str(len(seen)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(seen)
    do_GET = do_POST = do_HEAD = do_DELETE = answer
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_get_takes_curls_options(testbed):
    place = Place(testbed)
    for port, other in ((8001, 8002), (8002, 8001)):
        testbed.start(Process([sys.executable, "-c", HEADS, str(port), str(other)], ns=place.client))
    until = time.monotonic() + 20
    while run("ss", "-Hltn", ns=place.client).stdout.count("127.0.0.1:800") < 2:
        assert time.monotonic() < until, "no servers"
        time.sleep(0.05)
    mine = ("-H", "X-Mine: yes", "-H", "Cookie: a=1")

    def got(path, *options, expect=0):
        process = place.firstflight("get", f"http://127.0.0.1:8001{path}", "-o", "-", *options, expect=expect)
        return process.text("out").strip()

    assert got("/c", *mine) == "GET /c yes a=1"
    assert got("/c", "-X", "DELETE") == "DELETE /c None None"
    assert got("/a", "-L", *mine) == "GET /c yes a=1"
    assert got("/a", "-L", "-X", "POST") == "GET /c None None"
    # Another port is another server: it gets no cookie.
    assert got("/away", "-L", *mine) == "GET /c yes None"
    # Without -L a redirect is what there is.
    assert got("/a", expect=1) == "GET /a None None"
    assert "more than 10 redirects" in place.firstflight("get", "-L", "http://127.0.0.1:8001/loop", expect=1).text()
    head = place.firstflight("get", "-I", "http://127.0.0.1:8001/c").text("out").splitlines()
    assert head[0] == "HTTP/1.0 200 OK" and any(line.startswith("content-length: ") for line in head), head
    report = place.firstflight("get", "--json", "-X", "POST", "http://127.0.0.1:8001/c").records()[0]
    assert report["reason"] == "not-replay-safe", report


def test_doctor_says_in_a_line_what_a_url_gains(testbed):
    place = Place(testbed)
    place.serve()
    url = f"http://{SERVER}/anything"
    gain = lambda text: [line for line in text.splitlines() if line.startswith("gain at ")]  # noqa: E731
    (line,) = gain(said(place, "doctor", url))
    assert "one round trip (" in line and line.endswith("nothing to change here"), line
    document = json.loads(said(place, "doctor", "--json", url))
    (found,) = document["gains"]
    assert found["server"] == f"{SERVER}:80" and found["saves_ms"] > 0, found
    server = [sys.executable, "-m", "http.server", "8080", "--bind", PAIR.peer[4]]
    testbed.start(Process(server, ns=place.server, cwd=place.root))
    until = time.monotonic() + 20
    while ":8080 " not in run("ss", "-Hltn", ns=place.server).stdout:
        assert time.monotonic() < until, "no server"
        time.sleep(0.05)
    (line,) = gain(said(place, "doctor", f"http://{PAIR.peer[4]}:8080/"))
    assert "nothing to change" not in line, line


def said(place, *arguments):
    """What a command says, whatever its exit code is."""
    process = Process([firstflight.BINARY, *arguments], ns=place.client)
    with process:
        process.wait()
    return process.text("out")
