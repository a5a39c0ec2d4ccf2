"""Requests inside the lookup of the server's address: the command as client, name server, server and verifiers, with
unbound as the resolver."""

import json
import os
import time

import pytest

import firstflight
from firstflight import Command, at, is_accepted, show
from net import Pair
from process import Process, run
from scene import FAR, NEAR, PORT, SECOND, STRANGER, VERIFIER_PORT, Scene

NAME, ZONE = "www.xyz.com", "f.xyz.com"
RELAY_PORT, RESOLVER_PORT = 4454, 5353
PROXY = "127.0.0.1:3128"
#: A SYN of the encapsulation with more than 100 bytes after the UDP header.
LONG_UDP_SYN = "udp length > 108 @th,64,8 0x08 @th,200,8 & 0x12 == 0x02"
#: The client's network, for what it remembers.
NETWORK = "0" * 31 + "1"


class Site:
    """A server with its front and two verifiers, and a resolver near the client. With `alone`, the front is a part
    of the server."""

    def __init__(self, testbed, family, masquerade=False, alone=False):
        self.testbed, self.family = testbed, family
        self.scene = scene = Scene(testbed, masquerade=masquerade)
        nodad = ["nodad"] if family == 6 else []
        for address in (SECOND, STRANGER):
            scene.far.ip("addr", "add", Pair.cidr(address[family]), "dev", "veth1", *nodad)
        scene.far.ip(f"-{family}", "route", "add", NEAR.net[family], "via", FAR.host[family])
        self.server = at(FAR.peer[family], PORT)
        told = run(firstflight.BINARY, "dns", "keygen", "-o", scene.path("dns-path.key")).stdout
        self.dns_path_key = told.split()[1]
        self.serve = self.serving(self.zone(), alone)
        self.unbound()
        scene.issuer("--probe-from", at(STRANGER[family], 0), family=family)
        scene.verifier("--key-file", scene.path("verifier.key"), address=SECOND[family], family=family)

    def serving(self, zone, alone):
        """The server. Without `alone`, starts the front first."""
        scene, family = self.scene, self.family
        if alone:
            handed = (
                "--dns-listen", at(FAR.peer[family], 53), "--dns-zone", zone, "--dns-origin", "xyz.com",
                "--dns-path-zone", ZONE, "--dns-path-key", scene.path("dns-path.key"),
                "--dns-path-address", FAR.peer[4],
            )  # fmt: skip
        else:
            self.relaying(zone)
            handed = ("--relay-listen", at(FAR.peer[family], RELAY_PORT), "--relay-key", scene.path("relay"))
        return scene.serve_udp(family, "--identity", NAME, *handed)

    def relaying(self, zone):
        """Starts a front that relays first flights to the server."""
        run(firstflight.BINARY, "dns", "keygen", "--relay", "-o", self.scene.path("relay"))
        self.front = self.dns(zone)

    def file(self, name, text):
        path = self.scene.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def zone(self):
        """The file of the site's zone."""
        scene, family = self.scene, self.family
        record = ("--udp-port", PORT, "--dns-path-zone", ZONE, "--dns-path-key", self.dns_path_key)
        told = run(firstflight.BINARY, "asap", "record", "--verifier-key", scene.key, *record).stdout
        address = FAR.peer[family]
        kind = "A" if family == 4 else "AAAA"
        return self.file(
            "xyz.zone",
            f"$TTL 86400\n@ IN SOA ns hostmaster 1 86400 7200 3600000 60\n@ IN NS ns\nns IN {kind} {address}\n"
            f"www 1 IN {kind} {address}\n_{PORT}._https.www IN HTTPS 1 {NAME}. {told.strip()}\n"
            f"f IN NS ns.f\nns.f IN {kind} {address}\n",
        )

    def dns(self, zone):
        """The name server of the site's zone and of the DNS-path zone."""
        scene, address = self.scene, FAR.peer[self.family]
        command = [
            "dns", "--listen", at(address, 53), "--zone", zone, "--origin", "xyz.com",
            "--dns-path-zone", ZONE, "--dns-path-address", FAR.peer[4], "--key-file", scene.path("dns-path.key"),
            "--relay", f"{at(address, RELAY_PORT)}={scene.path('relay')}", "--state", scene.path("boot"),
        ]  # fmt: skip
        return self.testbed.start(Command(scene.far, *command))

    def unbound(self):
        address = NEAR.host[self.family]
        config = self.file(
            "unbound.conf",
            f'server:\n interface: {address}\n port: {RESOLVER_PORT}\n username: ""\n chroot: ""\n pidfile: ""\n'
            f' directory: "{self.scene.root}"\n use-syslog: no\n module-config: "iterator"\n'
            " access-control: 0.0.0.0/0 allow\n access-control: ::/0 allow\n"
            "remote-control:\n control-enable: no\n"
            f'stub-zone:\n name: "xyz.com"\n stub-addr: {FAR.peer[self.family]}@53\n',
        )
        resolver = self.testbed.start(Process(["unbound", "-d", "-c", config], ns=self.scene.router))
        resolver.wait_until(lambda: "start of service" in resolver.text(), "unbound")

    def get(self, *options, path="/small", expect=0):
        second = ("--second-verifier", at(SECOND[self.family], VERIFIER_PORT))
        asked = (
            f"http://{NAME}:{PORT}{path}", "--udp", "--via-dns", "--dns", at(NEAR.host[self.family], RESOLVER_PORT),
        )  # fmt: skip
        return self.scene.get(*asked, *self.scene.asks(self.family), *second, *options, expect=expect)


@pytest.mark.needs("unbound")
def test_requests_travel_inside_lookups(testbed, family):
    site = Site(testbed, family)
    memory = site.scene.path("cache.json")
    records = site.get("--verify-first", "--cache", memory, "--network-id", NETWORK, "--repeat", 3)
    for record in records:
        site.scene.whole(record)
        assert is_accepted(record) and record["way"] in ("lookup", "direct"), show(record)
        assert record["held_back"] is None, show(record)
    logged = site.serve.requests(3)
    assert all(is_accepted(record) for record in logged), "the server's view"
    # Each request is executed once, whichever copy was first.
    assert len(site.serve.requests(3)) == 3, "requests"
    assert os.stat(memory).st_mode & 0o777 == 0o600, "mode of the memory"
    with open(memory, encoding="utf-8") as file:
        remembered = json.load(file)
    assert [known["name"] for known in remembered["records"]] == [NAME], "remembered"
    # Another process knows the server from the file, and needs no record.
    (again,) = site.get("--verify-first", "--cache", memory, "--network-id", NETWORK, "--parity")
    site.scene.whole(again)
    assert is_accepted(again) and again["held_back"] is None, show(again)
    # A request that does not fit goes the direct way.
    (long,) = site.get("--verify-first", "--cache", memory, "--network-id", NETWORK, path="/" + "x" * 120, expect=1)
    assert (long["way"], long["held_back"], long["status"]) == ("ordinary", "too-long", 404), show(long)


class FoundSite(Site):
    """A site that trusts its own verifier only, which its records name. The verifiers that the client was told of find out
    whether strangers can answer, and certify nothing that the site takes."""

    #: A global address, because no others are asked by strangers' wishes. It exists in these namespaces only.
    OWN, OWN_PORT = "11.62.0.9", 4500

    def __init__(self, testbed):
        super().__init__(testbed, 4, alone=True)
        scene = self.scene
        scene.far.ip("addr", "add", f"{self.OWN}/32", "dev", "lo")
        scene.router.ip("route", "add", f"{self.OWN}/32", "via", FAR.peer[4])
        listen = ("--listen", at(self.OWN, self.OWN_PORT), "--allow-prefix", NEAR.net[4])
        testbed.start(Command(scene.far, "verifier", *listen, "--key-file", scene.path("own.key")))

    def serving(self, zone, alone):
        self.zone_file = zone
        return super().serving(zone, alone)

    def restart(self):
        """Starts the server anew, because the proxy keeps its connections."""
        self.serve.popen.terminate()
        assert self.serve.wait(20) == 0, self.serve.text()
        self.serve = self.serving(self.zone_file, True)

    def zone(self):
        own = self.scene.keygen("own.key")
        self.scene.trust(own)
        named = ("--verifier-key", own, "--verifier", f"v.xyz.com:{self.OWN_PORT}", "--udp-port", PORT)
        dns_path = ("--dns-path-zone", ZONE, "--dns-path-key", self.dns_path_key)
        record, mine = (run(firstflight.BINARY, "asap", "record", *named, *more).stdout.strip() for more in (dns_path, ()))
        address = FAR.peer[4]
        return self.file(
            "xyz.zone",
            f"$TTL 86400\n@ IN SOA ns hostmaster 1 86400 7200 3600000 60\n@ IN NS ns\nns IN A {address}\n"
            f"www 1 IN A {address}\n_{PORT}._https.www IN HTTPS 1 {NAME}. {record}\n"
            f"v IN A {self.OWN}\n_{self.OWN_PORT}._https.v IN HTTPS 1 v.xyz.com. {mine}\n"
            f"f IN NS ns.f\nns.f IN A {address}\n",
        )


@pytest.mark.needs("curl", "unbound")
def test_inside_a_lookup_with_the_certificate_of_a_verifier_that_the_site_names(testbed):
    """By the proxy: a client by an engine, as `get --udp`, finds none."""
    site = FoundSite(testbed)
    options = (
        "--allow-net", FAR.net[4], "--dns", at(NEAR.host[4], RESOLVER_PORT), *site.scene.asks(4), "--via-dns",
        "--second-verifier", at(SECOND[4], VERIFIER_PORT), "--found-verifiers", "site",
    )  # fmt: skip
    command = [firstflight.BINARY, "proxy", "--listen", PROXY, "--json", *options]
    proxy = testbed.start(Process(command, ns=site.scene.client))
    proxy.wait_records(1, "the first line", lambda r: r["event"] == "listening")
    for count in range(1, 12):
        url = f"http://{NAME}:{PORT}/small"
        got = run("curl", "-sS", "-m", 20, "-x", f"http://{PROXY}", "-o", "/dev/null", "-w", "%{http_code}", url, ns=site.scene.client)
        assert got.stdout == "200", got.stdout
        connected = proxy.wait_records(count, "a connection", lambda r: r["event"] == "connected")[-1]
        if connected["inside_lookup"] in ("lookup", "direct"):
            break
        site.restart()
        time.sleep(2)
    else:
        raise AssertionError(f"no request inside a lookup: {show(connected)}")
    assert (connected["way"], connected["outcome"]) == ("udp", "accepted"), show(connected)
    # The servers take no other certificates.
    assert site.serve.requests(1)[-1]["credential"] == "certificate"


@pytest.mark.needs("unbound", "nft")
def test_behind_a_translator_requests_go_as_ever(testbed, family):
    site = Site(testbed, family, masquerade=True)
    records = site.get("--verify-first", "--repeat", 2)
    for record in records:
        site.scene.whole(record)
        assert (record["way"], record["held_back"]) == ("ordinary", "not-proved"), show(record)
        assert is_accepted(record), show(record)


@pytest.mark.needs("unbound")
def test_a_server_that_is_its_own_name_server(testbed, family):
    site = Site(testbed, family, alone=True)
    records = site.get("--verify-first", "--repeat", 3)
    for record in records:
        site.scene.whole(record)
        assert is_accepted(record) and record["way"] in ("lookup", "direct"), show(record)
        assert record["held_back"] is None, show(record)
    assert all(is_accepted(record) for record in site.serve.requests(3)), "the server's view"
    assert site.serve.terminate() == 0, "exit status"
    (names,) = [record for record in site.serve.records() if record["event"] == "names"]
    assert (names["taken"], names["put_together"]) == (3, 3), show(names)


@pytest.mark.needs("unbound", "nft")
def test_a_box_that_refuses_the_direct_copy_does_not_fail_a_request(testbed, family):
    """The copy in the lookup is also lost. A plain SYN to the same address follows."""
    site = Site(testbed, family)
    memory = site.scene.path("cache.json")
    ask = ("--verify-first", "--cache", memory, "--network-id", NETWORK)
    (known,) = site.get(*ask)
    assert known["held_back"] is None, show(known)
    site.scene.far.nft(f"type filter hook input priority 0; udp dport {RELAY_PORT} counter drop")
    site.scene.router.nft(
        "type filter hook forward priority 0; "
        f"iifname veth0 oifname veth1 {LONG_UDP_SYN} counter reject with icmpx admin-prohibited"
    )
    (record,) = site.get(*ask)
    site.scene.whole(record)
    assert (record["way"], record["reason"]) == ("direct", "syn-refused"), show(record)
    assert len(site.serve.requests(2)) == 2, "requests"
    assert site.scene.far.nft_matched() and site.scene.router.nft_matched(), "nothing was dropped or refused"


@pytest.mark.needs("unbound")
def test_a_program_sends_its_request_inside_the_lookup(testbed):
    """The example of the library: its first visit learns what the server publishes, and its second one travels so."""
    example = os.path.join(os.path.dirname(firstflight.BINARY), "examples", "inside_lookup")
    if not os.path.exists(example):
        pytest.skip("not built: cargo build -p firstflight --features asap --example inside_lookup")
    site = Site(testbed, 4)
    resolver, verifiers = at(NEAR.host[4], RESOLVER_PORT), [at(ip, VERIFIER_PORT) for ip in (FAR.peer[4], SECOND[4])]
    asked = (f"{NAME}:{PORT}", resolver, verifiers[0], site.scene.key, verifiers[1])
    first, second = run(example, *asked, ns=site.scene.client).stdout.splitlines()
    assert "accepted" in first and first.endswith('Some(("ordinary", 0))'), first
    assert "accepted" in second and second.endswith(('Some(("lookup", 7))', 'Some(("direct", 7))')), second
    assert len(site.serve.requests(2)) == 2, "requests"
