"""Two gateways of a farm that take certificates: a request runs once, whichever of them its copy reaches, and a stranger
without a certificate cannot make the farm forget."""

import hashlib
import ipaddress
import os
import re
import secrets
import socket
import struct
import time

import pytest

import firstflight
from firstflight import at, is_accepted, show
from packets import Capture, segment
from process import run
from redis_server import Redis
from scene import FAR, PORT, Scene
from test_gateway import ADMIN, APP, BACKEND, GLOBAL, Backend, Gateway, curl
from test_gateway_farm import STORE, write

pytestmark = pytest.mark.needs("curl", "nft", "redis-server")

#: UDP port of the second member, and its admin address.
OTHER_PORT, OTHER_ADMIN = 8082, ADMIN + 1
#: IPv4 and UDP; the encapsulation; the end of a credential block.
HEADERS, ENCAPSULATION, BLOCK = 28, 4, 196
#: Blocks of a stranger that once made a farm begin a new memory.
FLOOD = 113_800

LISTENER = """
[[listener]]
name = "web"
address = ["{address}"]
udp_port = {udp}
reuse_port = true
mode = "http"
service = "app"
trust = "{trust}"
{more}
"""


class Farm:
    """Two gateways with one address and one backend. Each has a UDP port of its own."""

    def __init__(self, testbed, shared, more=""):
        self.testbed, self.scene = testbed, Scene(testbed)
        self.scene.issuer()
        self.backend = testbed.start(Backend(self.scene.far, BACKEND))
        root = self.scene.root
        with open(os.open(self.scene.path("farm.keys"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(48))
        self.url = testbed.start(Redis(root)).url if shared else None
        site = "" if shared else "per_site = true\nfirst_start = true\n"
        self.files = [self.file(number, site + more) for number in (1, 2)]
        if shared:
            # A member's first start begins a new memory for all.
            for member in (0, 1):
                assert self.start(member).terminate() == 0, "exit status"
        self.members = [self.start(member) for member in (0, 1)]
        # One certificate for all visits: the requests of two may lag by up to twenty seconds.
        self.certificate = self.scene.path("my.certificate")
        run(
            firstflight.BINARY, "certificate", "get", *self.scene.asks(4), "-o", self.certificate, ns=self.scene.client
        )  # fmt: skip

    def file(self, number, more):
        root = self.scene.root
        general = GLOBAL.replace(str(ADMIN), str((ADMIN, OTHER_ADMIN)[number - 1]))
        memory = STORE.format(root=root, number=number, url=self.url) if self.url else ""
        udp = (PORT, OTHER_PORT)[number - 1]
        address, trust = at(FAR.peer[4], PORT), self.scene.path("trust.toml")
        listener = LISTENER.format(address=address, udp=udp, trust=trust, more=more)
        return write(root, f"gateway{number}.toml", general, memory, listener, APP)

    def start(self, member):
        return self.testbed.start(Gateway(self.scene.far, self.files[member]))

    def get(self, path, *options):
        url = f"http://{at(FAR.peer[4], PORT)}{path}"
        (record,) = self.scene.get(url, "--udp", *options)
        assert record["status"] == 200, show(record)
        return record

    def visit(self, path, *options):
        """A visit with the certificate."""
        return self.get(path, "--certificate", self.certificate, "--asap-known", *options)

    def accepted(self, capture):
        """The UDP payload of a first flight that the first member has accepted, and its path. What was made before the memory
        began, and a little later, is refused."""
        deadline = time.monotonic() + 90
        for number in range(1000):
            path = f"/{number}"
            del capture.packets[:]
            record = self.visit(path)
            if is_accepted(record):
                break
            assert time.monotonic() < deadline, show(record)
            time.sleep(1)
        seen = [(segment(left, packet), packet) for _, left, packet in list(capture.packets)]
        (flight,) = [packet for one, packet in seen if one and one.udp and one.is_opening and one.data]
        return flight[HEADERS:], path

    def executed(self, path):
        return sum(record.get("path") == path for record in self.backend.records())

    def settled(self):
        """The second member has handled all earlier packets: it answers a later request."""
        self.get("/later", "--udp-port", OTHER_PORT, "--no-fast-open")

    def asked(self, question):
        """What the store answers to a question."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(os.path.join(self.scene.root, "redis.sock"))
            sock.sendall(f"{question}\r\n".encode())
            return sock.recv(1000)[1:]

    def keys(self):
        return int(self.asked("DBSIZE"))

    def memory(self):
        """The mark of the memory. A new memory has another one."""
        return self.asked("GET firstflight:memory")

    def metric(self, admin, name):
        text = curl(self.scene.far, f"http://127.0.0.1:{admin}/metrics").stdout
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("shared", (True, False), ids=("store", "per-site"))
def test_asap_a_copy_at_the_other_member(testbed, shared):
    farm = Farm(testbed, shared)
    capture = testbed.enter_context(Capture(farm.scene.router, "veth1"))
    flight, path = farm.accepted(capture)
    # An eavesdropper behind the same translator.
    with farm.scene.router.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((FAR.host[4], 0))
        sock.sendto(flight, (FAR.peer[4], OTHER_PORT))
        # It is answered in any case: with the response, or with a handshake.
        sock.settimeout(20)
        assert sock.recv(2000)
    farm.settled()
    assert farm.executed(path) == (1 if shared else 2), "executions"


def checksum(data):
    return sum(struct.unpack(f"!{len(data) // 2}H", data))


def flood(flight, target, port):
    """Blocks that nobody signed, in the form of a right one, from everywhere."""
    data = bytearray(flight + b"\0" * (len(flight) % 2))
    block = ENCAPSULATION + (data[ENCAPSULATION + 12] >> 4) * 4
    (length, place) = (8 + len(flight), ipaddress.ip_address(target).packed)
    for part in (slice(112, 114), slice(124, 132), slice(132, 196)):
        data[block + part.start : block + part.stop] = bytes(part.stop - part.start)
    fixed = checksum(place) + 17 + 2 * length + port + checksum(bytes(data))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock:
        for number in range(FLOOD):
            source = struct.pack("!I", 0x0B000000 + number * 64)
            request, sender = struct.pack("!Q", number + 1), 1024 + number % 60_000
            tag = hashlib.sha256(b"\0" * 10 + b"\xff\xff" + source).digest()[:2]
            data[block + 112 : block + 114], data[block + 124 : block + 132] = tag, request
            total = fixed + checksum(source) + checksum(request) + checksum(tag) + sender
            while total > 0xFFFF:
                total = (total & 0xFFFF) + (total >> 16)
            header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, 17, 0) + source + place
            udp = struct.pack("!HHHH", sender, port, length, ~total & 0xFFFF or 0xFFFF)
            sock.sendto(header + udp + bytes(data[: len(flight)]), (target, 0))
            if number % 64 == 63:
                # The receiver's buffer must not take the flood.
                time.sleep(0.001)


def test_asap_a_flood_of_strangers_costs_the_other_member_nothing(testbed):
    """Blocks whose signatures nobody has checked become few questions to the store, and no new memory."""
    farm = Farm(testbed, shared=True, more="pending = 4")
    capture = testbed.enter_context(Capture(farm.scene.router, "veth1"))
    flight, _ = farm.accepted(capture)
    farm.scene.far.ip("route", "add", "11.0.0.0/8", "via", FAR.host[4])
    before, memory, began = farm.keys(), farm.memory(), time.monotonic()
    # The translator would give all of them one source.
    farm.scene.router.nft_flush()
    with farm.scene.router.entered():
        flood(flight, FAR.peer[4], PORT)
    farm.scene.router.nft("type nat hook postrouting priority 100; oifname veth1 counter masquerade")
    asked, seconds = farm.keys() - before, time.monotonic() - began
    unreported = farm.metric(ADMIN, "firstflight_blocks_unreported_total")
    print(f"{FLOOD} blocks in {seconds:.1f} s: {asked} reported, {unreported:.0f} not")
    assert unreported > FLOOD / 10, "blocks that the first member refused and did not report"
    assert asked <= 256 + 200 * (seconds + 1), "reports"
    assert farm.memory() == memory, "a new memory has begun"
    # The other member takes first flights as before.
    record = farm.visit("/other", "--udp-port", OTHER_PORT)
    assert is_accepted(record), show(record)
