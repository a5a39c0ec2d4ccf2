"""Kinds of lines that need more than rules of the router."""

import os
import socket
import time

import conntrack
from firstflight import at
from lines import DOWN, DROP, LONG_UDP_SYN, PROHIBITED, RST, UP, Line
from name_server import answering
from net import Pair
from visits import VISITS, Run, Running, Way, get
from wire import DEVICE
from words import ACCEPTED, CERTIFYING
from world import (
    DEAD_PORT,
    FAR,
    FILES,
    LABELS,
    NAME,
    NEAR,
    NEIGHBOUR,
    ONCE_PORT,
    PORT,
    SECOND_EGRESS,
    SERVICE,
    VERIFIER_PORTS,
    verify_first,
)

A, AAAA = 1, 28
#: The first port of the servers with other keys.
FIRST_KEY_PORT = 8090
#: Seconds after which a client's RST is forgotten.
RST_FORGOTTEN = 90
#: Number of fetches of one client that may use a certificate for another address before it stops.
MISMATCHES = 2


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


class Verified(Line):
    """Certificates come from a faulty verifier. Cookies are also used."""

    def __init__(self, name, network, verifier, way=Way("udp", "both"), warm=False, **more):
        words = (ACCEPTED if warm else CERTIFYING, ACCEPTED, ACCEPTED)
        super().__init__(name, network, way, words=words, warm=warm, **more)
        self.where = verifier

    def servers(self, world):
        world.servers(self.way.encapsulation)
        world.verify()
        world.port = VERIFIER_PORTS[0]
        world.asks = at(FAR.peer[4], world.port)
        world.asks_key = world.key
        if self.where == "dead":
            world.asks = at(FAR.peer[4], DEAD_PORT)
        elif self.where == "slow":
            world.asks = world.slow_verifier("3s")
        elif self.where == "other key":
            world.asks_key = world.keygen("other.key")

    def meddle(self, world):
        verdict = {"filtered": DROP, "rejected": PROHIBITED}.get(self.where)
        if verdict:
            world.meddle(f"{UP} meta l4proto {{ tcp, udp }} th dport {world.port} {verdict}")

    def options(self, world):
        return self.way.options(world, ("--verifier", world.asks, "--verifier-key", world.asks_key))


class ByName(Line):
    """The server has a name with these addresses, which the router's resolver knows."""

    def __init__(self, *arguments, families=(4,), **more):
        super().__init__(*arguments, **more)
        self.families = families

    def meddle(self, world):
        super().meddle(world)
        world.t.enter_context(answering(world.router, NEAR.host[4], self.names(world)))

    def names(self, world):
        """The resolver's data, by name and type."""
        ends = FAR.peer if self.way.encapsulation == "udp" else SERVICE.peer
        kinds = {4: A, 6: AAAA}
        return {(LABELS, kinds[family]): packed(ends[family]) for family in self.families}

    def target(self, world):
        return (f"http://{NAME}:{PORT}{self.path}", "--dns", at(NEAR.host[4], 53))


class ViaDns(ByName):
    """Requests also travel inside lookups, if two verifiers say that unknown servers can reach the client. Both are
    dead."""

    def servers(self, world):
        world.servers(self.way.encapsulation)

    def options(self, world):
        dead = [at(address, DEAD_PORT) for address in (FAR.peer[4], FAR.host[4])]
        return ("--via-dns", "--verifier", dead[0], "--verifier-key", world.key, "--second-verifier", dead[1])

    def upload_options(self, world, memory):
        _, _, *more = super().upload_options(world, memory)
        return (f"http://{NAME}:{ONCE_PORT}/sink", "--dns", at(NEAR.host[4], 53), "--upload", *more)


class Silent6(ByName):
    """IPv6 packets are lost. A plain visit uses a name that has only an IPv4 address."""

    ALONE, ALONE_LABELS = "v4.example.com", b"\2v4\7example\3com\0"

    def servers(self, world):
        if self.way.encapsulation == "ip":
            return super().servers(world)
        world.servers("udp")
        world.serve6 = world.serve("udp", address=FAR.peer[6])

    def names(self, world):
        names = super().names(world)
        return {**names, (self.ALONE_LABELS, A): names[LABELS, A]}

    def plain_options(self, world):
        target = (f"http://{self.ALONE}:{PORT}{self.path}", "--dns", at(NEAR.host[4], 53))
        return (*target, *self.link(world), "--no-fast-open", "--timeout", self.timeout)


class Narrow(Line):
    """The wire passes packets of `mtu` bytes. Routers report that, or not."""

    def __init__(self, *arguments, mtu, silent=False, **more):
        super().__init__(*arguments, **more)
        self.mtu, self.silent = mtu, silent

    def meddle(self, world):
        world.narrow(self.mtu)
        if self.silent:
            for ns in (world.router, world.edge):
                world.meddle("icmp type destination-unreachable counter drop", ns=ns, hook="output", chain="mute")


class Neighbours(Line):
    """The SYN-ACK of another client behind the same address is answered with a RST, every minute and a half."""

    def servers(self, world):
        super().servers(world)
        to_neighbour = f"ip daddr {NEIGHBOUR.peer[4]} tcp sport {PORT}"
        world.meddle(f"{DOWN} {to_neighbour} tcp flags & (syn|ack) == (syn|ack) {RST}", chain="neighbour")
        world.reset_at = None

    def samples(self, world):
        if world.reset_at is None or time.monotonic() - world.reset_at > RST_FORGOTTEN:
            # The client has obtained its certificate, and its SYN-ACK is refused.
            link = self.way.link("ff3", NEIGHBOUR)
            options = (self.way.url(self.path), *link, *self.options(world), "--timeout", 2)
            get(world, *options, *verify_first(), "--repeat", 2, count=2)
            world.reset_at = time.monotonic()
        return super().samples(world)


class Pool(Line):
    """The translator has several addresses, so the verifier sees another address than the server."""

    def servers(self, world):
        super().servers(world)
        world.router.ip("addr", "add", Pair.cidr(SECOND_EGRESS), "dev", DEVICE)
        world.router.nft_flush()
        ports = f"{VERIFIER_PORTS[0]}-{VERIFIER_PORTS[-1]}"
        world.translate(f"{UP} meta l4proto {{ tcp, udp }} th dport {ports} snat ip to {SECOND_EGRESS}")

    def meddle(self, world):
        world.meddle(f"{LONG_UDP_SYN} counter accept")

    def more_failures(self, world, count):
        shown = world.counted("meddle")
        if shown > MISMATCHES * count:
            yield f"{count} clients showed {shown} certificates for another address"


class Crowd(Line):
    """Several clients behind one address at the same time."""

    def __init__(self, *arguments, clients, **more):
        super().__init__(*arguments, **more)
        self.clients = clients

    def samples(self, world):
        memories = [world.fresh("memory") for _ in range(self.clients)]
        try:
            waiting = [Running(world, *self.common(world, memory), "--repeat", VISITS) for memory in memories]
            return [running.end(VISITS, self.measure) for running in waiting]
        finally:
            for memory in filter(os.path.exists, memories):
                os.unlink(memory)

    def plains(self, world):
        waiting = [Running(world, *self.plain_options(world)) for _ in range(self.clients)]
        return [running.end(1, self.measure) for running in waiting]


class Stale(Line):
    """The server's key changes three times, each time after a visit. Then the visits begin. Four servers have one
    key each, and the router leads to one of them."""

    KEYS = 4
    #: Time for a change, ms.
    INTERVAL = 150

    def servers(self, world):
        # The port inside the datagrams is that of the kernel's TCP, which all of them share.
        world.servers("udp", "--reuse-port")
        world.verify()
        for number in range(self.KEYS):
            key = ("--key", f"{number + 1:08x}-00000000-00000000-00000000", "--port", PORT, "--reuse-port")
            world.serve("udp", *key, port=FIRST_KEY_PORT + number)

    def lead(self, world, number):
        rule = f"udp dport {PORT} dnat ip to {FAR.peer[4]}:{FIRST_KEY_PORT + number}"
        world.drop_chain("lead")
        world.router.nft(f"type nat hook prerouting priority -100; {rule}", chain="lead")
        conntrack.flush(world.router)

    def samples(self, world):
        memory = world.fresh("memory")
        self.lead(world, 0)
        count = self.KEYS + VISITS
        running = Running(world, *self.common(world, memory), "--repeat", count, "--interval", self.INTERVAL)
        for number in range(1, self.KEYS):
            running.fetched(number)
            self.lead(world, number)
        found = running.end(count, self.measure)
        os.unlink(memory)
        return [Run(found.visits[self.KEYS :], found.before)]


class Rebound(Line):
    """The translator forgets its mapping in the middle of a response, and then has another port for the client. It
    does not do so for a plain visit."""

    #: How much of the response has passed the translator, bytes.
    AFTER = (FILES["large"] // 4, FILES["large"] // 2)
    #: The chain that counts these bytes.
    PASSED = "passed"

    def __init__(self, *arguments, silence=0, **more):
        super().__init__(*arguments, **more)
        self.silence = silence

    def servers(self, world):
        super().servers(world)
        world.router.nft_flush()
        world.router.nft(
            f"type nat hook postrouting priority 100; {UP} masquerade fully-random", chain="translate"
        )

    def samples(self, world):
        runs = []
        # A first, a second and a last visit. If visits take long, one visit stands for all of them.
        for number in range(1 if self.silence else 3):
            world.meddle(f"{DOWN} udp sport {PORT} counter accept", chain=self.PASSED)
            running = Running(world, *self.common(world, world.fresh("memory")))
            self.under_way(world, running, self.AFTER[number % 2])
            if self.silence:
                world.meddle(f"{DOWN} {DROP}", chain="silence")
            conntrack.flush(world.router)
            if self.silence:
                time.sleep(self.silence)
                world.drop_chain("silence")
            runs.append(running.end(1, self.measure))
            world.drop_chain(self.PASSED)
        visits = [found.visits[0] for found in runs]
        return [Run(visits[:2] + visits[-1:] * (VISITS - len(visits[:2])), runs[0].before)]

    def under_way(self, world, running, size):
        """Waits until `size` bytes have come from the server. A time from the start of the command would not do: on
        a busy machine the handshake may still be under way then."""
        while world.counted(self.PASSED, "bytes") < size:
            if running.child.poll() is not None:
                raise AssertionError(f"the fetch ended before {size} bytes had passed: {running.found}")
            time.sleep(0.005)


class Joined(Line):
    """The client has just joined the network, so it does not know its gateway's link-layer address."""

    def before_visit(self, world):
        world.client.ip("neigh", "flush", "all")
