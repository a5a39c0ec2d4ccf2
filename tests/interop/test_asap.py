"""Certificates between real processes: verifier, server and client in namespaces, with an address translator between
them."""

import contextlib
import re
import socket
import time

import pytest

import firstflight
from firstflight import Command, at, check_no_panic, early_bytes, is_accepted, show
from name_server import answering
from net import AF, FAMILIES, Pair, url
from process import Process, run
from scene import ENGINE, FAR, FRESH, NEAR, PORT, SERVICE, VERIFIER_PORT
from testbed import body, sha256


@pytest.mark.needs("nft", "tcpdump")
def test_asap_first_contact_in_udp_behind_a_translator(scene, family):
    capture = scene.path("udp.pcap")
    command = ["tcpdump", "-i", "veth1", "-w", capture, "-n", "-Z", "root", "-U", "--immediate-mode", "udp", "port", PORT]
    dump = scene.testbed.start(Process(command, ns=scene.far))
    dump.wait_until(lambda: "listening on" in dump.text(), "start of the capture")
    server = scene.serve_udp(family)
    scene.issuer(family=family)
    # Without root and without a device, the first packet carries the request.
    (first,) = scene.get_udp(family, *scene.shows(family), "--asap-known")
    scene.whole(first)
    assert is_accepted(first), f"first contact: {show(first)}"
    # The fetches run one after the other: with the first one, the client learns that the server accepts certificates.
    asked, known = scene.get_udp(family, *scene.shows(family), "--repeat", 2, "--no-fast-open")
    assert [asked["reason"], known["outcome"]] == ["capability-unknown", "accepted"], "asked, then known"
    logged = server.requests(3)
    assert [is_accepted(record) for record in logged] == [True, False, True], "the server's view"
    assert early_bytes(logged[0]) > 0, f"nothing came early: {show(logged[0])}"
    assert FAR.host[family] in logged[0]["peer"], f"the server sees the translator: {show(logged[0])}"
    assert scene.router.nft_matched(), "nothing was translated"
    server.popen.terminate()
    server.wait(10)
    decoded = lambda: run("tcpdump", "-nn", "-r", capture, check=False).stdout  # noqa: E731
    dump.wait_until(lambda: decoded().count("UDP, length") > 8, "a capture of UDP")


@pytest.mark.needs("nft")
def test_asap_first_contact_on_tun_behind_a_translator(testbed, scene, family):
    for ns in (scene.client, scene.far):
        ns.forward()
    scene.router.ip(f"-{family}", "route", "add", ENGINE.net[family], "via", NEAR.peer[family])
    scene.router.ip(f"-{family}", "route", "add", SERVICE.net[family], "via", FAR.peer[family])
    options = ("--trust", scene.path("trust.toml"), "--root", scene.root, "--port", PORT, "--json-log", FRESH)
    device = ("--tun", "ff0", "--host-ip", Pair.cidr(SERVICE.host[family]), "--ip", SERVICE.peer[family])
    server = testbed.start(Command(scene.far, "serve", *device, *options))
    scene.issuer(family=family)
    device = ("--tun", "ff0", "--host-ip", Pair.cidr(ENGINE.host[family]), "--ip", ENGINE.peer[family])
    target = url(SERVICE.peer[family], PORT, "/small")
    (first,) = scene.get(target, *device, *scene.shows(family), "--asap-known", "--no-fast-open")
    scene.whole(first)
    assert is_accepted(first), f"first contact: {show(first)}"
    (logged,) = server.requests(1)
    assert early_bytes(logged) > 0 and FAR.host[family] in logged["peer"], show(logged)


@pytest.mark.needs("nft")
@pytest.mark.parametrize("narrow", (False, True), ids=("wide", "narrow"))
def test_udp_datagrams_grow_as_far_as_the_path_takes_them(testbed, scene, family, narrow):
    scene.root = testbed.root(large=2_000_000)
    scene.trust(scene.key)
    # Send one datagram per packet: the kernel would carry several of them together across these cables.
    scene.far.ip("link", "set", "veth1", "gso_max_segs", 1)
    # Larger datagrams are dropped without an ICMP error, or only counted.
    verdict = "drop" if narrow else "accept"
    scene.router.nft(f"type filter hook forward priority 0; meta length > 1300 counter {verdict}", chain="narrow")
    server = scene.serve_udp(family)
    (record,) = scene.get(url(FAR.peer[family], PORT, "/large"), "--udp")
    assert (record["status"], record["sha256"]) == (200, sha256(body(scene.root, "large"))), show(record)
    check_no_panic(server)
    large = sum(map(int, re.findall(r"> 1300 counter packets (\d+)", scene.router.nft_list())))
    # Narrow path: one probe, which is not repeated at its size. Wide path: most of the response.
    if narrow:
        assert 1 <= large <= 2, f"{large} large packets on a narrow path"
    else:
        assert large > 1000, f"{large} large packets on a wide path"


@pytest.mark.needs("nft")
def test_asap_trust_is_withdrawn_while_the_server_runs(scene):
    scene.serve_udp(4)
    scene.issuer()
    (record,) = scene.get_udp(4, *scene.shows(4), "--asap-known")
    assert is_accepted(record), show(record)
    scene.trust(scene.keygen("other.key"))
    # The server looks at the file every two seconds.
    deadline = time.monotonic() + 20
    while is_accepted(record) and time.monotonic() < deadline:
        time.sleep(0.5)
        (record,) = scene.get_udp(4, *scene.shows(4), "--asap-known")
    assert record["reason"] == "untrusted-verifier", show(record)
    scene.whole(record)


@pytest.mark.needs("nft")
def test_asap_an_upload_that_runs_once_rides_in_the_syn(scene):
    once = ("--replays", "at-most-once", "--one-time", "--one-time-state", scene.path("one-time"))
    server = scene.serve_udp(4, *once)
    scene.issuer()
    upload = scene.path("upload")
    with open(upload, "wb") as file:
        file.write(bytes(500))
    target = (url(FAR.peer[4], PORT, "/sink"), "--udp", "--upload", upload)
    asked = (*scene.shows(4), "--asap-known")
    (held,) = scene.get(*target, *asked)
    assert (held["status"], held["reason"]) == (200, "not-replay-safe"), show(held)
    (once,) = scene.get(*target, *asked, "--asap-once")
    assert once["status"] == 200 and is_accepted(once), show(once)
    logged = server.requests(2)
    assert [early_bytes(record) > 0 for record in logged] == [False, True], "what came in the SYN"
    assert [record["credential"] for record in logged] == [None, "certificate"], show(logged[1])


@pytest.mark.needs("nft")
def test_asap_after_a_start_nothing_is_taken_that_may_have_been_before(scene):
    scene.serve_udp(4, fresh=())
    scene.issuer()
    (record,) = scene.get_udp(4, *scene.shows(4), "--asap-known")
    assert record["reason"] == "guard-floor", show(record)
    scene.whole(record)


def test_asap_is_published_in_the_dns(testbed, scene):
    scene.serve_udp(4, "--identity", "www.example.com")
    scene.issuer()
    told = run(firstflight.BINARY, "asap", "record", "--verifier-key", scene.key, "--udp-port", PORT).stdout
    octets = bytes(int(number) for number in told.split('"')[1].split("\\")[1:])
    param = (65300).to_bytes(2) + len(octets).to_bytes(2) + octets
    names = {
        (b"\3www\7example\3com\0", 1): bytes(map(int, FAR.peer[4].split("."))),
        # Priority 1, this name, and the parameter.
        (b"\5_8080\6_https\3www\7example\3com\0", 65): b"\0\1" + b"\0" + param,
    }
    testbed.enter_context(answering(scene.far, FAR.peer[4], names))
    asked = ("http://www.example.com:8080/small", "--udp", "--dns", at(FAR.peer[4], 53))
    (first,) = scene.get(*asked, *scene.shows(4))
    scene.whole(first)
    assert is_accepted(first), f"first contact: {show(first)}"
    # The certificate is not used with a server that publishes another verifier.
    other = scene.keygen("other.key")
    told = run(firstflight.BINARY, "asap", "record", "--verifier-key", other, "--udp-port", PORT).stdout
    octets = bytes(int(number) for number in told.split('"')[1].split("\\")[1:])
    param = (65300).to_bytes(2) + len(octets).to_bytes(2) + octets
    names[b"\5_8080\6_https\3www\7example\3com\0", 65] = b"\0\1" + b"\0" + param
    (record,) = scene.get(*asked, *scene.shows(4), "--no-fast-open")
    assert record["reason"] == "not-requested", show(record)


@pytest.mark.needs("nft")
def test_udp_goes_by_the_family_that_works(testbed, scene):
    """Packets to the server's IPv6 address are dropped; each visit succeeds over IPv4."""
    scene.router.nft(
        f"type filter hook forward priority 0; ip6 daddr {FAR.peer[6]} udp dport {PORT} counter drop", chain="silent"
    )
    scene.serve_udp(4)
    name = b"\3www\7example\3com\0"
    addresses = {(name, kind): socket.inet_pton(AF[family], FAR.peer[family]) for kind, family in ((1, 4), (28, 6))}
    testbed.enter_context(answering(scene.far, FAR.peer[4], addresses))
    target = (f"http://www.example.com:{PORT}/small", "--udp", "--dns", at(FAR.peer[4], 53))
    records = scene.get(*target, "--repeat", 3)
    for record in records:
        scene.whole(record)
        assert record["remote"] == at(FAR.peer[4], PORT), show(record)
    # The second attempt requests nothing. The first visit remembers the address that works, so the next ones use it.
    assert [record["reason"] for record in records] == ["not-first-address", "no-credential", None], "outcomes"
    assert scene.router.nft_matched(), "IPv6 was not tried"


@pytest.mark.needs("nft")
def test_asap_group_of_three(scene):
    names = {"ams": "10.62.0.3", "nbo": "10.62.0.4"}
    lines, points = [], {}
    for number, (name, address) in enumerate(names.items(), start=1):
        scene.far.ip("addr", "add", f"{address}/24", "dev", "veth1")
        token = scene.path(f"{name}.token")
        run(firstflight.BINARY, "verifier", "keygen", "--vantage", "-o", token)
        lines.append(f"{number} {name} {at(address, VERIFIER_PORT)} {name}.token\n")
        options = ("--vantage-id", number, "--vantage-key", token)
        points[name] = scene.verifier(*options, address=address)
    group = scene.path("group.txt")
    with open(group, "w") as file:
        file.writelines(lines)
    scene.serve_udp(4)
    scene.issuer("--group", group)
    (record,) = scene.get_udp(4, *scene.shows(4), "--group", group, "--asap-known")
    assert is_accepted(record), f"a server that knows nothing of groups: {show(record)}"

    def certificate(expect):
        command = (firstflight.BINARY, "certificate", "get", *scene.asks(4), "--group", group)
        with contextlib.closing(Result(scene.client, command)) as result:
            assert result.status == expect, f"exit status: {result.text}"
            return result.text

    assert "3 vantage points" in certificate(0), "all are up"
    # One of them cannot reach the client: nothing is certified, and the message names it.
    scene.router.nft(f"type filter hook forward priority 0; ip saddr {names['nbo']} counter drop", chain="mute")
    told = certificate(1)
    assert "nbo" in told and "ams" not in told, told
    scene.router.nft_flush()
    scene.router.nft("type nat hook postrouting priority 100; oifname veth1 counter masquerade")
    points["ams"].popen.terminate()
    points["ams"].wait(10)
    told = certificate(1)
    assert "ams" in told and "nbo" not in told, told


class Result:
    """The result of a command that ran to its end in a namespace."""

    def __init__(self, ns, command):
        self.process = Process(command, ns=ns)
        with self.process:
            self.status = self.process.wait(60)
        self.text = self.process.text()

    def close(self):
        check_no_panic(self.process)


#: What queries ask for.
KINDS = {4: 1, 6: 28}


@pytest.mark.needs("nft")
def test_asap_a_verifier_by_name(scene, family):
    """One of two verifiers, both with names that have addresses of both families. The server's family decides which is asked."""
    scene.serve_udp(family)
    scene.issuer(family=family)
    silent = scene.keygen("silent.key")
    names = {
        (bytes([len(label)]) + label.encode() + b"\x03xyz\x03com\0", KINDS[kind]): socket.inet_pton(AF[kind], address[kind])
        for label, address in (("pv", FAR.peer), ("silent", FAR.host))
        for kind in (4, 6)
    }
    with answering(scene.client, "127.0.0.1", names):
        both = ("--verifier", f"silent.xyz.com:{VERIFIER_PORT}", "--verifier-key", silent)
        both += ("--verifier", "PV.xyz.com", "--verifier-key", scene.key)
        (record,) = scene.get_udp(family, "--dns", "127.0.0.1:53", *both, "--verify-first", "--asap-known")
        scene.whole(record)
        assert is_accepted(record), show(record)
        # Without a key for each it is a mistake, and says so.
        told = run(
            firstflight.BINARY, "get", "http://192.0.2.1/", *both[:-2], check=False, ns=scene.client
        )  # fmt: skip
        assert told.returncode == 2 and "a --verifier-key for each --verifier" in told.stderr, told.stderr


def test_asap_a_certificate_by_the_name_of_its_verifier(testbed):
    ns, root = testbed.namespace("alone"), testbed.root()
    key = run(firstflight.BINARY, "verifier", "keygen", "-o", f"{root}/key").stdout.split()[1]
    listen = ("--listen", f"127.0.0.1:{VERIFIER_PORT}", "--key-file", f"{root}/key")
    testbed.start(Command(ns, "verifier", *listen, "--allow-prefix", "127.0.0.0/8"))
    ask = (firstflight.BINARY, "certificate", "get", "--verifier-key", key)
    kept = ("-o", f"{root}/certificate", "--network-id", "01" * 16)
    assert "127.0.0.1" in run(*ask, "--verifier", "localhost", *kept, ns=ns).stdout
    missing = run(*ask, "--verifier", "none.invalid", check=False, ns=ns)
    assert missing.returncode == 1 and "none.invalid:4433" in missing.stderr, missing.stderr


class Asked(dict):
    """The data of a name server, which remembers what it was asked."""

    def __init__(self, names):
        super().__init__(names)
        self.kinds = []

    def get(self, key, default=None):
        self.kinds.append(key[1])
        return super().get(key, default)


@pytest.mark.needs("nft")
def test_asap_a_certificate_of_one_family_waits_for_addresses_of_this_family_only(scene):
    """With a certificate for IPv4 nobody waits for IPv6 addresses. If nobody answers at the IPv4 ones, the others are asked for."""
    for family in FAMILIES:
        scene.serve_udp(family, "--identity", "www.xyz.com")
    scene.issuer(family=4)
    name = b"\3www\3xyz\3com\0"
    names = Asked({(name, KINDS[family]): socket.inet_pton(AF[family], FAR.peer[family]) for family in (4, 6)})
    asked = (f"http://www.xyz.com:{PORT}/small", "--dns", "127.0.0.1:53", *scene.asks(4), "--verify-first", "--asap-known")
    with answering(scene.client, "127.0.0.1", names):
        (record,) = scene.get(*asked)
        assert record["way"] == "udp" and is_accepted(record), show(record)
        assert names.kinds == [KINDS[4]], names.kinds
        # The address of another host, which refuses.
        names[name, KINDS[4]] = socket.inet_pton(AF[4], FAR.host[4])
        (record,) = scene.get(*asked)
        assert record["status"] == 200 and record["remote"] == at(FAR.peer[6], PORT), show(record)
