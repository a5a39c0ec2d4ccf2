"""The name server: queries for ordinary names with dig, and a first flight in fragments through unbound."""

import json
import os
import socket
import time

import pytest

from firstflight import Command, check_no_panic
from net import workdir
from process import Process, run

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/dns/vectors/dns-path.json")
# A verifier that has certified no client here.
VERIFIER = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"
LOOPBACK, SERVER, PORT, RESOLVER_PORT = "127.0.0.1", "192.0.2.80", 53, 5353
METRICS = f"{LOOPBACK}:7413"
ZONE = """$TTL 86400
@       IN SOA   ns hostmaster 7 86400 7200 3600000 60
@       IN NS    ns
ns      IN A     127.0.0.1
www     IN A     192.0.2.80
www     IN AAAA  2001:db8::80
www     IN HTTPS 1 . key65300="\\001\\255" alpn=h2
alias   IN CNAME www
*.wild  IN A     192.0.2.99
sub     IN NS    ns.sub
ns.sub  IN A     192.0.2.54
""" + "".join(f"many    IN A     10.0.0.{n}\n" for n in range(100))


def labels_of(wire):
    labels, at = [], 0
    while wire[at]:
        labels.append(wire[at + 1 : at + 1 + wire[at]].decode())
        at += 1 + wire[at]
    return labels


class Scene:
    """The front of the vectors' zone, the server as a socket, and unbound, which asks the front. Or the front is a
    part of the server."""

    def __init__(self, testbed, in_server=False):
        with open(VECTORS, encoding="utf-8") as file:
            self.vectors = json.load(file)
        self.vector = self.vectors["vectors"][0]
        self.zone = bytes.fromhex(self.vector["zone"])
        self.name = ".".join(labels_of(self.zone))
        self.ns = testbed.namespace("dns")
        self.directory = testbed.enter_context(workdir())
        with self.ns.entered():
            self.server = testbed.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.server.bind((LOOPBACK, 0))
        self.server.settimeout(10)
        key = self.file("key", f"key {self.vectors['key_id']} {self.vectors['private_key']}\n")
        zone = self.file("zone", ZONE)
        relay = self.file("relay", f"relay {self.vectors['relay_key_id']} {self.vectors['relay_key']}\n")
        command = [
            "dns", "--listen", f"{LOOPBACK}:{PORT}", "--zone", zone,
            "--origin", self.name, "--dns-path-zone", self.name, "--dns-path-address", SERVER,
            "--key-file", key, "--relay", f"{LOOPBACK}:{self.server.getsockname()[1]}={relay}",
            "--state", os.path.join(self.directory, "boot"),
        ]  # fmt: skip
        if in_server:
            trust = self.file("trust", f'# begin\n[[verifier]]\nkey = "{VERIFIER}"\n# end\n')
            command = [
                "serve", "--udp", f"{LOOPBACK}:8080", "--root", self.directory, "--trust", trust,
                "--first-start", "--dns-listen", f"{LOOPBACK}:{PORT}", "--dns-zone", zone, "--dns-origin", self.name,
                "--dns-path-zone", self.name, "--dns-path-key", key, "--dns-path-address", SERVER, "--json-log", "-v",
                "--metrics", METRICS,
            ]  # fmt: skip
        self.front = testbed.start(Command(self.ns, *command))
        self.front.wait_until(lambda: "DNS-path zone" in self.front.text(), "the front's lines")

    def file(self, name, text):
        path = os.path.join(self.directory, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def dig(self, *arguments):
        """The lines of dig's answer, with repeated blanks reduced to one."""
        out = run("dig", f"@{LOOPBACK}", "-p", str(PORT), "+nocookie", *arguments, ns=self.ns).stdout
        return [" ".join(line.split()) for line in out.splitlines() if line.strip()]

    def resolver(self, testbed):
        config = self.file(
            "unbound.conf",
            f'server:\n interface: {LOOPBACK}\n port: {RESOLVER_PORT}\n username: ""\n chroot: ""\n pidfile: ""\n'
            f' directory: "{self.directory}"\n use-syslog: no\n do-not-query-localhost: no\n'
            ' module-config: "iterator"\nremote-control:\n control-enable: no\n'
            f'stub-zone:\n name: "{self.name}"\n stub-addr: {LOOPBACK}@{PORT}\n',
        )
        resolver = testbed.start(Process(["unbound", "-d", "-c", config], ns=self.ns))
        resolver.wait_until(lambda: "start of service" in resolver.text(), "unbound")


@pytest.mark.needs("dig")
def test_names_of_a_zone(testbed):
    scene = Scene(testbed)
    name = scene.name

    def has(arguments, *expected):
        lines = scene.dig(*arguments)
        for text in expected:
            assert any(text in line for line in lines), f"{text!r} in {lines}"

    has(["www." + name, "A"], "status: NOERROR", "flags: qr aa rd;", f"www.{name}. 86400 IN A 192.0.2.80")
    has(["www." + name, "HTTPS"], r'key65300="\001\255"')
    has(["alias." + name, "AAAA"], f"alias.{name}. 86400 IN CNAME www.{name}.", "IN AAAA 2001:db8::80")
    has(["any.wild." + name, "A"], f"any.wild.{name}. 86400 IN A 192.0.2.99")
    # Below the DNS-path zone the answer never says that a name does not exist.
    has(["none." + name, "A"], "status: NOERROR", "ANSWER: 0, AUTHORITY: 1", f"{name}. 60 IN SOA")
    has(["x.sub." + name, "A"], "flags: qr rd;", f"sub.{name}. 86400 IN NS", f"ns.sub.{name}. 86400 IN A 192.0.2.54")
    has(["www.elsewhere.org", "A"], "status: REFUSED")
    has(["+ignore", "+noedns", "many." + name, "A"], "flags: qr aa tc rd;", "ANSWER: 0")
    has(["many." + name, "A"], "Truncated, retrying in TCP mode", "ANSWER: 100")
    has(["+edns=1", "+noednsneg", "www." + name, "A"], "status: BADVERS")
    check_no_panic(scene.front)


def ask_for_fragments(testbed, scene):
    """Asks unbound for the vector's first flight. Every name is answered."""
    scene.resolver(testbed)
    with scene.ns.entered():
        client = testbed.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    client.settimeout(10)
    # Leave out one of the fragments. The parity replaces it.
    labels = [bytes.fromhex(label) for label in scene.vector["labels"]][1:]
    for number, label in enumerate(labels):
        header = number.to_bytes(2) + bytes([1, 0, 0, 1, 0, 0, 0, 0, 0, 0])
        client.sendto(header + bytes([63]) + label + scene.zone + bytes([0, 1, 0, 1]), (LOOPBACK, RESOLVER_PORT))
    for _ in labels:
        answer = client.recv(2048)
        label = labels[int.from_bytes(answer[:2])]
        assert (answer[3] & 15, answer[6:8]) == (0, b"\0\1"), "code and answers"
        assert answer[13:76] == label, "label"
        assert answer.endswith(b"\0\0\0\0\0\4" + socket.inet_aton(SERVER)), "address with TTL 0"


@pytest.mark.needs("unbound")
def test_a_first_flight_through_unbound(testbed):
    scene = Scene(testbed)
    ask_for_fragments(testbed, scene)
    datagram = scene.server.recv(2048)
    assert len(datagram) == len(bytes.fromhex(scene.vector["relay"])), "length of the relay datagram"
    assert datagram[:4] == bytes.fromhex(scene.vector["relay"])[:4], "its beginning"
    assert abs(int.from_bytes(datagram[16:22]) / 1000 - time.time()) < 60, "its time"
    check_no_panic(scene.front)


@pytest.mark.needs("unbound", "dig", "curl")
def test_a_first_flight_through_unbound_to_the_server_itself(testbed):
    scene = Scene(testbed, in_server=True)
    ask_for_fragments(testbed, scene)
    # The vector's certificate expired long ago: the listener gets the first flight and does not answer.
    scene.front.wait_until(lambda: "a first flight by DNS" in scene.front.text(), "a first flight")
    assert any("IN A 192.0.2.80" in line for line in scene.dig("www." + scene.name, "A")), "an ordinary name"
    text = run("curl", "-gsS", "--fail", "-m", 20, f"http://{METRICS}/metrics", ns=scene.ns).stdout
    for series in ('connections_opened_total{side="server"}', 'packets_total{direction="out"}'):
        assert f"\nfirstflight_{series} 0\n" in text, f"connections and packets: {text}"
    assert scene.front.terminate() == 0, "exit status"
    (names,) = [record for record in scene.front.records() if record["event"] == "names"]
    assert (names["put_together"], names["taken"]) == (1, 1), "first flights put together and taken"
    check_no_panic(scene.front)
