"""`gateway` in front of nginx and a server in Python, with curl and OpenSSL as clients."""

import calendar
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time

import firstflight
import pytest
from firstflight import check_no_panic
from process import Process, run
from test_tls import NAME, Certificates
from testbed import body

PORT = 8443
BACKEND = 8000
ADMIN = 9180
HERE = os.path.dirname(os.path.abspath(__file__))

pytestmark = pytest.mark.needs("curl")


@pytest.fixture
def ns(testbed):
    return testbed.namespace("gateway")


class Gateway(Process):
    """A gateway with this configuration. It is ready when it says that it listens."""

    def __init__(self, ns, path):
        super().__init__([firstflight.BINARY, "gateway", path], ns=ns)

    def __enter__(self):
        self.wait_until(lambda: "listening on" in self.text(), "`listening on`")
        return self

    def __exit__(self, *failure):
        was_running = self.popen.poll() is None
        super().__exit__(*failure)
        check_no_panic(self)
        if was_running and failure[0] is None and self.popen.returncode != 0:
            raise AssertionError(f"the gateway ended with {self.popen.returncode} on SIGTERM")

    def logged(self, count, event="request"):
        return self.wait_records(count, f"{count} lines of {event}", lambda r: r.get("event") == event)

    def reload(self, says):
        before = self.text("out").count(says)
        self.popen.send_signal(signal.SIGHUP)
        self.wait_until(lambda: self.text("out").count(says) > before, says)


class Backend(Process):
    """The server in Python."""

    def __init__(self, ns, port, ip="127.0.0.1"):
        script = os.path.join(HERE, "backend_server.py")
        super().__init__([sys.executable, script, f"{ip}:{port}"], ns=ns, stdin=subprocess.PIPE)

    def __enter__(self):
        self.wait_until(lambda: "listening" in self.text(), "`listening`")
        return self

    def requests(self, count):
        return self.wait_records(count, f"{count} requests", lambda r: r.get("event") == "request")

    def count(self, method):
        return sum(record.get("method") == method for record in self.records())

    def release(self):
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()


GLOBAL = f"""
[gateway]
log = "json"
admin = "127.0.0.1:{ADMIN}"
"""

WEB = f"""
[[listener]]
name = "web"
address = ["127.0.0.1:{PORT}"]
mode = "http"
service = "app"
"""

APP = f"""
[[service]]
name = "app"
backend = ["127.0.0.1:{BACKEND}"]
"""


def write(root, *parts):
    path = os.path.join(root, "gateway.toml")
    with open(path, "w") as file:
        file.write("\n".join(parts))
    return path


def gateway(testbed, ns, root, *parts):
    return testbed.start(Gateway(ns, write(root, *parts)))


def curl(ns, *arguments, check=True):
    return run("curl", "-sS", "--max-time", "30", *arguments, ns=ns, check=check, timeout=40)


def nginx(testbed, ns, root, servers, listening):
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {root}/{kind};\n" for kind in kinds)
    config = os.path.join(root, "nginx.conf")
    with open(config, "w") as file:
        file.write(
            f"""user root; daemon off; master_process off; pid {root}/nginx.pid;
            events {{ worker_connections 256; }}
            http {{ {temporary}
            log_format seen '{{"event":"nginx","client":"$proxy_protocol_addr","for":"$http_x_forwarded_for",'
              '"uri":"$uri","status":"$status"}}';
            access_log /dev/stdout seen;
            client_max_body_size 0;
            {servers}
            }}"""
        )
    process = testbed.start(Process(["nginx", "-p", root, "-e", "stderr", "-c", config], ns=ns))
    process.wait_until(lambda: os.path.exists(f"{root}/nginx.pid") and listening(), "listening socket")
    return process


def at(testbed, ns, port):
    return lambda: f"127.0.0.1:{port}" in testbed.sockets(ns)


def acks(ns, allowed):
    """Whether the client's ACKs reach the gateway. Without them the gateway does not know its client."""
    ns.nft_flush()
    if not allowed:
        rule = f"tcp dport {PORT} tcp flags & (syn|ack) == ack counter drop"
        ns.nft(f"type filter hook output priority 0; {rule}")


def test_a_mistake_names_line_and_key(testbed, ns):
    root = testbed.root()
    path = write(root, GLOBAL, WEB, APP.replace("backend", "backends"))
    for command in (["check", path], [path]):
        done = run(firstflight.BINARY, "gateway", *command, ns=ns, check=False)
        assert done.returncode == 2, done
        assert re.search(r"gateway.toml, line \d+, backends: unknown field `backends`", done.stderr), done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    path = write(root, GLOBAL, WEB, APP)
    assert "is right" in run(firstflight.BINARY, "gateway", "check", path, ns=ns).stdout
    missing = '[listener.tls]\ncertificate = [{ chain = "/nonexistent", key = "/nonexistent" }]'
    done = run(firstflight.BINARY, "gateway", "check", write(root, WEB, missing, APP), ns=ns, check=False)
    assert done.returncode == 2 and "/nonexistent" in done.stderr, done


def check(ns, path):
    """Exit code and verdict of `gateway check --json`."""
    done = run(firstflight.BINARY, "gateway", "check", "--json", path, ns=ns, check=False)
    return done.returncode, json.loads(done.stdout)


def web_with(files):
    return WEB + f'[listener.tls]\ncertificate = [{{ chain = "{files.certificate}", key = "{files.key}" }}]\n'


@pytest.mark.needs("openssl")
def test_keys_that_only_root_can_read_are_told(testbed, ns):
    """The gateway would start, serve, and never use a renewed key."""
    files = Certificates(testbed.root())
    root = testbed.root()
    for directory in (root, os.path.dirname(files.key)):
        os.chmod(directory, 0o755)
    path = write(root, GLOBAL + 'user = "nobody"\n', web_with(files), APP)
    os.chown(files.key, 0, 0)
    os.chmod(files.key, 0o600)
    code, verdict = check(ns, path)
    assert (code, verdict["right"], verdict["errors"]) == (1, False, []), verdict
    (warning,) = verdict["warnings"]
    assert files.key in warning and "no reload is accepted as long as the user \"nobody\" cannot read it" in warning, verdict
    server = testbed.start(Gateway(ns, path))
    server.wait_until(lambda: "no reload is accepted" in server.text("err"), "a warning")
    # Containers ask so.
    assert run(firstflight.BINARY, "gateway", "health", path, ns=ns).stdout == ""
    # A check needs no port.
    os.chown(files.key, pwd.getpwnam("nobody").pw_uid, 0)
    assert check(ns, path) == (0, {"file": path, "right": True, "errors": [], "warnings": [], "notes": []})
    ns.sysctl("net.ipv4.tcp_fastopen", 1)
    assert "set net.ipv4.tcp_fastopen to 3" in check(ns, path)[1]["notes"][0]
    ns.sysctl("net.ipv4.tcp_fastopen", 3)
    code, verdict = check(ns, write(root, GLOBAL + 'user = "nobody-of-this-name"\n', web_with(files), APP))
    assert code == 2 and 'there is no user "nobody-of-this-name"' in verdict["errors"][0], verdict


@pytest.mark.needs("openssl")
def test_a_reload_with_an_empty_key_is_refused_once(testbed, ns):
    files = Certificates(testbed.root())
    server = gateway(testbed, ns, testbed.root(), GLOBAL, web_with(files), APP)
    before = open(files.key).read()
    with open(files.key, "w") as key:
        key.truncate()
    server.reload("stays as it is")
    with open(files.key, "w") as key:
        key.write(before)
    server.reload("was read again")
    said = [record["message"] for record in server.records() if "stays as it is" in record.get("message", "")]
    assert len(said) == 1 and f"{files.key} has no private key in PEM" in said[0], said
    assert "configuration stays" not in server.text("err")
    metrics = curl(ns, f"http://127.0.0.1:{ADMIN}/metrics").stdout
    reloads = dict(re.findall(r'firstflight_gateway_reloads_total{result="(\w+)"} (\d+)', metrics))
    assert reloads == {"done": "1", "refused": "1"}, reloads
    (end,) = re.findall(r"firstflight_tls_certificate_end_timestamp_seconds{[^}]*} (\d+)", metrics)
    enddate = run("openssl", "x509", "-noout", "-enddate", "-in", files.certificate).stdout.strip()
    expected = calendar.timegm(time.strptime(enddate, "notAfter=%b %d %H:%M:%S %Y GMT"))
    assert int(end) == expected, (end, enddate)


def test_first_flights_by_the_kernel(testbed, ns):
    """A GET in a SYN reaches the backend before the client's ACK, and says so. A POST does not, and runs once."""
    backend = testbed.start(Backend(ns, BACKEND))
    server = gateway(testbed, ns, testbed.root(), GLOBAL, WEB, APP)
    url = f"http://127.0.0.1:{PORT}"
    curl(ns, "--tcp-fastopen", f"{url}/cookie")
    backend.requests(1)

    acks(ns, allowed=False)
    get = testbed.start(Process(["curl", "-sS", "--tcp-fastopen", f"{url}/early-get"], ns=ns))
    seen = backend.requests(2)[1]
    assert (seen["path"], seen["headers"].get("early-data")) == ("/early-get", "1"), seen
    acks(ns, allowed=True)
    assert get.wait() == 0 and get.text("out") == "/early-get"

    acks(ns, allowed=False)
    post = testbed.start(Process(["curl", "-sS", "--tcp-fastopen", "-d", "pay", f"{url}/pay"], ns=ns))
    # It has arrived: the gateway has dialled nobody yet, but has a connection.
    server.wait_until(lambda: ns.nft_matched(), "an ACK that is dropped")
    time.sleep(0.5)
    assert backend.count("POST") == 0, "a POST went on before its client was known"
    acks(ns, allowed=True)
    assert post.wait() == 0 and post.text("out") == "/pay"
    assert "early-data" not in backend.requests(3)[2]["headers"]

    acks(ns, allowed=False)
    again = testbed.start(Process(["curl", "-sS", "--tcp-fastopen", f"{url}/early"], ns=ns))
    assert backend.requests(4)[3]["headers"]["early-data"] == "1"
    time.sleep(0.2)
    assert backend.count("GET") == 3, "a request that was too early was repeated too early"
    acks(ns, allowed=True)
    assert again.wait() == 0 and again.text("out") == "/early"
    assert "early-data" not in backend.requests(5)[4]["headers"]
    assert (backend.count("GET"), backend.count("POST")) == (4, 1)

    _, get, post, again = server.logged(4)
    assert [line["early"] for line in (get, post, again)] == ["forwarded", "waited", "waited"]
    for line in (get, post, again):
        assert (line["way"], line["outcome"], line["early_bytes"] > 0) == ("kernel", "accepted", True), line


def test_first_flights_in_udp(testbed, ns):
    backend = testbed.start(Backend(ns, BACKEND))
    server = gateway(testbed, ns, testbed.root(), GLOBAL, WEB, APP)
    get = (firstflight.BINARY, "get", f"http://127.0.0.1:{PORT}/udp", "--udp", "--json", "--repeat", "2")
    records = [json.loads(line) for line in run(*get, ns=ns).stdout.splitlines() if line.startswith("{")]
    assert [record["status"] for record in records] == [200, 200], records
    first, second = server.logged(2)
    assert (first["way"], first["outcome"]) == ("udp", "handshake"), first
    assert (second["way"], second["outcome"], second["early_bytes"] > 0) == ("udp", "accepted", True), second
    assert backend.count("GET") == 2


@pytest.mark.needs("nginx", "openssl")
def test_files_of_nginx_by_every_protocol(testbed, ns):
    root = testbed.root(small=1000, large=5_000_000)
    servers = f"server {{ listen 127.0.0.1:{BACKEND}; listen unix:{root}/socket; root {root}; }}"
    process = nginx(testbed, ns, root, servers, at(testbed, ns, BACKEND))
    files = Certificates(testbed.root())
    tls = f"""
[listener.tls]
certificate = [{{ chain = "{files.certificate}", key = "{files.key}" }}]
"""
    app = APP.replace('"]', f'", "unix:{root}/socket"]')
    server = gateway(testbed, ns, root, GLOBAL, WEB, tls, app)
    target = os.path.join(root, "out")
    where = ("--cacert", files.ca, "--resolve", f"{NAME}:{PORT}:127.0.0.1")
    for protocol, version in (("--http1.1", "1.1"), ("--http2", "2")):
        for name in ("small", "large", "small"):
            url = f"https://{NAME}:{PORT}/{name}"
            shown = ("-o", target, "-w", "%{http_code} %{http_version}")
            assert curl(ns, *where, protocol, *shown, url).stdout == f"200 {version}"
            assert body(root, "out") == body(root, name), name
    # Several requests of one connection, at once.
    urls = [part for _ in range(20) for part in ("-o", "/dev/null", f"https://{NAME}:{PORT}/small")]
    done = curl(ns, *where, "--http2", "--parallel", "-w", "%{http_code} ", *urls)
    assert done.stdout.split() == ["200"] * 20
    # Another host than the one that TLS asked for.
    done = curl(ns, *where, "-H", "Host: other.example.com", "-o", target, "-w", "%{http_code}", url)
    assert done.stdout == "421"
    server.logged(27)
    process.wait_until(lambda: process.text("out").count('"event":"nginx"') == 26, "26 requests at nginx")
    assert '"for":"127.0.0.1"' in process.text("out")


@pytest.mark.needs("nginx")
def test_nginx_learns_the_client_by_the_proxy_protocol(testbed, ns):
    root = testbed.root(small=1000)
    servers = f"server {{ listen 127.0.0.1:{BACKEND} proxy_protocol; root {root}; }}"
    process = nginx(testbed, ns, root, servers, at(testbed, ns, BACKEND))
    app = APP + 'proxy_protocol = true\n[service.health]\ninterval = "100ms"\n'
    tcp = WEB.replace('"web"', '"tcp"').replace('"http"', '"tcp"').replace(str(PORT), str(PORT + 1))
    gateway(testbed, ns, root, GLOBAL, WEB, tcp, app)
    for port in (PORT, PORT + 1):
        done = curl(ns, "-o", os.path.join(root, "out"), "--interface", "127.0.0.7", f"http://127.0.0.1:{port}/small")
        assert body(root, "out") == body(root, "small"), done
    process.wait_until(lambda: process.text("out").count('"uri":"/small"') == 2, "two requests")
    seen = [r for r in process.records() if r.get("uri") == "/small"]
    assert [record["client"] for record in seen] == ["127.0.0.7"] * 2, seen


@pytest.mark.needs("nginx", "openssl")
def test_tls_is_passed_through_by_name(testbed, ns):
    root = testbed.root(small=1000)
    files = Certificates(testbed.root())
    pair = f"ssl_certificate {files.certificate}; ssl_certificate_key {files.key}; ssl_protocols TLSv1.2 TLSv1.3;"
    servers = f"server {{ listen 127.0.0.1:{BACKEND} ssl; {pair} root {root}; }}"
    nginx(testbed, ns, root, servers, at(testbed, ns, BACKEND))
    listener = WEB.replace('"http"', '"tls-passthrough"').replace('service = "app"', "")
    route = f'[[listener.route]]\nhost = ["{NAME}"]\nservice = "app"\n'
    server = gateway(testbed, ns, root, GLOBAL, listener, route, APP)
    where = ("--cacert", files.ca, "--resolve", f"{NAME}:{PORT}:127.0.0.1")
    for versions in (("--tlsv1.3",), ("--tls-max", "1.2")):
        url = f"https://{NAME}:{PORT}/small"
        curl(ns, *where, *versions, "-o", os.path.join(root, "out"), url)
        assert body(root, "out") == body(root, "small")
    assert [line["host"] for line in server.logged(2, "connection")] == [NAME] * 2
    done = curl(ns, "-k", f"https://127.0.0.1:{PORT}/small", check=False)
    assert done.returncode == 35 and "unrecognized name" in done.stderr, done


def test_a_reload_changes_everything_or_nothing(testbed, ns):
    root = testbed.root()
    one, two = testbed.start(Backend(ns, BACKEND)), testbed.start(Backend(ns, BACKEND + 1))
    server = gateway(testbed, ns, root, GLOBAL, WEB, APP)
    url = f"http://127.0.0.1:{PORT}/"
    # A request under way is not disturbed.
    slow = testbed.start(Process(["curl", "-sS", f"{url}slow"], ns=ns))
    one.requests(1)
    write(root, GLOBAL, WEB, APP.replace(str(BACKEND), "no port"))
    server.reload("stays as it is")
    assert re.search(r"line \d+, backend: .*no port", server.text("out")), server.text("out")
    assert "no port" not in server.text("err"), "it is said twice"
    assert curl(ns, f"{url}a").stdout == "/a"
    one.requests(2)
    other = WEB.replace('"web"', '"other"').replace(str(PORT), str(PORT + 1))
    write(root, GLOBAL, WEB, other, APP.replace(str(BACKEND), str(BACKEND + 1)))
    server.reload("was read again")
    assert curl(ns, f"{url}b").stdout == "/b"
    assert curl(ns, f"http://127.0.0.1:{PORT + 1}/c").stdout == "/c"
    assert [record["path"] for record in two.requests(2)] == ["/b", "/c"]
    # A port that is taken: nothing changes, and the listener that is new again is not there.
    write(root, GLOBAL, WEB, other, WEB.replace('"web"', '"taken"').replace(str(PORT), str(BACKEND)), APP)
    server.reload("stays as it is")
    assert curl(ns, f"{url}d").stdout == "/d" and two.requests(3)[2]["path"] == "/d"
    # A listener that is gone.
    write(root, GLOBAL, WEB, APP)
    server.reload("was read again")
    server.wait_until(lambda: f"127.0.0.1:{PORT + 1}" not in testbed.sockets(ns), "a listener that is closed")
    one.release()
    assert slow.wait() == 0 and slow.text("out") == "x" * 10 + "y" * 10


@pytest.mark.needs("nginx", "openssl")
@pytest.mark.parametrize("protocol", ["--http1.1", "--http2"])
def test_no_request_is_lost_while_the_configuration_changes(testbed, ns, protocol):
    root = testbed.root(small=1000)
    servers = "".join(f"server {{ listen 127.0.0.1:{BACKEND + n}; root {root}; }}" for n in range(2))
    nginx(testbed, ns, root, servers, at(testbed, ns, BACKEND + 1))
    files = Certificates(testbed.root())
    web = WEB + f'[listener.tls]\ncertificate = [{{ chain = "{files.certificate}", key = "{files.key}" }}]\n'
    server = gateway(testbed, ns, root, GLOBAL, web, APP)
    urls = [part for _ in range(2000) for part in ("-o", "/dev/null", f"https://127.0.0.1:{PORT}/small")]
    shown = ("--cacert", files.ca, "--parallel", "--parallel-max", "50", "-w", "%{http_code} ")
    reloads = 0
    # On a fast machine all requests take as long as a few reloads.
    while reloads < 10:
        load = testbed.start(Process(["curl", "-sS", protocol, *shown, *urls], ns=ns))
        while load.popen.poll() is None and reloads < 200:
            reloads += 1
            write(root, GLOBAL, web, APP.replace(str(BACKEND), str(BACKEND + reloads % 2)))
            server.reload("was read again")
        assert load.wait() == 0
        assert load.text("out").split() == ["200"] * 2000


def test_a_drain_lets_requests_end(testbed, ns):
    backend = testbed.start(Backend(ns, BACKEND))
    server = gateway(testbed, ns, testbed.root(), GLOBAL, WEB, APP)
    slow = testbed.start(Process(["curl", "-sS", f"http://127.0.0.1:{PORT}/slow"], ns=ns))
    backend.requests(1)
    server.popen.send_signal(signal.SIGTERM)
    server.wait_until(lambda: f"127.0.0.1:{PORT}" not in testbed.sockets(ns), "a listener that is closed")
    ready = curl(ns, "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{ADMIN}/readyz")
    assert ready.stdout == "503" and server.popen.poll() is None
    backend.release()
    assert slow.wait() == 0 and len(slow.text("out")) == 20
    assert server.wait() == 0
    assert server.logged(1)[0]["bytes_out"] == 20


def test_health_checks_and_metrics(testbed, ns):
    one, two = testbed.start(Backend(ns, BACKEND)), testbed.start(Backend(ns, BACKEND + 1))
    app = f"""
[[service]]
name = "app"
backend = ["127.0.0.1:{BACKEND}", "127.0.0.1:{BACKEND + 1}"]
[service.health]
kind = "http"
path = "/health"
interval = "50ms"
fall = 2
rise = 1
"""
    server = gateway(testbed, ns, testbed.root(), GLOBAL, WEB, app)
    admin = lambda path: curl(ns, f"http://127.0.0.1:{ADMIN}{path}").stdout  # noqa: E731
    for process in (one, two):
        process.wait_until(lambda: "/health" in process.text(), "a check")
    server.wait_until(lambda: "app: 2 of 2 backends up" in admin("/readyz"), "the first checks")
    assert admin("/healthz") == "alive\n"
    one.kill()
    server.wait_until(lambda: "app: 1 of 2 backends up" in admin("/readyz"), "a backend that is down")
    codes = [curl(ns, f"http://127.0.0.1:{PORT}/{n}").stdout for n in range(6)]
    assert codes == [f"/{n}" for n in range(6)]
    text = admin("/metrics")
    for series in (
        f'firstflight_gateway_backend_up{{service="app",backend="127.0.0.1:{BACKEND}"}} 0',
        f'firstflight_gateway_backend_up{{service="app",backend="127.0.0.1:{BACKEND + 1}"}} 1',
        'firstflight_gateway_requests_total{listener="web",service="app",code="2xx"} 6',
    ):
        assert series in text, f"{series} is not in\n{text}"
    two.kill()
    server.wait_until(lambda: "no backend is up" in admin("/readyz"), "no backend")
    done = curl(ns, "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{PORT}/")
    assert done.stdout == "503"
    testbed.start(Backend(ns, BACKEND))
    server.wait_until(lambda: "ready\n" in admin("/readyz"), "a backend that is back")
    assert curl(ns, f"http://127.0.0.1:{PORT}/back").stdout == "/back"


def test_root_drops_privileges_and_raises_its_limit(testbed, ns):
    testbed.start(Backend(ns, BACKEND))
    settings = GLOBAL + 'user = "nobody"\nmax_connections = 1500\n'
    web = WEB.replace(str(PORT), "80")
    path = write(testbed.root(), settings, web, APP)
    command = ["prlimit", "--nofile=512:4096", firstflight.BINARY, "gateway", path]
    server = testbed.start(Process(command, ns=ns))
    server.wait_until(lambda: "dropped privileges: user nobody" in server.text("out"), "dropped privileges")
    assert "limit of open files: raised from 512 to 3256" in server.text("out")
    with open(f"/proc/{server.pid}/status") as file:
        status = dict(line.rstrip("\n").split(":", 1) for line in file)
    assert set(status["Uid"].split()) == {"65534"} and status["CapEff"].strip() == "0" * 16
    assert curl(ns, "http://127.0.0.1/a").stdout == "/a"
    assert server.terminate() == 0


@pytest.mark.needs("openssl")
def test_keys_belong_to_the_user_that_the_gateway_becomes_or_to_root(testbed, ns):
    files = Certificates(testbed.root())
    web = WEB.replace(str(PORT), "443") + f"""[listener.tls]
certificate = [{{ chain = "{files.certificate}", key = "{files.key}" }}]
"""
    check = lambda settings: run(  # noqa: E731
        firstflight.BINARY, "gateway", "check", write(testbed.root(), settings, web, APP), ns=ns, check=False
    )
    nobody, other = 65534, 12345
    for owner, mode, user, right in [
        (0, 0o640, "", True),
        (0, 0o440, "", True),
        (0, 0o644, "", False),
        (nobody, 0o600, 'user = "nobody"\n', True),
        (nobody, 0o640, 'user = "nobody"\n', False),
        (nobody, 0o600, "", False),
        (other, 0o600, 'user = "nobody"\n', False),
    ]:
        os.chown(files.key, owner, owner)
        os.chmod(files.key, mode)
        done = check(GLOBAL + user)
        assert done.returncode == (0 if right else 2), (owner, oct(mode), user, done.stderr)
        hint = "defaultMode: 0640" if mode & 0o077 else "chown"
        assert right or hint in done.stderr, done.stderr


def test_a_drain_without_descriptors_makes_room_for_what_waits(testbed, ns):
    testbed.start(Backend(ns, BACKEND))
    server = testbed.start(Gateway(ns, write(testbed.root(), GLOBAL, WEB, APP)))

    def ask(connection):
        connection.sendall(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")

    with ns.entered():
        kept = socket.create_connection(("127.0.0.1", PORT), 30)
        ask(kept)
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")
        used = {int(number) for number in os.listdir(f"/proc/{server.pid}/fd")}
        free = next(number for number in range(len(used) + 1) if number not in used)
        run("prlimit", "--pid", server.pid, f"--nofile={free}:{free}")
        waiting = socket.create_connection(("127.0.0.1", PORT), 30)
    ask(waiting)
    server.wait_until(lambda: "cannot accept" in server.text(), "a connection that cannot be accepted")
    server.popen.send_signal(signal.SIGTERM)

    def is_told():
        ask(kept)
        return b"connection: close" in kept.recv(4096).lower()

    server.wait_until(is_told, "a connection that is told to end")
    kept.close()
    assert waiting.recv(4096).startswith(b"HTTP/1.1 200")
    assert server.wait(60) == 0


def test_a_service_manager_is_told_and_its_sockets_are_used(testbed, ns):
    """systemd-socket-activate is not everywhere, so Python passes the socket."""
    testbed.start(Backend(ns, BACKEND))
    root = testbed.root()
    path = write(root, GLOBAL, WEB.replace(str(PORT), "81"), APP)
    notices = os.path.join(root, "notify")
    script = f"""
import os, socket
notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notices.bind({notices!r})
os.chmod({notices!r}, 0o777)
listener = socket.create_server(("127.0.0.1", 81))
if os.fork() == 0:
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), NOTIFY_SOCKET={notices!r})
    os.setgid(65534), os.setuid(65534)
    os.execv({firstflight.BINARY!r}, ["firstflight", "gateway", {path!r}])
listener.close()
notices.settimeout(0.1)
while True:
    try:
        print(notices.recv(4096).decode().replace("\\n", " "), flush=True)
    except TimeoutError:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            print("ended", os.waitstatus_to_exitcode(status), flush=True)
            break
"""
    manager = testbed.start(Process([sys.executable, "-c", script], ns=ns))
    manager.wait_until(lambda: "READY=1" in manager.text("out"), "READY=1")
    assert curl(ns, "http://127.0.0.1:81/a").stdout == "/a"
    (child,) = open(f"/proc/{manager.pid}/task/{manager.pid}/children").read().split()
    os.kill(int(child), signal.SIGHUP)
    manager.wait_until(lambda: "RELOADING=1" in manager.text("out"), "RELOADING=1")
    os.kill(int(child), signal.SIGTERM)
    manager.wait_until(lambda: "STOPPING=1" in manager.text("out"), "STOPPING=1")
    manager.wait_until(lambda: "ended 0" in manager.text("out"), "its end")


def test_json_lines_are_json(testbed, ns):
    """Nothing that a client sends makes a line of its own."""
    testbed.start(Backend(ns, BACKEND))
    server = gateway(testbed, ns, testbed.root(), GLOBAL, WEB, APP)
    curl(ns, "-H", 'Host: a"b', f"http://127.0.0.1:{PORT}/%0a%22", check=False)
    (line,) = server.logged(1)
    assert line["path"] == "/%0a%22"
    for text in server.text("out").splitlines():
        json.loads(text)


def memory(process):
    """Bytes of memory that the process uses now."""
    with open(f"/proc/{process.pid}/status") as file:
        (line,) = (line for line in file if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("protocol", ["--http1.1", "--http2-prior-knowledge", "tcp"])
def test_slow_readers_cost_little_memory(testbed, ns, protocol):
    root = testbed.root(large=50_000_000)
    nginx(testbed, ns, root, f"server {{ listen 127.0.0.1:{BACKEND}; root {root}; }}", at(testbed, ns, BACKEND))
    web = WEB.replace('"http"', '"tcp"') if protocol == "tcp" else WEB
    server = gateway(testbed, ns, root, GLOBAL, web, APP)
    option = () if protocol == "tcp" else (protocol,)
    url = f"http://127.0.0.1:{PORT}/large"
    assert curl(ns, *option, "-o", "/dev/null", "-w", "%{size_download}", url).stdout == "50000000"
    before, readers = memory(server), 20
    for _ in range(readers):
        slow = ("curl", "-sS", *option, "--limit-rate", "10k", "-o", "/dev/null", url)
        testbed.start(Process(slow, ns=ns))
    active = f'firstflight_gateway_backend_active{{service="app",backend="127.0.0.1:{BACKEND}"}} {readers}'
    admin = f"http://127.0.0.1:{ADMIN}/metrics"
    server.wait_until(lambda: active in curl(ns, admin).stdout, "that all of them read")
    time.sleep(1)
    each = (memory(server) - before) / readers
    assert each < 512 * 1024, f"{each / 1024:.0f} KiB for each reader of 50 MB"
    print(f"{protocol}: {each / 1024:.0f} KiB for each reader")
