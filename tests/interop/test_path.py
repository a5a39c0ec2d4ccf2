"""Paths that interfere with Fast Open, made with nftables on the device: only the saved round trip is lost."""

import os
import time

import pytest

import kernel
from firstflight import PORT, TUN, early_bytes, explain, is_accepted, show
from net import Pair, url
from process import Process, run
from testbed import body, sha256

PAIR = Pair(78)

FROM_DEVICE = f"type filter hook prerouting priority 0; iifname {TUN}"
TO_DEVICE = f"type filter hook output priority 0; oifname {TUN}"
SYN = "tcp flags & (syn|ack) == syn"
SYN_ACK = "tcp flags & (syn|ack) == (syn|ack)"
STRIP = "counter reset tcp option fastopen"


def whole(record, content):
    assert (record["status"], record["sha256"]) == (200, sha256(content)), f"response of {show(record)}"


def visits(testbed, family, rule, middle_visits):
    """Visits with `get`: one to get the cookie, one that uses it, then `middle_visits` with the rule in force."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    server = testbed.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/small")
    path = os.path.join(root, "get.pcapng")
    client = testbed.client(ns, PAIR, target, "--repeat", 2 + middle_visits, "--interval", 1500, "--pcap", path)
    server.events("request", 2)
    ns.nft(rule)
    assert client.finish() == 0, "exit status of get"
    fetches = client.fetches()
    assert len(fetches) == 2 + middle_visits, "fetches"
    for record in fetches:
        whole(record, body(root, "small"))
    assert is_accepted(fetches[1]), f"not accepted before the rule: {show(fetches[1])}"
    assert ns.nft_matched(), "the rule met no packet"
    same_from_outside(path, fetches)
    return fetches[2:]


def same_from_outside(path, fetches):
    """Checks that `explain` reports from the packets what the engine reported about itself."""
    connections, _ = explain(path)
    assert [told(record) for record in connections] == [told(record) for record in fetches], "explanations"


def told(record):
    # An observer cannot see that the client avoided Fast Open by its own decision.
    reason = "not-requested" if record["reason"] == "failure-memory" else record["reason"]
    return record["outcome"], reason, record["syn_retransmits"]


#= rfc7413 4.2.2-b test
@pytest.mark.needs("nft")
def test_path_drops_syn_with_cookie(testbed, family):
    (record,) = visits(testbed, family, f"{FROM_DEVICE} tcp option fastopen length > 2 counter drop", 1)
    assert not is_accepted(record), f"accepted: {show(record)}"
    assert record["reason"] == "syn-timed-out", "reason"
    assert record["syn_retransmits"] > 0, f"no SYN retransmitted: {show(record)}"


@pytest.mark.needs("nft")
def test_path_drops_every_syn_for_a_while(testbed, family):
    """The request for a cookie is lost, and so is its first repetition: the visit is late, but it succeeds."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    ns.nft(f"{FROM_DEVICE} {SYN} counter drop")
    testbed.kernel_server(ns, family, 80, root)
    client = testbed.client(ns, PAIR, url(PAIR.host[family], 80, "/small"))
    client.wait_until(lambda: ns.nft_matched(2), "two SYNs")
    ns.nft_flush()
    assert client.finish() == 0, "exit status of get"
    (record,) = client.fetches()
    whole(record, body(root, "small"))
    assert record["syn_retransmits"] >= 2, f"SYNs sent again: {show(record)}"


@pytest.mark.needs("nft")
def test_path_strips_option_of_syn(testbed, family):
    (record,) = visits(testbed, family, f"{FROM_DEVICE} {SYN} {STRIP}", 1)
    assert not is_accepted(record), f"accepted: {show(record)}"
    assert record["reason"] in ("option-stripped", "data-not-acknowledged"), f"reason: {show(record)}"


@pytest.mark.needs("nft")
def test_path_strips_option_of_syn_ack(testbed, family):
    """The server's grant never arrives, in neither form of the option, so every visit is a handshake."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    ns.nft(f"{TO_DEVICE} {SYN_ACK} {STRIP}; oifname {TUN} {SYN_ACK} reset tcp option 254")
    testbed.kernel_server(ns, family, 80, root)
    fetches = testbed.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 3)
    for record in fetches:
        whole(record, body(root, "small"))
        assert not is_accepted(record), f"accepted: {show(record)}"
    assert ns.nft_matched(), "the rule met no packet"


@pytest.mark.needs("nft")
def test_serve_behind_stripping_path(testbed, family):
    """`serve` gets SYNs with data and without option: an ordinary handshake, and the data is delivered only once."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    for early in (False, True):
        assert kernel.fetch(ns, "sendto", address, PORT, "/small").info.syn_data == early, "before"
    ns.nft(f"{TO_DEVICE} {SYN} {STRIP}")
    reply = kernel.fetch(ns, "sendto", address, PORT, "/small")
    assert (reply.body, reply.info.syn_data) == (body(root, "small"), False), "behind the rule"
    assert ns.nft_matched(), "the rule met no packet"
    record = serve.requests(3)[-1]
    assert not is_accepted(record) and early_bytes(record) == 0, f"log: {show(record)}"


@pytest.mark.needs("nft", "curl")
def test_path_dark_while_serve_sends(testbed, family):
    """During a download, nothing that the engine sends arrives for a while. Its retransmission timer recovers."""
    # Larger than the kernel's receive buffer, so that the download is not over before the rule is in force.
    root = testbed.root(large=40_000_000)
    ns = testbed.namespace("serve")
    testbed.serve(ns, PAIR, root)
    file = os.path.join(root, "got")
    target = url(PAIR.peer[family], PORT, "/large")
    curl = testbed.start(
        Process(["curl", "-gsS", "--fail", "-m", "60", "--limit-rate", "20M", "-o", file, target], ns=ns)
    )
    kernel.wait_for_traffic(ns, TUN, 500_000)
    ns.nft(f"{FROM_DEVICE} counter drop")
    # Wait until something was sent in vain.
    kernel.wait_for_traffic(ns, TUN, 1_000)
    time.sleep(1)
    ns.nft_flush()
    assert curl.wait() == 0, "exit status of curl"
    assert sha256(body(root, "got")) == sha256(body(root, "large")), "digest"


@pytest.mark.needs("nft", "curl")
@pytest.mark.parametrize("sender", ("get", "serve"))
@pytest.mark.parametrize("lost", ("segments", "batches"))
def test_path_loses_packets(testbed, family, sender, lost):
    """One packet in 33 is lost in each direction while the engine sends 4 MB; or one packet in 20, of as many segments as
    the offload takes."""
    root = testbed.root(large=4_000_000)
    ns = testbed.namespace(sender)
    every, least, option = {"segments": (33, 10, ["--no-offload"]), "batches": (20, 1, [])}[lost]
    lossy = f"numgen random mod {every} == 0 counter drop"
    ns.nft(f"{FROM_DEVICE} {lossy}")
    ns.nft(f"{TO_DEVICE} {lossy}", chain="other")
    digest = sha256(body(root, "large"))
    if sender == "serve":
        testbed.serve(ns, PAIR, root, *option)
        file = os.path.join(root, "got")
        run("curl", "-gsS", "--fail", "-m", 60, "-o", file, url(PAIR.peer[family], PORT, "/large"), ns=ns, timeout=70)
        assert sha256(body(root, "got")) == digest, "digest"
    else:
        server = testbed.kernel_server(ns, family, 80, root)
        testbed.get(
            ns, PAIR, url(PAIR.host[family], 80, "/sink"), "--upload", os.path.join(root, "large"), "--timeout", 60, *option
        )
        assert server.events("request", 1)[0]["sha256"] == digest, "digest"
    assert ns.nft_matched(least), "hardly a packet was lost"
