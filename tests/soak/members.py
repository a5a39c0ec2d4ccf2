"""Two members of a farm behind a bad wire: what they are, and what happens to them."""

import collections
import contextlib
import mmap
import os
import random
import re
import secrets
import struct
import time
import urllib.request

import firstflight
from net import Pair
from place import BACKENDS, PORT, Gateway, Place, service
from process import run
from redis_server import Redis
from wire import DEVICE, Wire

HERE = os.path.dirname(os.path.abspath(__file__))
PAIR = Pair(97)
#: The networks of the members' devices.
DEVICES = (Pair(98), Pair(99))
#: TCP port in UDP, and the UDP ports of the members, between which the router chooses. Port on the devices. Metrics.
UDP_PORT, MEMBERS_UDP, DEVICE_PORT, ADMIN = 8445, (8446, 8447), 8448, (7416, 7417)
WIRE = ("--rtt", "20ms", "--loss", "2%", "--reorder", "1%", "--reorder-delay", "5ms", "--dup", "0.5%")
#: Steps of a clock, seconds. After one forward a member takes no certificates until its clock shows that time again
#: (docs/spec/asap.md 7.5), or until it is killed: far ones are for the member that is.
STEPS, FAR = (-86400, -3600, -30, -5, -2, 2, 5), (30, 3600, 86400)
SECOND = 10**9

HEAD = """
[gateway]
log = "off"
drain = "2s"
threads = 1
admin = "127.0.0.1:{admin}"
[store]
redis = "{redis}"
keys = "{place}/farm.keys"
state = "{place}/store{number}"
[one_time]
state = "{place}/serials{number}"
issuer = {number}
"""
KERNEL = """
[[listener]]
name = "kernel"
address = ["0.0.0.0:{port}"]
mode = "http"
service = "app"
udp_port = 0
reuse_port = true
idle_timeout = "20s"
key_file = "{place}/keys"
"""
ONCE = """
mode = "http"
service = "app"
idle_timeout = "20s"
replays = "at-most-once"
one_time = true
early = "{early}"
"""
UDP = """
[[listener]]
name = "udp"
address = ["{address}:{port}"]
udp_port = {udp}
reuse_port = true
{once}
[listener.verifier]
key = "{place}/verifier.key"
allow = ["{clients}"]
members = 2
"""
TUN = """
[[listener]]
name = "device"
{once}
[listener.tun]
device = "ff{number}"
host = ["{host}"]
address = ["{address}"]
port = {port}
"""


class Clock:
    """The wall clock of one member: a file with its offset."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(8))
        with open(path, "r+b") as file:
            self.place = mmap.mmap(file.fileno(), 8)

    def set(self, seconds):
        self.place[:8] = struct.pack("q", seconds * SECOND)


class Farm(Place):
    """The machines, the members, and what happens to them. The first member is never killed."""

    def __enter__(self):
        super().__enter__()
        # The name of `Place`: the machine with the members and the backends.
        self.client = self.namespace("soak-client")
        self.start(Wire(self.client, self.ns, PAIR, *WIRE, "--seed", 7))
        self.ns.forward()
        self.ns.sysctl("net.ipv4.conf.all.rp_filter", 0)
        for pair in DEVICES:
            self.client.ip("route", "add", pair.net[4], "via", PAIR.peer[4])
        # Both members are told what waits when one of them ends.
        self.ns.sysctl("net.ipv4.tcp_migrate_req", 1)
        self.library = self.path("clock.so")
        run("cc", "-O2", "-shared", "-fPIC", "-o", self.library, os.path.join(HERE, "clock.c"))
        self.clocks = [Clock(self.path(f"clock{number}")) for number in (0, 1)]
        self.secret("farm.keys", secrets.token_hex(48))
        told = run(firstflight.BINARY, "verifier", "keygen", "-o", self.path("verifier.key")).stdout
        self.verifier = told.split()[1]
        self.redis = self.start(Redis(self.directory))
        self.keys = [self.new_key(), self.new_key()]
        self.backends = {port: self.backend(port) for port in BACKENDS}
        self.order = list(BACKENDS)
        self.write_keys()
        self.configure()
        # The socket's port is the answer's, whichever member it comes from.
        self.ns.nft(f"type filter hook output priority -300; udp sport {{ {MEMBERS_UDP[0]}, {MEMBERS_UDP[1]} }} "
                    f"udp sport set {UDP_PORT}", chain="answers")  # fmt: skip
        self.members = [None, None]
        for number in (0, 1):
            self.members[number] = self.member(number)
        self.share(both=True)
        self.happened, self.deck = collections.Counter(), []
        return self

    # --- the members

    def secret(self, name, text):
        """Writes a file in one step."""
        with open(os.open(self.path("new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text + "\n")
        os.rename(self.path("new"), self.path(name))

    def new_key(self):
        return "-".join(f"{random.randrange(1 << 32):08x}" for _ in range(4))

    def write_keys(self):
        self.secret("keys", ",".join(self.keys))

    def configure(self):
        for number, pair in enumerate(DEVICES):
            place = self.directory
            # A client on IP repeats a SYN whose answer was lost as a plain one. A member that was killed meanwhile does not know that
            # its data has run (docs/guide/known-limits.md). So on the device of member 2 a POST waits for the handshake. In UDP the
            # certificate is in each repeated SYN.
            self.write(
                HEAD.format(admin=ADMIN[number], redis=self.redis.url, place=place, number=number),
                KERNEL.format(port=PORT, place=place),
                UDP.format(
                    address=PAIR.peer[4], port=UDP_PORT, udp=MEMBERS_UDP[number], place=place, clients=PAIR.net[4],
                    once=ONCE.format(early="any"),
                ),
                TUN.format(
                    number=number, host=Pair.cidr(pair.host[4]), address=pair.peer[4], port=DEVICE_PORT,
                    once=ONCE.format(early=("any", "safe")[number]),
                ),
                service(self.order).replace("[service.passive]", 'pool_idle = "2s"\n[service.passive]'),
                name=f"gateway{number}.toml",
            )  # fmt: skip

    def member(self, number):
        environment = os.environ | {"LD_PRELOAD": self.library, "SOAK_CLOCK": self.clocks[number].path}
        command = [self.binary, "gateway", self.path(f"gateway{number}.toml")]
        return self.start(Gateway(command, ns=self.ns, env=environment))

    def share(self, both):
        """Which members get the datagrams: by their port, or all the first one."""
        rules = [f"udp dport {UDP_PORT} udp dport set {MEMBERS_UDP[0]}"]
        if both:
            rules.insert(0, f"udp dport {UDP_PORT} jhash udp sport mod 2 seed 0x7 1 udp dport set {MEMBERS_UDP[1]}")
        commands = ["table inet path { chain share { type filter hook prerouting priority -300; }; }", "flush chain inet path share"]
        run("nft", "; ".join(commands + [f"add rule inet path share {rule}" for rule in rules]), ns=self.ns)

    def metrics(self, number):
        with self.ns.entered(), contextlib.closing(urllib.request.urlopen(f"http://127.0.0.1:{ADMIN[number]}/metrics")) as answer:
            return answer.read().decode()

    def metric(self, number, name):
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.metrics(number), re.MULTILINE))

    # --- what happens

    def reload(self):
        self.order.reverse()
        self.configure()
        for member in self.members:
            member.reload("was read again")

    def turn_keys(self):
        """A new key, with which cookies are granted; that of before is still good."""
        self.keys = [self.new_key(), self.keys[0]]
        self.write_keys()
        self.reload()

    def kill_member(self):
        """Its clients in UDP come to the other one."""
        self.members[1].kill()
        self.share(both=False)
        time.sleep(random.choice((0, 0.5, 2)))
        self.members[1] = self.member(1)
        self.share(both=True)

    def kill_backend(self):
        port = random.choice(BACKENDS)
        self.backends[port].kill()
        time.sleep(random.choice((0, 0.3)))
        self.backends[port] = self.backend(port)

    def step_clock(self):
        """Of one member or of both. Sometimes one is killed before the clock is right again."""
        which = random.choice(((0,), (1,), (0, 1)))
        seconds = random.choice(STEPS + FAR if which == (1,) else STEPS)
        for number in which:
            self.clocks[number].set(seconds)
        time.sleep(random.uniform(0, 4))
        if random.random() < 0.3:
            self.kill_member()
        began = time.time()
        self.reload()
        for number in (0, 1):
            told = self.metric(number, "firstflight_gateway_reload_success_timestamp_seconds")
            off = seconds if number in which else 0
            if not began - 1 <= told - off <= time.time() + 1:
                raise AssertionError(f"a member whose clock is {off} s off says {told} at {time.time()}")
        for number in which:
            self.clocks[number].set(0)

    def resets(self):
        """One of ten segments with data is answered with RST, for a moment."""
        rule = f"iifname {DEVICE} tcp dport {{ {PORT}, {DEVICE_PORT} }} tcp flags & (syn|ack) == ack numgen random mod 10 == 0"
        with self.meddling(*(f"type filter hook {hook} priority 0; {rule} reject with tcp reset" for hook in ("input", "forward"))):
            time.sleep(0.5)

    def silence(self):
        with self.meddling(f"type filter hook prerouting priority -310; iifname {DEVICE} drop"):
            time.sleep(random.choice((0.3, 1, 3)))

    @contextlib.contextmanager
    def meddling(self, *chains):
        for number, rules in enumerate(chains):
            self.ns.nft(rules, chain=f"meddle{number}")
        yield
        for number in range(len(chains)):
            run("nft", "delete", "chain", "inet", "path", f"meddle{number}", ns=self.ns)

    def happen(self):
        """Everything happens once, in a random order, before it happens again."""
        self.deck = self.deck or random.sample(EVENTS, len(EVENTS))
        event = self.deck.pop()
        event(self)
        self.happened[event.__name__.replace("_", " ")] += 1


EVENTS = (Farm.reload, Farm.turn_keys, Farm.kill_member, Farm.kill_backend, Farm.step_clock, Farm.resets, Farm.silence)
