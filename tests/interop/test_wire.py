"""The emulated wire between two namespaces: packets are delayed enough and counted, and nothing is left behind."""

import socket
import time

from case import FAMILIES, body, case, check, equal, sha256
from kernel import fetch
from net import AF, Namespace, Pair
from process import run
from wire import DEVICE, Wire, command

PAIR = Pair(79)
NEEDS = (command(),)
PORT = 9000


def wired(t, *options):
    left, right = t.namespace("left"), t.namespace("right")
    return left, right, t.start(Wire(left, right, PAIR, *options))


def sockets(t, left, right, family):
    """A connected pair of UDP sockets, one at each end."""
    made = []
    for ns, address in ((left, PAIR.host[family]), (right, PAIR.peer[family])):
        with ns.entered():
            sock = t.enter_context(socket.socket(AF[family], socket.SOCK_DGRAM))
        sock.bind((address, PORT))
        sock.settimeout(10)
        made.append(sock)
    made[0].connect((PAIR.peer[family], PORT))
    made[1].connect((PAIR.host[family], PORT))
    return made


def received(sock):
    """The datagrams that have arrived, and those that arrive within a while."""
    sock.settimeout(0.5)
    found = []
    try:
        while True:
            found.append(sock.recv(2048))
    except TimeoutError:
        return found


@case(family=FAMILIES, needs=NEEDS)
def wire_delays_and_loses_nothing(t, family):
    left, right, wire = wired(t, "--rtt", "30ms")
    near, far = sockets(t, left, right, family)
    for number in range(20):
        began = time.monotonic()
        near.send(number.to_bytes(4))
        far.send(far.recv(100))
        equal(near.recv(100), number.to_bytes(4), "answer")
        check(time.monotonic() - began >= 0.030, "an answer came before the round-trip time was over")
    figures = wire.figures()
    for way in ("a_to_b", "b_to_a"):
        direction = figures[way]
        check(direction["sent"] >= 20, f"{way}: {direction}")
        equal(direction["delivered"] + direction["in_flight"], direction["sent"], f"{way}: delivered")
        equal(sum(direction["dropped"].values()), 0, f"{way}: dropped")


@case(family=FAMILIES, needs=NEEDS)
def wire_loses_doubles_and_counts(t, family):
    left, right, wire = wired(t, "--loss", "50%", "--dup", "0.25", "--seed", 3)
    near, far = sockets(t, left, right, family)
    for number in range(200):
        near.send(number.to_bytes(4))
    found = received(far)
    direction = wire.figures()["a_to_b"]
    # Our datagrams, and a few of the kernel's own.
    others = direction["sent"] - 200
    check(0 <= others <= 20, f"packets: {direction}")
    check(0 <= direction["delivered"] - len(found) <= 2 * others, f"{len(found)} of {direction}")
    check(60 < direction["dropped"]["lost"] < 140, f"lost: {direction}")
    check(len(found) > len(set(found)), "none came twice")
    accounted = direction["sent"] + direction["duplicated"] - direction["dropped"]["lost"]
    equal(direction["delivered"], accounted, f"delivered: {direction}")


@case(family=FAMILIES, needs=NEEDS)
def wire_carries_a_response_through_its_bottleneck(t, family):
    root = t.root(large=600_000)
    left, right, wire = wired(t, "--rtt", "20ms", "--rate-down", "50M", "--queue", "30000")
    t.kernel_server(right, family, 80, root)
    began = time.monotonic()
    reply = fetch(left, "sendto", PAIR.peer[family], 80, "/large")
    equal((reply.status, sha256(reply.body)), (200, sha256(body(root, "large"))), "response")
    # A handshake, and 600 kB at 50 Mbit/s.
    check(time.monotonic() - began >= 0.020 + 600_000 * 8 / 50e6, "faster than its rate")
    direction = wire.figures()["b_to_a"]
    check(direction["dropped"]["queue"] > 0, f"the queue never overflowed: {direction}")


@case(needs=NEEDS)
def wire_ends_with_its_namespaces_and_leaves_nothing(t):
    left, right, wire = wired(t)
    Namespace.__exit__(right)
    equal(wire.wait(10), 0, "exit status")
    check(right.name in wire.text("err"), f"said: {wire.text('err')!r}")
    check(not left.has(DEVICE), "the device of the other end is still there")
    right = t.namespace("again")
    wire = t.start(Wire(left, right, PAIR))
    check(left.has(DEVICE) and right.has(DEVICE), "devices")
    equal(wire.terminate(), 0, "exit status on SIGTERM")
    check(not left.has(DEVICE) and not right.has(DEVICE), "a device is left")


@case(needs=NEEDS)
def wire_says_what_is_wrong_in_a_line(t):
    left = t.namespace("left")
    here = f"{left.name}:{DEVICE}"

    def said(*arguments):
        done = run(command(), "wire", *arguments, check=False)
        equal(done.returncode, 2, f"exit status of {arguments}")
        return done.stderr.splitlines()

    (line,) = said("--a", here, "--b", "no-such-namespace:w")
    check("no-such-namespace" in line and "ip netns list" in line, line)
    (line,) = said("--a", here, "--b", f"{left.name}:lo")
    check("exists" in line, line)
    (line,) = said("--a", here, "--b", f"{left.name}:w", "--mtu", 20)
    check("68" in line, line)
    check("1%" in said("--a", here, "--b", here, "--loss", "7")[0], "advice for a share")
    check(not left.has(DEVICE), "a device is left")
