"""The networks. Each has a way in which a client visits a server there."""

from kinds import Crowd, Joined, Narrow, Neighbours, Pool, Rebound, Silent6, Stale, Verified, ViaDns
from lines import (
    DROP,
    LONG_UDP_SYN,
    NO_HOST,
    PROHIBITED,
    RST,
    SHORT_UDP_SYN,
    SYN,
    SYN_ACK,
    UDP_SYN_ACK,
    UNREACHABLE,
    UP,
    WITH_ASAP,
    WITH_DATA,
    WITH_OPTION,
    Line,
)
from visits import Way
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

FO, FO_UDP = Way("ip"), Way("udp")
ASAP_UDP, ASAP = Way("udp", "certificate"), Way("ip", "certificate")
KNOWN, KNOWN_UDP = Way("ip", "certificate", known=True), Way("udp", "certificate", known=True)
BOTH, BOTH_KNOWN_UDP = Way("ip", "both"), Way("udp", "both", known=True)

#: How long a client waits for the answer to a SYN before it sends another one, ms: without and with a known
#: round-trip time.
FIRST_TIMEOUT, TIMEOUT = 1000, 130
#: When a second connection attempt begins in parallel with the first (RFC 8305 section 5), ms.
ATTEMPT = 250
#: If the handshake succeeds and nothing else does: 1.5 round trips (docs/guide/known-limits.md), plus the granularity of
#: timers.
SWALLOWED_FOR = 80
#: How long an idle client waits before it sends a keep-alive, ms.
KEEP_ALIVE = 15_000
#: More than fits into a SYN for a path of 600 or 1,280 bytes.
LONG_PATH, LONGER_PATH = ("/small?" + "x" * length for length in (1000, 1350))
#: In UDP the request and its response fit into packets of 600 bytes, but a SYN with the request and a credential
#: does not. The request's other lines have 89 bytes.
FITTING_PATH = "/tiny?" + "x" * 431

FIRST_LOST = dict(words=(ASKED, LOST, REMEMBERED), second=(0, TIMEOUT, 0))
FIRST_REFUSED = dict(words=(ASKED, REFUSED, REMEMBERED))
CERTIFIED = dict(words=(CERTIFYING, CERTIFYING, ACCEPTED))
CERTIFIED_LOST = dict(
    words=(CERTIFYING | LOST, CERTIFYING | LOST | REMEMBERED, REMEMBERED | LOST), second=(FIRST_TIMEOUT, TIMEOUT, 0)
)
CERTIFIED_UNANSWERED = {**CERTIFIED_LOST, "second": (2 * FIRST_TIMEOUT, 2 * TIMEOUT, 0)}
CERTIFIED_LATE = {**CERTIFIED, "second": (FIRST_TIMEOUT, TIMEOUT, TIMEOUT)}
CERTIFIED_REFUSED = dict(words=(CERTIFYING | REFUSED, CERTIFYING | REFUSED | REMEMBERED, REMEMBERED | REFUSED))


def lines():
    """All lines, in the table's order."""
    yield Line("good-fo", "nothing meddles", FO)
    yield Line("good-fo-udp", "nothing meddles", FO_UDP)
    yield Line("good-asap", "nothing meddles", ASAP, **CERTIFIED)
    yield Line("good-asap-udp", "nothing meddles", ASAP_UDP, **CERTIFIED)
    yield Line("good-known", "nothing meddles", KNOWN, rides=True, **CERTIFIED)
    yield Line("good-known-udp", "nothing meddles", KNOWN_UDP, rides=True, **CERTIFIED)
    yield from in_udp()
    yield from refusing()
    yield from silent()
    yield from verifiers()
    yield from addresses()
    yield from narrow()
    yield from crowds()
    yield Rebound(
        "rebound", "the client's UDP port changes in a response", FO_UDP, path="/large", measure="total_ms",
        words=(ASKED, ASKED, ASKED), second=(500, 500, 500), wire=("--rate-down", "4M"), most=100, timeout=40,
        uploads=False,
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
        words=(LOST, LOST, REMEMBERED), second=(TIMEOUT, 0, 0),
    )  # fmt: skip
    yield Line(
        "udp-long-fo-processes", f"{what}; each visit a process", FO_UDP, (f"{LONG_UDP_SYN} {DROP}",), separate=True,
        **FIRST_LOST,
    )  # fmt: skip
    yield Line("udp-long-known", what, KNOWN_UDP, (f"{LONG_UDP_SYN} {DROP}",), **CERTIFIED_LOST)
    what = "in UDP, such SYNs are answered by ICMP, prohibited"
    yield Line("udp-long-icmp-fo", what, FO_UDP, (f"{LONG_UDP_SYN} {PROHIBITED}",), **FIRST_REFUSED)
    yield Line("udp-long-icmp-known", what, KNOWN_UDP, (f"{LONG_UDP_SYN} {PROHIBITED}",), **CERTIFIED_REFUSED)


def refusing():
    """Networks that answer SYNs with a RST or an ICMP error."""
    answers = {
        "RST": RST, "ICMP, prohibited": PROHIBITED, "ICMP, port unreachable": UNREACHABLE,
        "ICMP, host unreachable": NO_HOST,
    }  # fmt: skip
    for label, verdict in answers.items():
        key = label.lower().replace(", ", "-").replace(" ", "-")
        what = f"SYNs with option 34 are answered by {label}"
        words = (REFUSED, REMEMBERED, REMEMBERED)
        yield Line(f"option-{key}", what, FO, (f"{WITH_OPTION} {verdict}",), words)
        what = f"SYNs with data are answered by {label}"
        yield Line(f"data-{key}", what, FO, (f"{WITH_DATA} {verdict}",), **FIRST_REFUSED)
    what = "SYNs with option 34 are answered by RST; a cookie from before"
    yield Line("option-rst-warm", what, FO, (f"{WITH_OPTION} {RST}",), (REFUSED, REMEMBERED, REMEMBERED), warm=True)
    yield Line(
        "option-rst-processes", "SYNs with option 34 are answered by RST; each visit a process", FO,
        (f"{WITH_OPTION} {RST}",), words, separate=True,
    )  # fmt: skip
    what = "SYNs with data are answered by RST"
    yield Line("data-rst-known", what, KNOWN, (f"{WITH_DATA} {RST}",), **CERTIFIED_REFUSED)
    what = "SYNs with ASAP's option are answered by RST"
    yield Line("option-rst-asap", what, ASAP, (f"{WITH_ASAP} {RST}",), **CERTIFIED_REFUSED)


def silent():
    """Networks that drop or alter packets silently."""
    yield Line("data-drop", "SYNs with data are dropped", FO, (f"{WITH_DATA} {DROP}",), **FIRST_LOST)
    yield Line("data-drop-known", "SYNs with data are dropped", KNOWN, (f"{WITH_DATA} {DROP}",), **CERTIFIED_LOST)
    yield Line(
        "option-drop", "SYNs with option 34 are dropped", FO, (f"{WITH_OPTION} {DROP}",),
        (LOST, LOST, REMEMBERED), (FIRST_TIMEOUT, 0, 0),
    )  # fmt: skip
    yield Line(
        "option-drop-warm", "SYNs with option 34 are dropped; a cookie from before", FO, (f"{WITH_OPTION} {DROP}",),
        (LOST, LOST, REMEMBERED), (TIMEOUT, 0, 0), warm=True,
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
    what = "the SYN-ACKs of connections with data in the SYN are dropped"
    unanswered = (f"{WITH_DATA} ct mark set 1", f"{SYN_ACK} ct mark 1 {DROP}")
    yield Line("answer-drop", what, FO, unanswered, (ASKED, LOST, REMEMBERED), (0, 2 * TIMEOUT, 0))
    yield Line("answer-drop-known", what, KNOWN, unanswered, **CERTIFIED_UNANSWERED)
    what = "the SYN-ACK to data in a SYN is dropped, and the next one passes"
    lost = (
        f"{LONG_UDP_SYN} ct mark set 1", f"{SHORT_UDP_SYN} ct mark set 0", f"{UDP_SYN_ACK} ct mark 1 {DROP}",
    )  # fmt: skip
    yield Line("answer-lost-known-udp", what, KNOWN_UDP, lost, rides=True, **CERTIFIED_LATE)
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
    # Plain TCP does not find segment sizes below 1,024 bytes by itself.
    hole = dict(mtu=1280, silent=True)
    what = "packets of more than 1,280 bytes are dropped"
    later = ACCEPTED | REMEMBERED | SWALLOWED
    yield Narrow(
        "hole-fo", what, FO, words=(SWALLOWED | NARROW, later, later), second=(TIMEOUT, 0, 0), warm=True,
        path=LONGER_PATH, gain=0.5, most=100, **hole,
    )  # fmt: skip
    yield Narrow(
        "hole-fo-processes", f"{what}; each visit a process", FO, words=(SWALLOWED | NARROW, later, later),
        second=(TIMEOUT, 0, 0), warm=True, path=LONGER_PATH, gain=0.5, separate=True, most=100, **hole,
    )  # fmt: skip
    yield Narrow(
        "hole-known", what, KNOWN, words=(CERTIFYING | SWALLOWED, CERTIFYING | later, CERTIFYING | later),
        second=(FIRST_TIMEOUT, TIMEOUT, 0), path=LONGER_PATH, gain=0.5, most=100, **hole,
    )  # fmt: skip
    yield Narrow(
        "hole-upload", f"{what}; 30 kB are sent", FO, words=(ASKED | SWALLOWED, ASKED | later, later),
        second=(0, TIMEOUT, 0), upload="upload-large", gain=0.5, most=100, **hole,
    )  # fmt: skip


def crowds():
    yield Crowd("crowd-asap", "24 clients behind one address at once", KNOWN_UDP, clients=24, **CERTIFIED)
    yield Crowd("crowd-fo", "12 clients behind one address at once", FO_UDP, clients=12)
    yield Stale(
        "stale", "the server's key changed three times", BOTH_KNOWN_UDP,
        words=(STALE | ACCEPTED, STALE | ACCEPTED, ACCEPTED),
        most=150,
    )  # fmt: skip


def lossy():
    for way, key in ((FO, "fo"), (FO_UDP, "fo-udp"), (ASAP_UDP, "asap-udp")):
        yield Line(
            f"loss-{key}", "2 % of packets are lost", way, words=(ANY, ANY, ANY),
            second=(FIRST_TIMEOUT, TIMEOUT, TIMEOUT), quantile=0.9, wire=("--loss", "2%"),
        )  # fmt: skip
