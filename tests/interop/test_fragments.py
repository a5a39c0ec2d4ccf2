"""Packets that arrive in fragments: uploads by a kernel that does not or cannot discover the path's MTU."""

import os
import re

from case import FAMILIES, case, check, equal, sha256
from firstflight import PORT
from net import Pair, url
from process import run
from wire import DEVICE, Wire, command

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
        check(sha256(file.read()) in answer, f"digest: {answer}")
    check(re.search(rf"\b{MEGABYTE}\b", answer), f"count: {answer}")


def reassembled(serve):
    """The counters of `serve`: fragments, and packets reassembled."""
    serve.terminate()
    (counters,) = serve.counters()
    return counters["fragments"], counters["packets_reassembled"]


@case(needs=("curl",))
def upload_without_path_mtu_discovery_through_a_narrow_router(t):
    """The client sends without DF (`ip_no_pmtu_disc`), and the router's next link has an MTU of 1,000."""
    root = t.root(large=MEGABYTE)
    client, router, far = (t.namespace(name) for name in ("client", "router", "far"))
    t.cable(router, client, NEAR, "veth0")
    t.cable(router, far, FAR, "veth1")
    for ns in (router, far):
        ns.ip("link", "set", "veth1", "mtu", 1000)
        ns.forward()
    client.sysctl("net.ipv4.ip_no_pmtu_disc", 1)
    client.ip("route", "add", "default", "via", NEAR.host[4])
    router.ip("route", "add", PAIR.net[4], "via", FAR.peer[4])
    far.ip("route", "add", NEAR.net[4], "via", FAR.host[4])
    serve = t.serve(far, PAIR, root)
    upload(client, root, 4)
    fragments, packets = reassembled(serve)
    check(packets >= MEGABYTE // 1500, f"{packets} packets of {fragments} fragments")
    check(fragments >= 2 * packets, f"{packets} packets of {fragments} fragments")


@case(family=FAMILIES, size=(1000, 300), needs=("curl", command()))
def upload_over_a_path_that_fragments(t, family, size):
    """Every packet above the size is fragmented in both directions; IPv6 packets as if by their sender."""
    root = t.root(large=MEGABYTE)
    client, far = t.namespace("client"), t.namespace("far")
    far.forward()
    wire = t.start(Wire(client, far, NEAR, "--fragment", size, "--rtt", "2ms", "--reorder", "0.05"))
    client.ip(f"-{family}", "route", "add", PAIR.net[family], "via", NEAR.peer[family], "dev", DEVICE)
    serve = t.serve(far, PAIR, root)
    upload(client, root, family)
    fragments, packets = reassembled(serve)
    check(packets >= MEGABYTE // 1500, f"{packets} packets of {fragments} fragments")
    figures = wire.figures()["a_to_b"]
    equal(figures["dropped"]["too_big"], 0, "too big")
    check(figures["fragments"] >= packets, f"{packets} packets reassembled, {figures}")
