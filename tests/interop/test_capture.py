"""Captures by `get --pcap` and by tcpdump, read by tcpdump and by `explain`."""

import json
import os
import re

import pytest

import firstflight
import kernel
import siphash
from firstflight import PORT, TUN, explain
from net import Pair, url
from process import Process, run
from scene import FAR, NEAR, Scene
from testbed import body

KEY = "00112233-44556677-8899aabb-ccddeeff"
PAIR = Pair(77)
#: A SYN. PSH may be set with its data.
SYN = re.compile(r"Flags \[SP?\]")


def decoded(path):
    """tcpdump's output for a capture, one string per packet. Checks that tcpdump reports no fault."""
    done = run("tcpdump", "-r", path, "-nvv")
    for line in done.stderr.splitlines():
        assert line.startswith("reading from file"), f"tcpdump complains: {line}"
    faults = re.search(r"\b(bad|incorrect|invalid|truncated|malformed)\b.*|\[\|.*", done.stdout)
    assert not faults, f"tcpdump finds a fault: {faults and faults[0]}"
    packets = re.split(r"(?m)^(?=\d\d:\d\d:\d\d\.)", done.stdout)
    return [packet for packet in packets if "Flags [" in packet]


def check_fast_open(packets, cookie):
    """Checks for a request, a grant, and a SYN with the cookie and data whose SYN-ACK acknowledges the data."""
    request = [p for p in packets if SYN.search(p) and "tfo  cookiereq" in p]
    grant = [p for p in packets if "Flags [S.]" in p and f"tfo  cookie {cookie}" in p]
    flight = [p for p in packets if SYN.search(p) and f"tfo  cookie {cookie}" in p]
    assert (len(request), len(grant), len(flight)) == (1, 1, 1), "cookie requests, grants, first flights"
    length = int(re.search(r"\], length (\d+)", flight[0])[1])
    assert length > 0, f"no data: {flight[0]}"
    sequence = re.search(r"seq (\d+):(\d+)", flight[0])
    answer = [p for p in packets if "Flags [S.]" in p and f"ack {int(sequence[2]) + 1}," in p]
    assert len(answer) == 1, "SYN-ACKs of the SYN's data"


@pytest.mark.needs("tcpdump")
def test_get_captures(testbed, family):
    root = testbed.root(small=50_000)
    ns = testbed.namespace("get")
    kernel.set_key(ns, KEY)
    testbed.kernel_server(ns, family, 80, root)
    path = os.path.join(root, "get.pcapng")
    testbed.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 2, "--pcap", path)
    check_fast_open(decoded(path), siphash.cookie(KEY, PAIR.peer[family], PAIR.host[family]))


@pytest.mark.needs("tcpdump")
def test_tcpdump_captures(testbed, family):
    """A live capture on the device shows the same exchange."""
    root = testbed.root(small=50_000)
    ns = testbed.namespace("serve")
    # With the offload the kernel leaves checksums to the device, and tcpdump calls them incorrect.
    testbed.serve(ns, PAIR, root, "--key", KEY, "--no-offload")
    path = os.path.join(root, "live.pcap")
    # -Z root: the capture's directory belongs to root. -U and --immediate-mode: nothing stays in a buffer. -s: the
    # ring buffer has slots of this size for the packets; with the largest size it would have only a few.
    command = ["tcpdump", "-i", TUN, "-w", path, "-n", "-Z", "root", "-U", "--immediate-mode", "-s", "2048"]
    dump = testbed.start(Process(command, ns=ns))
    dump.wait_until(lambda: "listening on" in dump.text(), "start of the capture")
    for _ in range(2):
        reply = kernel.fetch(ns, "sendto", PAIR.peer[family], PORT, "/small")
        assert reply.body == body(root, "small"), "body"
    cookie = siphash.cookie(KEY, PAIR.host[family], PAIR.peer[family])

    def handshakes():
        return run("tcpdump", "-r", path, "-n", check=False).stdout.count("Flags [S")

    dump.wait_until(lambda: handshakes() >= 4, "both handshakes in the capture")
    assert dump.terminate() == 0, "exit status of tcpdump"
    check_fast_open(decoded(path), cookie)


def check_two_visits(path, cookie):
    """The first visit gets the cookie; the request of the second one is accepted."""
    connections, summary = explain(path)
    first, second = connections
    assert (first["outcome"], first["reason"]) == ("handshake", "no-credential"), "first visit"
    assert (first["option"], first["granted"]) == ("request", cookie), "first visit's option and grant"
    assert (second["outcome"], second["reason"]) == ("accepted", None), "second visit"
    assert (second["option"], second["cookie"]) == ("cookie", cookie), "second visit's option"
    assert second["syn_bytes"] == second["acked_bytes"] > 0, f"bytes: {second}"
    assert (summary["connections"], summary["asked"], summary["accepted"]) == (2, 2, 1), "summary"


def begin(testbed, ns, device, path):
    command = ["tcpdump", "-i", device, "-w", path, "-n", "-Z", "root", "-U", "--immediate-mode", "-s", "2048", "tcp"]
    dump = testbed.start(Process(command, ns=ns))
    dump.wait_until(lambda: "listening on" in dump.text(), "start of the capture")
    return path, dump


@pytest.mark.needs("curl", "tcpdump")
def test_explain_capture_of_curl(testbed, family):
    """tcpdump's captures of the device and of all devices show two visits by curl in the same way."""
    root = testbed.root(small=50_000)
    ns = testbed.namespace("serve")
    testbed.serve(ns, PAIR, root, "--key", KEY)
    captures = [begin(testbed, ns, device, os.path.join(root, f"{device}.pcap")) for device in (TUN, "any")]
    for _ in range(2):
        target = url(PAIR.peer[family], PORT, "/small")
        run("curl", "-gsS", "--fail", "-m", 20, "--tcp-fastopen", "-o", "/dev/null", target, ns=ns)

    def accepted(path):
        # A capture may end in the middle of a packet while it is being written.
        lines = run(firstflight.BINARY, "explain", "--json", path, check=False).stdout.splitlines()
        return lines and json.loads(lines[-1])["accepted"] == 1

    cookie = siphash.cookie(KEY, PAIR.host[family], PAIR.peer[family])
    for path, dump in captures:
        dump.wait_until(lambda path=path: accepted(path), "both visits in the capture")
        assert dump.terminate() == 0, "exit status of tcpdump"
        check_two_visits(path, cookie)


@pytest.mark.needs("curl")
def test_explain_tells_why_the_kernel_refuses(testbed, family):
    """A kernel server without Fast Open grants no cookie. `explain` reports this and gives a hint."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    ns.sysctl("net.ipv4.tcp_fastopen", "1")
    testbed.kernel_server(ns, family, 80, root)
    path = os.path.join(root, "get.pcapng")
    testbed.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 2, "--pcap", path)
    connections, summary = explain(path)
    assert [record["outcome"] for record in connections] == ["handshake"] * 2, "outcomes"
    assert [record["reason"] for record in connections] == ["peer-without-fast-open"] * 2, "reasons"
    assert PAIR.host[family] in summary["hint"], f"hint: {summary['hint']}"


@pytest.mark.needs("nft", "tcpdump")
@pytest.mark.parametrize("link", ("LINUX_SLL", "LINUX_SLL2"))
@pytest.mark.parametrize("translated", (False, True), ids=("routed", "translated"))
def test_explain_capture_of_a_router(testbed, link, translated):
    """`tcpdump -i any` on a router shows each packet twice, but it counts once. The two sides of a translator count
    as two."""
    scene = Scene(testbed, masquerade=translated)
    scene.far.ip("route", "add", NEAR.net[4], "via", FAR.host[4])
    scene.serve_udp(4)
    path = scene.path("any.pcap")
    command = [
        "tcpdump",
        "-i",
        "any",
        "-y",
        link,
        "-w",
        path,
        "-n",
        "-Z",
        "root",
        "-U",
        "--immediate-mode",
        "-s",
        "2048",
    ]
    dump = testbed.start(Process([*command, "udp"], ns=scene.router))
    dump.wait_until(lambda: "listening on" in dump.text(), "start of the capture")
    for record in scene.get_udp(4, "--repeat", 2):
        scene.whole(record)
    sides = 2 if translated else 1

    def complete():
        # A capture may end in the middle of a packet while it is being written.
        lines = run(firstflight.BINARY, "explain", "--json", path, check=False).stdout.splitlines()
        return lines and json.loads(lines[-1])["accepted"] == sides

    dump.wait_until(complete, "both visits in the capture")
    assert dump.terminate() == 0, "exit status of tcpdump"
    connections, summary = explain(path)
    assert summary["connections"] == 2 * sides, "connections"
    assert summary["translated"] == (2 if translated else 0), "those that were captured on both sides of the translator"
    for record in connections:
        assert (record["syn_retransmits"], record["notes"]) == (0, []), f"what was sent again: {record}"
