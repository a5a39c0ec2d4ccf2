"""`measure`: the parts of visits to nginx over a wire with a round-trip time, with a name server beyond it."""

import json
import os
import shutil

import firstflight
import nginx
import pytest
from name_server import answering
from net import Pair
from process import Process
from test_tls import NAME, Certificates
from wire import Wire
from wire import command as wire_command

PAIR = Pair(86)
RTT_MS = 50
#: The parts of a visit that each take a round trip at least.
PARTS = ("lookup_ms", "handshake_ms", "tls_ms", "request_ms")

pytestmark = pytest.mark.needs("nginx", "openssl", wire_command())


class Far:
    """nginx with HTTP and TLS, and the name server, both a round trip away."""

    def __init__(self, testbed):
        self.testbed = testbed
        self.near, self.far = testbed.namespace("near"), testbed.namespace("far")
        testbed.start(Wire(self.near, self.far, PAIR, "--rtt", f"{RTT_MS}ms"))
        self.root = testbed.root(small=5000)
        self.files = Certificates(self.root)
        self.address = PAIR.peer[4]
        server = (
            f"listen {self.address}:80; listen {self.address}:443 ssl; ssl_protocols TLSv1.3;\n"
            f"ssl_certificate {self.files.certificate}; ssl_certificate_key {self.files.key};\n"
            f"location = /moved {{ return 302 https://{NAME}/small; }}\n"
            "location = /loop { return 301 /loop; }"
        )
        nginx.start(testbed, self.far, self.root, f"{self.address}:443", server)
        labels = NAME.encode().split(b".")
        wire_name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
        address = bytes(map(int, self.address.split(".")))
        testbed.enter_context(answering(self.far, self.address, {(wire_name, 1): address}))

    def measure(self, *urls, expect=0):
        """Runs `measure` with JSON. Returns the records of visits, those of sites, and that of all."""
        common = ("--json", "--times", "3", "--interval", "0s", "--ca-file", self.files.ca)
        process = Process([firstflight.BINARY, "measure", *urls, *common], ns=self.near)
        with process:
            self.testbed.processes.append(process)
            assert process.wait(60) == expect, process.text()
            records = process.records()
        kinds = [[r for r in records if r["event"] == kind] for kind in ("visit", "site", "all")]
        return kinds[0], kinds[1], kinds[2][0]


@pytest.fixture
def far(testbed):
    return Far(testbed)


@pytest.fixture
def system(far):
    """The system's resolver of the near namespace: the name server."""
    path = os.path.join("/etc/netns", far.near.name)
    os.makedirs(path)
    far.testbed.callback(shutil.rmtree, path, ignore_errors=True)
    with open(os.path.join(path, "resolv.conf"), "w") as file:
        file.write(f"nameserver {far.address}\noptions timeout:10\n")


def check(visits, sites):
    """No part is faster than its round trip, and the savings are round trips that were measured."""
    for visit in visits:
        assert visit["error"] is None and visit["status"] == 200 and visit["bytes"] == 5000, visit
        for part in PARTS:
            assert visit[part] >= RTT_MS, f"{part}: {visit}"
        assert visit["total_ms"] >= RTT_MS * len(PARTS)
    (site,) = sites
    parts, savings = site["parts"], site["savings"]
    assert abs(sum(parts[name]["share"] for name in parts if name != "total") - 1) < 1e-3, parts
    assert (parts["lookup"]["thesis_share"], parts["handshake"]["thesis_median_ms"]) == (0.415, 72)
    for name, trips in (("fast_open", 1), ("asap", 1), ("asap_in_lookup", 2), ("sealed", 2)):
        assert RTT_MS * trips <= savings[name]["median_ms"] < parts["total"]["median_ms"], f"{name}: {savings}"
    assert savings["fast_open"]["median_ms"] <= parts["handshake"]["median_ms"]


def test_the_parts_of_visits_by_tls(far):
    check(*far.measure(f"https://{NAME}/small", "--resolver", far.address)[:2])


def test_the_parts_of_visits_with_the_systems_resolver(far, system):
    check(*far.measure(f"https://{NAME}/small")[:2])


def test_plain_http_and_an_address(far):
    svg = os.path.join(far.root, "parts.svg")
    urls = (f"http://{NAME}/small", f"http://{far.address}/small")
    visits, sites, everything = far.measure(*urls, "--resolver", far.address, "--svg", svg)
    assert len(visits) == everything["visits"] == 6
    named, numbered = sites
    assert named["parts"]["tls"] is None and named["savings"]["sealed"] is None
    assert named["savings"]["asap_in_lookup"]["median_ms"] >= 2 * RTT_MS
    assert numbered["parts"]["lookup"] is None and numbered["savings"]["asap_in_lookup"] is None
    assert numbered["savings"]["asap"]["median_ms"] >= RTT_MS
    with open(svg) as file:
        drawn = file.read()
    assert drawn.count("Parts of a visit to") == 2 and drawn.endswith("</svg>\n")


def test_redirects_are_shown_and_followed_if_asked(far):
    url = f"http://{NAME}/moved"
    _, sites, _ = far.measure(url, "--resolver", far.address)
    assert [site["redirects_to"] for site in sites] == [f"https://{NAME}/small"]
    visits, sites, _ = far.measure(url, "--resolver", far.address, "--follow")
    assert [site["url"] for site in sites] == [url, f"https://{NAME}/small"]
    assert [visit["status"] for visit in visits] == [302, 200] * 3
    # A loop is one site.
    _, sites, _ = far.measure(f"http://{NAME}/loop", "--resolver", far.address, "--follow")
    assert len(sites) == 1


def test_failures_are_one_line_each(far):
    def fails(*arguments, expect):
        process = Process([firstflight.BINARY, "measure", "--times", "2", "--interval", "0s", *arguments], ns=far.near)
        with process:
            far.testbed.processes.append(process)
            assert process.wait(60) == expect, process.text()
            lines = process.text("err").splitlines()
        assert len(lines) == 1 and lines[0].startswith("firstflight: "), lines
        return lines[0]

    for url in ("nonsense", "ftp://example.com/", "http://10.9.0/", "http://user@example.com/"):
        fails(url, expect=2)
    fails(f"http://{far.address}/small", "--resolver", "somewhere", expect=2)
    fails(f"https://{far.address}/small", "--ca-file", "/nowhere", expect=2)
    fails(f"http://{far.address}/small", "--svg", "/nowhere/a.svg", expect=2)
    resolver = ("--resolver", far.address)
    assert "cannot connect" in fails(f"http://{far.address}:81/", expect=1)
    assert "cannot look up" in fails("http://unknown.example.org/", *resolver, expect=1)
    other = Certificates(far.testbed.root())
    assert "certificate" in fails(f"https://{NAME}/small", *resolver, "--ca-file", other.ca, expect=1)
    # What was not measured is in the JSON, too.
    visits, sites, everything = far.measure(f"http://{far.address}:81/", expect=1)
    assert [visit["failed_in"] for visit in visits] == ["handshake"] * 3
    assert (sites[0]["failed"], everything["visits"]) == (3, 0)
    assert json.dumps(everything["parts"]["total"]) == "null"
