"""A line of the table: what a network does, how a client visits a server there, and the required result."""

import dataclasses

from visits import Way, get, plain, sample
from wire import DEVICE
from words import ACCEPTED, ASKED
from world import verify_first

# Parts of rules: packets from the client, packets to the client, and kinds of SYNs.
UP, DOWN = f"oifname {DEVICE}", f"iifname {DEVICE}"
SYN = f"{UP} tcp flags & (syn|ack) == syn"
SYN_ACK = f"{DOWN} tcp flags & (syn|ack) == (syn|ack)"
WITH_DATA, WITH_OPTION, WITH_ASAP = (f"{SYN} {what}" for what in (
    "ip length > 80", "tcp option fastopen exists", "tcp option 253 exists"
))  # fmt: skip
#: In UDP: more than 100 bytes after the UDP header, the encapsulation's first byte, and the flags of the segment.
LONG_UDP_SYN = f"{UP} udp length > 108 @th,64,8 0x08 @th,200,8 & 0x12 == 0x02"
SHORT_UDP_SYN = f"{UP} udp length <= 108 @th,64,8 0x08 @th,200,8 & 0x12 == 0x02"
UDP_SYN_ACK = f"{DOWN} udp length > 8 @th,64,8 0x08 @th,200,8 & 0x12 == 0x12"
RST, PROHIBITED, UNREACHABLE, NO_HOST = (f"counter reject with {what}" for what in (
    "tcp reset", "icmpx admin-prohibited", "icmpx port-unreachable", "icmpx host-unreachable"
))  # fmt: skip
DROP = "counter drop"
#: Number of client addresses.
CLIENTS = 250


@dataclasses.dataclass
class Line:
    """A network, and visits in it. `words` and `second` have one value each for the first, the second and the last
    visit."""

    name: str
    network: str
    way: Way
    #: Rules of the router before the wire.
    rules: tuple = ()
    words: tuple = (ASKED, ACCEPTED, ACCEPTED)
    #: The delay of a second attempt, if one is needed, ms.
    second: tuple = (0, 0, 0)
    #: Whether the client has a cookie from an earlier visit without interference.
    warm: bool = False
    #: Whether each visit is a separate process.
    separate: bool = False
    path: str = "/small"
    #: A file that is sent, instead of fetching one.
    upload: str | None = None
    measure: str = "first_byte_ms"
    #: The share of samples for which the bound holds.
    quantile: float = 0.99
    #: Options of the wire.
    wire: tuple = ()
    #: Source of certificates, if not the world's verifiers.
    verifier: tuple | None = None
    #: Options that name the local network, if not the default ones.
    network_id: tuple | None = None
    #: Seconds after which a fetch fails.
    timeout: int = 8
    #: The second visit's median is at most this share of a plain one's.
    gain: float | None = None
    #: Maximum number of samples in the table. Slow lines have fewer.
    most: int = 300
    #: Maximum number of samples with --check.
    checked: int = 2
    #: Whether at-most-once uploads are also tried.
    uploads: bool = True
    #: Whether some of them must be accepted in a SYN.
    rides: bool = False

    def servers(self, world):
        world.servers(self.way.encapsulation)
        if self.way.credential != "cookie":
            world.verify()

    def warm_up(self, world):
        """Creates the cache of a client that visited before, if this line needs one."""
        if not self.warm:
            return
        memory = world.path("warm")
        found = get(world, self.way.url("/small"), *self.link(world), *self.memory(memory), "--repeat", 2, count=2)
        if [visit.word for visit in found.visits] != ["no-credential", "accepted"]:
            raise AssertionError(f"no cookie before: {found}")
        world.warm = memory

    def meddle(self, world):
        if self.rules:
            world.meddle(*self.rules)

    def memory(self, path):
        """Options for what is remembered of servers, for the local network, and for time limits."""
        identity = ("--network-id", "0" * 31 + "1") if self.network_id is None else self.network_id
        return ("--cache", path, *identity, "--timeout", self.timeout)

    def common(self, world, memory):
        """Options of a visit."""
        return (*self.target(world), *self.link(world), *self.options(world), *self.memory(memory))

    def target(self, world):
        """The URL to fetch, or to send to."""
        if self.upload:
            return (self.way.url("/sink"), "--upload", world.path(self.upload), "--replay-safe")
        return (self.way.url(self.path),)

    def link(self, world):
        """Options for how packets are sent. Clients have different addresses behind the translator, so that their
        ports do not collide with old connections at the server."""
        world.clients = world.clients % CLIENTS + 1
        return self.way.link(number=world.clients + 1)

    def options(self, world):
        return self.way.options(world, self.verifier)

    def plain_options(self, world):
        """Options of a plain visit in the same network."""
        return (*self.target(world), *self.link(world), "--no-fast-open", "--timeout", self.timeout)

    def upload_options(self, world, memory):
        """Options of an upload that may be executed only once. With a certificate it rides in a SYN."""
        target = (self.way.url("/sink", once=True), "--upload", world.path("upload-small"))
        rides = ("--asap-once", *verify_first()) if self.way.credential == "certificate" else ()
        return (*target, *self.link(world), *self.options(world), *rides, *self.memory(memory))

    def before_visit(self, world):
        """Called before each visit that is a separate process, and before each plain visit."""

    def samples(self, world):
        """One sample, or several that are made at the same time."""
        return [sample(world, self)]

    def plains(self, world):
        return [plain(world, self)]

    def more_failures(self, world, count):
        """Further failures after `count` samples."""
        return ()
