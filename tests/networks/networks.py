"""The networks, each with the way in which a client visits a server there."""

import os
import socket
import time

import conntrack
from lines import (
    DOWN,
    DROP,
    LONG_UDP_SYN,
    PROHIBITED,
    RST,
    SYN,
    SYN_ACK,
    UNREACHABLE,
    UP,
    WITH_ASAP,
    WITH_DATA,
    WITH_OPTION,
    Line,
)
from net import Pair
from test_asap import answering
from visits import VISITS, Run, Running, Way, get
from wire import DEVICE
from words import (
    ACCEPTED,
    ANY,
    ASKED,
    CERTIFYING,
    ELSEWHERE,
    LOST,
    NARROW,
    REFUSED,
    REMEMBERED,
    SECOND,
    STALE,
    STRIPPED,
    SWALLOWED,
)
from world import DEAD_PORT, FAR, LABELS, NAME, NEAR, NEIGHBOUR, ONCE_PORT, PORT, SECOND_EGRESS, SERVICE, VERIFIER_PORTS, at, verify_first

FO, FO_UDP = Way("ip"), Way("udp")
ASAP_UDP, ASAP = Way("udp", "certificate"), Way("ip", "certificate")
KNOWN, KNOWN_UDP = Way("ip", "certificate", known=True), Way("udp", "certificate", known=True)
BOTH, BOTH_UDP = Way("ip", "both"), Way("udp", "both")

#: How long a SYN waits for its answer before another one follows, ms: nothing is known of the round trip, or it is.
FIRST_TIMEOUT, TIMEOUT = 1000, 130
#: When a second connection attempt begins beside the first (RFC 8305 section 5), ms.
ATTEMPT = 250
#: Where the handshake succeeds and nothing else does: 1.5 round trips (docs/known-limits.md), and timers' ticks.
SWALLOWED_FOR = 80
#: How long an idle client is silent before it sends a keep-alive, ms.
KEEP_ALIVE = 15_000
#: More than fits a SYN for a path of 600 or 1,280 bytes.
LONG_PATH, LONGER_PATH = ("/small?" + "x" * length for length in (1000, 1350))
#: In UDP the request and what comes back fit packets of 600 bytes, but not a SYN with the request and a credential: 89
#: bytes more are those of the request's lines.
FITTING_PATH = "/tiny?" + "x" * 431
#: Servers with other keys.
FIRST_KEY_PORT = 8090
#: A client's RST is forgotten after this, s.
RST_FORGOTTEN = 90
#: Fetches of one client that may show a certificate for another address before it stays away.
MISMATCHES = 2

A, AAAA = 1, 28
FIRST_LOST = dict(words=(ASKED, LOST, REMEMBERED), second=(0, TIMEOUT, 0))
FIRST_REFUSED = dict(words=(ASKED, REFUSED, REMEMBERED))
CERTIFIED = dict(words=(CERTIFYING, CERTIFYING, ACCEPTED))
CERTIFIED_LOST = dict(
    words=(CERTIFYING | LOST, CERTIFYING | LOST | REMEMBERED, REMEMBERED | LOST), second=(FIRST_TIMEOUT, TIMEOUT, 0)
)
CERTIFIED_REFUSED = dict(words=(CERTIFYING | REFUSED, CERTIFYING | REFUSED | REMEMBERED, REMEMBERED | REFUSED))


class Verified(Line):
    """Certificates come from a verifier that is not as it should be; cookies are used, too."""

    def __init__(self, name, network, verifier, way=BOTH_UDP, warm=False, **more):
        words = (ACCEPTED if warm else CERTIFYING, ACCEPTED, ACCEPTED)
        super().__init__(name, network, way, words=words, warm=warm, **more)
        self.where = verifier

    def servers(self, world):
        world.servers(self.way.carrier)
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
        ends = FAR.peer if self.way.carrier == "udp" else SERVICE.peer
        names = {(LABELS, kind): packed(ends[family]) for family, kind in ((4, A), (6, AAAA)) if family in self.families}
        world.t.enter_context(answering(world.router, NEAR.host[4], names))

    def target(self, world):
        return (f"http://{NAME}:{PORT}{self.path}", "--dns", at(NEAR.host[4], 53))


class ViaDns(ByName):
    """Requests go inside lookups, too, if two verifiers say that strangers can answer: both are dead."""

    def servers(self, world):
        world.servers(self.way.carrier)

    def options(self, world):
        dead = [at(address, DEAD_PORT) for address in (FAR.peer[4], FAR.host[4])]
        return ("--via-dns", "--verifier", dead[0], "--verifier-key", world.key, "--second-verifier", dead[1])

    def upload_options(self, world, memory):
        _, _, *more = super().upload_options(world, memory)
        return (f"http://{NAME}:{ONCE_PORT}/sink", "--dns", at(NEAR.host[4], 53), "--upload", *more)


class Silent6(ByName):
    """IPv6 is lost. A plain visit is one by IPv4 alone."""

    def servers(self, world):
        if self.way.carrier == "ip":
            return super().servers(world)
        world.servers("udp")
        world.serve6 = world.serve("udp", address=FAR.peer[6])

    def plain_options(self, world):
        return (self.way.url(self.path), *self.link(), "--no-fast-open", "--timeout", self.timeout)


class Narrow(Line):
    """The wire passes packets of `mtu` bytes; routers say so, or not."""

    def __init__(self, *arguments, mtu, silent=False, **more):
        super().__init__(*arguments, **more)
        self.mtu, self.silent = mtu, silent

    def meddle(self, world):
        world.narrow(self.mtu)
        if self.silent:
            for ns in (world.router, world.edge):
                world.meddle("icmp type destination-unreachable counter drop", ns=ns, hook="output", chain="mute")


class Neighbours(Line):
    """Behind the same address another client's SYN-ACK is answered by a RST, a minute and a half apart."""

    def servers(self, world):
        super().servers(world)
        world.meddle(f"{DOWN} ip daddr {NEIGHBOUR.peer[4]} tcp sport {PORT} tcp flags & (syn|ack) == (syn|ack) {RST}", chain="neighbour")
        world.reset_at = None

    def samples(self, world):
        if world.reset_at is None or time.monotonic() - world.reset_at > RST_FORGOTTEN:
            # Its certificate came, and its SYN-ACK is refused.
            link = self.way.link("ff3", NEIGHBOUR)
            options = (self.way.url(self.path), *link, *self.options(world), "--timeout", 2)
            get(world, *options, *verify_first(), "--repeat", 2, count=2)
            world.reset_at = time.monotonic()
        return super().samples(world)


class Pool(Line):
    """The translator has several addresses: the verifier sees another one than the server."""

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
    """Clients behind one address at once."""

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
    """The server's key changes three times, each time after a visit; then the visits begin. Four servers have a key
    each, and the router leads to one of them."""

    KEYS = 4
    #: Time for the change, ms.
    INTERVAL = 150

    def servers(self, world):
        world.servers("udp")
        world.verify()
        for number in range(self.KEYS):
            key = ("--key", f"{number + 1:08x}-00000000-00000000-00000000", "--port", PORT)
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
    """The translator forgets its mapping in the middle of a response, and has another port for the client then.
    A plain visit is one that it leaves alone."""

    #: From the start of the command, s: the response is under way from 0.1 s to 1 s and more.
    AFTER = (0.3, 0.6)

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
        # A first, a second and a last visit; where they take long, one is all of them.
        for number in range(1 if self.silence else 3):
            running = Running(world, *self.common(world, world.fresh("memory")))
            time.sleep(self.AFTER[number % 2])
            if self.silence:
                world.meddle(f"{DOWN} {DROP}", chain="silence")
            conntrack.flush(world.router)
            if self.silence:
                time.sleep(self.silence)
                world.drop_chain("silence")
            runs.append(running.end(1, self.measure))
        visits = [found.visits[0] for found in runs]
        return [Run(visits[:2] + visits[-1:] * (VISITS - len(visits[:2])), runs[0].before)]


class Joined(Line):
    """The client has just joined: it does not know its gateway's address on the link."""

    def before_visit(self, world):
        world.client.ip("neigh", "flush", "all")


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def lines():
    """All of them, in the table's order."""
    yield Line("good-fo", "nothing meddles", FO)
    yield Line("good-fo-udp", "nothing meddles", FO_UDP)
    yield Line("good-asap", "nothing meddles", ASAP, **CERTIFIED)
    yield Line("good-asap-udp", "nothing meddles", ASAP_UDP, **CERTIFIED)
    yield Line("good-known", "nothing meddles", KNOWN, **CERTIFIED)
    yield Line("good-known-udp", "nothing meddles", KNOWN_UDP, **CERTIFIED)
    yield from in_udp()
    yield from refusing()
    yield from silent()
    yield from verifiers()
    yield from addresses()
    yield from narrow()
    yield from crowds()
    yield Rebound(
        "rebound", "the client's UDP port changes in a response", FO_UDP, path="/large", measure="total_ms",
        words=(ASKED, ASKED, ASKED), second=(500, 500, 500), wire=("--rate-down", "4M"), most=100, uploads=False,
    )  # fmt: skip
    yield Rebound(
        "rebound-silent", "it changes while a response is awaited", FO_UDP, path="/large", measure="total_ms",
        words=(ASKED, ASKED, ASKED), second=(KEEP_ALIVE + 3000,) * 3, wire=("--rate-down", "4M"), silence=2,
        timeout=60, most=20, checked=1, uploads=False,
    )  # fmt: skip
    yield Joined("joined", "joined just before", FO_UDP, separate=True, network_id=())
    yield from lossy()


def in_udp():
    what = "in UDP, SYNs longer than 100 bytes are dropped"
    yield Line("udp-long-fo", what, FO_UDP, (f"{LONG_UDP_SYN} {DROP}",), **FIRST_LOST)
    yield Line(
        "udp-long-fo-warm", what, FO_UDP, (f"{LONG_UDP_SYN} {DROP}",), warm=True,
        words=(LOST, REMEMBERED, REMEMBERED), second=(TIMEOUT, 0, 0),
    )  # fmt: skip
    yield Line("udp-long-known", what, KNOWN_UDP, (f"{LONG_UDP_SYN} {DROP}",), **CERTIFIED_LOST)
    what = "in UDP, such SYNs are answered by ICMP, prohibited"
    yield Line("udp-long-icmp-fo", what, FO_UDP, (f"{LONG_UDP_SYN} {PROHIBITED}",), **FIRST_REFUSED)
    yield Line("udp-long-icmp-known", what, KNOWN_UDP, (f"{LONG_UDP_SYN} {PROHIBITED}",), **CERTIFIED_REFUSED)


def refusing():
    """What answers SYNs by a RST or an ICMP error."""
    answers = {"RST": RST, "ICMP, prohibited": PROHIBITED, "ICMP, port unreachable": UNREACHABLE}
    for label, verdict in answers.items():
        key = label.lower().replace(", ", "-").replace(" ", "-")
        what = f"SYNs with option 34 are answered by {label}"
        words = (REFUSED, REMEMBERED, REMEMBERED)
        yield Line(f"option-{key}", what, FO, (f"{WITH_OPTION} {verdict}",), words)
        what = f"SYNs with data are answered by {label}"
        yield Line(f"data-{key}", what, FO, (f"{WITH_DATA} {verdict}",), **FIRST_REFUSED)
    what = "SYNs with option 34 are answered by RST; a cookie from before"
    yield Line("option-rst-warm", what, FO, (f"{WITH_OPTION} {RST}",), (REFUSED, REMEMBERED, REMEMBERED), warm=True)
    yield Line("data-rst-known", "SYNs with data are answered by RST", KNOWN, (f"{WITH_DATA} {RST}",), **CERTIFIED_REFUSED)
    what = "SYNs with ASAP's option are answered by RST"
    yield Line("option-rst-asap", what, ASAP, (f"{WITH_ASAP} {RST}",), **CERTIFIED_REFUSED)


def silent():
    """What drops or alters without a word."""
    yield Line("data-drop", "SYNs with data are dropped", FO, (f"{WITH_DATA} {DROP}",), **FIRST_LOST)
    yield Line("data-drop-known", "SYNs with data are dropped", KNOWN, (f"{WITH_DATA} {DROP}",), **CERTIFIED_LOST)
    yield Line(
        "option-drop", "SYNs with option 34 are dropped", FO, (f"{WITH_OPTION} {DROP}",),
        (LOST, REMEMBERED, REMEMBERED), (FIRST_TIMEOUT, 0, 0),
    )  # fmt: skip
    yield Line(
        "option-drop-warm", "SYNs with option 34 are dropped; a cookie from before", FO, (f"{WITH_OPTION} {DROP}",),
        (LOST, REMEMBERED, REMEMBERED), (TIMEOUT, 0, 0), warm=True,
    )  # fmt: skip
    stripped = (STRIPPED, STRIPPED | REMEMBERED, STRIPPED | REMEMBERED)
    strip = "counter reset tcp option fastopen"
    yield Line(
        "option-strip", "the SYN's option 34 is removed: 254 is used", FO, (f"{SYN} {strip}",),
        (STRIPPED, ASKED, ACCEPTED),
    )  # fmt: skip
    both = (f"{SYN} {strip}", f"{SYN} reset tcp option 254")
    yield Line("options-strip", "the SYN's options 34 and 254 are removed", FO, both, stripped)
    yield Line(
        "option-strip-warm", "the SYN's option 34 is removed; a cookie from before", FO, (f"{SYN} {strip}",),
        stripped, warm=True,
    )  # fmt: skip
    yield Line(
        "answer-strip", "the SYN-ACK's options 34 and 254 are removed", FO,
        (f"{SYN_ACK} {strip}", f"{SYN_ACK} reset tcp option 254"), stripped,
    )  # fmt: skip
    marked = (f"{WITH_DATA} ct mark set 1", f"ct mark 1 tcp flags & syn != syn ip length > 80 {DROP}")
    yield Line(
        "black-hole", "after a SYN with data, all that carries data is dropped", FO, marked,
        (ASKED, SWALLOWED, REMEMBERED), (0, SWALLOWED_FOR, 0),
    )  # fmt: skip


def verifiers():
    for where, what in {
        "dead": "dead: its port is closed",
        "filtered": "filtered",
        "rejected": "answered for by ICMP, prohibited",
        "slow": "3 s away",
        "other key": "of another key",
    }.items():
        key = where.replace(" ", "-")
        yield Verified(f"verifier-{key}", f"the verifier is {what}", where)
        yield Verified(f"verifier-{key}-warm", f"the verifier is {what}; a cookie from before", where, warm=True)
    yield Verified("verifier-filtered-ip", "the verifier is filtered", "filtered", BOTH)
    yield ViaDns("verifier-via-dns", "two dead verifiers, `--via-dns`", FO_UDP)


def addresses():
    yield Neighbours("neighbour-rst", "a neighbour's SYN-ACK was answered by RST", KNOWN, **CERTIFIED)
    yield Pool(
        "pool", "the verifier sees another address than the server", KNOWN_UDP,
        words=(CERTIFYING | ELSEWHERE, CERTIFYING | ELSEWHERE, CERTIFYING | ELSEWHERE),
    )  # fmt: skip
    six = (f"{UP} meta nfproto ipv6 {DROP}",)
    words = (ASKED | SECOND, ASKED | ACCEPTED, ACCEPTED)
    what = "IPv6 is lost"
    yield Silent6("silent6", what, FO, six, words, (ATTEMPT, 0, 0), families=(4, 6))
    yield Silent6("silent6-udp", what, FO_UDP, six, words, (ATTEMPT, 0, 0), families=(4, 6))


def narrow():
    small, later = NARROW | ACCEPTED, ACCEPTED | NARROW | REMEMBERED
    certified = (CERTIFYING | NARROW, CERTIFYING | later, later)
    what = "packets of more than 576 bytes are answered by ICMP, too big"
    yield Narrow("narrow-fo", what, FO, words=(small, later, later), warm=True, path=LONG_PATH, mtu=576)
    yield Narrow("narrow-known", what, KNOWN, words=certified, warm=True, path=LONG_PATH, mtu=576)
    what = "packets of more than 600 bytes are answered by ICMP, too big"
    fitting = dict(path=FITTING_PATH, mtu=600)
    yield Narrow("narrow-fo-udp", what, FO_UDP, words=(small, later, later), warm=True, **fitting)
    yield Narrow("narrow-known-udp", what, KNOWN_UDP, words=certified, **fitting)
    # Plain TCP does not find smaller segments than 1,024 bytes by itself.
    hole = dict(mtu=1280, silent=True)
    what = "packets of more than 1,280 bytes are dropped"
    later = ACCEPTED | REMEMBERED | SWALLOWED
    yield Narrow(
        "hole-fo", what, FO, words=(SWALLOWED | NARROW, later, later), second=(TIMEOUT, 0, 0), warm=True,
        path=LONGER_PATH, gain=0.5, **hole,
    )  # fmt: skip
    yield Narrow(
        "hole-known", what, KNOWN, words=(CERTIFYING | SWALLOWED, CERTIFYING | later, CERTIFYING | later),
        second=(FIRST_TIMEOUT, TIMEOUT, 0), path=LONGER_PATH, gain=0.5, **hole,
    )  # fmt: skip
    yield Narrow(
        "hole-upload", f"{what}; 30 kB are sent", FO, words=(ASKED | SWALLOWED, ASKED | later, later),
        second=(0, TIMEOUT, 0), upload="upload-large", gain=0.5, most=100, **hole,
    )  # fmt: skip


def crowds():
    yield Crowd("crowd-asap", "24 clients behind one address at once", KNOWN_UDP, clients=24, **CERTIFIED)
    yield Crowd("crowd-fo", "12 clients behind one address at once", FO_UDP, clients=12)
    yield Stale("stale", "the server's key changed three times", BOTH_UDP, words=(STALE | ACCEPTED, STALE | ACCEPTED, ACCEPTED))


def lossy():
    for way, key in ((FO, "fo"), (FO_UDP, "fo-udp"), (ASAP_UDP, "asap-udp")):
        yield Line(
            f"loss-{key}", "2 % of packets are lost", way, words=(ANY, ANY, ANY), second=(FIRST_TIMEOUT, TIMEOUT, TIMEOUT),
            quantile=0.9, wire=("--loss", "2%"),
        )  # fmt: skip
