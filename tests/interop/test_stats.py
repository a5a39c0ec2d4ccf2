"""What handshakes cost: `explain --stats` on captures, of which some are made by `firstflight-lab traffic`."""

import json
import os
import sys

import firstflight
import nginx
import pytest
from net import Pair
from process import Process, run
from test_tls import Certificates
from wire import DEVICE, Wire
from wire import command as lab

PAIR = Pair(85)
RTT_MS = 40
#: The services of the paper's Figure 1 in the capture, without mail, which the paper names as the exception.
FIGURE_1 = ("search", "images", "photos", "maps", "news")
#: Two connections with three requests each, at some distance.
VISITS = """
import http.client, ssl, sys, time
host, port, ca = sys.argv[1:]
for _ in range(2):
    if ca:
        made = http.client.HTTPSConnection(host, int(port), context=ssl.create_default_context(cafile=ca))
    else:
        made = http.client.HTTPConnection(host, int(port))
    for _ in range(3):
        made.request("GET", "/small")
        assert len(made.getresponse().read()) == 5000
        time.sleep(0.2)
    made.close()
"""


def stats(path, *options, expect=0):
    done = run(firstflight.BINARY, "explain", "--stats", path, "--json", *options, check=False)
    assert done.returncode == expect, done.stderr
    return json.loads(done.stdout)


def traffic(path, *options):
    return json.loads(run(lab(), "traffic", "--out", path, "--json", *options).stdout)


@pytest.mark.needs(lab())
@pytest.mark.parametrize("site, seed", [("client", 1), ("server", 2)])
def test_stats_find_the_papers_shares(testbed, site, seed):
    root = testbed.root()
    path, svg = os.path.join(root, "paper.pcap"), os.path.join(root, "paper.svg")
    planned = traffic(path, "--seed", seed, "--site", site)
    found = stats(path, "--svg", svg)
    for count in ("requests_cold", "requests_warm", "syn_repeated", "begun_before", "not_opened"):
        assert found[count] == planned[count], f"{count}: {found[count]}, not {planned[count]}"
    # Each begins with a request, which is not known to be on a new connection or not.
    assert found["requests_unknown"] == planned["begun_before"]
    servers = {server["server"]: server for server in found["servers"]}
    for service in planned["services"]:
        server = servers[service["server"]]
        for share in ("handshake_share_cold", "handshake_share_all"):
            assert abs(server[share] - service[share]) < 0.002, f"{service['service']}, {share}: {server[share]}"
        if service["service"] in FIGURE_1:
            assert 0.079 <= server["handshake_share_cold"] <= 0.281, service["service"]
            assert 0.049 <= server["handshake_share_all"] <= 0.071, service["service"]
    assert 0.33 <= found["new_connection_share"] <= 0.36, "section 2.2: over 33 % on new connections"
    assert 0.23 <= found["handshake_share_greatest"] <= 0.255, "Figure 2: up to 25 %"
    middle = found["percentiles"][50]
    assert middle["cold_ms"] > middle["cold_without_handshake_ms"] and middle["cold_ms"] > middle["all_ms"]
    with open(svg) as file:
        assert file.read().endswith("</svg>\n")


@pytest.mark.needs(lab())
def test_a_capture_that_ends_early_is_counted_as_far_as_it_goes(testbed):
    path = os.path.join(testbed.root(), "cut.pcap")
    traffic(path, "--requests", 1000)
    whole = stats(path)
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 1)
    cut = stats(path, expect=1)
    assert cut["damage"] and cut["segments"] == whole["segments"] - 1
    done = run(firstflight.BINARY, "explain", "--stats", path, "--svg", "/nowhere/a.svg", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


@pytest.mark.needs("nginx", "tcpdump", "openssl", lab())
@pytest.mark.parametrize("protocol", ["http", "TLSv1.2", "TLSv1.3"])
def test_stats_of_nginx(testbed, family, protocol):
    near, far = testbed.namespace("near"), testbed.namespace("far")
    testbed.start(Wire(near, far, PAIR, "--rtt", f"{RTT_MS}ms"))
    root = testbed.root(small=5000)
    files = Certificates(root)
    certificate, key = files.certify("far", PAIR.peer[family])
    address = f"[{PAIR.peer[family]}]" if family == 6 else PAIR.peer[family]
    at = f"{address}:8080"
    server = f"listen {at};"
    if protocol != "http":
        server = f"listen {at} ssl; ssl_protocols {protocol}; ssl_certificate {certificate}; ssl_certificate_key {key};"
    nginx.start(testbed, far, root, at, server)
    captured = {}
    for ns, where in ((near, "client"), (far, "server")):
        captured[where] = os.path.join(root, f"{where}.pcap")
        command = ["tcpdump", "-i", DEVICE, "-U", "-w", captured[where], "tcp"]
        tcpdump = testbed.start(Process(command, ns=ns))
        tcpdump.wait_until(lambda: "listening on" in tcpdump.text("err"), "tcpdump")
        captured[where] = (captured[where], tcpdump)
    ca = "" if protocol == "http" else files.ca
    visits = Process([sys.executable, "-c", VISITS, PAIR.peer[family], "8080", ca], ns=near)
    with visits:
        assert visits.wait() == 0, visits.text()
    for where, (path, tcpdump) in captured.items():
        # The last packets may still be on their way into the file.
        tcpdump.wait_until(lambda path=path: stats_now(path)["requests_warm"] >= 4, "six requests")
        assert tcpdump.terminate() == 0
        found = stats(path)
        assert (found["requests_cold"], found["requests_warm"]) == (2, 4), f"{where}: {found}"
        assert found["requests_http" if protocol == "http" else "requests_tls"] == 6
        assert found["ipv6"] == (2 if family == 6 else 0) and found["requests_timed"] == 6
        for percentile in found["percentiles"]:
            # No request is faster than its round trips, wherever it was captured.
            trips = 2 if protocol == "http" else 4 if protocol == "TLSv1.2" else 3
            assert percentile["all_ms"] >= RTT_MS * 0.99, f"{where}: {percentile}"
            assert percentile["cold_ms"] >= RTT_MS * trips * 0.99, f"{where}: {percentile}"


def stats_now(path):
    """Those of a file that is being written."""
    done = run(firstflight.BINARY, "explain", "--stats", path, "--json", check=False)
    return json.loads(done.stdout) if done.stdout else {"requests_warm": 0}
