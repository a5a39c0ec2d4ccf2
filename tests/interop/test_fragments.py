"""Packets that arrive in fragments: uploads by a kernel that does not or cannot discover the path's MTU."""

import os
import re

import pytest

from firstflight import PORT
from net import Pair, url
from process import run
from testbed import sha256
from wire import DEVICE, Wire

#: The networks between client and router, and between router and the server's host; and that host's device.
NEAR = Pair(83)
FAR = Pair(84)
PAIR = Pair(85)

MEGABYTE = 1_000_000
#: Much more than an upload takes. Without reassembly it hangs.
SECONDS = 30


def upload(ns, root, family):
    """curl uploads 1 MB. Checks that the server has read the same bytes."""
    answer = run(
        "curl", "-gsS", "--fail", "-m", SECONDS, "-T", os.path.join(root, "large"),
        url(PAIR.peer[family], PORT, "/sink"), ns=ns, timeout=SECONDS + 10,
    ).stdout  # fmt: skip
    with open(os.path.join(root, "large"), "rb") as file:
        assert sha256(file.read()) in answer, f"digest: {answer}"
    assert re.search(rf"\b{MEGABYTE}\b", answer), f"count: {answer}"


def reassembled(serve):
    """The counters of `serve`: fragments, and packets reassembled."""
    serve.terminate()
    (counters,) = serve.counters()
    return counters["fragments"], counters["packets_reassembled"]


@pytest.mark.needs("curl")
def test_upload_without_path_mtu_discovery_through_a_narrow_router(testbed):
    """The client sends without DF (`ip_no_pmtu_disc`), and the router's next link has an MTU of 1,000."""
    root = testbed.root(large=MEGABYTE)
    client, router, far = (testbed.namespace(name) for name in ("client", "router", "far"))
    testbed.cable(router, client, NEAR, "veth0")
    testbed.cable(router, far, FAR, "veth1")
    for ns in (router, far):
        ns.ip("link", "set", "veth1", "mtu", 1000)
        ns.forward()
    client.sysctl("net.ipv4.ip_no_pmtu_disc", 1)
    client.ip("route", "add", "default", "via", NEAR.host[4])
    router.ip("route", "add", PAIR.net[4], "via", FAR.peer[4])
    far.ip("route", "add", NEAR.net[4], "via", FAR.host[4])
    serve = testbed.serve(far, PAIR, root)
    upload(client, root, 4)
    fragments, packets = reassembled(serve)
    assert packets >= MEGABYTE // 1500, f"{packets} packets of {fragments} fragments"
    assert fragments >= 2 * packets, f"{packets} packets of {fragments} fragments"


@pytest.mark.needs("curl", "firstflight-lab")
@pytest.mark.parametrize("size", (1000, 300))
def test_upload_over_a_path_that_fragments(testbed, family, size):
    """Every packet above the size is fragmented in both directions; IPv6 packets as if by their sender."""
    root = testbed.root(large=MEGABYTE)
    client, far = testbed.namespace("client"), testbed.namespace("far")
    far.forward()
    wire = testbed.start(Wire(client, far, NEAR, "--fragment", size, "--rtt", "2ms", "--reorder", "0.05"))
    client.ip(f"-{family}", "route", "add", PAIR.net[family], "via", NEAR.peer[family], "dev", DEVICE)
    serve = testbed.serve(far, PAIR, root)
    upload(client, root, family)
    fragments, packets = reassembled(serve)
    assert packets >= MEGABYTE // 1500, f"{packets} packets of {fragments} fragments"
    figures = wire.figures()["a_to_b"]
    assert figures["dropped"]["too_big"] == 0, "too big"
    assert figures["fragments"] >= packets, f"{packets} packets reassembled, {figures}"
