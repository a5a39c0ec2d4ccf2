"""Clients that send a request and do not read."""

import time

import pytest

from firstflight import PORT
from net import Pair, url
from process import run
from slow_readers import alive, resident, slow_readers

PAIR = Pair(77)
MORE = 600


def wait_until(condition, what):
    """Waits without a time limit, because each test has one."""
    while not condition():
        time.sleep(0.1)
    return what


@pytest.mark.needs("curl")
def test_slow_readers_are_let_go(testbed):
    """Clients that request a file larger than all buffers are disconnected after the timeout."""
    root = testbed.root(file=20_000_000)
    ns = testbed.namespace("slow")
    serve = testbed.serve(ns, PAIR, root, "--send-timeout", 3, "--connections-per-client", 0)
    held = slow_readers(ns, 50)
    assert alive(ns) == 50, "connections"
    wait_until(lambda: alive(ns) == 0, "the last one is gone")
    address = PAIR.peer[4]
    got = run("curl", "-gsS", "--fail", "-m", 60, "-o", "/dev/null", "-w", "%{size_download}",
              url(address, PORT, "/file"), ns=ns, timeout=70).stdout  # fmt: skip
    assert got == "20000000", "bytes of a client that reads"
    assert len(serve.requests(51)) == 51, "requests in the log"
    del held


@pytest.mark.needs("curl")
def test_one_client_cannot_take_all_memory(testbed):
    """At first only a small part of a response is buffered, and the connections of one client are limited."""
    root = testbed.root(file=200_000)
    ns = testbed.namespace("slow")
    ns.ip("addr", "add", "10.77.1.1/32", "dev", "lo")
    # The limit is exact for one engine. `Limits::share` says what several do together.
    serve = testbed.serve(ns, PAIR, root, "--send-timeout", 0, "--threads", 1)
    before = resident(serve.popen.pid)
    held = slow_readers(ns, MORE)
    wait_until(lambda: alive(ns) <= 512, "the others were reset")
    assert alive(ns) == 512, "connections"
    # For each, 64 KiB in the engine and the same in HTTP, but not the whole file.
    assert resident(serve.popen.pid) - before < MORE * 180_000, "memory"
    # A client with another address is served.
    got = run("curl", "-gsS", "--fail", "-m", 60, "--interface", "10.77.1.1", "-o", "/dev/null", "-w",
              "%{size_download}", url(PAIR.peer[4], PORT, "/file"), ns=ns, timeout=70).stdout  # fmt: skip
    assert got == "200000", "bytes of a neighbour"
    del held
    serve.terminate()
    (counters,) = serve.counters()
    assert counters["clients_limited"] >= MORE - 512, f"counted: {counters}"
