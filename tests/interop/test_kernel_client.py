"""Kernel clients (Python sockets, curl) and `serve`."""

import os

import kernel
from case import FAMILIES, body, case, check, equal, sha256
from firstflight import PORT, TUN, early_bytes, is_accepted, show
from net import Pair, url
from process import run

KEY = "00112233-44556677-8899aabb-ccddeeff"
NEW_KEY = "11111111-22222222-33333333-44444444"
PAIR = Pair(71)


def logged(serve, number, early, reason=None):
    """Checks the log record of the request with this number (counted from 1)."""
    record = serve.requests(number)[-1]
    if early:
        check(is_accepted(record) and early_bytes(record) > 0, f"log: {show(record)}")
    else:
        check(not is_accepted(record) and early_bytes(record) == 0, f"log: {show(record)}")
        if reason:
            equal(record["reason"], reason, "reason in the log")


#= rfc7413 9-a test
@case(family=FAMILIES, mode=kernel.MODES)
def kernel_client(t, family, mode):
    """The first visit is granted a cookie. The request of the second visit is in the SYN."""
    root = t.root(small=5000)
    ns = t.namespace("serve")
    serve = t.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    for visit, early in enumerate((False, True, True), 1):
        with kernel.Counted(ns) as grew:
            reply = kernel.fetch(ns, mode, address, PORT, "/small")
        equal((reply.status, reply.body), (200, body(root, "small")), "response")
        equal(reply.info.syn_data, early, f"SYN data acknowledged at visit {visit}")
        equal((grew["Active"], grew["ActiveFail"]), (early, 0), "kernel's counters")
        check(kernel.cached_cookie(ns, address), "no cookie cached")
        logged(serve, visit, early, "no-credential")
    kernel.flush_cookies(ns)
    reply = kernel.fetch(ns, mode, address, PORT, "/small")
    equal((reply.body, reply.info.syn_data), (body(root, "small"), False), "after the flush")


@case(family=FAMILIES, needs=("curl",))
def curl_client(t, family):
    root = t.root(small=5000)
    ns = t.namespace("serve")
    serve = t.serve(ns, PAIR, root)
    file = os.path.join(root, "got")
    for visit, early in enumerate((False, True), 1):
        with kernel.Counted(ns) as grew:
            run(
                "curl", "-gsS", "--fail", "-m", 20, "--tcp-fastopen", "-o", file,
                url(PAIR.peer[family], PORT, "/small"), ns=ns,
            )  # fmt: skip
        equal(body(root, "got"), body(root, "small"), "body")
        equal((grew["Active"], grew["ActiveFail"]), (early, 0), "kernel's counters")
        logged(serve, visit, early, "no-credential")


@case(family=FAMILIES, mode=kernel.MODES)
def serve_restarted_with_another_key(t, family, mode):
    """The old cookie leads to an ordinary handshake, the body is complete, and the new cookie works."""
    root = t.root(small=5000)
    ns = t.namespace("serve")
    address = PAIR.peer[family]
    with t.serve(ns, PAIR, root, "--key", KEY):
        for early in (False, True):
            reply = kernel.fetch(ns, mode, address, PORT, "/small")
            equal(reply.info.syn_data, early, "with the first key")
    old = kernel.cached_cookie(ns, address)
    serve = t.serve(ns, PAIR, root, "--key", NEW_KEY)
    equal(kernel.cached_cookie(ns, address), old, "cookie kept by the client")
    with kernel.Counted(ns) as grew:
        reply = kernel.fetch(ns, mode, address, PORT, "/small")
    equal((reply.body, reply.info.syn_data), (body(root, "small"), False), "with the old cookie")
    equal((grew["Active"], grew["ActiveFail"]), (0, 1), "kernel's counters")
    logged(serve, 1, False, "stale-or-wrong-credential")
    check(kernel.cached_cookie(ns, address) != old, "no fresh cookie")
    reply = kernel.fetch(ns, mode, address, PORT, "/small")
    equal((reply.body, reply.info.syn_data), (body(root, "small"), True), "with the fresh cookie")
    logged(serve, 2, True)


@case(family=FAMILIES)
def serve_restarted_with_the_old_key_as_backup(t, family):
    """The old cookie is still accepted, and replaced by one of the new key."""
    root = t.root(small=5000)
    ns = t.namespace("serve")
    address = PAIR.peer[family]
    with t.serve(ns, PAIR, root, "--key", KEY):
        kernel.fetch(ns, "sendto", address, PORT, "/small")
    old = kernel.cached_cookie(ns, address)
    serve = t.serve(ns, PAIR, root, "--key", NEW_KEY, "--backup-key", KEY)
    for visit in (1, 2):
        reply = kernel.fetch(ns, "sendto", address, PORT, "/small")
        equal((reply.body, reply.info.syn_data), (body(root, "small"), True), f"visit {visit}")
        logged(serve, visit, True)
        check(kernel.cached_cookie(ns, address) != old, "no fresh cookie")


@case()
def serve_stops_cleanly(t):
    """SIGTERM: the exit status is 0, and the device and the connections are gone."""
    root = t.root(small=5000)
    ns = t.namespace("serve")
    serve = t.serve(ns, PAIR, root)
    kernel.fetch(ns, "sendto", PAIR.peer[4], PORT, "/small")
    serve.requests(1)
    check(ns.has(TUN), "no device while serving")
    equal(serve.terminate(), 0, "exit status")
    check(not ns.has(TUN), "the device is left")
    (counters,) = serve.counters()
    equal((counters["passive_opens"], counters["cookies_granted"]), (1, 1), "counters")
    equal(counters["outcomes"], {"no-credential": 1}, "outcomes")
    check("panicked" not in serve.text(), "panic")


@case()
def serve_stops_though_a_client_reads_nothing(t):
    """SIGTERM while a client that no longer reads gets a file: the client does not delay the server until it is
    killed."""
    root = t.root(large=20_000_000)
    ns = t.namespace("serve")
    serve = t.serve(ns, PAIR, root)
    address = PAIR.peer[4]
    with kernel.client_socket(ns, 4) as sock:
        kernel.send_first(sock, "sendto", address, PORT, kernel.request(address, "/large"))
        check(sock.recv(1), "nothing of the file came")
        equal(serve.terminate(), 0, "exit status")
    check(not ns.has(TUN), "the device is left")
    check(serve.counters(), "no counters")


@case(family=FAMILIES)
def missing_file(t, family):
    """404, also for a path that leads out of the root."""
    root = t.root(small=5000)
    ns = t.namespace("serve")
    t.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    for path in ("/none", "/../../../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd"):
        reply = kernel.fetch(ns, "sendto", address, PORT, path)
        check(400 <= reply.status < 500, f"{path}: {reply.status}")
        check(b"root:" not in reply.body, f"{path} left the root")
    equal(sha256(kernel.fetch(ns, "sendto", address, PORT, "/small").body), sha256(body(root, "small")), "body")
