"""A server with clients that half-close, stay open, send slowly, or connect all at once."""

import json
import os
import signal
import socket
import time

import pytest

from firstflight import PORT, TUN
from kernel import client_socket, fetch
from net import Pair
from process import run
from slow_readers import alive
from testbed import body

PAIR = Pair(78)
#: Number of clients that are connected, and of clients that connect while the server is stopped. Together they send
#: more packets than the kernel's default queue of 500 holds.
OPEN, NEW = 200, 600


def read_all(sock):
    with sock.makefile("rb") as file:
        return file.read()


def half_closed(ns, family, request):
    """The complete answer to a client that closes its sending direction after its request, as `nc -N` does."""
    with client_socket(ns, family) as sock:
        sock.connect((PAIR.peer[family], PORT))
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def test_a_client_that_half_closes_gets_the_response(testbed, family):
    root = testbed.root(small=1000, large=5_000_000)
    ns = testbed.namespace("half")
    serve = testbed.serve(ns, PAIR, root)
    for name in ("small", "large"):
        for head in (f"GET /{name} HTTP/1.0\r\n\r\n", f"GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n"):
            answer = half_closed(ns, family, head.encode())
            assert answer.startswith(b"HTTP/1."), f"began with {answer[:40]}"
            assert answer.partition(b"\r\n\r\n")[2] == body(root, name), f"body after {head!r}"
    serve.terminate()
    (counters,) = serve.counters()
    assert counters["connections_cut_off"] == 0, "connections cut off"


def test_clients_that_half_close_and_do_not_read_are_let_go(testbed):
    root = testbed.root(file=20_000_000)
    ns = testbed.namespace("half")
    testbed.serve(ns, PAIR, root, "--send-timeout", 3)
    held = []
    for _ in range(20):
        sock = client_socket(ns, 4)
        sock.connect((PAIR.peer[4], PORT))
        sock.sendall(b"GET /file HTTP/1.0\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        held.append(sock)
    # The loop has no time limit, because each test has one.
    while alive(ns) > 0:
        time.sleep(0.1)
    for sock in held:
        sock.close()


def test_idle_connections_end_at_once(testbed):
    """Clients that keep their side open do not delay the end. Nothing is cut off before the grace period is over."""
    root = testbed.root(file=1000)
    ns = testbed.namespace("idle")
    # One thread takes packets in their order, so the server has both connections when it answers.
    serve = testbed.serve(ns, PAIR, root, "--threads", 1)
    silent, idle = client_socket(ns, 4), client_socket(ns, 4)
    silent.connect((PAIR.peer[4], PORT))
    idle.connect((PAIR.peer[4], PORT))
    idle.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = b""
    while not answer.endswith(body(root, "file")):
        answer += idle.recv(65536)
    serve.terminate()
    (counters,) = serve.counters()
    assert counters["connections_cut_off"] == 0, "connections cut off"
    assert (idle.recv(1), silent.recv(1)) == (b"", b""), "what clients read then"
    silent.close()
    idle.close()


def test_a_slow_body_is_given_up(testbed):
    root = testbed.root(file=1000)
    ns = testbed.namespace("slow")
    serve = testbed.serve(ns, PAIR, root, "--body-timeout", 1)
    with client_socket(ns, 4, timeout=60) as sock:
        sock.connect((PAIR.peer[4], PORT))
        sock.sendall(b"PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nslow")
        answer = read_all(sock)
    assert answer.startswith(b"HTTP/1.1 408 "), f"began with {answer[:40]}"
    (request,) = serve.requests(1)
    assert request["status"] == 408, "status in the log"


def test_a_server_that_stood_still_takes_what_came_meanwhile(testbed):
    """Suspended machines, frozen containers: timers that ran out meanwhile say nothing about the client."""
    root = testbed.root(file=1000)
    ns = testbed.namespace("still")
    serve = testbed.serve(ns, PAIR, root, "--body-timeout", 1)
    with client_socket(ns, 4, timeout=60) as sock:
        sock.connect((PAIR.peer[4], PORT))
        sock.sendall(b"PUT /sink HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 20000\r\n\r\nbegin")
        time.sleep(0.3)
        os.kill(serve.pid, signal.SIGSTOP)
        try:
            sock.sendall(bytes(20000 - len(b"begin")))
            # The kernel of the client gives nothing up within this time.
            time.sleep(4)
        finally:
            os.kill(serve.pid, signal.SIGCONT)
        answer = read_all(sock)
    assert answer.startswith(b"HTTP/1.1 200 "), f"began with {answer[:40]}"


def test_a_server_that_polls_busily_serves(testbed):
    root = testbed.root(file=1000)
    ns = testbed.namespace("busy")
    testbed.serve(ns, PAIR, root, "--busy-poll", "1ms", "--threads", 2)
    for _ in range(5):
        reply = fetch(ns, "sendto", PAIR.peer[4], PORT, "/file")
        assert (reply.status, reply.body) == (200, body(root, "file")), "answer"


def test_a_server_whose_device_is_gone_ends(testbed):
    """A deaf process with the exit code 0 would never be started again."""
    root = testbed.root(file=1000)
    ns = testbed.namespace("gone")
    serve = testbed.serve(ns, PAIR, root)
    ns.ip("link", "delete", TUN)
    assert serve.wait(60) == 1, "exit status"


def device(ns):
    """The kernel's information about the server's device: the length of its queue, and the packets dropped there."""
    (link,) = json.loads(ns.ip("-j", "-s", "link", "show", TUN))
    disciplines = json.loads(run("tc", "-j", "-s", "qdisc", "show", "dev", TUN, ns=ns).stdout)
    return link["txqlen"], link["stats64"]["tx"]["dropped"] + sum(one.get("drops", 0) for one in disciplines)


@pytest.mark.needs("tc")
def test_a_burst_waits_in_the_queue(testbed):
    """While the server is stopped, the kernel queues a burst of packets from its clients."""
    root = testbed.root(file=1000)
    ns = testbed.namespace("burst")
    serve = testbed.serve(ns, PAIR, root, "--connections-per-client", 0)
    assert device(ns) == (4 * 4096, 0), "length of the queue, packets dropped"
    request = b"GET /file HTTP/1.0\r\nX: " + b"x" * 8000 + b"\r\n\r\n"
    open_ones = [client_socket(ns, 4, timeout=100) for _ in range(OPEN)]
    for sock in open_ones:
        sock.connect((PAIR.peer[4], PORT))
    serve.popen.send_signal(signal.SIGSTOP)
    try:
        new_ones = [client_socket(ns, 4, timeout=100) for _ in range(NEW)]
        for sock in new_ones:
            sock.setblocking(False)
            sock.connect_ex((PAIR.peer[4], PORT))
        for sock in open_ones:
            sock.sendall(request)
    finally:
        serve.popen.send_signal(signal.SIGCONT)
    for sock in new_ones:
        sock.setblocking(True)
        sock.sendall(request)
    for sock in open_ones + new_ones:
        assert read_all(sock).endswith(body(root, "file")), "an answer is not whole"
        sock.close()
    assert device(ns) == (4 * 4096, 0), "length of the queue, packets dropped"
