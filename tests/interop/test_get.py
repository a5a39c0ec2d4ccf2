"""`get` with kernel servers, with nginx, and with `serve` behind two kernel routers."""

import collections
import os

import kernel
from case import FAMILIES, body, case, check, equal, sha256
from firstflight import PORT, early_bytes, is_accepted, show
from net import Pair, url
from process import Process

KEY = "00112233-44556677-8899aabb-ccddeeff"
NEW_KEY = "11111111-22222222-33333333-44444444"
PAIR = Pair(72)


def fetched(record, content, outcome):
    """Checks a fetch record. `outcome` is True for accepted, else the reason."""
    equal((record["status"], record["bytes"]), (200, len(content)), f"response of {show(record)}")
    equal(record["sha256"], sha256(content), "digest")
    if outcome is True:
        check(is_accepted(record), f"not accepted: {show(record)}")
    else:
        check(not is_accepted(record), f"accepted: {show(record)}")
        equal(record["reason"], outcome, "reason")
    equal(record["syn_retransmits"], 0, "SYN retransmits")


#= rfc7413 4.1.3-a 4.2.1-a 4.2.2-a test
@case(family=FAMILIES)
def get_from_kernel_server(t, family):
    root = t.root(small=5000)
    ns = t.namespace("get")
    server = t.kernel_server(ns, family, 80, root)
    with kernel.Counted(ns) as grew:
        fetches = t.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 2)
    equal(len(fetches), 2, "fetches")
    fetched(fetches[0], body(root, "small"), "no-credential")
    fetched(fetches[1], body(root, "small"), True)
    equal([e["syn_data"] for e in server.events("accepted", 2)], [False, True], "the server's TCP_INFO")
    equal(server.events("accepted", 1)[0]["peer"], PAIR.peer[family], "client address")
    equal((grew["Passive"], grew["PassiveFail"], grew["CookieReqd"]), (1, 0, 1), "kernel's counters")


def start_nginx(t, ns, family, root):
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
    nginx = t.start(Process(["nginx", "-p", root, "-e", "stderr", "-c", config], ns=ns))
    listening = f"{wildcard}:80"
    nginx.wait_until(lambda: listening in t.sockets(ns), "listening socket")


@case(family=FAMILIES, needs=("nginx",))
def get_from_nginx(t, family):
    root = t.root(small=5000)
    ns = t.namespace("get")
    start_nginx(t, ns, family, root)
    with kernel.Counted(ns) as grew:
        fetches = t.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 3)
    for record, outcome in zip(fetches, ("no-credential", True, True), strict=True):
        fetched(record, body(root, "small"), outcome)
    equal(grew["Passive"], 2, "kernel's counter")


@case(family=FAMILIES, needs=("nginx",))
def get_meets_time_waits(t, family):
    """A second process uses ports that the kernel still has in TIME-WAIT, with its own numbers and timestamps. The
    TIME-WAIT answers half of these SYNs. None of this counts as a failure of Fast Open."""
    root = t.root(small=100)
    ns = t.namespace("get")
    start_nginx(t, ns, family, root)
    # Ports are chosen in steps of 1 to 8, starting at a random port. Each process passes more than half of the 28,232
    # ports, so at least about 160 ports are used twice.
    many = (url(PAIR.host[family], 80, "/small"), "--repeat", 3500, "--parallel", 10)
    first, second = (t.get(ns, PAIR, *many) for _ in range(2))
    check(all(record["reason"] != "old-connection" for record in first), "there was nothing to meet")
    reasons = collections.Counter(record["reason"] for record in second)
    check(reasons["old-connection"] > 0, f"no SYN met a TIME-WAIT: {reasons}")
    equal((reasons["failure-memory"], reasons["syn-timed-out"]), (0, 0), f"failures of Fast Open in {reasons}")
    check(sum(map(is_accepted, second)) > 2000, f"not accepted: {reasons}")
    equal({record["status"] for record in second}, {200}, "status")


#= rfc7413 4.2.2-e test
@case(family=FAMILIES)
def kernel_server_changes_its_key(t, family):
    """The old cookie leads to an ordinary handshake, the body is complete, and the new cookie works."""
    root = t.root(small=5000)
    ns = t.namespace("get")
    kernel.set_key(ns, KEY)
    server = t.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/small")
    with kernel.Counted(ns) as grew:
        client = t.client(ns, PAIR, target, "--repeat", 4, "--interval", 1500)
        server.events("request", 2)
        kernel.set_key(ns, NEW_KEY)
        equal(client.finish(), 0, "exit status of get")
    outcomes = ("no-credential", True, "stale-or-wrong-credential", True)
    for record, outcome in zip(client.fetches(), outcomes, strict=True):
        fetched(record, body(root, "small"), outcome)
    equal((grew["Passive"], grew["PassiveFail"]), (2, 1), "kernel's counters")


@case(family=FAMILIES)
def get_without_fast_open_at_the_server(t, family):
    """With a kernel server without Fast Open, fetches work and none is accepted."""
    root = t.root(small=5000)
    ns = t.namespace("get")
    ns.sysctl("net.ipv4.tcp_fastopen", 1)
    t.kernel_server(ns, family, 80, root)
    fetches = t.get(ns, PAIR, url(PAIR.host[family], 80, "/small"), "--repeat", 3)
    equal(len(fetches), 3, "fetches")
    for record in fetches:
        equal((record["status"], record["sha256"]), (200, sha256(body(root, "small"))), "response")
        check(not is_accepted(record), f"accepted: {show(record)}")


@case(family=FAMILIES)
def cookie_outlives_the_process(t, family):
    """`--cache`: the next process starts with the cookie, but only on the same network."""
    root = t.root(small=5000)
    ns = t.namespace("get")
    t.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/small")
    cache = os.path.join(root, "cache.json")
    home, cafe = "ab" * 16, "cd" * 16
    outcomes = ((home, "no-credential"), (home, True), (cafe, "no-credential"), (home, True))
    for network, outcome in outcomes:
        (record,) = t.get(ns, PAIR, target, "--cache", cache, "--network-id", network)
        fetched(record, body(root, "small"), outcome)
        equal(record["cookie_age_s"] is not None, outcome is True, f"a cookie was shown: {show(record)}")
    equal(os.stat(cache).st_mode & 0o777, 0o600, "mode of the cache")


@case(family=FAMILIES)
def a_network_is_known_right_after_joining(t, family):
    """`--network-id auto` before anything was sent to the gateway: the second visit uses the first one's cookie. The
    IPv6 route is used only if there is no other default route."""
    root = t.root(small=5000)
    gateway, ns = t.namespace("gateway"), t.namespace("get")
    network = Pair(75)
    t.cable(gateway, ns, network)
    ns.ip(f"-{family}", "route", "add", "default", "via", network.host[family])
    t.kernel_server(ns, 4, 80, root)
    cache = os.path.join(root, "cache.json")
    for outcome in ("no-credential", True):
        ns.ip("neigh", "flush", "all")
        check("lladdr" not in ns.ip("neigh", "show", network.host[family]), "the gateway's address is known")
        (record,) = t.get(ns, PAIR, url(PAIR.host[4], 80, "/small"), "--cache", cache)
        fetched(record, body(root, "small"), outcome)
    # A gateway that is gone does not answer, so the fetch runs without a cache.
    ns.ip(f"-{family}", "route", "replace", "default", "via", f"{network.host[family][:-1]}9")
    client = t.client(ns, PAIR, url(PAIR.host[4], 80, "/small"), "--cache", cache)
    equal(client.finish(), 0, "exit status of get")
    fetched(client.fetches()[0], body(root, "small"), "no-credential")
    check("--cache is not used" in client.text("err"), client.text())


@case()
def get_fails_where_nobody_listens(t):
    """The kernel answers with RST: exit status 1 and an error line, at once."""
    ns = t.namespace("get")
    client = t.client(ns, PAIR, url(PAIR.host[4], 81), "--timeout", 30)
    equal(client.finish(), 1, "exit status")
    equal([bool(record["error"]) for record in client.fetches()], [True], "failures reported")


@case(family=FAMILIES)
def ours_with_ours(t, family):
    """`get` and `serve` in two namespaces. The kernels forward between their devices."""
    root = t.root(small=5000)
    far, near = t.namespace("serve"), t.namespace("get")
    middle, theirs = Pair(73), Pair(74)
    t.cable(far, near, middle)
    for ns, net, via in ((far, PAIR.net, middle.peer), (near, theirs.net, middle.host)):
        ns.forward()
        for version in FAMILIES:
            ns.ip(f"-{version}", "route", "add", net[version], "via", via[version])
    serve = t.serve(far, theirs, root)
    target = url(theirs.peer[family], PORT, "/small")
    fetches = t.get(near, PAIR, target, "--repeat", 3)
    for record, outcome in zip(fetches, ("no-credential", True, True), strict=True):
        fetched(record, body(root, "small"), outcome)
    fetches += t.get(near, PAIR, target, "--no-fast-open")
    fetched(fetches[3], body(root, "small"), "not-requested")
    for log, record in zip(serve.requests(4), fetches, strict=True):
        equal(early_bytes(log) > 0, is_accepted(log), f"early data of {show(log)}")
        ends = [(end["outcome"], end["reason"]) for end in (log, record)]
        equal(ends[0], ends[1], "what serve and get say")
