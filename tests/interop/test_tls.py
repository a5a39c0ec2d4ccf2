"""TLS of `get` and `serve`, with curl, OpenSSL and nginx."""

import os
import signal
import subprocess

import firstflight
import nginx
import pytest
from certificates import NAME, Certificates
from firstflight import Command, is_accepted, show
from net import Pair
from process import Process, run
from testbed import body, sha256
from wire import Wire
from wire import command as wire_command

PORT = 4433
WIRE = Pair(83)

pytestmark = pytest.mark.needs("openssl")


@pytest.fixture
def ns(testbed):
    return testbed.namespace("tls")


@pytest.fixture
def files(testbed):
    return Certificates(testbed.root())


def serve(testbed, ns, root, files, *options):
    listen = ("--root", root, "--listen", f"127.0.0.1:{PORT}", "--json-log")
    tls = ("--tls-cert", files.certificate, "--tls-key", files.key)
    return testbed.start(Command(ns, "serve", *listen, *tls, *options))


def get(testbed, ns, files, *options, expect=0):
    url = f"https://127.0.0.1:{PORT}/small"
    client = Process([firstflight.BINARY, "get", url, "--ca-file", files.ca, "--json", *options], ns=ns)
    with client:
        testbed.processes.append(client)
        assert client.wait(60) == expect, client.text()
        return client.records()


def check_visits(fetches, content):
    """The first visit has no ticket; each of the others gets one, and sends its request as early data in the SYN."""
    for number, record in enumerate(fetches):
        assert (record["status"], record["sha256"]) == (200, sha256(content)), show(record)
        expected = ("resumed", "accepted") if number else ("full", "none")
        assert (record["tls"], record["early_data"]) == expected, f"visit {number}: {show(record)}"
        assert is_accepted(record) == (number > 0), f"visit {number}: {show(record)}"


def test_visits_by_get_and_serve(testbed, ns, files):
    root = testbed.root(small=5000)
    server = serve(testbed, ns, root, files)
    check_visits(get(testbed, ns, files, "--repeat", 5), body(root, "small"))
    early = [request["early_bytes"] > 0 for request in server.requests(5)]
    assert early == [False, True, True, True, True], "early data at the server"


def test_visits_in_udp(testbed, ns, files):
    """The engine's TCP carries TLS as the kernel's does."""
    root = testbed.root(small=5000)
    tls = ("--tls-cert", files.certificate, "--tls-key", files.key)
    server = testbed.start(Command(ns, "serve", "--root", root, "--udp", f"127.0.0.1:{PORT}", "--json-log", *tls))
    fetches = get(testbed, ns, files, "--udp", "--repeat", 3)
    check_visits(fetches, body(root, "small"))
    assert [record["way"] for record in fetches] == ["udp"] * 3
    assert [request["early_bytes"] > 0 for request in server.requests(3)] == [False, True, True]


def test_an_upload_is_no_early_data(testbed, ns, files):
    root = testbed.root(small=5000)
    server = serve(testbed, ns, root, files)
    url = f"https://127.0.0.1:{PORT}/sink"
    command = [firstflight.BINARY, "get", url, "--ca-file", files.ca, "--json", "--repeat", "2"]
    run(*command, "--upload", os.path.join(root, "small"), ns=ns)
    assert [request["early_bytes"] for request in server.requests(2)] == [0, 0]
    run(*command, "--upload", os.path.join(root, "small"), "--replay-safe", ns=ns)
    first, second = server.requests(4)[2:]
    assert first["early_bytes"] == 0 and second["early_bytes"] > 0


@pytest.mark.needs("curl")
def test_curl(testbed, ns, files):
    root = testbed.root(small=5000, large=5_000_000)
    server = serve(testbed, ns, root, files)
    target = os.path.join(root, "out")
    for name in ("small", "large"):
        url = f"https://127.0.0.1:{PORT}/{name}"
        shown = ("-o", target, "-w", "%{ssl_verify_result} %{http_code}")
        done = run("curl", "-sS", "--cacert", files.ca, *shown, url, ns=ns)
        assert done.stdout == "0 200", done.stdout
        assert body(root, "out") == body(root, name), name
    # An upload, and two requests on one connection.
    sink = f"https://127.0.0.1:{PORT}/sink"
    done = run("curl", "-sS", "--cacert", files.ca, "-T", os.path.join(root, "large"), sink, ns=ns)
    assert sha256(body(root, "large")) in done.stdout
    twice = [f"https://127.0.0.1:{PORT}/small"] * 2
    shown = ("-o", target, "-o", target, "-w", "%{num_connects} ")
    done = run("curl", "-sS", "--cacert", files.ca, *shown, *twice, ns=ns)
    assert done.stdout.split() == ["1", "0"], "connections"
    # Without TLS 1.3 there is no connection.
    done = run("curl", "-sS", "--cacert", files.ca, "--tls-max", "1.2", twice[0], ns=ns, check=False)
    assert done.returncode == 35, done.stderr
    assert server.executed() == 5


def s_client(ns, files, *options, stdin):
    """Runs OpenSSL's client until the server closes, and returns what it says."""
    connect = ("-connect", f"127.0.0.1:{PORT}", "-servername", NAME, "-CAfile", files.ca, "-verify_return_error")
    command = ["openssl", "s_client", *connect, "-ign_eof", *options]
    full = ["ip", "netns", "exec", ns.name, *command]
    done = subprocess.run(full, input=stdin, capture_output=True, text=True, errors="replace", timeout=30)
    return done.stdout + done.stderr


def test_openssl_and_its_early_data(testbed, ns, files):
    root = testbed.root(small=100)
    server = serve(testbed, ns, root, files)
    session, early = files.path("session"), files.path("early")
    request = f"GET /small HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"
    with open(early, "w", newline="") as file:
        file.write(request)
    said = s_client(ns, files, "-sess_out", session, stdin=request)
    assert "200 OK" in said and "Verify return code: 0 (ok)" in said, said
    said = s_client(ns, files, "-sess_in", session, "-early_data", early, stdin="")
    assert "Early data was accepted" in said and "200 OK" in said, said
    # The session is used up: the early data of a copy is refused.
    said = s_client(ns, files, "-sess_in", session, "-early_data", early, stdin=request)
    assert "Early data was rejected" in said and "200 OK" in said, said
    early_bytes = [record["early_bytes"] for record in server.requests(3)]
    assert early_bytes == [0, len(request), 0], "early data at the server"
    # RFC 8446 §6.1: the server says that it closes.
    assert "closed" in said.lower(), said


def test_openssl_offers_another_group(testbed, ns, files):
    """OpenSSL sends a share of P-521, which the server does not have: HelloRetryRequest."""
    root = testbed.root(small=100)
    serve(testbed, ns, root, files)
    request = f"GET /small HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"
    said = s_client(ns, files, "-groups", "P-521:X25519", "-msg", stdin=request)
    assert said.count("ClientHello") >= 2 and "200 OK" in said, said


def test_a_new_certificate_is_served_and_a_broken_one_is_not(testbed, ns, files):
    root = testbed.root(small=100)
    server = serve(testbed, ns, root, files, "-v")
    request = f"GET /small HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"

    def subject():
        said = s_client(ns, files, stdin=request)
        return next(line for line in said.splitlines() if line.startswith("subject="))

    assert "server" in subject()
    renewed, key = files.certify("renewed")
    with open(files.certificate, "w") as file:
        file.write("nothing")
    # The files are looked at when a connection is accepted.
    server.wait_until(lambda: subject() and "stays as it is" in server.text("err"), "a complaint")
    assert "server" in subject()
    os.replace(key, files.key)
    os.replace(renewed, files.certificate)
    server.wait_until(lambda: subject() and "has a new certificate" in server.text("err"), "a new certificate")
    assert "renewed" in subject()


def test_a_signal_reads_certificates_at_once(testbed, ns, files):
    server = serve(testbed, ns, testbed.root(small=100), files, "-v")
    renewed, key = files.certify("renewed")
    with open(files.key, "w"):
        pass
    server.popen.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "has no private key in PEM" in server.text("out"), "a complaint")
    os.replace(key, files.key)
    os.replace(renewed, files.certificate)
    server.popen.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "has a new certificate" in server.text("err"), "a new certificate")
    assert server.text().count("has no private key in PEM") == 1


def test_who_is_not_trusted_gets_no_request(testbed, ns, files):
    root = testbed.root(small=100)
    server = serve(testbed, ns, root, files)
    other = Certificates(testbed.root())
    (record,) = get(testbed, ns, other, expect=1)
    assert "certificate is not valid" in record["error"], show(record)
    # A client without TLS.
    done = run("curl", "-sS", f"http://127.0.0.1:{PORT}/small", ns=ns, check=False)
    assert done.returncode != 0
    assert server.executed() == 0


@pytest.mark.needs("nginx")
def test_get_from_nginx(testbed, ns, files):
    root = testbed.root(small=5000)
    early = 'log_format early "early=$ssl_early_data $status"; access_log /dev/stdout early;'
    server = (
        f"listen 127.0.0.1:{PORT} ssl fastopen=256; ssl_protocols TLSv1.3; ssl_early_data on;\n"
        f"ssl_certificate {files.certificate}; ssl_certificate_key {files.key};"
    )
    server = nginx.start(testbed, ns, root, f"127.0.0.1:{PORT}", server, early)
    # The first visit gets two tickets. After early data and with `Connection: close`, nginx closes before the client's
    # Finished, so there is no further ticket.
    check_visits(get(testbed, ns, files, "--repeat", 3), body(root, "small"))
    server.wait_until(lambda: server.text("out").count("early=") == 3, "three lines in the log")
    # The variable is 1 only as long as the handshake is not complete. nginx reads it when it writes the log, and the
    # client's Finished may have come by then. That early data was accepted, the client knows from nginx's handshake.
    logged = server.text("out").split("\n")[:3]
    assert logged[0] == "early=- 200" and set(logged[1:]) <= {"early=1 200", "early=- 200"}, logged


@pytest.mark.needs(wire_command())
def test_round_trips_on_the_kernels_tcp(testbed, files):
    """No visit is faster than its round trips. `-s` shows what the test measured."""
    near, far = testbed.namespace("near"), testbed.namespace("far")
    testbed.start(Wire(near, far, WIRE, "--rtt", "100ms"))
    root = testbed.root(small=1000)
    certificate, key = files.certify("far", WIRE.peer[4])
    at = f"{WIRE.peer[4]}:{PORT}"
    tls = ("--tls-cert", certificate, "--tls-key", key, "--udp-port", 0)
    testbed.start(Command(far, "serve", "--root", root, "--listen", at, "--json-log", *tls))
    url = f"https://{at}/small"
    client = Process([firstflight.BINARY, "get", url, "--ca-file", files.ca, "--json", "--repeat", "4"], ns=near)
    with client:
        testbed.processes.append(client)
        assert client.wait(60) == 0, client.text()
        fetches = client.records()
    check_visits(fetches, body(root, "small"))
    print([(record["tls"], record["early_data"], record["first_byte_ms"]) for record in fetches])
    for record, trips in zip(fetches, (3, 1, 1, 1), strict=True):
        assert record["first_byte_ms"] >= 100 * trips, show(record)
    # A cookie alone.
    fresh = Process([firstflight.BINARY, "get", url, "--ca-file", files.ca, "--json"], ns=near)
    with fresh:
        testbed.processes.append(fresh)
        assert fresh.wait(60) == 0, fresh.text()
        (record,) = fresh.records()
    assert is_accepted(record) and record["tls"] == "full", show(record)
    print(record["first_byte_ms"])
    assert record["first_byte_ms"] >= 200, show(record)
