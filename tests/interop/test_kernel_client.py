"""Kernel clients (Python sockets, curl) and `serve`."""

import os

import pytest

import kernel
from firstflight import PORT, TUN, early_bytes, is_accepted, show
from net import Pair, url
from process import run
from testbed import body, sha256

KEY = "00112233-44556677-8899aabb-ccddeeff"
NEW_KEY = "11111111-22222222-33333333-44444444"
PAIR = Pair(71)


def logged(serve, number, early, reason=None):
    """Checks the log record of the request with this number (counted from 1)."""
    record = serve.requests(number)[-1]
    if early:
        assert is_accepted(record) and early_bytes(record) > 0, f"log: {show(record)}"
    else:
        assert not is_accepted(record) and early_bytes(record) == 0, f"log: {show(record)}"
        if reason:
            assert record["reason"] == reason, "reason in the log"


#= rfc7413 9-a test
@pytest.mark.parametrize("mode", kernel.MODES)
def test_kernel_client(testbed, family, mode):
    """The first visit is granted a cookie. The request of the second visit is in the SYN."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    for visit, early in enumerate((False, True, True), 1):
        with kernel.Counted(ns) as grew:
            reply = kernel.fetch(ns, mode, address, PORT, "/small")
        assert (reply.status, reply.body) == (200, body(root, "small")), "response"
        assert reply.info.syn_data == early, f"SYN data acknowledged at visit {visit}"
        assert (grew["Active"], grew["ActiveFail"]) == (early, 0), "kernel's counters"
        assert kernel.cached_cookie(ns, address), "no cookie cached"
        logged(serve, visit, early, "no-credential")
    kernel.flush_cookies(ns)
    reply = kernel.fetch(ns, mode, address, PORT, "/small")
    assert (reply.body, reply.info.syn_data) == (body(root, "small"), False), "after the flush"


@pytest.mark.needs("curl")
def test_curl_client(testbed, family):
    root = testbed.root(small=5000)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root)
    file = os.path.join(root, "got")
    for visit, early in enumerate((False, True), 1):
        with kernel.Counted(ns) as grew:
            run(
                "curl", "-gsS", "--fail", "-m", 20, "--tcp-fastopen", "-o", file,
                url(PAIR.peer[family], PORT, "/small"), ns=ns,
            )  # fmt: skip
        assert body(root, "got") == body(root, "small"), "body"
        assert (grew["Active"], grew["ActiveFail"]) == (early, 0), "kernel's counters"
        logged(serve, visit, early, "no-credential")


@pytest.mark.parametrize("mode", kernel.MODES)
def test_serve_restarted_with_another_key(testbed, family, mode):
    """The old cookie leads to an ordinary handshake, the body is complete, and the new cookie works."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("serve")
    address = PAIR.peer[family]
    with testbed.serve(ns, PAIR, root, "--key", KEY):
        for early in (False, True):
            reply = kernel.fetch(ns, mode, address, PORT, "/small")
            assert reply.info.syn_data == early, "with the first key"
    old = kernel.cached_cookie(ns, address)
    serve = testbed.serve(ns, PAIR, root, "--key", NEW_KEY)
    assert kernel.cached_cookie(ns, address) == old, "cookie kept by the client"
    with kernel.Counted(ns) as grew:
        reply = kernel.fetch(ns, mode, address, PORT, "/small")
    assert (reply.body, reply.info.syn_data) == (body(root, "small"), False), "with the old cookie"
    assert (grew["Active"], grew["ActiveFail"]) == (0, 1), "kernel's counters"
    logged(serve, 1, False, "stale-or-wrong-credential")
    assert kernel.cached_cookie(ns, address) != old, "no fresh cookie"
    reply = kernel.fetch(ns, mode, address, PORT, "/small")
    assert (reply.body, reply.info.syn_data) == (body(root, "small"), True), "with the fresh cookie"
    logged(serve, 2, True)


def test_serve_restarted_with_the_old_key_as_backup(testbed, family):
    """The old cookie is still accepted, and replaced by one of the new key."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("serve")
    address = PAIR.peer[family]
    with testbed.serve(ns, PAIR, root, "--key", KEY):
        kernel.fetch(ns, "sendto", address, PORT, "/small")
    old = kernel.cached_cookie(ns, address)
    serve = testbed.serve(ns, PAIR, root, "--key", NEW_KEY, "--backup-key", KEY)
    for visit in (1, 2):
        reply = kernel.fetch(ns, "sendto", address, PORT, "/small")
        assert (reply.body, reply.info.syn_data) == (body(root, "small"), True), f"visit {visit}"
        logged(serve, visit, True)
        assert kernel.cached_cookie(ns, address) != old, "no fresh cookie"


def test_serve_stops_cleanly(testbed):
    """SIGTERM: the exit status is 0, and the device and the connections are gone."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root)
    kernel.fetch(ns, "sendto", PAIR.peer[4], PORT, "/small")
    serve.requests(1)
    assert ns.has(TUN), "no device while serving"
    assert serve.terminate() == 0, "exit status"
    assert not ns.has(TUN), "the device is left"
    (counters,) = serve.counters()
    assert (counters["passive_opens"], counters["cookies_granted"]) == (1, 1), "counters"
    assert counters["outcomes"] == {"no-credential": 1}, "outcomes"
    assert "panicked" not in serve.text(), "panic"


def test_serve_stops_though_a_client_reads_nothing(testbed):
    """SIGTERM while a client that no longer reads gets a file: the client does not delay the server until it is
    killed."""
    root = testbed.root(large=20_000_000)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root)
    address = PAIR.peer[4]
    with kernel.client_socket(ns, 4) as sock:
        kernel.send_first(sock, "sendto", address, PORT, kernel.request(address, "/large"))
        assert sock.recv(1), "nothing of the file came"
        assert serve.terminate() == 0, "exit status"
    assert not ns.has(TUN), "the device is left"
    assert serve.counters(), "no counters"


@pytest.mark.parametrize(
    "path",
    ("/none", "/../../../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd"),
    ids=("missing", "outside", "outside-encoded"),
)
def test_missing_file(testbed, family, path):
    """404, also for a path that leads out of the root."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("serve")
    testbed.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    reply = kernel.fetch(ns, "sendto", address, PORT, path)
    assert 400 <= reply.status < 500, "status"
    assert b"root:" not in reply.body, "the path left the root"
    assert sha256(kernel.fetch(ns, "sendto", address, PORT, "/small").body) == sha256(body(root, "small")), "body"
