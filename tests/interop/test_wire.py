"""The emulated wire between two namespaces: packets are delayed enough and counted, and nothing is left behind."""

import socket
import time

import pytest

from kernel import fetch
from net import AF, Namespace, Pair
from process import run
from testbed import body, sha256
from wire import DEVICE, Wire, command

PAIR = Pair(79)
NEEDS = (command(),)
PORT = 9000


def wired(testbed, *options):
    left, right = testbed.namespace("left"), testbed.namespace("right")
    return left, right, testbed.start(Wire(left, right, PAIR, *options))


def sockets(testbed, left, right, family):
    """A connected pair of UDP sockets, one at each end."""
    made = []
    for ns, address in ((left, PAIR.host[family]), (right, PAIR.peer[family])):
        with ns.entered():
            sock = testbed.enter_context(socket.socket(AF[family], socket.SOCK_DGRAM))
        sock.bind((address, PORT))
        sock.settimeout(10)
        made.append(sock)
    made[0].connect((PAIR.peer[family], PORT))
    made[1].connect((PAIR.host[family], PORT))
    return made


def received(sock):
    """The datagrams that have arrived, and those that arrive within a while. On a busy machine the wire may wait for its turn."""
    sock.settimeout(10)
    found = []
    try:
        while True:
            found.append(sock.recv(2048))
            sock.settimeout(2)
    except TimeoutError:
        return found


@pytest.mark.needs("firstflight-lab")
def test_wire_delays_and_loses_nothing(testbed, family):
    left, right, wire = wired(testbed, "--rtt", "30ms")
    near, far = sockets(testbed, left, right, family)
    for number in range(20):
        began = time.monotonic()
        near.send(number.to_bytes(4))
        far.send(far.recv(100))
        assert near.recv(100) == number.to_bytes(4), "answer"
        assert time.monotonic() - began >= 0.030, "an answer came before the round-trip time was over"
    figures = wire.figures()
    for way in ("a_to_b", "b_to_a"):
        direction = figures[way]
        assert direction["sent"] >= 20, f"{way}: {direction}"
        assert direction["delivered"] + direction["in_flight"] == direction["sent"], f"{way}: delivered"
        assert sum(direction["dropped"].values()) == 0, f"{way}: dropped"


@pytest.mark.needs("firstflight-lab")
def test_wire_loses_doubles_and_counts(testbed, family):
    left, right, wire = wired(testbed, "--loss", "50%", "--dup", "0.25", "--seed", 3)
    near, far = sockets(testbed, left, right, family)
    for number in range(200):
        near.send(number.to_bytes(4))
    found = received(far)
    direction = wire.figures()["a_to_b"]
    # Our datagrams, and a few of the kernel's own.
    others = direction["sent"] - 200
    assert 0 <= others <= 20, f"packets: {direction}"
    assert 0 <= direction["delivered"] - len(found) <= 2 * others, f"{len(found)} of {direction}"
    assert 60 < direction["dropped"]["lost"] < 140, f"lost: {direction}"
    assert len(found) > len(set(found)), "none came twice"
    accounted = direction["sent"] + direction["duplicated"] - direction["dropped"]["lost"]
    assert direction["delivered"] == accounted, f"delivered: {direction}"


@pytest.mark.needs("firstflight-lab")
def test_wire_carries_a_response_through_its_bottleneck(testbed, family):
    root = testbed.root(large=600_000)
    left, right, wire = wired(testbed, "--rtt", "20ms", "--rate-down", "50M", "--queue", "30000")
    testbed.kernel_server(right, family, 80, root)
    began = time.monotonic()
    reply = fetch(left, "sendto", PAIR.peer[family], 80, "/large")
    assert (reply.status, sha256(reply.body)) == (200, sha256(body(root, "large"))), "response"
    # A handshake, and 600 kB at 50 Mbit/s.
    assert time.monotonic() - began >= 0.020 + 600_000 * 8 / 50e6, "faster than its rate"
    direction = wire.figures()["b_to_a"]
    assert direction["dropped"]["queue"] > 0, f"the queue never overflowed: {direction}"


@pytest.mark.needs("firstflight-lab")
def test_wire_ends_with_its_namespaces_and_leaves_nothing(testbed):
    left, right, wire = wired(testbed)
    Namespace.__exit__(right)
    assert wire.wait(10) == 0, "exit status"
    assert right.name in wire.text("err"), f"said: {wire.text('err')!r}"
    assert not left.has(DEVICE), "the device of the other end is still there"
    right = testbed.namespace("again")
    wire = testbed.start(Wire(left, right, PAIR))
    assert left.has(DEVICE) and right.has(DEVICE), "devices"
    assert wire.terminate() == 0, "exit status on SIGTERM"
    assert not left.has(DEVICE) and not right.has(DEVICE), "a device is left"


@pytest.mark.needs("firstflight-lab")
def test_wire_says_what_is_wrong_in_a_line(testbed):
    left = testbed.namespace("left")
    here = f"{left.name}:{DEVICE}"

    def said(*arguments):
        done = run(command(), "wire", *arguments, check=False)
        assert done.returncode == 2, f"exit status of {arguments}"
        return done.stderr.splitlines()

    (line,) = said("--a", here, "--b", "no-such-namespace:w")
    assert "no-such-namespace" in line and "ip netns list" in line, line
    (line,) = said("--a", here, "--b", f"{left.name}:lo")
    assert "exists" in line, line
    (line,) = said("--a", here, "--b", f"{left.name}:w", "--mtu", 20)
    assert "68" in line, line
    assert "1%" in said("--a", here, "--b", here, "--loss", "7")[0], "advice for a share"
    assert not left.has(DEVICE), "a device is left"
