"""`gateway` and its backends, beside nginx and HAProxy."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time

import firstflight
import name_server
import nginx as web_server
import pytest
from process import Process, run
from test_gateway import APP, BACKEND, GLOBAL, PORT, WEB, ADMIN, Backend, Gateway, curl, gateway, write

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = [sys.executable, os.path.join(HERE, "gateway_peers.py")]
#: Where HAProxy listens, in front of the same backend.
OTHER = 8444
H2 = APP + 'protocol = "h2"\n'

pytestmark = pytest.mark.needs("curl")


@pytest.fixture
def ns(testbed):
    return testbed.namespace("gateway")


def peer(ns, *arguments):
    """What a client says."""
    done = run(*PEERS, *map(str, arguments), ns=ns, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])


def start_peer(testbed, ns, *arguments, event="listening"):
    command = [*PEERS, *map(str, arguments)]
    process = testbed.start(Process(command, ns=ns, stdin=subprocess.PIPE))
    process.wait_until(lambda: f'"{event}"' in process.text("out"), event)
    return process


def haproxy(testbed, ns, root, backend=""):
    config = os.path.join(root, "haproxy.cfg")
    with open(config, "w") as file:
        file.write(
            f"""defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend web
  bind 127.0.0.1:{OTHER}
  default_backend app
backend app
  http-reuse always
  server one 127.0.0.1:{BACKEND} {backend}
"""
        )
    process = testbed.start(Process(["haproxy", "-db", "-f", config], ns=ns))
    process.wait_until(lambda: f"127.0.0.1:{OTHER}" in testbed.sockets(ns), "listening socket")


def h2_server(testbed, ns, root, more=""):
    with open(os.path.join(root, "small"), "w") as file:
        file.write("small")
    os.chmod(root, 0o755)
    server = f"listen 127.0.0.1:{BACKEND} http2; access_log /dev/stdout seen; {more}"
    log = "log_format seen '$request_method $status';"
    return web_server.start(testbed, ns, root, f"127.0.0.1:{BACKEND}", server, http=log, connections=512)


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("most", [10, 1000])
def test_goaway_costs_no_request_and_runs_none_twice(testbed, ns, most):
    """nginx ends a connection after so many requests, and does not execute those above."""
    root = testbed.root()
    server = h2_server(testbed, ns, root, f"keepalive_requests {most};")
    gateway(testbed, ns, root, GLOBAL, WEB, H2)
    # POST to a file is 405 at nginx.
    assert peer(ns, "mixed", PORT) == {"GET 200": 400, "POST 405": 400}
    server.wait_until(lambda: len(server.text("out").splitlines()) >= 800, "800 requests")
    lines = server.text("out").splitlines()
    assert (lines.count("GET 200"), lines.count("POST 405"), len(lines)) == (400, 400, 800)


@pytest.mark.needs("nginx")
def test_nginx_with_http_1_1_ends_connections_and_no_request_is_lost(testbed, ns):
    root = testbed.root()
    server = f"listen 127.0.0.1:{BACKEND}; keepalive_requests 10; location / {{ return 200 ok; }}"
    web_server.start(testbed, ns, root, f"127.0.0.1:{BACKEND}", server, connections=512)
    gateway(testbed, ns, root, GLOBAL, WEB, APP)
    assert peer(ns, "mixed", PORT) == {"GET 200": 400, "POST 200": 400}


@pytest.mark.needs("haproxy")
def test_two_lengths_and_logins_as_haproxy_has_them(testbed, ns):
    root = testbed.root()
    start_peer(testbed, ns, "backend", BACKEND)
    haproxy(testbed, ns, root)
    gateway(testbed, ns, root, GLOBAL, WEB, APP)
    for port in (OTHER, PORT):
        for version in ("--http1.1", "--http2-prior-knowledge"):
            if port == OTHER and version != "--http1.1":
                continue
            done = curl(ns, version, f"http://127.0.0.1:{port}/lengths", check=False)
            assert (done.returncode, done.stdout) == (0, "hello"), (port, version, done)
    for port in (OTHER, PORT):
        said = peer(ns, "login", port)
        assert said["before"][0] == 401, (port, said)
        assert said["steps"][1] == [200, "alice"] and said["alice"] == [200, "alice"], (port, said)
        assert said["other"][0] == 401, f"{port}: another client is alice: {said}"


@pytest.mark.needs("nginx", "haproxy")
def test_resets_of_one_client_cost_others_nothing(testbed, ns):
    """1,500 requests that are given up, and 40 of others beside them. Connections to the backend stay few."""
    root = testbed.root()
    h2_server(testbed, ns, root)
    haproxy(testbed, ns, root, "proto h2")
    gateway(testbed, ns, root, GLOBAL, WEB, H2)
    for port in (OTHER, PORT):
        giving_up = testbed.start(Process([*PEERS, "resets", str(PORT), "1500"], ns=ns))
        lost = 0
        for _ in range(40):
            done = curl(ns, "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{port}/small", check=False)
            lost += done.stdout != "200"
            time.sleep(0.02)
        assert lost == 0, f"{port}: {lost} of 40"
        assert giving_up.wait() == 0
    listed = run("ss", "-Htn", "state", "established", f"dport = :{BACKEND}", ns=ns).stdout
    assert len(listed.splitlines()) < 60, listed


def test_a_shortage_of_descriptors_is_no_failure_of_the_backend(testbed, ns):
    """Requests that find none get 503, and the next one is answered as soon as there are some."""
    root = testbed.root()
    start_peer(testbed, ns, "backend", BACKEND)
    app = APP + 'pool = 0\nconnect_timeout = "1s"\n'
    server = gateway(testbed, ns, root, GLOBAL, WEB, app)
    pid = server.popen.pid

    def status():
        url = f"http://127.0.0.1:{PORT}/"
        return curl(ns, "-o", "/dev/null", "-w", "%{http_code}", url, check=False).stdout

    def limit(files):
        run("prlimit", "--pid", str(pid), f"--nofile={files}:")

    assert status() == "200"
    for _ in range(3):
        # One is left, for the client.
        time.sleep(0.3)
        limit(max(int(fd) for fd in os.listdir(f"/proc/{pid}/fd")) + 2)
        assert [status() for _ in range(6)] == ["503"] * 6
        limit(1024)
        assert [status() for _ in range(6)] == ["200"] * 6
    metrics = curl(ns, f"http://127.0.0.1:{ADMIN}/metrics").stdout
    assert "firstflight_gateway_backend_failures_total{" not in metrics, metrics


def test_connections_to_backends_leave_descriptors_for_clients(testbed, ns):
    """As many requests wait at the backend as the limit of open files has room for, and nobody gets a wrong answer."""
    root = testbed.root()
    backend = start_peer(testbed, ns, "backend", BACKEND)
    app = APP + 'connect_timeout = "1s"\n'

    class Short(Gateway):
        def __init__(self, ns, path):
            limited = ["prlimit", "--nofile=120:120", firstflight.BINARY, "gateway", path]
            Process.__init__(self, limited, ns=ns)

    server = testbed.start(Short(ns, write(root, GLOBAL, WEB, app)))
    held = start_peer(testbed, ns, "hold", PORT, 80, event="held")
    backend.wait_until(lambda: backend.text("out").count("/wait") >= 40, "40 requests")
    held.popen.stdin.write("\n")
    held.popen.stdin.flush()
    assert held.wait() == 0
    said = json.loads(held.text("out").splitlines()[-1])
    assert set(said) <= {"event", "503", "waits"}, said
    assert "cannot accept" not in server.text(), server.text()
    # Those that wait at the backend have no end of their own.
    backend.popen.kill()


def test_what_nobody_knows_of_a_backend_is_not_said(testbed, ns):
    root = testbed.root()
    passive = "[service.passive]\nfailures = 2\npause = \"3s\"\n"
    server = gateway(testbed, ns, root, GLOBAL, WEB, APP + passive)

    def admin(path):
        return curl(ns, f"http://127.0.0.1:{ADMIN}{path}").stdout

    def gauge():
        lines = admin("/metrics").splitlines()
        return [line.split()[-1] for line in lines if line.startswith("firstflight_gateway_backend_up{")]

    assert "app: 0 of 1 backends up, 1 unknown" in admin("/readyz")
    assert gauge() == ["NaN"]
    for _ in range(2):
        curl(ns, f"http://127.0.0.1:{PORT}/", check=False)
    assert "no backend is up" in admin("/readyz") and "app: 0 of 1 backends up\n" in admin("/readyz")
    assert gauge() == ["0"]
    start_peer(testbed, ns, "backend", BACKEND)
    server.wait_until(lambda: "1 unknown" in admin("/readyz"), "the end of the pause")
    assert curl(ns, f"http://127.0.0.1:{PORT}/").stdout == "nobody"
    assert "app: 1 of 1 backends up\n" in admin("/readyz")
    assert gauge() == ["1"]


def names_of(testbed, ns, hosts):
    """Programs in the namespace ask the name server at 127.0.0.1, and have this file of hosts."""
    directory = f"/etc/netns/{ns.name}"
    os.makedirs(directory)
    testbed.callback(shutil.rmtree, directory, ignore_errors=True)
    for name, text in (("resolv.conf", "nameserver 127.0.0.1\n"), ("hosts", hosts)):
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)


def status(ns, host, *options):
    shown = ("-o", "/dev/null", "-w", "%{http_code}", "-H", f"Host: {host}")
    return curl(ns, *shown, *options, f"http://127.0.0.1:{PORT}/", check=False).stdout


@pytest.mark.needs("nft")
@pytest.mark.parametrize("verdict", ["drop", "reject with tcp reset"], ids=["silent", "refused"])
def test_one_dead_address_does_not_take_a_backend_down(testbed, ns, verdict):
    root = testbed.root()
    names_of(testbed, ns, "127.0.0.2 app\n127.0.0.3 app\n")
    # The system says which one is the first.
    first = "import socket; print(socket.getaddrinfo('app', 80, type=socket.SOCK_STREAM)[0][4][0])"
    dead = run(sys.executable, "-c", first, ns=ns).stdout.strip()
    (alive,) = {"127.0.0.2", "127.0.0.3"} - {dead}
    testbed.start(Backend(ns, BACKEND, alive))
    ns.nft(f"type filter hook input priority 0; ip daddr {dead} tcp dport {BACKEND} counter {verdict}")
    health = '[service.health]\ninterval = "200ms"\ntimeout = "1s"\nfall = 1\nrise = 1\n'
    app = f'[[service]]\nname = "app"\nbackend = ["app:{BACKEND}"]\npool = 0\nconnect_timeout = "20s"\n'
    server = gateway(testbed, ns, root, GLOBAL, WEB, app)
    assert [status(ns, "a", "--max-time", "10") for _ in range(3)] == ["200"] * 3
    # Whatever was dropped belongs to the first request: the others began with what had answered.
    matched = ns.nft_list()
    assert [status(ns, "a") for _ in range(5)] == ["200"] * 5
    assert ns.nft_list() == matched
    write(root, GLOBAL, WEB, app, health)
    server.reload("was read again")
    ready = lambda: curl(ns, f"http://127.0.0.1:{ADMIN}/readyz", check=False).stdout
    server.wait_until(lambda: ready().strip().endswith("1 of 1 backends up"), "a backend that is up")
    assert "is down" not in server.text(), server.text()


def test_a_silent_resolver_takes_down_no_backend_that_is_known(testbed, ns):
    """900 requests for a name that has no answer, and others beside them."""
    root = testbed.root()
    names_of(testbed, ns, "127.0.0.1 inhosts\n")
    testbed.start(Backend(ns, BACKEND))
    services = (("lost", "lost.example"), ("known", "known.example"), ("inhosts", "inhosts"))
    app = "".join(
        f'[[service]]\nname = "{name}"\nbackend = ["{host}:{BACKEND}"]\npool = 0\nconnect_timeout = "2s"\n'
        for name, host in services
    )
    routes = "".join(f'[[listener.route]]\nhost = ["{name}"]\nservice = "{name}"\n' for name, _ in services)
    web = WEB.replace('service = "app"\n', "max_requests_per_client = 0\n")
    server = gateway(testbed, ns, root, GLOBAL, web, routes, app)

    labels = b"\5known\7example\0"
    with name_server.answering(ns, "127.0.0.1", {(labels, 1): socket.inet_aton("127.0.0.1")}):
        assert status(ns, "known") == "200"
    with contextlib.ExitStack() as stack:
        with ns.entered():
            silent = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            silent.bind(("127.0.0.1", 53))
        url = f"http://127.0.0.1:{PORT}/?[1-300]"
        many = ("curl", "-sS", "-Z", "--parallel-immediate", "--parallel-max", "300", "-H", "Host: lost", url)
        shown = ("-o", "/dev/null", "-w", "%{http_code}\\n", "--max-time", "30")
        asking = [testbed.start(Process([*many, *shown], ns=ns)) for _ in range(3)]
        most, got = 0, []
        while any(one.popen.poll() is None for one in asking):
            most = max(most, len(os.listdir(f"/proc/{server.popen.pid}/task")))
            got += [status(ns, "inhosts"), status(ns, "known")]
        # The addresses of the known one are older than they may be without a lookup, which has no answer.
        until = time.monotonic() + 7
        while time.monotonic() < until:
            got += [status(ns, "known")]
            time.sleep(0.2)
        lost = [code for one in asking for code in one.text("out").split()]
        assert set(got) == {"200"}, got
        assert len(lost) == 900 and set(lost) <= {"502", "504"}, lost
        assert most < 100, f"{most} threads"
