"""What paths do to first flights, what visits may need there, and a client and a server with such a path between them."""

import re

from net import Pair
from process import run
from wire import DEVICE, Wire

PAIR = Pair(95)
#: The servers: each sample has one of its own, all at one machine.
SERVERS, DEAD = "10.96.0.0/15", "10.98.0.1"
PORT = 8080
#: Parts of rules: SYNs that leave, and packets and SYNs that arrive. What a machine drops of its own packets, its
#: programs are told, so rules that interfere are at the other end of the wire.
SYN = f"oifname {DEVICE} tcp flags & (syn|ack) == syn"
ARRIVES = f"iifname {DEVICE}"
SYN_ARRIVES = f"{ARRIVES} tcp flags & (syn|ack) == syn"
#: Time allowed beyond a plain connect and the second attempt, ms.
MARGIN = 20
UNKNOWN_RTT = 1000


class Path:
    """What a path does, and what visits it may need: the delay of a second attempt at the first, second and tenth
    visit, ms, by the round-trip time."""

    def __init__(self, name, *rules, asap=False, server=(), port=PORT, dead=False, delay=lambda _: (0, 0, 0), fast=3,
                 nat=False):
        self.name, self.rules, self.asap, self.server, self.port = name, rules, asap, server, port
        self.dead, self.delay, self.fast, self.nat = dead, delay, fast, nat


def race(rtt):
    """The delay of a second attempt when the round-trip time was measured once: SRTT + 4 RTTVAR, which is half of it."""
    return min(UNKNOWN_RTT, max(50, 3 * rtt))


def learns(rtt):
    """The first data in a SYN is lost, and so may be one more; then the path is known."""
    return (0, race(rtt), 0)


class World:
    """A client and a server, with a wire between them."""

    def __init__(self, context, label, rtt, loss, fast=3, servers=(SERVERS,)):
        self.context = context
        self.client, self.far = (context.namespace(f"{label}-{name}") for name in ("client", "far"))
        options = ["--rtt", f"{rtt}ms", "--seed", 7]
        if loss:
            options += ["--loss", f"{loss}%"]
        context.start(Wire(self.client, self.far, PAIR, *options, prefix=("chrt", "-f", "10")))
        for net in servers:
            self.far.ip("route", "add", "local", net, "dev", "lo")
            self.client.ip("route", "add", net, "dev", DEVICE)
        self.client.ip("route", "add", f"{DEAD}/32", "dev", DEVICE)
        self.far.sysctl("net.ipv4.tcp_fastopen", fast)
        for ns in (self.client, self.far):
            # The samples begin together.
            ns.sysctl("net.ipv4.tcp_max_syn_backlog", 8192)
            ns.sysctl("net.core.somaxconn", 8192)

    def meddle(self, *rules):
        if rules:
            self.far.nft(f"type filter hook prerouting priority -300; {'; '.join(rules)}", chain="meddle")

    def count_syns(self):
        self.client.nft(f"type filter hook output priority 10; {SYN} counter", chain="count")

    def syns(self):
        told = run("nft", "list", "chain", "inet", "path", "count", ns=self.client).stdout
        return int(re.search(r"counter packets (\d+)", told)[1])


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")
