"""Hybrid key exchange (X25519MLKEM768) with Go's crypto/tls at the other end, in both directions, and session tickets."""

import json
import os
import re

import pytest
from firstflight import Command
from process import Process, run
from test_tls import Certificates
from wire import command as lab

PORT = 4433
AT = f"127.0.0.1:{PORT}"
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "go_tls")
#: The first version whose crypto/tls says which group was used, and whether there was a HelloRetryRequest.
SINCE = (1, 26)
HYBRID, X25519 = "X25519MLKEM768", "X25519"

# Debian's packages put Go elsewhere than its own archive does.
os.environ["PATH"] += ":/usr/local/go/bin"
pytestmark = pytest.mark.needs("openssl", "go", "firstflight-lab")


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """The program at Go's end. It needs the standard library only, so nothing is downloaded."""
    local = ("env", "GOTOOLCHAIN=local", "GOPROXY=off", "GOFLAGS=")
    version = run(*local, "go", "env", "GOVERSION").stdout.strip()
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < SINCE:
        pytest.skip(f"needs Go {SINCE[0]}.{SINCE[1]}, and {version or 'no version'} is installed")
    program = str(tmp_path_factory.mktemp("go") / "go-tls")
    run(*local, "go", "build", "-C", SOURCE, "-o", program, ".", timeout=300)
    return program


@pytest.fixture
def ns(testbed):
    return testbed.namespace("go")


@pytest.fixture
def files(testbed):
    return Certificates(testbed.root())


def visits_by_go(testbed, ns, files, peer, *options):
    """What Go's client says about visits to our acceptor."""
    tls = ("--tls-cert", files.certificate, "--tls-key", files.key)
    root = testbed.root(small=5000)
    server = testbed.start(Command(ns, "serve", "--root", root, "--listen", AT, "--json-log", *tls))
    client = Process([peer, "-at", AT, "-ca", files.ca, *options], ns=ns)
    with client:
        testbed.processes.append(client)
        assert client.wait(60) == 0, client.text()
        visits = client.records()
    for visit in visits:
        assert visit.get("status") == "HTTP/1.1 200 OK" and "error" not in visit, visit
        assert visit["protocol"] == "http/1.1", visit
    assert server.executed() == len(visits)
    return visits


def visits_to_go(testbed, ns, files, peer, groups, *options):
    """What our connector says about visits to Go's server, and what the server says."""
    pair = ("-cert", files.certificate, "-key", files.key)
    server = testbed.start(Process([peer, "-role", "server", "-at", AT, "-groups", groups, *pair], ns=ns))
    server.wait_until(lambda: "listening on" in server.text(), "`listening on`")
    done = run(lab(), "tls-end", "foreign", "--at", AT, "--ca", files.ca, *options, ns=ns)
    visits = [json.loads(line) for line in done.stdout.splitlines()]
    return visits, server.wait_records(len(visits), "handshakes of Go's server", lambda _: True)


def columns(visits, *names):
    return [tuple(visit[name] for name in names) for visit in visits]


def test_gos_client_with_a_hybrid_and_tickets(testbed, ns, files, peer):
    visits = visits_by_go(testbed, ns, files, peer, "-visits", 3)
    expected = [(HYBRID, False, False), (HYBRID, True, False), (HYBRID, True, False)]
    assert columns(visits, "curve", "resumed", "retried") == expected


def test_gos_client_with_nothing_but_a_hybrid(testbed, ns, files, peer):
    visits = visits_by_go(testbed, ns, files, peer, "-visits", 2, "-groups", "hybrid")
    assert columns(visits, "curve", "resumed") == [(HYBRID, False), (HYBRID, True)]


def test_gos_client_without_a_hybrid(testbed, ns, files, peer):
    """The acceptor prefers the hybrid, and takes what there is without another round trip."""
    visits = visits_by_go(testbed, ns, files, peer, "-visits", 2, "-groups", "x25519,p256")
    expected = [(X25519, False, False), (X25519, True, False)]
    assert columns(visits, "curve", "resumed", "retried") == expected


def test_gos_server_with_a_hybrid_and_tickets(testbed, ns, files, peer):
    ours, theirs = visits_to_go(testbed, ns, files, peer, "hybrid,x25519", "--visits", 3)
    expected = [(True, False, False), (True, True, False), (True, True, False)]
    assert columns(ours, "hybrid", "resumed", "retried") == expected, ours
    assert columns(theirs, "curve", "resumed") == [(HYBRID, False), (HYBRID, True), (HYBRID, True)], theirs
    # Go's tickets allow no early data, so the request follows the Finished.
    assert columns(ours, "status", "early", "protocol") == [("HTTP/1.1 200 OK", "none", "http/1.1")] * 3


def test_gos_server_without_a_hybrid(testbed, ns, files, peer):
    """A share of X25519 stands beside the hybrid's, so no HelloRetryRequest is needed."""
    ours, theirs = visits_to_go(testbed, ns, files, peer, "x25519,p256", "--visits", 2)
    assert columns(ours, "hybrid", "resumed", "retried") == [(False, False, False), (False, True, False)], ours
    assert columns(theirs, "curve", "retried") == [(X25519, False)] * 2, theirs


def test_gos_server_asks_for_another_hello(testbed, ns, files, peer):
    """It has P-256 alone: HelloRetryRequest, and the second ClientHello has its share."""
    ours, theirs = visits_to_go(testbed, ns, files, peer, "p256", "--hybrid", "never")
    assert columns(ours, "hybrid", "retried") == [(False, True)], ours
    assert columns(theirs, "curve", "retried") == [("CurveP256", True)], theirs


def test_who_requires_a_hybrid_gets_one(testbed, ns, files, peer):
    ours, theirs = visits_to_go(testbed, ns, files, peer, "hybrid,x25519", "--hybrid", "require", "--visits", 2)
    assert columns(ours, "hybrid", "resumed") == [(True, False), (True, True)], ours
    assert columns(theirs, "curve") == [(HYBRID,)] * 2, theirs


def test_without_a_hybrid_who_requires_one_fails(testbed, ns, files, peer):
    ours, theirs = visits_to_go(testbed, ns, files, peer, "x25519,p256", "--hybrid", "require")
    assert "error" in ours[0] and "error" in theirs[0], (ours, theirs)

