"""Verifiers that a site names in its records (docs/spec/asap.md, section 9.1): `get` knows none, and finds them."""

import os
import signal
import socket

import firstflight
import name_server
import pytest
from firstflight import Command, at, is_accepted, show
from net import FAMILIES, Pair
from packets import Capture
from process import Process, run
from test_proxy import A, wire_name

#: Global addresses, because no others are asked by strangers' wishes. They exist in these namespaces only.
PAIR = Pair(87)
NAMES = {"a.site.test": 1, "b.site.test": 2, "site.test": 1}
HOSTS = {name: f"11.87.0.{number}" for name, number in NAMES.items()}
HOSTS6 = {name: f"2a0b:87::{number}" for name, number in NAMES.items()}
OTHER = "11.87.0.9"
RESOLVER = "11.87.0.53"
CLIENT, CLIENT6, TRANSLATED = "11.88.0.1", "2a0b:88::1", "11.89.0.1"
PORT, AAAA, HTTPS = 8080, 28, 65
#: A verifier with a vantage point, each in a network of its own.
GROUP_PORT, GROUP = 4500, {"v.site.test": "11.87.1.1", "ams.site.test": "11.87.2.1"}


def inet6(address):
    return socket.inet_pton(socket.AF_INET6, address)



class Site:
    """A site with two hosts that are their own verifiers, a name server with its zone, and a client that knows nothing."""

    def __init__(self, testbed, late=0, keys=1, family=4, group=False):
        self.testbed, self.hosts = testbed, HOSTS if family == 4 else HOSTS6
        self.client, self.far = testbed.namespace("client"), testbed.namespace("far")
        testbed.cable(self.far, self.client, PAIR, "veth0")
        for address in {*HOSTS.values(), *GROUP.values(), OTHER, RESOLVER}:
            self.far.ip("addr", "add", f"{address}/32", "dev", "lo")
        self.client.ip("addr", "add", f"{CLIENT}/32", "dev", "lo")
        self.client.ip("route", "add", "11.87.0.0/16", "via", PAIR.host[4], "src", CLIENT)
        self.far.ip("route", "add", f"{CLIENT}/32", "via", PAIR.peer[4])
        for address in set(HOSTS6.values()):
            self.far.ip("addr", "add", f"{address}/128", "dev", "lo", "nodad")
        self.client.ip("addr", "add", f"{CLIENT6}/128", "dev", "lo", "nodad")
        self.client.ip("-6", "route", "add", "2a0b:87::/32", "via", PAIR.host[6], "src", CLIENT6)
        self.far.ip("-6", "route", "add", f"{CLIENT6}/128", "via", PAIR.peer[6])
        self.root = testbed.root(small=700)
        self.key = self.keygen("verifier.key")
        self.keys = [self.key] if group else []
        if keys > 1:
            self.keys = [self.key, self.keygen("next.key")]
        if self.keys:
            with open(os.path.join(self.root, "trust.toml"), "w") as file:
                entries = "".join(f'[[verifier]]\nkey = "{key}"\n' for key in self.keys)
                file.write(f"# begin\n{entries}# end\n")
        kind, octets = (A, socket.inet_aton) if family == 4 else (AAAA, inet6)
        self.names = {(wire_name(name), kind): octets(address) for name, address in self.hosts.items()}
        if group:
            self.start_group()
        for host in () if group else ("a.site.test", "b.site.test"):
            named = [word for key in self.keys or [self.key] for word in ("--verifier-key", key, "--verifier", f"site.test:{PORT}")]
            self.publish(host, *named, "--verifier-below", "--udp-port", PORT)
        self.servers = [self.serve(host, own=not group) for host in ("a.site.test", "b.site.test")]
        # The verifier names itself.
        self.names[wire_name(f"_{PORT}._https.site.test"), HTTPS] = self.names[wire_name(f"_{PORT}._https.a.site.test"), HTTPS]
        testbed.enter_context(name_server.answering(self.far, RESOLVER, self.names, late=late))

    def keygen(self, name):
        return run(firstflight.BINARY, "verifier", "keygen", "-o", os.path.join(self.root, name)).stdout.split()[1]

    def start_group(self):
        """A verifier that certifies only who brings a token of its vantage point. The hosts' records name both, as do their own."""
        token, group = os.path.join(self.root, "ams.token"), os.path.join(self.root, "group.txt")
        run(firstflight.BINARY, "verifier", "keygen", "--vantage", "-o", token)
        with open(group, "w") as file:
            file.write(f"1 ams {at(GROUP['ams.site.test'], GROUP_PORT)} ams.token\n")
        options = (("--vantage-id", 1, "--vantage-key", token), ("--key-file", os.path.join(self.root, "verifier.key"), "--group", group))
        self.points = [
            self.testbed.start(Command(self.far, "verifier", "--listen", at(GROUP[name], GROUP_PORT), *how))
            for name, how in zip(("ams.site.test", "v.site.test"), options)
        ]
        named = ("--verifier-key", self.key, "--verifier", f"v.site.test:{GROUP_PORT}", "--vantage", f"1=ams.site.test:{GROUP_PORT}")
        self.names |= {(wire_name(name), A): socket.inet_aton(address) for name, address in GROUP.items()}
        for host, port in (("a.site.test", PORT), ("b.site.test", PORT), *((name, GROUP_PORT) for name in GROUP)):
            self.publish(host, *named, "--udp-port", PORT, port=port)

    def publish(self, host, *options, port=PORT):
        """The HTTPS record of a host: priority 1, this name, and what `asap record` prints."""
        told = run(firstflight.BINARY, "asap", "record", *options).stdout.split()
        record = b"\0\1\0"
        for parameter in told:
            key, octets = parameter.removeprefix("key").split("=")
            value = bytes(int(number) for number in octets.strip('"').split("\\")[1:])
            record += int(key).to_bytes(2) + len(value).to_bytes(2) + value
        self.names[wire_name(f"_{port}._https.{host}"), HTTPS] = record

    def serve(self, host, own=True):
        listen = ("--listen", at(self.hosts[host], PORT), "--identity", host)
        verifier = ("--verifier", os.path.join(self.root, "verifier.key")) if own else ()
        # It is known that this server has taken nothing in the last minutes.
        fresh = "--first-start"
        trust = ("--trust", os.path.join(self.root, "trust.toml")) if self.keys else ()
        return self.testbed.start(Command(self.far, "serve", "--root", self.root, *listen, *verifier, *trust, fresh))

    def get(self, *hosts, options=()):
        """Fetches one after the other, six seconds apart. Returns what each says, and what left to each server by UDP."""
        urls = [f"http://{host}:{PORT}/small" for host in hosts]
        command = [firstflight.BINARY, "get", *urls, "--interval", "6s", "--dns", at(RESOLVER, 53), "--json", *options]
        with Capture(self.client, "veth0") as capture, Process(command, ns=self.client) as client:
            self.testbed.processes.append(client)
            assert client.wait(60) == 0, client.text()
            records = client.records()
        left = {}
        for _, out, packet in capture.packets:
            if out and packet[0] >> 4 == 4:
                left.setdefault(socket.inet_ntoa(packet[16:20]), []).append((packet[9], packet[20:]))
            elif out and packet[0] >> 4 == 6 and packet[6] != socket.IPPROTO_ICMPV6:
                left.setdefault(socket.inet_ntop(socket.AF_INET6, packet[24:40]), []).append((packet[6], packet[40:]))
        return records, left

    def asked(self, left):
        """Datagrams to verifiers."""
        sent = [packet for packets in left.values() for packet in packets]
        return [segment for kind, segment in sent if kind == socket.IPPROTO_UDP and segment[8:11] == b"\xff\x56\x11"]


@pytest.fixture
def site(testbed):
    return Site(testbed)


@pytest.mark.parametrize("family", FAMILIES)
def test_found_the_third_request_is_in_the_first_packet_to_a_host_that_was_never_visited(testbed, family):
    site = Site(testbed, family=family)
    a, b, cache = "a.site.test", "b.site.test", os.path.join(site.root, "cache")
    records, left = site.get(a, a, b, options=("--cache", cache, "--network-id", "01" * 16))
    assert [record["way"] for record in records] == ["kernel", "udp", "udp"], show(records[1])
    assert all(is_accepted(record) for record in records[1:]), show(records[2])
    kind, first = left[site.hosts[b]][0]
    assert kind == socket.IPPROTO_UDP and b"GET /small HTTP/1.1" in first, first
    # The verifier was asked once: a challenge, and a certificate.
    assert len(site.asked(left)) == 2, site.asked(left)
    # Nothing of it is in the file.
    with open(cache, "rb") as file:
        assert site.key.encode() not in file.read().lower()


def test_found_by_a_record_that_comes_behind_the_answer(testbed):
    site = Site(testbed, late=0.5)
    records, left = site.get("a.site.test", "a.site.test")
    assert records[0]["way"] == "kernel" and records[0]["waited_ms"] < 500, show(records[0])
    assert records[-1]["way"] == "udp" and len(site.asked(left)) == 2, show(records[-1])


def test_found_while_the_site_turns_its_key(testbed):
    """The records name both keys, and both are trusted. The verifiers sign with the first one, and from a reload on with the other."""
    site = Site(testbed, keys=2)
    records, _ = site.get("a.site.test", "a.site.test")
    assert records[1]["way"] == "udp" and is_accepted(records[1]), show(records[1])
    with open(os.path.join(site.root, "next.key")) as new, open(os.path.join(site.root, "verifier.key"), "w") as file:
        file.write(f"{new.read()}retired {site.keys[0]}\n")
    for server in site.servers:
        server.popen.send_signal(signal.SIGHUP)
        server.wait_until(lambda: f"from now on, key {site.keys[1]}" in server.text(), "the new key")
    records, left = site.get("a.site.test", "a.site.test")
    assert records[1]["way"] == "udp" and is_accepted(records[1]), show(records[1])
    # The first key is refused, and asked for no more meanwhile.
    assert len(site.asked(left)) <= 4, left


def test_found_a_group_whose_vantage_point_answers(testbed):
    site = Site(testbed, group=True)
    records, left = site.get("a.site.test", "a.site.test")
    assert records[1]["way"] == "udp" and is_accepted(records[1]), show(records[1])
    # Each of the two gave a challenge first.
    assert all(len(left[address]) >= 2 for address in GROUP.values()), left


def test_found_a_group_whose_vantage_point_is_silent_certifies_nobody(testbed):
    site = Site(testbed, group=True)
    site.points[0].popen.terminate()
    assert site.points[0].wait(10) is not None
    records, left = site.get("a.site.test", "a.site.test", "a.site.test")
    assert [record["way"] for record in records] == ["kernel"] * 3, show(records[-1])
    assert all(record["status"] == 200 for record in records), show(records[-1])


@pytest.mark.needs("nft")
def test_found_behind_a_translator(testbed):
    """What is certified is the translator's address, which the servers see, too."""
    site = Site(testbed)
    site.far.ip("route", "add", f"{TRANSLATED}/32", "via", PAIR.peer[4])
    site.client.nft(f"type nat hook postrouting priority 100; oifname veth0 ip saddr {CLIENT} counter snat ip to {TRANSLATED}")
    records, left = site.get("a.site.test", "a.site.test", "b.site.test")
    assert [record["way"] for record in records] == ["kernel", "udp", "udp"], show(records[1])
    assert all(is_accepted(record) for record in records[1:]), show(records[2])
    assert len(site.asked(left)) == 2 and site.client.nft_matched(), left


def test_found_off_asks_nobody(site):
    records, left = site.get("a.site.test", "a.site.test", options=("--found-verifiers", "off"))
    assert [record["way"] for record in records] == ["kernel", "kernel"] and not site.asked(left)


def test_found_a_verifier_that_does_not_name_itself_is_not_asked(site):
    del site.names[wire_name(f"_{PORT}._https.site.test"), HTTPS]
    records, left = site.get("a.site.test", "a.site.test")
    assert [record["way"] for record in records] == ["kernel", "kernel"] and not site.asked(left)


@pytest.mark.parametrize("address", ["10.87.0.1", CLIENT])
def test_found_a_verifier_at_a_private_address_or_this_host_is_not_asked(site, address):
    site.names[wire_name("site.test"), A] = socket.inet_aton(address)
    records, left = site.get("a.site.test", "a.site.test")
    assert [record["way"] for record in records] == ["kernel", "kernel"] and not site.asked(left)


def test_found_a_silent_verifier_gets_one_datagram_and_delays_nothing(site):
    site.names[wire_name("site.test"), A] = socket.inet_aton(OTHER)
    records, left = site.get("a.site.test", "a.site.test", "a.site.test")
    assert [record["way"] for record in records] == ["kernel"] * 3
    assert len(left[OTHER]) == 1 and len(site.asked(left)) == 1, left[OTHER]


def test_found_across_sites_nothing_is_shown(testbed, site):
    """Another site names the verifier of this one, which trusts it, too. Its servers see no certificate of this site's visits."""
    site.names[wire_name("evil.test"), A] = socket.inet_aton(HOSTS["b.site.test"])
    site.publish("evil.test", "--verifier-key", site.key, "--udp-port", PORT, "--verifier", f"site.test:{PORT}",
                 "--verifier-below")
    records, left = site.get("a.site.test", "evil.test")
    assert [record["way"] for record in records] == ["kernel", "kernel"], show(records[1])
    assert all(kind != socket.IPPROTO_UDP for kind, _ in left[HOSTS["b.site.test"]]), "a datagram to the other site"


def test_found_doctor_says_which_verifiers_a_record_names(site):
    told = run(firstflight.BINARY, "doctor", f"http://a.site.test:{PORT}/small", "--dns", at(RESOLVER, 53), ns=site.client, check=False)
    assert f"names verifiers for clients that know none: site.test:{PORT}, also for the names below" in told.stdout, told.stdout
