"""Runs `firstflight doctor` in small networks whose conditions it has to find."""

import json

import firstflight
import kernel
from firstflight import at
from net import Pair
from process import run

#: Client to first router, first router to second router, second router to the servers.
FIRST, BETWEEN, LAST, OTHER = (Pair(number) for number in range(81, 85))
#: The address of a farm.
FARM = "10.85.0.1"
PORT = 8080
SYN = "tcp flags & (syn|ack) == syn"


class Found:
    """The findings of one run."""

    def __init__(self, done):
        assert "panicked" not in done.stderr, done.stderr
        assert done.stderr == "", "stderr"
        self.document = json.loads(done.stdout)
        self.checks = self.document["checks"]
        worst = self.document["verdict"]
        assert done.returncode == (worst == "problem"), f"exit status {done.returncode} for {worst}"

    def __getitem__(self, check):
        """The finding of a check, `None` if it was not made."""
        found = [one["finding"] for one in self.checks if one["check"] == check]
        assert len(found) <= 1, f"{check} was made {len(found)} times"
        return found[0] if found else None

    def detail(self, check):
        return next(one["detail"] for one in self.checks if one["check"] == check)

    def problems(self):
        return {one["check"] for one in self.checks if one["verdict"] == "problem"}


def doctor(ns, *arguments, before=()):
    return Found(run(*before, firstflight.BINARY, "doctor", "--json", *arguments, ns=ns, check=False, timeout=60))


class Far:
    """A client, two routers, and a server on the kernel's TCP."""

    def __init__(self, testbed, family=4, fast_open=3):
        self.testbed, self.family = testbed, family
        names = ("client", "near", "edge", "server")
        self.client, self.near, self.edge, self.server = (testbed.namespace(name) for name in names)
        testbed.cable(self.near, self.client, FIRST, "veth0")
        testbed.cable(self.near, self.edge, BETWEEN, "veth1")
        testbed.cable(self.edge, self.server, LAST, "veth2")
        for router in (self.near, self.edge):
            router.forward()
            # Each SYN with a small hop limit is to be returned, and not only one a second.
            router.sysctl("net.ipv4.icmp_ratelimit", 0)
            router.sysctl("net.ipv6.icmp.ratelimit", 0)
        self.route(self.client, "default", FIRST.host)
        self.route(self.server, "default", LAST.host)
        self.route(self.near, LAST.net, BETWEEN.peer)
        self.route(self.edge, FIRST.net, BETWEEN.host)
        self.server.sysctl("net.ipv4.tcp_fastopen", fast_open)
        self.at = at(LAST.peer[family], PORT)

    def route(self, ns, to, via):
        for family in (4, 6):
            ns.ip(f"-{family}", "route", "add", to if to == "default" else to[family], "via", via[family])

    def serve(self, ns=None):
        return self.testbed.kernel_server(ns or self.server, self.family, PORT, self.testbed.root(small=100))

    def meddle(self, *rules):
        self.near.nft("type filter hook forward priority 0; " + "; ".join(rules))

    def doctor(self, *arguments, **more):
        return doctor(self.client, self.at, *arguments, **more)


class Farm(Far):
    """Two servers behind one address."""

    def __init__(self, testbed, keys):
        super().__init__(testbed)
        self.other = testbed.namespace("other")
        testbed.cable(self.edge, self.other, OTHER, "veth3")
        self.route(self.other, "default", OTHER.host)
        self.near.ip("route", "add", FARM, "via", BETWEEN.peer[4])
        for server, key in zip((self.server, self.other), keys):
            kernel.set_key(server, key)
            self.serve(server)
        self.at = at(FARM, PORT)

    def translate(self):
        """Connections go to the servers' own addresses in turn (DNAT)."""
        turn = f"numgen inc mod 2 map {{ 0 : {LAST.peer[4]}, 1 : {OTHER.peer[4]} }}"
        self.edge.nft(f"type nat hook prerouting priority -100; ip daddr {FARM} dnat ip to {turn}")

    def share(self):
        """The servers share the address, and connections are routed to them in turn."""
        marks = f"ip daddr {FARM} {SYN} ct mark set numgen inc mod 2 offset 1; meta mark set ct mark"
        self.edge.nft(f"type filter hook prerouting priority -150; {marks}")
        for number, (server, pair) in enumerate(((self.server, LAST), (self.other, OTHER)), 1):
            server.ip("addr", "add", f"{FARM}/32", "dev", "lo")
            self.edge.ip("rule", "add", "fwmark", str(number), "lookup", str(100 + number))
            self.edge.ip("route", "add", FARM, "via", pair.peer[4], "table", str(100 + number))
