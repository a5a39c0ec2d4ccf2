"""Requests in a kernel client's SYN whose ACK is still missing, and what `--metrics` reports about visits."""

import re

import kernel
from case import FAMILIES, case, check, equal
from firstflight import PORT, TUN, early_bytes, is_accepted, show
from net import Pair
from process import run

PAIR = Pair(79)
#: The client's ACKs, data and FINs. Its SYNs pass.
BEHIND_THE_SYN = f"type filter hook output priority 0; oifname {TUN} tcp flags & (syn|ack) == ack counter drop"


def post(address):
    host = f"[{address}]" if ":" in address else address
    head = f"POST /echo HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
    return head.encode() + b"order"


def begin(t, family, how):
    """A server and a kernel client with a cookie. The client's ACKs are dropped from now on."""
    ns = t.namespace("serve")
    serve = t.serve(ns, PAIR, t.root(small=5000), "--early-unsafe", how)
    address = PAIR.peer[family]
    equal(kernel.fetch(ns, "sendto", address, PORT, "/small").status, 200, "the visit for the cookie")
    ns.nft(BEHIND_THE_SYN)
    return ns, serve, address


@case(family=FAMILIES, how=("reject", "allow"), needs=("nft",))
def unsafe_request_before_the_ack(t, family, how):
    ns, serve, address = begin(t, family, how)
    with kernel.client_socket(ns, family) as sock:
        kernel.send_first(sock, "sendto", address, PORT, post(address))
        equal(kernel.read_reply(sock).status, 425 if how == "reject" else 200, "status")
    with kernel.client_socket(ns, family) as sock:
        kernel.send_first(sock, "sendto", address, PORT, kernel.request(address, "/small"))
        equal(kernel.read_reply(sock).status, 200, "status of a GET")
    check(ns.nft_matched(), "the rule met no packet")
    # Remove the rule, so that the connections can close.
    ns.nft_flush()
    for record in serve.requests(3)[1:]:
        check(is_accepted(record) and early_bytes(record) > 0, f"log: {show(record)}")


@case(family=FAMILIES, needs=("nft",))
def unsafe_request_waits_for_the_ack(t, family):
    ns, serve, address = begin(t, family, "wait")
    with kernel.client_socket(ns, family) as sock:
        kernel.send_first(sock, "sendto", address, PORT, post(address))
        # The ACK of the first SYN-ACK, and that of the second one, a second later.
        serve.wait_until(lambda: ns.nft_matched(2), "two ACKs dropped")
        requests = [record for record in serve.records() if record.get("event") == "request"]
        equal(len(requests), 1, "requests answered")
        ns.nft_flush()
        reply = kernel.read_reply(sock)
    equal((reply.status, reply.body), (200, b"order"), "response")
    record = serve.requests(2)[-1]
    check(is_accepted(record) and early_bytes(record) > 0, f"log: {show(record)}")


def first_flights(text, outcome, reason):
    labels = f'side="server",outcome="{outcome}",reason="{reason}"'
    found = re.search(rf"^firstflight_first_flights_total{{{labels}}} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


@case(needs=("curl",))
def metrics_count_the_visits(t):
    ns = t.namespace("serve")
    t.serve(ns, PAIR, t.root(small=5000), "--metrics", "127.0.0.1:9100")

    def scrape():
        return run("curl", "-gsS", "--fail", "-m", 20, "http://127.0.0.1:9100/metrics", ns=ns).stdout

    equal(first_flights(scrape(), "accepted", ""), 0, "accepted before the visits")
    for family in FAMILIES:
        for _ in range(3):
            kernel.fetch(ns, "sendto", PAIR.peer[family], PORT, "/small")
    text = scrape()
    equal(first_flights(text, "accepted", ""), 4, "accepted")
    equal(first_flights(text, "handshake", "no-credential"), 2, "for the cookies")
    equal(first_flights(text, "handshake", "stale-or-wrong-credential"), None, "stale cookies")
    check("\nfirstflight_pending_first_flights_limit 1024\n" in text, f"limit: {text}")
