"""`get` with kernel servers, with nginx, and with `serve` behind two kernel routers."""

import collections
import os

import pytest

import kernel
from firstflight import PORT, early_bytes, is_accepted, show
from net import FAMILIES, Pair, url
from process import Process
from testbed import body, sha256

KEY = "00112233-44556677-8899aabb-ccddeeff"
NEW_KEY = "11111111-22222222-33333333-44444444"
PAIR = Pair(72)


def fetched(record, content, outcome):
    """Checks a fetch record. `outcome` is True for accepted, else the reason."""
    assert (record["status"], record["bytes"]) == (200, len(content)), f"response of {show(record)}"
    assert record["sha256"] == sha256(content), "digest"
    if outcome is True:
        assert is_accepted(record), f"not accepted: {show(record)}"
    else:
        assert not is_accepted(record), f"accepted: {show(record)}"
        assert record["reason"] == outcome, "reason"
    assert record["syn_retransmits"] == 0, "SYN retransmits"


#= rfc7413 4.1.3-a 4.2.1-a 4.2.2-a test
def test_get_from_kernel_server(testbed, family):
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    server = testbed.kernel_server(ns, family, 80, root)
    with kernel.Counted(ns) as grew:
        fetches = testbed.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 2)
    assert len(fetches) == 2, "fetches"
    fetched(fetches[0], body(root, "small"), "no-credential")
    fetched(fetches[1], body(root, "small"), True)
    assert [e["syn_data"] for e in server.events("accepted", 2)] == [False, True], "the server's TCP_INFO"
    assert server.events("accepted", 1)[0]["peer"] == PAIR.peer[family], "client address"
    assert (grew["Passive"], grew["PassiveFail"], grew["CookieReqd"]) == (1, 0, 1), "kernel's counters"


def start_nginx(testbed, ns, family, root):
    wildcard = "0.0.0.0" if family == 4 else "[::]"
    temporary = "".join(
        f"{kind}_temp_path {root}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = os.path.join(root, "nginx.conf")
    with open(config, "w") as file:
        file.write(
            f"daemon off; master_process off; pid {root}/pid; error_log stderr;\n"
            "events { worker_connections 64; }\n"
            f"http {{ access_log /dev/stdout; {temporary}\n"
            f"server {{ listen {wildcard}:80 fastopen=256; root {root}; }} }}\n"
        )
    nginx = testbed.start(Process(["nginx", "-p", root, "-e", "stderr", "-c", config], ns=ns))
    listening = f"{wildcard}:80"
    nginx.wait_until(lambda: listening in testbed.sockets(ns), "listening socket")


@pytest.mark.needs("nginx")
def test_get_from_nginx(testbed, family):
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    start_nginx(testbed, ns, family, root)
    with kernel.Counted(ns) as grew:
        fetches = testbed.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 3)
    for record, outcome in zip(fetches, ("no-credential", True, True), strict=True):
        fetched(record, body(root, "small"), outcome)
    assert grew["Passive"] == 2, "kernel's counter"


@pytest.mark.needs("nginx")
def test_get_meets_time_waits(testbed, family):
    """A second process uses ports that the kernel still has in TIME-WAIT, with its own numbers and timestamps. The
    TIME-WAIT answers half of these SYNs. None of this counts as a failure of Fast Open."""
    root = testbed.root(small=100)
    ns = testbed.namespace("get")
    start_nginx(testbed, ns, family, root)
    # Ports are chosen in steps of 1 to 8, starting at a random port. Each process passes more than half of the 28,232
    # ports, so at least about 160 ports are used twice.
    many = (url(PAIR.host[family], 80, "/small"), "--repeat", 3500, "--parallel", 10)
    first, second = (testbed.get(ns, PAIR, *many) for _ in range(2))
    assert all(record["reason"] != "old-connection" for record in first), "there was nothing to meet"
    reasons = collections.Counter(record["reason"] for record in second)
    assert reasons["old-connection"] > 0, f"no SYN met a TIME-WAIT: {reasons}"
    assert (reasons["failure-memory"], reasons["syn-timed-out"]) == (0, 0), f"failures of Fast Open in {reasons}"
    assert sum(map(is_accepted, second)) > 2000, f"not accepted: {reasons}"
    assert {record["status"] for record in second} == {200}, "status"


#= rfc7413 4.2.2-e test
def test_kernel_server_changes_its_key(testbed, family):
    """The old cookie leads to an ordinary handshake, the body is complete, and the new cookie works."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    kernel.set_key(ns, KEY)
    server = testbed.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/small")
    with kernel.Counted(ns) as grew:
        client = testbed.client(ns, PAIR, target, "--repeat", 4, "--interval", 1500)
        server.events("request", 2)
        kernel.set_key(ns, NEW_KEY)
        assert client.finish() == 0, "exit status of get"
    outcomes = ("no-credential", True, "stale-or-wrong-credential", True)
    for record, outcome in zip(client.fetches(), outcomes, strict=True):
        fetched(record, body(root, "small"), outcome)
    assert (grew["Passive"], grew["PassiveFail"]) == (2, 1), "kernel's counters"


def test_get_without_fast_open_at_the_server(testbed, family):
    """With a kernel server without Fast Open, fetches work and none is accepted."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    ns.sysctl("net.ipv4.tcp_fastopen", 1)
    testbed.kernel_server(ns, family, 80, root)
    fetches = testbed.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 3)
    assert len(fetches) == 3, "fetches"
    for record in fetches:
        assert (record["status"], record["sha256"]) == (200, sha256(body(root, "small"))), "response"
        assert not is_accepted(record), f"accepted: {show(record)}"


def test_cookie_outlives_the_process(testbed, family):
    """`--cache`: the next process starts with the cookie, but only on the same network."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("get")
    testbed.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/small")
    cache = os.path.join(root, "cache.json")
    home, cafe = "ab" * 16, "cd" * 16
    outcomes = ((home, "no-credential"), (home, True), (cafe, "no-credential"), (home, True))
    for network, outcome in outcomes:
        (record,) = testbed.get(ns, PAIR, target, "--cache", cache, "--network-id", network)
        fetched(record, body(root, "small"), outcome)
        assert (record["cookie_age_s"] is not None) == (outcome is True), f"a cookie was shown: {show(record)}"
    assert os.stat(cache).st_mode & 0o777 == 0o600, "mode of the cache"


def test_a_network_is_known_right_after_joining(testbed, family):
    """`--network-id auto` before anything was sent to the gateway: the second visit uses the first one's cookie. The
    IPv6 route is used only if there is no other default route."""
    root = testbed.root(small=5000)
    gateway, ns = testbed.namespace("gateway"), testbed.namespace("get")
    network = Pair(75)
    testbed.cable(gateway, ns, network)
    ns.ip(f"-{family}", "route", "add", "default", "via", network.host[family])
    testbed.kernel_server(ns, 4, 80, root)
    cache = os.path.join(root, "cache.json")
    for outcome in ("no-credential", True):
        ns.ip("neigh", "flush", "all")
        assert "lladdr" not in ns.ip("neigh", "show", network.host[family]), "the gateway's address is known"
        (record,) = testbed.get(ns, PAIR, url(PAIR.host[4], 80, "/small"), "--cache", cache)
        fetched(record, body(root, "small"), outcome)
    # A gateway that is gone does not answer, so the fetch runs without a cache.
    ns.ip(f"-{family}", "route", "replace", "default", "via", f"{network.host[family][:-1]}9")
    client = testbed.client(ns, PAIR, url(PAIR.host[4], 80, "/small"), "--cache", cache)
    assert client.finish() == 0, "exit status of get"
    fetched(client.fetches()[0], body(root, "small"), "no-credential")
    assert "--cache is not used" in client.text("err"), client.text()


def test_get_fails_where_nobody_listens(testbed):
    """The kernel answers with RST: exit status 1 and an error line, at once."""
    ns = testbed.namespace("get")
    client = testbed.client(ns, PAIR, url(PAIR.host[4], 81), "--timeout", 30)
    assert client.finish() == 1, "exit status"
    assert [bool(record["error"]) for record in client.fetches()] == [True], "failures reported"


def test_ours_with_ours(testbed, family):
    """`get` and `serve` in two namespaces. The kernels forward between their devices."""
    root = testbed.root(small=5000)
    far, near = testbed.namespace("serve"), testbed.namespace("get")
    middle, theirs = Pair(73), Pair(74)
    testbed.cable(far, near, middle)
    for ns, net, via in ((far, PAIR.net, middle.peer), (near, theirs.net, middle.host)):
        ns.forward()
        for version in FAMILIES:
            ns.ip(f"-{version}", "route", "add", net[version], "via", via[version])
    serve = testbed.serve(far, theirs, root)
    target = url(theirs.peer[family], PORT, "/small")
    fetches = testbed.get(near, PAIR, target, "--repeat", 3)
    for record, outcome in zip(fetches, ("no-credential", True, True), strict=True):
        fetched(record, body(root, "small"), outcome)
    fetches += testbed.get(near, PAIR, target, "--no-fast-open")
    fetched(fetches[3], body(root, "small"), "not-requested")
    for log, record in zip(serve.requests(4), fetches, strict=True):
        assert (early_bytes(log) > 0) == is_accepted(log), f"early data of {show(log)}"
        ends = [(end["outcome"], end["reason"]) for end in (log, record)]
        assert ends[0] == ends[1], "what serve and get say"
