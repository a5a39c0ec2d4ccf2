"""A small world: a client, a router that translates its address, 40 ms of wire, and servers.

    client --veth0-- router ==wire0, 40 ms== edge --veth1-- far
                     (NAT)                                  (servers, verifiers)

Rules of nftables in the router interfere with packets. `edge` is used for the narrow path: then the wire's devices
have a small MTU, and both sides of it are routers that report that, or not.
"""

import functools
import os
import random
import re

import firstflight
from firstflight import Command, at
from net import Pair, workdir
from process import run
from wire import DEVICE, Wire

#: The networks between client and router, router and edge, edge and servers; the devices of the server, of the
#: server that executes at most once, and of the client's engine; and a verifier that is far away.
NEAR, WIRE, FAR, SERVICE, ONCE, ENGINE, SLOW = (Pair(number) for number in range(61, 68))
#: A second address of the router, for a pool of addresses.
SECOND_EGRESS = "10.62.0.9"
#: The engine of another client behind the same router.
NEIGHBOUR = Pair(68)
PORT, ONCE_PORT = 8080, 8081
#: A verifier gives an address 60 certificates at once, so several verifiers share a key.
VERIFIER_PORTS = range(4433, 4439)
#: A port without a listener.
DEAD_PORT = 4499
RTT_MS = 40
#: A response with `small` is one segment of fewer than 1,280 bytes: on the paths with a hole the requests are too long.
FILES = {"tiny": 100, "small": 850, "large": 400_000}
UPLOADS = {"upload-small": 500, "upload-large": 30_000}
NAME = "www.example.com"
LABELS = b"\3www\7example\3com\0"


class World:
    """Everything that one line needs. It ends with `context`."""

    def __init__(self, context, label, wire=()):
        self.t = context
        names = ("client", "router", "edge", "far")
        self.client, self.router, self.edge, self.far = (context.namespace(f"{label}-{name}") for name in names)
        self.label, self.directory = label, context.enter_context(workdir())
        #: The number of names and of clients so far.
        self.numbers = self.clients = 0
        context.cable(self.router, self.client, NEAR, "veth0")
        context.cable(self.edge, self.far, FAR, "veth1")
        options = ("--rtt", f"{RTT_MS}ms", *wire)
        context.start(Wire(self.router, self.edge, WIRE, *options, prefix=("chrt", "-f", "10")))
        for ns in (self.client, self.router, self.edge, self.far):
            ns.forward()
        # Send an ICMP error for every visit, not only one per second.
        self.router.sysctl("net.ipv4.icmp_ratelimit", 0)
        self.edge.sysctl("net.ipv4.icmp_ratelimit", 0)
        self.routes()
        self.translate()
        for name, size in {**FILES, **UPLOADS}.items():
            with open(self.path(name), "wb") as file:
                file.write(random.Random(name).randbytes(size))
        self.key = self.keygen("verifier.key")
        with open(self.path("trust.toml"), "w") as file:
            file.write(f'# begin\n[[verifier]]\nkey = "{self.key}"\nown = true\n# end\n')
        self.server = self.once = None
        self.verifiers = []
        #: The cache that clients start with.
        self.warm = None

    def routes(self):
        for family in (4, 6):
            def route(ns, to, via, family=family):
                ns.ip(f"-{family}", "route", "add", to, "via", via)

            route(self.client, "default", NEAR.host[family])
            for engine in (ENGINE, NEIGHBOUR):
                route(self.router, engine.net[family], NEAR.peer[family])
            route(self.router, "default", WIRE.peer[family])
            route(self.edge, NEAR.net[family], WIRE.host[family])
            for service in (SERVICE, ONCE):
                route(self.edge, service.net[family], FAR.peer[family])
            route(self.far, "default", FAR.host[family])

    def translate(self, *rules):
        """Gives clients the router's address. `rules` are applied first."""
        rules = "; ".join((*rules, f"oifname {DEVICE} masquerade"))
        self.router.nft(f"type nat hook postrouting priority 100; {rules}", chain="translate")

    def meddle(self, *rules, ns=None, hook="forward", chain="meddle"):
        (ns or self.router).nft(f"type filter hook {hook} priority 0; {'; '.join(rules)}", chain=chain)

    def counted(self, chain, unit="packets"):
        """The packets, or the bytes, that the rules of a chain counted."""
        listed = run("nft", "list", "chain", "inet", "path", chain, ns=self.router).stdout
        return sum(map(int, re.findall(rf"counter .*\b{unit} (\d+)", listed)))

    def drop_chain(self, chain):
        """Removes a chain of rules, if it exists."""
        run("nft", "delete", "chain", "inet", "path", chain, ns=self.router, check=False)

    def narrow(self, mtu):
        for ns in (self.router, self.edge):
            ns.ip("link", "set", DEVICE, "mtu", str(mtu))

    def path(self, name):
        return os.path.join(self.directory, name)

    def fresh(self, stem):
        """A new name."""
        self.numbers += 1
        return self.path(f"{stem}-{self.numbers}")

    def keygen(self, name):
        return run(firstflight.BINARY, "verifier", "keygen", "-o", self.path(name)).stdout.split()[1]

    def serve(self, encapsulation, *options, port=PORT, device="ff0", pair=SERVICE, address=FAR.peer[4]):
        """Starts a server on IP or in UDP, which knows that no server ran a minute ago."""
        if encapsulation == "udp":
            listen = ("--udp", at(address, port))
        else:
            listen = ("--tun", device, "--port", port)
            for family in (4, 6):
                listen += ("--host-ip", Pair.cidr(pair.host[family]), "--ip", pair.peer[family])
        told = ("--root", self.directory, "--json-log", "--trust", self.path("trust.toml"), "--first-start")
        return self.t.start(Command(self.far, "serve", *listen, *told, *options))

    def servers(self, encapsulation, *options):
        self.server = self.serve(encapsulation, *options)
        once = ("--replays", "at-most-once", "--one-time", "--one-time-state", self.path("one-time"))
        self.once = self.serve(encapsulation, *once, port=ONCE_PORT, device="ff1", pair=ONCE)

    def verify(self):
        """Starts verifiers that certify the router's addresses."""
        for port in VERIFIER_PORTS:
            self.verifiers.append(self.verifier(self.far, FAR.peer[4], port))

    def verifier(self, ns, address, port):
        allow = ("--allow-prefix", WIRE.net[4], "--allow-prefix", NEAR.net[4])
        key = ("--key-file", self.path("verifier.key"))
        return self.t.start(Command(ns, "verifier", "--listen", at(address, port), *key, *allow))

    def slow_verifier(self, delay):
        """Starts a verifier with a delay of `delay`."""
        ns = self.t.namespace(f"{self.label}-slow")
        self.t.start(Wire(self.edge, ns, SLOW, "--rtt", delay, device="slow0"))
        ns.ip("route", "add", "default", "via", SLOW.host[4])
        self.verifier(ns, SLOW.peer[4], VERIFIER_PORTS[0])
        return at(SLOW.peer[4], VERIFIER_PORTS[0])


@functools.cache
def verify_first():
    """The option to wait for the certificate. Builds without this option always wait."""
    asks = ("--verifier", "127.0.0.1:1", "--verifier-key", "0" * 64, "--verify-first")
    done = run(firstflight.BINARY, "get", "--udp", "--timeout", 1, "http://127.0.0.1:1/", *asks, check=False)
    return () if "--via-dns" in done.stderr else ("--verify-first",)
