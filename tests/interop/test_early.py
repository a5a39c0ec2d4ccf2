"""Requests in a kernel client's SYN whose ACK is still missing, and what `--metrics` reports about visits."""

import re

import pytest

import kernel
from firstflight import PORT, TUN, early_bytes, is_accepted, show
from net import FAMILIES, Pair
from process import run

PAIR = Pair(79)
#: The client's ACKs, data and FINs. Its SYNs pass.
BEHIND_THE_SYN = f"type filter hook output priority 0; oifname {TUN} tcp flags & (syn|ack) == ack counter drop"


def post(address, content=b"order"):
    host = f"[{address}]" if ":" in address else address
    head = f"POST /echo HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def begin(testbed, family, how):
    """A server and a kernel client with a cookie. The client's ACKs are dropped from now on."""
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, testbed.root(small=5000), "--early-unsafe", how)
    address = PAIR.peer[family]
    assert kernel.fetch(ns, "sendto", address, PORT, "/small").status == 200, "the visit for the cookie"
    ns.nft(BEHIND_THE_SYN)
    return ns, serve, address


@pytest.mark.needs("nft")
def test_unsafe_request_before_the_ack(testbed, family):
    """`early = "any"` is for every request without a body."""
    ns, serve, address = begin(testbed, family, "allow")
    with kernel.client_socket(ns, family) as sock:
        kernel.send_first(sock, "sendto", address, PORT, post(address, b""))
        assert kernel.read_reply(sock).status == 200, "status"
    with kernel.client_socket(ns, family) as sock:
        kernel.send_first(sock, "sendto", address, PORT, kernel.request(address, "/small"))
        assert kernel.read_reply(sock).status == 200, "status of a GET"
    assert ns.nft_matched(), "the rule met no packet"
    # Remove the rule, so that the connections can close.
    ns.nft_flush()
    for record in serve.requests(3)[1:]:
        assert is_accepted(record) and early_bytes(record) > 0, f"log: {show(record)}"


@pytest.mark.needs("nft")
@pytest.mark.parametrize("how", ("wait", "allow"))
def test_unsafe_request_waits_for_the_ack(testbed, family, how):
    """A request with a body waits in any case."""
    ns, serve, address = begin(testbed, family, how)
    with kernel.client_socket(ns, family) as sock:
        kernel.send_first(sock, "sendto", address, PORT, post(address))
        # The ACK of the first SYN-ACK, and that of the second one, a second later.
        serve.wait_until(lambda: ns.nft_matched(2), "two ACKs dropped")
        requests = [record for record in serve.records() if record.get("event") == "request"]
        assert len(requests) == 1, "requests answered"
        ns.nft_flush()
        reply = kernel.read_reply(sock)
    assert (reply.status, reply.body) == (200, b"order"), "response"
    record = serve.requests(2)[-1]
    assert is_accepted(record) and early_bytes(record) > 0, f"log: {show(record)}"


def first_flights(text, outcome, reason):
    labels = f'side="server",outcome="{outcome}",reason="{reason}"'
    found = re.search(rf"^firstflight_first_flights_total{{{labels}}} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


@pytest.mark.needs("curl")
def test_metrics_count_the_visits(testbed):
    ns = testbed.namespace("serve")
    testbed.serve(ns, PAIR, testbed.root(small=5000), "--metrics", "127.0.0.1:7413")

    def scrape():
        return run("curl", "-gsS", "--fail", "-m", 20, "http://127.0.0.1:7413/metrics", ns=ns).stdout

    assert first_flights(scrape(), "accepted", "") == 0, "accepted before the visits"
    for family in FAMILIES:
        for _ in range(3):
            kernel.fetch(ns, "sendto", PAIR.peer[family], PORT, "/small")
    text = scrape()
    assert first_flights(text, "accepted", "") == 4, "accepted"
    assert first_flights(text, "handshake", "no-credential") == 2, "for the cookies"
    assert first_flights(text, "handshake", "stale-or-wrong-credential") is None, "stale cookies"
    assert "\nfirstflight_pending_first_flights_limit 1024\n" in text, f"limit: {text}"
