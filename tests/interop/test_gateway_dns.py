"""The gateway takes requests out of lookups, as the name server of its zone or from another one, and nginx behind it answers."""

import os
import pwd
import re
import shutil

import pytest

import firstflight
from firstflight import at, is_accepted, show
from process import run
from scene import FAR, PORT
from test_gateway import ADMIN, APP, BACKEND, GLOBAL, Gateway, curl, nginx
from test_gateway import at as listening
from test_via_dns import LONG_UDP_SYN, NAME, NETWORK, RELAY_PORT, ZONE, Site

pytestmark = pytest.mark.needs("curl", "nft", "nginx", "unbound")

#: A path that does not fit into a lookup.
LONG = f"/reports-{'x' * 120}/small"

LISTENER = """
[[listener]]
name = "web"
address = ["{address}"]
mode = "http"
service = "app"
trust = "{trust}"
identity = ["{name}"]
first_start = true
short = ["http://{name}:{port}{long}"]
"""

NAMES = """
[dns]
listener = "web"
listen = ["{address}"]
dns_path_zone = "{dns_path}"
dns_path_key = "{key}"
dns_path_address = ["{answer}"]
[[dns.zone]]
file = "{zone}"
origin = "xyz.com"
"""

RELAY = """
[dns]
listener = "web"
[dns.relay]
listen = "{address}"
key = "{key}"
"""


class GatewaySite(Site):
    """The site of a gateway, with nginx behind it."""

    def serving(self, zone, alone):
        scene, far = self.scene, self.scene.far
        address = FAR.peer[self.family]
        servers = f"server {{ listen 127.0.0.1:{BACKEND}; root {scene.root}; }}"
        self.nginx = nginx(self.testbed, far, self.testbed.root(), servers, listening(self.testbed, far, BACKEND))
        if alone:
            names = NAMES.format(
                address=at(address, 53), dns_path=ZONE, key=scene.path("dns-path.key"), answer=FAR.peer[4], zone=zone
            )
        else:
            self.relaying(zone)
            names = RELAY.format(address=at(address, RELAY_PORT), key=scene.path("relay"))
        listener = LISTENER.format(address=at(address, PORT), trust=scene.path("trust.toml"), name=NAME, port=PORT, long=LONG)
        return self.testbed.start(Gateway(far, self.file("gateway.toml", "\n".join((GLOBAL, names, listener, APP)))))

    def flights(self, series):
        """The value of a counter of the gateway."""
        text = curl(self.scene.far, f"http://127.0.0.1:{ADMIN}/metrics").stdout
        found = re.search(rf"^{re.escape(series)} (\d+)$", text, re.MULTILINE)
        assert found, text
        return int(found[1])

    def visits(self, series):
        """Three visits whose requests also travel inside the lookup, and one whose request travels only so."""
        ask = ("--verify-first", "--cache", self.scene.path("cache.json"), "--network-id", NETWORK)
        for record in self.get(*ask, "--repeat", 3):
            self.scene.whole(record)
            assert is_accepted(record) and record["way"] in ("lookup", "direct"), show(record)
            assert record["held_back"] is None, show(record)
        self.scene.router.nft(
            f"type filter hook forward priority 0; iifname veth0 oifname veth1 {LONG_UDP_SYN} counter drop"
        )
        (record,) = self.get(*ask)
        self.scene.whole(record)
        assert is_accepted(record) and record["way"] == "lookup", show(record)
        for logged in self.serve.logged(4):
            assert (logged["way"], logged["outcome"], logged["status"]) == ("udp", "accepted", 200), show(logged)
            assert logged["early_bytes"] > 0 and logged["backend"] == f"127.0.0.1:{BACKEND}", show(logged)
        # Each request is executed once, whichever copy was first.
        seen = [record for record in self.nginx.records() if record.get("event") == "nginx"]
        assert [record["uri"] for record in seen] == ["/small"] * 4, seen
        assert self.flights(series) == 4, "first flights from the name server"


def test_a_gateway_that_is_the_name_server_of_its_zone(testbed, family):
    site = GatewaySite(testbed, family, alone=True)
    site.visits('firstflight_dns_first_flights_total{outcome="relayed"}')
    assert site.flights('firstflight_dns_sets_total{outcome="completed"}') == 4, "first flights put together"
    text = site.serve.text("out")
    assert f"DNS-path zone {ZONE}., dns-path-key {site.dns_path_key}" in text, text


def test_a_gateway_takes_first_flights_from_another_name_server(testbed, family):
    site = GatewaySite(testbed, family)
    site.visits('firstflight_relay_datagrams_total{outcome="taken"}')


def test_the_first_line_or_a_short_label_travels_where_the_request_does_not_fit(testbed, family):
    site = GatewaySite(testbed, family, alone=True)
    scene = site.scene
    os.mkdir(os.path.dirname(scene.root + LONG))
    shutil.copy(scene.path("small"), scene.root + LONG)
    ask = ("--verify-first", "--cache", scene.path("cache.json"), "--network-id", NETWORK)
    long_field = (*ask, "-H", f"Cookie: {'x' * 1200}")

    def travelled(record):
        scene.whole(record)
        assert is_accepted(record) and record["held_back"] is None, show(record)
        return record["way"]

    (whole,) = site.get(*long_field)
    assert (whole["way"], whole["held_back"]) == ("ordinary", "too-long"), show(whole)
    for record in site.get(*long_field, "--first-line", "--repeat", 2):
        assert travelled(record) in ("lookup", "direct"), show(record)
    (whole,) = site.get(*ask, path=LONG)
    assert (whole["way"], whole["held_back"]) == ("ordinary", "too-long"), show(whole)
    for record in site.get(*ask, "--short", "--repeat", 2, path=LONG):
        assert travelled(record) in ("lookup", "direct") and not record["retried_in_full"], show(record)
    # Without the direct SYN. What follows it arrives, and belongs to the copy in the lookup.
    scene.router.nft(f"type filter hook forward priority 0; iifname veth0 oifname veth1 {LONG_UDP_SYN} counter drop")
    (record,) = site.get(*long_field, "--first-line")
    assert travelled(record) == "lookup", show(record)
    (record,) = site.get(*ask, "--short", path=LONG)
    assert travelled(record) == "lookup", show(record)
    # Each request is executed once, and by its whole name.
    seen = [record["uri"] for record in site.nginx.records() if record.get("event") == "nginx"]
    assert seen == ["/small"] * 3 + [LONG] * 3 + ["/small", LONG], seen
    # The gateway has no label for this one.
    (unknown,) = scene.get(f"http://{at(FAR.peer[family], PORT)}/small", "--short")
    assert (unknown["status"], unknown["retried_in_full"]) == (200, True), show(unknown)


USER = """
user = "nobody"

[dns]
listener = "web"
listen = ["127.0.0.1:53"]
dns_path_zone = "f.xyz.com"
dns_path_key = "{root}/dns-path.key"
[[dns.zone]]
file = "{root}/zone"
origin = "xyz.com"
[dns.forward]
listen = "127.0.0.1:4455"
to = ["127.0.0.2:4455"]
key = "{root}/fronts.key"
front_id = 0
state = "{root}/state/boot"
"""


@pytest.mark.needs("dig")
def test_a_name_server_without_root_follows_its_files(testbed):
    """The file of its starts belongs to the user that the gateway becomes, and a reload reads everything as that user."""
    root, ns = testbed.root(), testbed.namespace("user")
    os.chmod(root, 0o755)
    for option, name in ((("-o",), "dns-path.key"), (("--relay", "-o"), "fronts.key")):
        run(firstflight.BINARY, "dns", "keygen", *option, os.path.join(root, name))
        shutil.chown(os.path.join(root, name), "nobody")
    os.mkdir(os.path.join(root, "state"))
    shutil.chown(os.path.join(root, "state"), "nobody")

    def write(name, text):
        with open(os.path.join(root, name), "w") as file:
            file.write(text)
        return os.path.join(root, name)

    def zone(serial):
        soa = f"$TTL 60\n@ IN SOA ns hostmaster {serial} 2 3 4 5\n@ IN NS ns\nns IN A 127.0.0.1\n"
        return write("zone", f"{soa}www IN A 192.0.2.{serial}\n")

    def answer():
        return run("dig", "+short", "@127.0.0.1", "www.xyz.com", "A", ns=ns).stdout.split()

    zone(1)
    trust = write("trust", "# begin\n# end\n")
    listener = LISTENER.format(address=f"127.0.0.1:{PORT}", trust=trust, name=NAME, port=PORT, long=LONG)
    path = write("gateway.toml", "\n".join((GLOBAL, USER.format(root=root), listener, APP)))
    check = run(firstflight.BINARY, "gateway", "check", path, ns=ns)
    assert "is right" in check.stdout and os.listdir(os.path.join(root, "state")) == [], check.stdout
    server = testbed.start(Gateway(ns, path))
    server.wait_until(lambda: "dropped privileges: user nobody" in server.text("out"), "dropped privileges")
    assert "needs to read it" not in server.text("err"), server.text("err")
    assert os.stat(os.path.join(root, "state", "boot")).st_uid == pwd.getpwnam("nobody").pw_uid
    assert answer() == ["192.0.2.1"]
    zone(2)
    server.reload("zone xyz.com. read again, serial 2")
    assert answer() == ["192.0.2.2"]
    # A mistake changes nothing.
    write("zone", "no zone\n")
    server.reload("the configuration stays as it is: dns: the zone file")
    assert answer() == ["192.0.2.2"]
    assert server.terminate() == 0, "exit status"
