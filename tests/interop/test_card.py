"""Servers on a network card (`[listener.xdp]`) and `get --xdp`: one end of a cable is the network card of a host, whose kernel has everything else."""

import contextlib
import itertools
import json
import os
import signal
import socket
import threading
import time

import firstflight
import pytest
import serve_config
from firstflight import Command, is_accepted, show
from kernel import KernelServer
from net import AF, FAMILIES, Pair, url
from process import Process, run
from test_gateway import Gateway
from testbed import body

PORT = 8080
DEVICE = "veth0"
#: `linux/in6.h`.
IPV6_DSTOPTS = 59


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
def test_generic_mode_serves_too(card, family):
    run("ethtool", "-K", DEVICE, "tso", "off", "gso", "off", ns=card.far)
    card.serve("--xdp-mode", "generic")
    assert all(map(is_accepted, card.get(family, "--repeat", 3)[1:]))
    assert card.curl(card.far, family, "big") == body(card.root, "big")


@pytest.mark.needs("ethtool")
def test_generic_mode_wants_packets_as_they_come(card):
    run("ethtool", "-K", DEVICE, "gro", "on", ns=card.host)
    status, text = card.refused("--xdp-mode", "generic")
    assert status == 2 and f"ethtool -K {DEVICE} gro off" in text and text.count("\n") == 0, text


def test_four_queues_are_one_server(testbed, family):
    card = Card(testbed, queues=4)
    card.serve("--threads", 2)
    records = card.get(family, "--repeat", 40, "--parallel", 8)
    assert len(records) == 40 and all(record["status"] == 200 for record in records)
    assert card.curl(card.far, family, "big") == body(card.root, "big")


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


def test_everything_else_is_the_kernels(card, family):
    card.serve()
    other = card.testbed.start(KernelServer(card.host, family, 9090, card.root))
    assert other.popen.poll() is None
    got = run("curl", "-sS", "-g", url(card.pair.host[family], 9090, "/small"), ns=card.far, check=False)
    assert got.returncode == 0, got.stderr


def test_nothing_is_left_after_kill_9(card, family):
    for _ in range(3):
        server = card.serve()
        assert card.get(family)[0]["status"] == 200
        server.kill()
        assert not card.has_program()
        assert f":{PORT}" not in card.testbed.sockets(card.host)
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


def test_sources_have_to_be_named(card, family):
    status, text = card.refused(allow=None)
    assert status == 2 and "missing field `allow`" in text, text
    server = card.serve(allow="192.0.2.0/24")
    with pytest.raises(TimeoutError):
        connect(card, family)
    server.terminate()
    card.serve(allow=card.pair.net[family])
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


def test_what_cannot_be_taken_is_dropped_in_silence(card):
    card.serve()
    # Three bytes of no operation, and the end of the options.
    options = (socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x00")
    with pytest.raises(TimeoutError):
        connect(card, 4, options)
    connect(card, 4).close()


def test_the_holder_keeps_the_kernel_silent(card):
    """Behind an extension header the program does not look for the port. The kernel finds the holder's filter."""
    card.serve()
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


def test_an_address_that_goes_is_served_no_more(card):
    card.serve()
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


def test_a_link_that_was_down_goes_on(card, family):
    card.serve()
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


def test_a_stopped_server_leaves_the_host_alone(card, family):
    server = card.serve()
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


def test_get_connects_by_the_card(card, family):
    card.testbed.start(KernelServer(card.far, family, 9090, card.root))
    address = url(card.pair.peer[family], 9090, "/small")
    client = Process(
        [firstflight.BINARY, "get", address, "--xdp", DEVICE, "--repeat", 4, "--json"], ns=card.host
    )
    with client:
        card.testbed.processes.append(client)
        assert client.wait(60) == 0, client.text()
    first, *rest = [record for record in client.records() if "outcome" in record]
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


def test_the_path_has_a_smaller_mtu(card, routed, family):
    card.serve()
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


def test_honest_clients_beside_a_flood_of_syns(card):
    card.host.ip("route", "add", "default", "via", card.pair.peer[4])
    server = card.serve()
    with card.far.entered():
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    to = socket.inet_aton(card.pair.host[4])
    stop = threading.Event()

    def flood():
        for number in itertools.cycle(range(1 << 16)):
            if stop.is_set():
                return
            header = bytes.fromhex("450000280000400040060000") + bytes([198, 18, number >> 8, number & 255]) + to
            syn = bytes.fromhex("4e201f90") + number.to_bytes(4, "big") + bytes.fromhex("0000000050020100")
            with contextlib.suppress(OSError):
                raw.sendto(header + with_checksum(header, syn + bytes(4)), (card.pair.host[4], 0))

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        records = card.get(4, "--repeat", 50)
    finally:
        stop.set()
        flooding.join()
        raw.close()
    assert all(record["status"] == 200 for record in records)
    assert server.terminate() == 0
    (counters,) = (record for record in server.records() if record.get("event") == "counters")
    assert counters["passive_opens"] > 200, counters


def with_checksum(header, segment):
    pseudo = header[12:20] + bytes([0, 6]) + len(segment).to_bytes(2, "big")
    total = sum(int.from_bytes((pseudo + segment)[n : n + 2], "big") for n in range(0, 12 + len(segment), 2))
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


def test_a_thousand_connections(testbed, family):
    card = Card(testbed, queues=2)
    card.serve("--no-log")
    records = card.get(family, "--repeat", 1000, "--parallel", 32)
    assert len(records) == 1000 and all(record["status"] == 200 for record in records)

