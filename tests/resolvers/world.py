"""A small Internet: a client, its resolver, a private root with its zones, a front, a server, and their wires.

                    root, com, xyz.com
                          | 50 ms
      client --10 ms-- resolver --50 ms-- front of f.xyz.com, and the authority of cdn.xyz.com
         |                                  | 2 ms
         +------------50 ms-------------- server

Each line is a separate wire (`firstflight-lab wire`), because a star could not give these round-trip times. Zones
have addresses of one family only, so that resolvers have no choice.
"""

import os
import random
import shutil
import socket
import time

import firstflight
from dnswire import A, query
from firstflight import Command, at
from net import AF, Pair, workdir
from process import Process, run
from sealed import KEY_ID
from testbed import Testbed
from wire import Wire

#: Round-trip times, ms: the defaults of run.py.
RTTS = {"resolver": 10, "root": 50, "front": 50, "server": 50, "relay": 2}
#: The wires that carry only questions to authorities.
TO_AUTHORITIES = ("root", "front")
ZONE = "f.xyz.com"
#: The zone whose authority answers in the thesis' way. The thesis uses `www.xyz.com`.
THESIS_ZONE = "cdn.xyz.com"
#: The HTTP port. For another port the HTTPS record has a different name, which takes resolvers longer.
PORT, RELAY_PORT, VERIFIER_PORT = 80, 4454, 4433
BODY = 1000
#: Number of hosts of the site that no resolver knows until they are queried: `h0.xyz.com` and so on.
HOSTS = 400

#: The wires from the client to the resolver, and so on. The first address is the host's end.
TO_RESOLVER, TO_ROOT, TO_FRONT, TO_SERVER, RELAY, ENGINE = (Pair(number) for number in range(101, 107))

SOA = "@ IN SOA ns.xyz.com. hostmaster.xyz.com. 1 86400 7200 3600000 60\n"


def more(address, number):
    """Another address of the same network."""
    separator = ":" if ":" in address else "."
    return separator.join([*address.split(separator)[:-1], str(number)])


class World(Testbed):
    """Everything except a resolver, in one family. The resolver is started in the namespace `resolver`."""

    #: The DS record of the root's key, after `DS`. If set, resolvers validate; None means that nothing is signed.
    anchor = None

    def __init__(self, family, rtts, keys):
        super().__init__()
        self.family, self.rtts, self.keys = family, rtts, keys
        #: Number of addresses that the client has had towards the server.
        self.numbered = 0
        self.kind = "A" if family == 4 else "AAAA"
        self.resolver_address = TO_RESOLVER.peer[family]
        self.root_address, self.com_address, self.xyz_address = (more(TO_ROOT.peer[family], n) for n in (2, 3, 4))
        self.front_address, self.thesis_address = (more(TO_FRONT.peer[family], n) for n in (2, 3))
        self.server_address = TO_SERVER.peer[family]

    def __enter__(self):
        super().__enter__()
        try:
            self.build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def build(self):
        names = ("client", "resolver", "root", "front", "server")
        self.client, self.resolver, self.root, self.front, self.server = map(self.namespace, names)
        self.directory = self.enter_context(workdir())
        self.wires()
        for address in (self.com_address, self.xyz_address):
            self.root.ip("addr", "add", Pair.cidr(address), "dev", "root", *self.nodad())
        self.front.ip("addr", "add", Pair.cidr(self.thesis_address), "dev", "front", *self.nodad())
        self.resolv_conf()
        self.verifier_key = run(
            firstflight.BINARY, "verifier", "keygen", "-o", os.path.join(self.directory, "verifier.key")
        ).stdout.split()[1]
        self.parents()
        self.fronts()
        self.thesis()

    def wires(self):
        for left, right, pair, name in (
            (self.client, self.resolver, TO_RESOLVER, "resolver"),
            (self.resolver, self.root, TO_ROOT, "root"),
            (self.resolver, self.front, TO_FRONT, "front"),
            (self.client, self.server, TO_SERVER, "server"),
            (self.front, self.server, RELAY, "relay"),
        ):
            self.wire(left, right, pair, name)

    def wire(self, left, right, pair, name, device=None):
        """A wire with the round-trip time for `name`. The device has the same name unless another one is given."""
        # Give the wires the highest priority: they must be on time, whatever else the machine does.
        prefix = ("chrt", "-f", "10")
        options = ("--rtt", f"{self.rtts[name]}ms", *self.damage(name))
        self.start(Wire(left, right, pair, *options, device=device or name, prefix=prefix))

    def damage(self, _name):
        """Further impairments of the wire `name`: options of `firstflight-lab wire`."""
        return ()

    def resolv_conf(self):
        """Makes this resolver the client's system resolver, by `ip netns exec`."""
        directory = f"/etc/netns/{self.client.name}"
        os.makedirs(directory)
        self.callback(shutil.rmtree, directory, ignore_errors=True)
        with open(os.path.join(directory, "resolv.conf"), "w", encoding="utf-8") as file:
            file.write(f"nameserver {self.resolver_address}\n")

    def nodad(self):
        return ["nodad"] if self.family == 6 else []

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def name_server(self, ns, address, origin, zone, *options):
        name = origin.strip(".") or "root"
        zone = self.file(f"{name}.zone", f"$TTL 86400\n{SOA}{zone}")
        command = [firstflight.BINARY, "dns", "--listen", at(address, 53), "--zone", zone, "--origin", origin, *options]
        server = self.start(Process(command, ns=ns))
        server.wait_until(lambda: "listening on" in server.text(), f"name server of {origin}")
        return server

    def zones(self):
        """The origins, addresses and contents of the zones above the DNS-path zone."""
        kind = self.kind
        root = (
            f"@ NS a.root.\na.root. {kind} {self.root_address}\n"
            f"com. NS ns.com.\nns.com. {kind} {self.com_address}\n"
        )
        com = f"@ NS ns\nns {kind} {self.com_address}\nxyz NS ns.xyz\nns.xyz {kind} {self.xyz_address}\n"
        # A wildcard, for names that no resolver knows yet.
        site = (
            f"@ NS ns\nns {kind} {self.xyz_address}\n"
            f"www {kind} {self.server_address}\n* {kind} {self.server_address}\n{self.delegation()}"
            f"cdn NS ns.cdn\nns.cdn {kind} {self.thesis_address}\n{self.published()}"
        )
        return ((".", self.root_address, root), ("com.", self.com_address, com), ("xyz.com.", self.xyz_address, site))

    def delegation(self):
        """The delegation of the DNS-path zone."""
        return f"f NS ns.f\nns.f {self.kind} {self.front_address}\n"

    def parents(self):
        """Starts the name servers above the DNS-path zone."""
        for origin, address, zone in self.zones():
            self.name_server(self.root, address, origin, zone)

    def fronts(self):
        """Starts the name server of the DNS-path zone."""
        self.dns_path_server(self.front, self.front_address, f"@ NS ns\nns {self.kind} {self.front_address}\n")

    def dns_path_server(self, ns, address, zone, number=0, *options):
        """Starts a front. If there are several, `number` counts them."""
        return self.name_server(
            ns, address, f"{ZONE}.", zone, "--dns-path-zone", ZONE, "--dns-path-address", TO_SERVER.peer[4],
            "--key-file", self.file("dns-path.key", self.keys.dns_path()),
            "--state", os.path.join(self.directory, f"boot-{number}"), "--front-id", str(100 * number),
            "--relay", f"{at(RELAY.peer[self.family], RELAY_PORT)}={self.file('relay', self.keys.relay())}", *options,
        )  # fmt: skip

    def thesis(self):
        """Starts the authority that answers in the thesis' way."""
        here = os.path.dirname(os.path.abspath(__file__))
        responder = self.start(
            Process(
                ["python3", os.path.join(here, "responder.py"), self.thesis_address, THESIS_ZONE, self.server_address],
                ns=self.front,
            )
        )
        responder.wait_until(lambda: "ready" in responder.text(), "the responder")

    def asker(self, inner=None):
        return Asker(self, inner)

    def published(self):
        """The records that say, for all names of the server, that it accepts certificates and first flights by
        lookups."""
        return "".join(f"{name} HTTPS 1 . {self.parameter()}\n" for name in ("www", "*"))

    def parameter(self):
        """The parameter that the server publishes."""
        told = run(
            firstflight.BINARY, "asap", "record", "--verifier-key", self.verifier_key, "--udp-port", str(PORT),
            "--dns-path-zone", ZONE, "--dns-path-key", f"{KEY_ID}:{self.keys.public.hex()}",
        )  # fmt: skip
        return told.stdout.strip()

    def web_servers(self):
        """Starts the server, over TCP in UDP and on the kernel's TCP, and two verifiers."""
        family = self.family
        root = self.root_directory = Testbed.root(self, small=BODY)
        verifiers = [more(self.server_address, number) for number in (3, 4, 5)]
        for address in verifiers:
            self.server.ip("addr", "add", Pair.cidr(address), "dev", "server", *self.nodad())
        self.issuer, self.second = (at(address, VERIFIER_PORT) for address in verifiers[:2])
        key, stranger = os.path.join(self.directory, "verifier.key"), at(verifiers[2], 0)
        for listen, options in ((self.issuer, ["--probe-from", stranger]), (self.second, [])):
            self.command(
                "verifier", "--listen", listen, "--key-file", key, "--allow-prefix", self.clients(), *options
            )
        identities = ["www.xyz.com", *(f"h{number}.xyz.com" for number in range(HOSTS))]
        trust = self.file("trust.toml", f'# begin\n[[verifier]]\nkey = "{self.verifier_key}"\nown = true\n# end\n')
        self.serve = self.command(
            "serve", "--json-log", "--root", root, "--udp", at(self.server_address, PORT), "--trust", trust, "--first-start",
            "--relay-listen", at(RELAY.peer[family], RELAY_PORT), "--relay-key", os.path.join(self.directory, "relay"),
            *(word for identity in identities for word in ("--identity", identity)),
        )  # fmt: skip
        # For an engine with its own device in the client's namespace.
        self.client.forward()
        self.server.ip(f"-{family}", "route", "add", ENGINE.net[family], "via", TO_SERVER.host[family])

    def clients(self):
        """All addresses that the client may have towards the server."""
        return f"10.{TO_SERVER.number}.0.0/16" if self.family == 4 else f"fd00:{TO_SERVER.number}::/32"

    def renumber(self):
        """Gives the client another address towards the server, in IPv6 in another /56, because servers accept only a
        few first flights per minute from each."""
        self.numbered += 1
        family, number = f"-{self.family}", self.numbered
        if self.family == 4:
            address, bits = f"10.{TO_SERVER.number}.{number // 200 + 1}.{number % 200 + 1}", 32
        else:
            address, bits = f"fd00:{TO_SERVER.number}:0:{number:x}00::1", 128
        self.client.ip(family, "addr", "add", f"{address}/{bits}", "dev", "server", *self.nodad())
        # Before the kernel's own route, which IPv6 does not replace.
        first = ["metric", "10"] if self.family == 6 else []
        self.client.ip(family, "route", "replace", TO_SERVER.net[self.family], "dev", "server", "src", address, *first)
        self.server.ip(family, "route", "replace", self.clients(), "dev", "server")

    def command(self, *arguments):
        """Starts the command under test in the server's namespace, and waits until it listens."""
        return self.start(Command(self.server, *arguments))

    def executed(self):
        """Number of requests that the server over TCP in UDP has executed so far."""
        requests = (record for record in self.serve.records() if record.get("event") == "request")
        return sum(record["way"] == "udp" for record in requests)


class Asker:
    """A socket of the client that asks the resolver, or a socket next to the resolver that asks another resolver
    there."""

    def __init__(self, world, inner=None):
        with (world.resolver if inner else world.client).entered():
            self.socket = socket.socket(socket.AF_INET if inner else AF[world.family], socket.SOCK_DGRAM)
        self.socket.connect(inner or (world.resolver_address, 53))
        self.number = random.randrange(65536)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def alive(self):
        """Whether a question without recursion, which needs no other server, gets any answer."""
        message = bytearray(query(0, []))
        message[2] = 0
        try:
            self.socket.send(message)
            self.socket.settimeout(0.3)
            return bool(self.socket.recv(4096))
        except OSError:
            return False

    def send(self, names, kind=None, validated=False):
        """Asks for all names at once. Returns the time in seconds of the wall clock."""
        messages = []
        for name in names:
            self.number = (self.number + 1) % 65536
            messages.append(query(self.number, name, kind or A, validated))
        when = time.time()
        for message in messages:
            self.socket.send(message)
        return when

    def answers(self, count, timeout=5):
        """Waits for `count` answers. Returns those that arrive in time."""
        found, deadline = [], time.monotonic() + timeout
        while len(found) < count and (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                found.append(self.socket.recv(4096))
            except TimeoutError:
                break
        return found

    def ask(self, name, kind=None, timeout=8, validated=False):
        """Asks for one name, again every 2 s. Returns the answer."""
        for _ in range(max(1, timeout // 2)):
            self.send([name], kind, validated)
            for answer in self.answers(1, 2):
                return answer
        raise AssertionError(f"no answer for {b'.'.join(name)!r}")
