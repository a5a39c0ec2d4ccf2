"""Servers on a network card (`[listener.xdp]`) and `get --xdp`: one end of a cable is the network card of a host, whose kernel has everything else."""

import contextlib
import ctypes
import errno
import itertools
import json
import os
import platform
import re
import secrets
import signal
import socket
import threading
import time

import firstflight
import nginx
import pytest
import serve_config
import siphash
from firstflight import Command, is_accepted, show
from kernel import KernelServer
from net import AF, FAMILIES, Pair, url
from process import Process, run
from test_gateway import Gateway
from testbed import body, sha256

PORT = 8080
DEVICE = "veth0"
#: `linux/in6.h`.
IPV6_DSTOPTS = 59
#: `linux/if_ether.h`.
ETH_P_ALL = 3
#: Nobody has these addresses, from which segments are forged.
NOBODY = "198.18.0.0/16"
KEY = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4"
MEGABYTES_300 = 300_000_000


class Card:
    """A host with a card, and a client at the other end of the cable."""

    def __init__(self, testbed, queues=1):
        self.testbed, self.pair = testbed, Pair(70)
        self.host, self.far = testbed.namespace("host"), testbed.namespace("far")
        if queues == 1:
            testbed.cable(self.host, self.far, self.pair)
        else:
            self.wide_cable(queues)
        self.root = testbed.root(small=1000, big=3_000_000)

    def wide_cable(self, queues):
        many = ("numtxqueues", queues, "numrxqueues", queues)
        run(
            "ip", "link", "add", DEVICE, "netns", self.host.name, *many, "type", "veth",
            "peer", "name", DEVICE, "netns", self.far.name, *many,
        )  # fmt: skip
        for ns, ends in ((self.host, self.pair.host), (self.far, self.pair.peer)):
            ns.ip("link", "set", DEVICE, "up")
            ns.ip("addr", "add", Pair.cidr(ends[4]), "dev", DEVICE)
            ns.ip("addr", "add", Pair.cidr(ends[6]), "dev", DEVICE, "nodad")

    def command(self, *options, allow="any", port=PORT):
        sources = ("--xdp-allow", allow) if allow else ()
        return serve_config.arguments(
            "--xdp", DEVICE, *sources, "--port", port, "--root", self.root, "--json-log", *options
        )  # fmt: skip

    def plain_packets(self):
        """What generic and packet mode need on a veth."""
        run("ethtool", "-K", DEVICE, "tso", "off", "gso", "off", ns=self.far)

    def serve(self, *options, **settings):
        return self.testbed.start(Command(self.host, *self.command(*options, **settings)))

    def refused(self, *options, **settings):
        """What the server says when it does not start, and its exit status."""
        process = Process([firstflight.BINARY, *self.command(*options, **settings)], ns=self.host)
        with process:
            self.testbed.processes.append(process)
            status = process.wait(30)
            return status, process.text("err")

    def get(self, family, *options, name="small", status=0):
        """Fetches with the kernel's TCP of the client."""
        address = url(self.pair.host[family], PORT, f"/{name}")
        client = Process([firstflight.BINARY, "get", address, "--json", *options], ns=self.far)
        with client:
            self.testbed.processes.append(client)
            assert client.wait(100) == status, client.text()
            return [record for record in client.records() if "outcome" in record]

    def curl(self, ns, family, name="small", limit=30):
        """The body, as curl gets it."""
        got = os.path.join(self.root, "got")
        address = url(self.pair.host[family], PORT, f"/{name}")
        run("curl", "-sS", "-g", "--max-time", limit, "-o", got, address, ns=ns)
        with open(got, "rb") as file:
            return file.read()

    def has_program(self):
        return "xdp" in self.host.ip("link", "show", DEVICE)


@pytest.fixture
def card(testbed):
    return Card(testbed)


def test_a_kernel_client_is_served_with_fast_open(card, family):
    server = card.serve()
    assert card.has_program()
    first, *rest = card.get(family, "--repeat", 4)
    assert not is_accepted(first) and all(map(is_accepted, rest)), show(rest[0])
    big = body(card.root, "big")
    assert card.curl(card.far, family, "big") == big
    # The host's own programs reach the server by the kernel.
    assert card.curl(card.host, family, "big") == big
    assert server.terminate() == 0
    assert not card.has_program()


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["generic", "packet"])
def test_other_modes_serve_too(card, family, mode):
    card.plain_packets()
    server = card.serve("--xdp-mode", mode)
    assert card.has_program() == (mode == "generic")
    assert all(map(is_accepted, card.get(family, "--repeat", 3)[1:]))
    assert card.curl(card.far, family, "big") == body(card.root, "big")
    assert card.curl(card.host, family, "big") == body(card.root, "big")
    server.kill()
    assert not card.has_program() and f":{PORT}" not in card.testbed.sockets(card.host)
    card.serve("--xdp-mode", mode)
    assert card.get(family)[0]["status"] == 200


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "generic", "packet"])
def test_tcp_in_udp_comes_by_the_card_too(card, family, mode):
    card.plain_packets()
    server = card.serve("--udp-port", PORT + 1, "--xdp-mode", mode)
    first, *rest = card.get(family, "--udp", "--udp-port", PORT + 1, "--repeat", 4)
    assert first["status"] == 200 and all(map(is_accepted, rest)), show(rest[0])
    (big,) = card.get(family, "--udp", "--udp-port", PORT + 1, name="big")
    assert (big["status"], big["sha256"]) == (200, sha256(body(card.root, "big"))), show(big)
    # TCP is beside it, and the port is held against the kernel's answer to what programs of the host send there.
    assert card.curl(card.host, family, "big") == body(card.root, "big")
    with card.host.entered():
        local = socket.socket(AF[family], socket.SOCK_DGRAM)
    local.connect((card.pair.host[family], PORT + 1))
    local.settimeout(0.5)
    local.send(b"datagram")
    with pytest.raises(TimeoutError):
        local.recv(100)
    local.close()
    server.kill()
    assert not card.has_program() and f":{PORT + 1}" not in run("ss", "-Hlun", ns=card.host).stdout


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["generic", "packet"])
def test_other_modes_want_packets_as_they_come(card, mode):
    run("ethtool", "-K", DEVICE, "gro", "on", ns=card.host)
    status, text = card.refused("--xdp-mode", mode)
    assert status == 2 and f"ethtool -K {DEVICE} gro off" in text and text.count("\n") == 0, text


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "generic", "packet"])
def test_four_queues_are_one_server(testbed, family, mode):
    card = Card(testbed, queues=4)
    card.plain_packets()
    card.serve("--threads", 2, "--xdp-mode", mode)
    records = card.get(family, "--repeat", 40, "--parallel", 8)
    assert len(records) == 40 and all(record["status"] == 200 for record in records)
    assert card.curl(card.far, family, "big") == body(card.root, "big")


def test_300_mb_both_ways(card, family):
    card.serve()
    huge = os.path.join(card.root, "huge")
    with open(huge, "wb") as file:
        for _ in range(30):
            file.write(os.urandom(MEGABYTES_300 // 30))
    digest = sha256(body(card.root, "huge"))
    assert sha256(card.curl(card.far, family, "huge", limit=100)) == digest
    address = url(card.pair.host[family], PORT, "/sink")
    answer = run("curl", "-gsS", "-m", 100, "-T", huge, address, ns=card.far, timeout=110).stdout
    assert digest in answer, answer


@pytest.mark.needs("nginx")
def test_nginx_as_client_and_as_server(card, family):
    """nginx fetches from the server on the card, and `get` by the card from nginx with Fast Open."""
    server = card.serve()
    behind = url(card.pair.host[family], PORT, "/")
    at = {4: "10.70.0.2:9091", 6: "[fd00:70::2]:9091"}[family]
    nginx.start(
        card.testbed, card.far, card.root, at,
        f"listen {at} fastopen=64; location /by/ {{ proxy_pass {behind}; }}",
    )  # fmt: skip
    address = url(card.pair.peer[family], 9091, "/by/big")
    got = os.path.join(card.root, "got")
    run("curl", "-sS", "-g", "-f", "-m", 60, "-o", got, address, ns=card.far, timeout=70)
    assert body(card.root, "got") == body(card.root, "big")
    assert server.terminate() == 0
    first, *rest = by_the_card(card, url(card.pair.peer[family], 9091, "/small"))
    assert first["status"] == 200 and all(map(is_accepted, rest)), show(rest[0])


GATEWAY = """
[gateway]
log = "json"
[[listener]]
name = "web"
mode = "http"
service = "site"
[listener.xdp]
device = "{device}"
port = {port}
allow = ["any"]
[[service]]
name = "site"
root = "{root}"
"""


def test_a_gateway_serves_by_the_card(card, family, tmp_path):
    path = tmp_path / "gateway.toml"
    path.write_text(GATEWAY.format(device=DEVICE, port=PORT, root=card.root))
    run(firstflight.BINARY, "gateway", "check", path, ns=card.host)
    gateway = card.testbed.start(Gateway(card.host, str(path)))
    assert card.has_program()
    first, *rest = card.get(family, "--repeat", 4)
    assert not is_accepted(first) and all(map(is_accepted, rest)), show(rest[0])
    big = body(card.root, "big")
    assert card.curl(card.far, family, "big") == big
    # The host's own programs reach it by the kernel.
    assert card.curl(card.host, family, "big") == big
    ways = [record.get("way") for record in gateway.logged(6)]
    assert ways == ["ip"] * 5 + ["kernel"], ways
    # A second gateway is told who has the port, and may try again in a minute.
    second = Process([firstflight.BINARY, "gateway", str(path)], ns=card.host)
    with second:
        card.testbed.processes.append(second)
        assert second.wait(30) == 1 and "listener web: xdp: " in second.text("err"), second.text("err")
    assert gateway.terminate() == 0
    assert not card.has_program()


SHARED = GATEWAY.replace('mode = "http"', 'mode = "http"\nreuse_port = true')


def ask(card, family, client=None):
    """A request on a connection, which is a new one by default and stays open. Returns it, with the body."""
    client = client or connect(card, family, timeout=10)
    client.sendall(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
    got, size = b"", None
    while size is None or len(got) < size:
        part = client.recv(1 << 16)
        assert part, got
        got += part
        head, end, _ = got.partition(b"\r\n\r\n")
        if end:
            size = len(head) + 4 + int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])
    return client, got.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_an_upgrade_fails_no_request(testbed, family, user, tmp_path):
    """A second gateway begins, and the first one gets SIGTERM: new connections go to the second one at once, by the kernel, and old ones end
    at the first one, also if somebody sends SYNs in their clients' name. Then the second one takes the card."""
    card = Card(testbed, queues=2)
    os.chmod(card.root, 0o755)
    path = tmp_path / "gateway.toml"
    text = SHARED.format(device=DEVICE, port=PORT, root=card.root)
    path.write_text(text.replace("[gateway]\n", f'[gateway]\ndrain = "60s"\nuser = "{user}"\n'))
    small = body(card.root, "small")
    old = testbed.start(Gateway(card.host, str(path)))
    old.wait_until(lambda: card.has_program(), "the program")
    stop, failures, count = threading.Event(), [], 0

    def visit():
        nonlocal count
        while not stop.is_set():
            try:
                client, got = ask(card, family)
                client.close()
                assert got == small
            except (OSError, AssertionError) as error:
                failures.append(error)
            count += 1

    visitors = [threading.Thread(target=visit) for _ in range(4)]
    for visitor in visitors:
        visitor.start()
    try:
        slow = download(card, family)
        slow.recv(1000, socket.MSG_PEEK)
        new = testbed.start(Gateway(card.host, str(path)))
        new.wait_until(lambda: "waits for its network card" in new.text(), "the second gateway")
        # One thread waits, with what it needs for the card.
        kept = KEPT if user == "root" else 0
        new.wait_until(lambda: sum(it["Prm"] & ~kept != 0 for it in capabilities(new.pid)) == 1, "fewer privileges")
        assert all(it["Prm"] & ~(kept | ATTACH) == 0 and it["NoNewPrivs"] == 1 for it in capabilities(new.pid))
        old.popen.send_signal(signal.SIGTERM)
        # New connections come to the second gateway, by the kernel.
        new.wait_records(50, "requests by the kernel", lambda it: it.get("event") == "request" and it["way"] == "kernel")
        kept, got = ask(card, family)
        assert got == small and old.popen.poll() is None and card.has_program()
        if family == 4:
            with raw_socket(card) as raw:
                source, port = slow.getsockname()
                for number in range(100):
                    forged = syn(card, source, number << 20, port=port)
                    raw.sendto(ipv4(card, source, forged), (card.pair.host[4], 0))
        assert rest_of(slow) == body(card.root, "big")
        assert old.wait(60) == 0
        new.wait_records(50, "requests by the card", lambda it: it.get("event") == "request" and it["way"] == "ip")
        # A connection that began by the kernel goes on by it.
        assert ask(card, family, kept)[1] == small
        kept.close()
        assert card.has_program()
    finally:
        stop.set()
        for visitor in visitors:
            visitor.join()
    assert not failures and count > 200, (count, failures[:3])
    new.wait_until(lambda: "has its network card" in new.text(), "its card")
    new.wait_until(lambda: all(it["Prm"] & ~(KEPT if user == "root" else 0) == 0 for it in capabilities(new.pid)), "none")
    assert new.terminate() == 0
    assert not card.has_program() and f":{PORT}" not in testbed.sockets(card.host)


def test_a_reload_may_add_a_card_in_use(testbed, family, tmp_path):
    card = Card(testbed)
    shared = SHARED.format(device=DEVICE, port=PORT, root=card.root)
    head, listener, service = re.fullmatch(r"(\s*\[gateway\].*)(\[\[listener\]\].*)(\[\[service\]\].*)", shared, re.DOTALL).groups()
    other = '[[listener]]\nname = "other"\naddress = ["127.0.0.1:0"]\nmode = "http"\nservice = "site"\n'
    path, first_path = tmp_path / "gateway.toml", tmp_path / "first.toml"
    first_path.write_text(shared)
    path.write_text(head + other + service)
    gateway = testbed.start(Gateway(card.host, str(path)))
    first = testbed.start(Gateway(card.host, str(first_path)))
    assert card.get(family)[0]["status"] == 200
    path.write_text(head + other + listener + service)
    gateway.reload("waits for its network card")
    assert card.get(family)[0]["status"] == 200
    assert first.terminate() == 0
    gateway.wait_until(lambda: "has its network card" in gateway.text(), "its card")
    assert card.get(family)[0]["status"] == 200
    # It can attach no other one.
    path.write_text(head + other + listener + listener.replace('"web"', '"more"').replace(DEVICE, "lo") + service)
    gateway.reload("needs a restart")


def test_everything_else_is_the_kernels(card, family):
    card.serve()
    other = card.testbed.start(KernelServer(card.host, family, 9090, card.root))
    assert other.popen.poll() is None
    got = run("curl", "-sS", "-g", url(card.pair.host[family], 9090, "/small"), ns=card.far, check=False)
    assert got.returncode == 0, got.stderr


#: For each kind of thing in the kernel: how a process' descriptor names it, and the command of bpf(2) that looks for it.
BPF_KINDS = {"prog_id": 13, "map_id": 14, "link_id": 30}
#: The number of bpf(2) (`linux/audit.h`).
BPF = {"x86_64": 321, "aarch64": 280}


def bpf_things(pid):
    """What the process has of bpf(2): kind and number."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{name}") as file:
            lines = re.findall(r"^(prog_id|map_id|link_id):\s*(\d+)", file.read(), re.MULTILINE)
            found |= {(kind, int(number)) for kind, number in lines}
    return found


def is_in_the_kernel(kind, number):
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = ctypes.create_string_buffer(number.to_bytes(4, "little"), 128)
    descriptor = libc.syscall(BPF[platform.machine()], BPF_KINDS[kind], attributes, 128)
    if descriptor >= 0:
        os.close(descriptor)
        return True
    assert ctypes.get_errno() == errno.ENOENT, os.strerror(ctypes.get_errno())
    return False


def test_nothing_is_left_after_kill_9(card, family):
    for _ in range(3):
        server = card.serve()
        assert card.get(family)[0]["status"] == 200
        things = bpf_things(server.pid)
        assert {kind for kind, _ in things} == set(BPF_KINDS), things
        assert all(is_in_the_kernel(*thing) for thing in things)
        server.kill()
        assert not card.has_program()
        assert f":{PORT}" not in card.testbed.sockets(card.host)
        # The kernel frees a program and its maps a little later than the process.
        deadline = time.monotonic() + 20
        while left := [thing for thing in things if is_in_the_kernel(*thing)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
    card.serve()
    assert card.get(family)[0]["status"] == 200


def test_a_second_process_gets_one_line(card):
    server = card.serve()
    status, text = card.refused(port=PORT + 1)
    assert status == 1 and text.count("\n") == 0, text
    assert f"{DEVICE} is used by process {server.pid}" in text
    # The first one goes on.
    assert card.get(4)[0]["status"] == 200
    # The same port is refused earlier, by its holder.
    status, text = card.refused()
    assert status == 1 and "cannot hold" in text and text.count("\n") == 0, text


@pytest.mark.needs("nft")
def test_a_packet_filter_has_to_be_bypassed_on_purpose(card, family):
    card.host.nft("type filter hook input priority 0; ct state invalid drop")
    status, text = card.refused()
    assert status == 2 and "path only" in text and 'firewall = "bypassed"' in text and text.count("\n") == 0, text
    assert not card.has_program()
    card.serve("--xdp-firewall", "bypassed")
    assert card.get(family)[0]["status"] == 200


def test_a_hook_of_tc_has_to_be_bypassed_on_purpose(card):
    run("tc", "qdisc", "add", "dev", DEVICE, "clsact", ns=card.host)
    status, text = card.refused()
    assert status == 2 and "tc has a hook" in text, text


def test_the_device_of_a_bridge_is_refused(card):
    """Its packets belong to the bridge."""
    card.host.ip("link", "add", "bridge0", "type", "bridge")
    card.host.ip("link", "set", DEVICE, "master", "bridge0")
    status, text = card.refused()
    assert status == 2 and "another device owns it" in text and text.count("\n") == 0, text
    card.host.ip("link", "set", DEVICE, "nomaster")
    card.serve()
    assert card.get(4)[0]["status"] == 200


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_sources_have_to_be_named(card, family, mode):
    card.plain_packets()
    status, text = card.refused("--xdp-mode", mode, allow=None)
    assert status == 2 and "missing field `allow`" in text, text
    server = card.serve("--xdp-mode", mode, allow="192.0.2.0/24")
    with pytest.raises(TimeoutError):
        connect(card, family)
    server.terminate()
    card.serve("--xdp-mode", mode, allow=card.pair.net[family])
    connect(card, family).close()


def connect(card, family, *options, timeout=2):
    """A connection of the kernel. A refusal is another error than silence."""
    with card.far.entered():
        client = socket.socket(AF[family], socket.SOCK_STREAM)
    client.settimeout(timeout)
    for option in options:
        client.setsockopt(*option)
    client.connect((card.pair.host[family], PORT))
    return client


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_what_cannot_be_taken_is_dropped_in_silence(card, mode):
    card.plain_packets()
    card.serve("--xdp-mode", mode)
    # Three bytes of no operation, and the end of the options.
    options = (socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x00")
    with pytest.raises(TimeoutError):
        connect(card, 4, options)
    connect(card, 4).close()


class Answers:
    """What leaves the server's port, while this is entered: the flags of TCP, or the protocol of what is not TCP."""

    def __init__(self, card):
        with card.far.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.socket.bind((DEVICE, ETH_P_ALL))
        self.socket.settimeout(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def next(self):
        """The next one of IPv4, or None after a second."""
        with contextlib.suppress(TimeoutError):
            while True:
                frame, (_, _, kind, *_) = self.socket.recvfrom(2000)
                if kind == socket.PACKET_OUTGOING or frame[12:14] != b"\x08\0":
                    continue
                if frame[23] != socket.IPPROTO_TCP:
                    return f"protocol {frame[23]}"
                if frame[34:36] == PORT.to_bytes(2, "big"):
                    return frame[47]
        return None


def ipv4(card, source, payload, more=False, offset=0):
    """A packet to the server, whose header checksum the kernel fills in."""
    flags = (0x2000 if more else 0) | offset // 8
    header = bytes.fromhex("45000000") + (7).to_bytes(2, "big") + flags.to_bytes(2, "big") + bytes.fromhex("40060000")
    return header + socket.inet_aton(source) + socket.inet_aton(card.pair.host[4]) + payload


def raw_socket(card):
    with card.far.entered():
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def syn(card, source, number=1, options=b"", data=b"", port=20_000):
    """A SYN from a source that the client's kernel does not answer for."""
    offset = (20 + len(options)) // 4 << 4
    segment = port.to_bytes(2, "big") + PORT.to_bytes(2, "big") + number.to_bytes(4, "big") + bytes(4)
    segment += bytes([offset, 2]) + bytes.fromhex("010000000000") + options + data
    return with_checksum(ipv4(card, source, b""), segment)


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_fragments_get_no_answer(card, mode):
    """The first one is dropped by the program, and the kernel cannot complete the others; or the port's holder drops the whole."""
    card.host.ip("route", "add", NOBODY, "via", card.pair.peer[4])
    card.plain_packets()
    card.serve("--xdp-mode", mode)
    assert card.get(4)[0]["status"] == 200
    whole = syn(card, "198.18.0.1")
    with raw_socket(card) as raw, Answers(card) as answers:
        raw.sendto(ipv4(card, "198.18.0.1", whole[:16], more=True), (card.pair.host[4], 0))
        raw.sendto(ipv4(card, "198.18.0.1", whole[16:], offset=16), (card.pair.host[4], 0))
        assert answers.next() is None
        # Not in fragments, it is answered with a SYN-ACK.
        raw.sendto(ipv4(card, "198.18.0.1", whole), (card.pair.host[4], 0))
        assert answers.next() == 0x12
    assert card.get(4)[0]["status"] == 200


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_the_holder_keeps_the_kernel_silent(card, mode):
    """Behind an extension header the program does not look for the port. The kernel finds the holder's filter."""
    card.plain_packets()
    card.serve("--xdp-mode", mode)
    header = (socket.IPPROTO_IPV6, IPV6_DSTOPTS, b"\0\0\1\4\0\0\0\0")
    with pytest.raises(TimeoutError):
        connect(card, 6, header)
    connect(card, 6).close()


@pytest.mark.needs("ethtool")
def test_queues_cannot_be_taken_away(testbed):
    card = Card(testbed, queues=4)
    card.serve("--threads", 2)
    fewer = run("ethtool", "-L", DEVICE, "rx", 2, "tx", 2, ns=card.host, check=False)
    assert fewer.returncode != 0
    assert card.get(4)[0]["status"] == 200


@pytest.mark.needs("ethtool")
def test_more_queues_end_the_server(testbed):
    """Packets of the new queues would be lost."""
    card = Card(testbed, queues=4)
    run("ethtool", "-L", DEVICE, "rx", 1, "tx", 1, ns=card.far)
    run("ethtool", "-L", DEVICE, "rx", 1, "tx", 1, ns=card.host)
    server = card.serve()
    assert card.get(4)[0]["status"] == 200
    for ns in (card.host, card.far):
        run("ethtool", "-L", DEVICE, "rx", 4, "tx", 4, ns=ns)
    deadline = time.monotonic() + 20
    while "another number of queues" not in server.text("err"):
        assert time.monotonic() < deadline, server.text()
        # One of some ports leads to the queue that has a socket.
        with contextlib.suppress(OSError):
            connect(card, 4, timeout=0.3).close()
    assert server.wait(90) == 1
    assert not card.has_program()


def test_doctor_says_what_a_card_can(card):
    def look(device):
        process = Process([firstflight.BINARY, "doctor", "--xdp", device, "--json"], ns=card.host)
        with process:
            card.testbed.processes.append(process)
            process.wait(60)
            checks = json.loads(process.text("out"))["checks"]
        return {check["check"]: check["finding"] for check in checks if check["check"].startswith("card")}

    assert look(DEVICE) == {"card": "usable", "card-firewall": "none"}
    assert look("lo") == {"card": "unusable"}
    assert look("absent") == {"card": "unusable"}
    run("tc", "qdisc", "add", "dev", DEVICE, "clsact", ns=card.host)
    assert look(DEVICE)["card-firewall"] == "bypassed"
    card.host.ip("link", "set", DEVICE, "down")
    assert look(DEVICE)["card"] == "unusable"
    assert not card.has_program()


def test_a_port_in_use_is_refused(card, family):
    with card.host.entered():
        taken = socket.create_server((card.pair.host[family], PORT), family=AF[family])
    status, text = card.refused("--ip", card.pair.host[family])
    assert status == 1 and "cannot hold" in text and text.count("\n") == 0, text
    # The listener ends, but a connection of it lives.
    with card.far.entered():
        client = socket.create_connection((card.pair.host[family], PORT))
    held, _ = taken.accept()
    taken.close()
    status, text = card.refused("--ip", card.pair.host[family])
    assert status == 1 and "has 1 connections" in text, text
    assert not card.has_program()
    held.close()
    client.close()


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_an_address_that_goes_is_served_no_more(card, mode):
    card.plain_packets()
    card.serve("--xdp-mode", mode)
    for family in FAMILIES:
        assert card.get(family)[0]["status"] == 200
    card.host.ip("addr", "del", Pair.cidr(card.pair.host[4]), "dev", DEVICE)
    with pytest.raises(OSError):
        connect(card, 4)
    assert card.get(6)[0]["status"] == 200
    card.host.ip("addr", "add", Pair.cidr(card.pair.host[4]), "dev", DEVICE)
    assert card.get(4)[0]["status"] == 200


def download(card, family):
    """A connection that has asked for the big file, and takes it slowly."""
    client = connect(card, family, (socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000), timeout=60)
    client.sendall(b"GET /big HTTP/1.0\r\n\r\n")
    return client


def rest_of(client):
    got = b""
    while part := client.recv(1 << 16):
        got += part
    client.close()
    return got.partition(b"\r\n\r\n")[2]


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_a_link_that_was_down_goes_on(card, family, mode):
    card.plain_packets()
    card.serve("--xdp-mode", mode)
    client = download(card, family)
    client.recv(1000, socket.MSG_PEEK)
    card.far.ip("link", "set", DEVICE, "down")
    time.sleep(1)
    card.far.ip("link", "set", DEVICE, "up")
    if family == 6:
        card.far.ip("addr", "replace", Pair.cidr(card.pair.peer[6]), "dev", DEVICE, "nodad")
    assert rest_of(client) == body(card.root, "big")
    card.host.ip("link", "set", DEVICE, "down")
    time.sleep(1)
    card.host.ip("link", "set", DEVICE, "up")
    if family == 6:
        card.host.ip("addr", "replace", Pair.cidr(card.pair.host[6]), "dev", DEVICE, "nodad")
    assert card.get(family)[0]["status"] == 200


def test_a_smaller_mtu_is_followed(card, family):
    card.serve()
    client = download(card, family)
    client.recv(1000, socket.MSG_PEEK)
    for ns in (card.host, card.far):
        ns.ip("link", "set", DEVICE, "mtu", 1300)
    assert rest_of(client) == body(card.root, "big")
    assert card.curl(card.far, family, "big") == body(card.root, "big")


def test_a_device_that_is_deleted_ends_the_server(card):
    server = card.serve()
    card.far.ip("link", "del", DEVICE)
    assert server.wait(90) == 1
    assert "the device" in server.text("err")


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_a_stopped_server_leaves_the_host_alone(card, family, mode):
    card.plain_packets()
    server = card.serve("--xdp-mode", mode)
    assert card.get(family)[0]["status"] == 200
    card.testbed.start(KernelServer(card.host, family, 9090, card.root))
    os.kill(server.pid, signal.SIGSTOP)
    try:
        flood(card, family)
        run("curl", "-sS", "-g", url(card.pair.host[family], 9090, "/big"), "-o", os.devnull, ns=card.far)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert card.get(family)[0]["status"] == 200
    assert card.curl(card.far, family, "big") == body(card.root, "big")


def flood(card, family, count=20_000):
    """Segments of no connection, more than the rings hold."""
    with card.far.entered():
        raw = socket.socket(AF[family], socket.SOCK_RAW, socket.IPPROTO_TCP)
    segment = bytes.fromhex("4e201f90000000010000000050100100") + bytes(4)
    for _ in range(count):
        try:
            raw.sendto(segment, (card.pair.host[family], 0))
        except OSError:
            # Its own queue is full.
            time.sleep(0.001)
    raw.close()


def by_the_card(card, address, mode="driver"):
    """Fetches four times with `get --xdp`."""
    client = Process(
        [firstflight.BINARY, "get", address, "--xdp", DEVICE, "--xdp-mode", mode, "--repeat", 4, "--json"],
        ns=card.host,
    )
    with client:
        card.testbed.processes.append(client)
        assert client.wait(60) == 0, client.text()
    return [record for record in client.records() if "outcome" in record]


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_get_connects_by_the_card(card, family, mode):
    card.plain_packets()
    card.testbed.start(KernelServer(card.far, family, 9090, card.root))
    first, *rest = by_the_card(card, url(card.pair.peer[family], 9090, "/small"), mode)
    assert first["status"] == 200 and all(map(is_accepted, rest)), show(rest[0])
    assert not card.has_program()


@pytest.fixture
def routed(testbed, card):
    """The client's end of the cable is a router now, and the client is behind it."""
    behind, client = Pair(71), testbed.namespace("behind")
    run(
        "ip", "link", "add", "inner", "netns", card.far.name, "type", "veth",
        "peer", "name", DEVICE, "netns", client.name,
    )  # fmt: skip
    card.far.forward()
    for ns, device, ends in ((card.far, "inner", behind.host), (client, DEVICE, behind.peer)):
        ns.ip("link", "set", device, "up")
        ns.ip("addr", "add", Pair.cidr(ends[4]), "dev", device)
        ns.ip("addr", "add", Pair.cidr(ends[6]), "dev", device, "nodad")
    for family in FAMILIES:
        client.ip("route", "add", card.pair.net[family], "via", behind.host[family])
        card.host.ip("route", "add", behind.net[family], "via", card.pair.peer[family])
    return client


def test_a_router_may_get_another_address(card, routed, family):
    # The kernel believes its entries for half a minute.
    for setting, value in (("base_reachable_time_ms", 1000), ("delay_first_probe_time", 1), ("retrans_time_ms", 200)):
        card.host.sysctl(f"net.ipv{family}.neigh.{DEVICE}.{setting}", value)
    card.serve()
    assert card.curl(routed, family) == body(card.root, "small")
    card.far.ip("link", "set", DEVICE, "address", "02:00:00:00:00:77")
    assert card.curl(routed, family, limit=55) == body(card.root, "small")


@pytest.mark.needs("ethtool")
@pytest.mark.parametrize("mode", ["driver", "packet"])
def test_the_path_has_a_smaller_mtu(card, routed, family, mode):
    card.plain_packets()
    card.serve("--xdp-mode", mode)
    # The router reports what does not fit. The client's segments would fit, and it announces what its own device carries.
    card.far.ip("link", "set", "inner", "mtu", 1300)
    assert card.curl(routed, family, "big") == body(card.root, "big")


def test_answers_go_where_the_routes_lead(card, routed, family):
    """Not where the question came from: a frame's address is no route."""
    card.serve()
    assert card.curl(routed, family) == body(card.root, "small")
    nowhere = {4: "10.70.0.99", 6: "fd00:70::99"}[family]
    card.host.ip("route", "replace", Pair(71).net[family], "via", nowhere)
    with pytest.raises(AssertionError):
        card.curl(routed, family, limit=3)
    card.host.ip("route", "replace", Pair(71).net[family], "via", card.pair.peer[family])
    assert card.curl(routed, family) == body(card.root, "small")


@pytest.mark.parametrize("flood", ["plain", "forged", "valid"])
def test_honest_clients_beside_a_flood_of_syns(card, flood):
    """SYNs from many addresses: without data, or with data and a cookie."""
    card.host.ip("route", "add", NOBODY, "via", card.pair.peer[4])
    server = card.serve("--key", KEY)
    stop = threading.Event()

    def source(number):
        return f"198.18.{number >> 8}.{number & 255}"

    def forge(number):
        if flood == "plain":
            return syn(card, source(number), number)
        valid = siphash.cookie(KEY, source(number), card.pair.host[4])
        cookie = valid if flood == "valid" else secrets.token_hex(8)
        options = bytes([1, 1, 34, 10]) + bytes.fromhex(cookie)
        return syn(card, source(number), number, options, b"GET /small HTTP/1.0\r\n\r\n")

    forged = [ipv4(card, source(number), forge(number)) for number in range(4096)]

    def send():
        for packet in itertools.cycle(forged):
            if stop.is_set():
                return
            with contextlib.suppress(OSError):
                raw.sendto(packet, (card.pair.host[4], 0))

    with raw_socket(card) as raw:
        flooding = threading.Thread(target=send)
        flooding.start()
        try:
            records = card.get(4, "--repeat", 2000)
        finally:
            stop.set()
            flooding.join()
    assert all(record["status"] == 200 for record in records)
    assert server.terminate() == 0
    (counters,) = (record for record in server.records() if record.get("event") == "counters")
    # What the flood is: not all of it is refused, or accepted, before the limits act.
    kinds = {"plain": "not-requested", "forged": "stale-or-wrong-credential", "valid": "accepted"}
    assert counters["outcomes"][kinds[flood]] > 200, counters


def with_checksum(header, segment):
    pseudo = header[12:20] + bytes([0, 6]) + len(segment).to_bytes(2, "big")
    summed = pseudo + segment + bytes(len(segment) % 2)
    total = sum(int.from_bytes(summed[n : n + 2], "big") for n in range(0, len(summed), 2))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = 0xFFFF - ((total & 0xFFFF) + (total >> 16))
    return segment[:16] + checksum.to_bytes(2, "big") + segment[18:]


@pytest.mark.needs("setpriv")
def test_a_few_privileges_are_enough(card, family):
    def serve(privileges):
        few = ["setpriv", f"--bounding-set=-all,{privileges}", "--inh-caps=-all"]
        return Process([*few, firstflight.BINARY, *card.command()], ns=card.host)

    # Without CAP_IPC_LOCK the limit of locked memory counts, which is 8 MB or less.
    for missing, said in (("+net_raw", "not permitted"), ("+net_admin,+net_raw,+bpf", "ulimit -l")):
        with serve(missing) as process:
            card.testbed.processes.append(process)
            assert process.wait(30) == 2 and said in process.text("err"), process.text()
            assert not card.has_program()
    with serve("+net_admin,+net_raw,+bpf,+ipc_lock") as process:
        card.testbed.processes.append(process)
        process.wait_until(lambda: "listening on" in process.text(), "`listening on`")
        assert card.get(family)[0]["status"] == 200


#: capabilities(7).
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_BPF = (
    1, 2, 10, 12, 13, 14, 39
)
KEPT = sum(1 << number for number in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_BIND_SERVICE, CAP_NET_ADMIN))
ATTACH = sum(1 << number for number in (CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_BPF))


def capabilities(pid):
    """The sets of each thread of a process."""
    threads = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        # It may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{thread}/status") as file:
            found = re.findall(r"^(?:Cap)?(\w{3}|NoNewPrivs):\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
            threads.append({name: int(value, 16) for name, value in found})
    return threads


@pytest.mark.needs("setpriv")
@pytest.mark.parametrize("start", ["root", "a user in the file", "a user with a few privileges"])
def test_the_start_gives_up_its_privileges(testbed, family, start):
    """And the card works without them: an address that goes and comes, a link that goes down and up, next hops, the end in order."""
    card = Card(testbed, queues=2)
    os.chmod(card.root, 0o755)
    options = ("--threads", 2, *(("--user", "nobody") if start == "a user in the file" else ()))
    command = [firstflight.BINARY, *card.command(*options)]
    if start == "a user with a few privileges":
        # Only root can read whether iptables has tables.
        command = [firstflight.BINARY, *card.command("--threads", 2, "--xdp-firewall", "bypassed")]
        few = "+net_admin,+net_raw,+bpf,+ipc_lock"
        command = [
            "setpriv", "--reuid=nobody", "--clear-groups", f"--inh-caps={few}", f"--ambient-caps={few}",
            f"--bounding-set=-all,{few}", *command,
        ]  # fmt: skip
        for name in command[command.index(firstflight.BINARY) + 1 :]:
            if os.path.isfile(str(name)):
                os.chmod(os.path.dirname(name), 0o755)
                os.chmod(name, 0o644)
    server = Process(command, ns=card.host)
    with server:
        testbed.processes.append(server)
        server.wait_until(lambda: "listening on" in server.text(), "`listening on`")
        assert card.get(family)[0]["status"] == 200
        kept = {"root": KEPT, "a user in the file": 0, "a user with a few privileges": 1 << CAP_NET_ADMIN}[start]
        # The line is written before the privileges are given up.
        server.wait_until(lambda: all(it["Prm"] & ~kept == 0 for it in capabilities(server.pid)), "fewer privileges")
        threads = capabilities(server.pid)
        assert len(threads) >= 3, threads
        for thread in threads:
            assert thread["NoNewPrivs"] == 1, thread
            assert thread["Prm"] == thread["Eff"] == kept and thread["Inh"] == thread["Amb"] == 0, thread
            assert start != "root" or thread["Bnd"] & ~KEPT == 0, thread

        address = Pair.cidr(card.pair.host[family])
        card.host.ip("addr", "del", address, "dev", DEVICE)
        with pytest.raises(OSError):
            connect(card, family)
        for change in (None, "link"):
            if change == "link":
                card.host.ip("link", "set", DEVICE, "down")
                card.host.ip("link", "set", DEVICE, "up")
            card.host.ip("addr", "replace", address, "dev", DEVICE, *(("nodad",) if family == 6 else ()))
            card.host.ip("neigh", "flush", "dev", DEVICE)
            assert card.curl(card.far, family, "big") == body(card.root, "big")
        assert server.terminate() == 0
    assert not card.has_program() and f":{PORT}" not in testbed.sockets(card.host)


def test_ten_thousand_connections(testbed, family):
    card = Card(testbed, queues=2)
    card.serve("--threads", 2, "--no-log")
    records = card.get(family, "--repeat", 10_000, "--parallel", 64)
    assert len(records) == 10_000 and all(record["status"] == 200 for record in records)


@pytest.mark.needs("firstflight-lab")
@pytest.mark.parametrize("way", ["fast-open", "handshake"])
def test_a_connection_stays_with_the_queue_of_its_syn(testbed, way):
    """A kernel's client keeps a connection on one queue of a veth until TIME-WAIT, which the server has here. The next one between the same
    ports may come by another queue, so the client has many addresses."""
    card = Card(testbed, queues=2)
    card.root = testbed.root(small=300)
    server = card.serve("--threads", 2)
    lab = os.path.join(os.path.dirname(firstflight.BINARY), "firstflight-lab")
    for host in range(101, 161):
        card.far.ip("addr", "add", f"10.70.0.{host}/24", "dev", DEVICE)
    more = ("--fast-open",) if way == "fast-open" else ()
    at = f"{card.pair.host[4]}:{PORT}"
    client = ("load-client", "--at", at, "--file", "small", "--ms", 500, "--in-flight", 64, "--from", "10.70.0.101", "--sources", 60)
    seen = run(lab, *client, *more, ns=card.far)
    assert json.loads(seen.stdout)["failed"] == 0, seen.stdout
    assert server.terminate() == 0
    (counters,) = (record for record in server.records() if record.get("event") == "counters")
    assert counters["packets_in"] > 1000 and counters["packets_handed_over"] < counters["packets_in"] / 100, counters



@pytest.mark.needs("firstflight-lab", "taskset")
def test_a_second_queue_is_measured():
    """tests/card/queues, quickly. No figure is judged."""
    lab = os.path.join(os.path.dirname(firstflight.BINARY), "firstflight-lab")
    script = os.path.join(os.path.dirname(__file__), "..", "card", "queues")
    shown = run(script, "--bin", firstflight.BINARY, "--lab", lab, "--rounds", 2, "--time", 0.2, "--rate", 500, timeout=60).stdout
    assert shown.count(" changed the thread") == 3 and shown.endswith("failed: 0\n"), shown


@pytest.mark.needs("ethtool", "nginx", "firstflight-lab")
def test_the_owner_of_a_card_gets_a_report(card, tmp_path):
    """tests/card/measure, quickly. No figure is judged."""
    card.plain_packets()
    lab = os.path.join(os.path.dirname(firstflight.BINARY), "firstflight-lab")
    script = os.path.join(os.path.dirname(__file__), "..", "card", "measure")
    results = tmp_path / "results.json"
    shown = run(
        script, DEVICE, "--client", f"ip netns exec {card.far.name} sh", "--client-lab", lab, "--bin", firstflight.BINARY,
        "--rounds", 1, "--time", 0.2, "--megabytes", 3, "--json", results,
        ns=card.host, timeout=100,
    ).stdout  # fmt: skip
    measured = json.loads(results.read_text())["results"]
    cards = ["xdp", "xdp-generic", "packet"]
    assert list(measured) == ["nginx", "kernel", *cards]
    for kind, result in measured.items():
        assert "wrong" not in result, (kind, result)
        assert f"{kind} | half load | " in shown
        for what, (sample,) in result["samples"].items():
            assert sample["failed"] == 0 and sample["per_s"] > 0, (kind, what, sample)
            # How many of them depends on what else the machine does: on a busy one, SYNs are lost and sent again without data.
            assert (sample["early"] > 0) == (what != "handshake"), (kind, what, sample)
        if kind in cards:
            assert f"{kind}: dropped: nothing; left after kill -9: nothing" in shown
    assert "card: usable" in shown and card.pair.host[4] not in shown and "link/ether MAC" in shown
