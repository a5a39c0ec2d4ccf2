"""Certificates between real processes: verifier, server and client in namespaces, with an address translator between
them."""

import contextlib
import os
import re
import socket
import threading
import time

import firstflight
from case import FAMILIES, body, case, check, equal, sha256
from firstflight import Command, at, check_no_panic, early_bytes, is_accepted, show
from net import AF, Pair, url
from process import Process, run

#: The networks between client and translator, and between translator and servers; the server's device, and the
#: client's.
NEAR, FAR, SERVICE, ENGINE = Pair(61), Pair(62), Pair(63), Pair(64)
PORT = 8080
VERIFIER_PORT = 4433
#: Without it, a server that may have run a minute ago accepts nothing at first, because it does not know what it
#: accepted before.
FRESH = "--first-start"


class Scene:
    """A client behind an address translator. Servers and verifiers on the other side see the translator's address."""

    def __init__(self, t, masquerade=True):
        self.t = t
        self.client, self.router, self.far = (t.namespace(name) for name in ("client", "router", "far"))
        t.cable(self.router, self.client, NEAR, "veth0")
        t.cable(self.router, self.far, FAR, "veth1")
        self.router.forward()
        if masquerade:
            self.router.nft("type nat hook postrouting priority 100; oifname veth1 counter masquerade")
        for family in FAMILIES:
            self.client.ip(f"-{family}", "route", "add", "default", "via", NEAR.host[family])
        self.root = t.root(small=5000)
        self.key = self.keygen("verifier.key")
        self.trust(self.key)

    def path(self, name):
        return os.path.join(self.root, name)

    def keygen(self, name):
        told = run(firstflight.BINARY, "verifier", "keygen", "--key", self.path(name)).stdout
        return told.split()[1]

    def trust(self, *keys):
        entries = "".join(f'[[verifier]]\nkey = "{key}"\nown = true\n' for key in keys)
        with open(self.path("trust.toml"), "w") as file:
            file.write(f"# begin\n{entries}# end\n")

    def verifier(self, *options, address=None, family=4):
        """Starts a verifier that certifies the addresses of this scene."""
        listen = at(address or FAR.peer[family], VERIFIER_PORT)
        allow = ("--allow-prefix", FAR.net[family], "--allow-prefix", NEAR.net[family])
        return self.t.start(Command(self.far, "verifier", "--listen", listen, *allow, *options))

    def issuer(self, *options, family=4):
        return self.verifier("--key", self.path("verifier.key"), *options, family=family)

    def asks(self, family):
        verifier = at(FAR.peer[family], VERIFIER_PORT)
        return ("--verifier", verifier, "--verifier-key", self.key)

    def shows(self, family):
        """Options of a `get` whose first fetch has a certificate."""
        return (*self.asks(family), "--verify-first")

    def serve_udp(self, family, *options, fresh=(FRESH,)):
        listen = ("--udp", at(FAR.peer[family], PORT))
        trust = ("--trust", self.path("trust.toml"), "--root", self.root, "--json-log")
        return self.t.start(Command(self.far, "serve", *listen, *trust, *fresh, *options))

    def get(self, *arguments, expect=0):
        client = Process([firstflight.BINARY, "get", "--json", *arguments], ns=self.client)
        with client:
            self.t.processes.append(client)
            equal(client.wait(60), expect, f"exit status of get: {client.text()}")
            check_no_panic(client)
            return [record for record in client.records() if "outcome" in record]

    def get_udp(self, family, *arguments):
        return self.get(url(FAR.peer[family], PORT, "/small"), "--udp", *arguments)

    def whole(self, record):
        equal((record["status"], record["sha256"]), (200, sha256(body(self.root, "small"))), show(record))


@case(family=FAMILIES, needs=("nft", "tcpdump"))
def asap_first_contact_in_udp_behind_a_translator(t, family):
    scene = Scene(t)
    capture = scene.path("udp.pcapng")
    server = scene.serve_udp(family, "--pcap", capture)
    scene.issuer(family=family)
    # Without root and without a device, the first packet carries the request.
    (first,) = scene.get_udp(family, *scene.shows(family), "--asap-known")
    scene.whole(first)
    check(is_accepted(first), f"first contact: {show(first)}")
    # The fetches run one after the other: with the first one, the client learns that the server accepts certificates.
    asked, known = scene.get_udp(family, *scene.shows(family), "--repeat", 2, "--no-fast-open")
    equal([asked["reason"], known["outcome"]], ["capability-unknown", "accepted"], "asked, then known")
    logged = server.requests(3)
    equal([is_accepted(record) for record in logged], [True, False, True], "the server's view")
    check(early_bytes(logged[0]) > 0, f"nothing came early: {show(logged[0])}")
    check(FAR.host[family] in logged[0]["peer"], f"the server sees the translator: {show(logged[0])}")
    check(scene.router.nft_matched(), "nothing was translated")
    server.popen.terminate()
    server.wait(10)
    decoded = run("tcpdump", "-nn", "-r", capture).stdout
    check(decoded.count("UDP, length") > 8, f"a capture of UDP: {decoded}")


@case(family=FAMILIES, needs=("nft",))
def asap_first_contact_on_tun_behind_a_translator(t, family):
    scene = Scene(t)
    for ns in (scene.client, scene.far):
        ns.forward()
    scene.router.ip(f"-{family}", "route", "add", ENGINE.net[family], "via", NEAR.peer[family])
    scene.router.ip(f"-{family}", "route", "add", SERVICE.net[family], "via", FAR.peer[family])
    options = ("--trust", scene.path("trust.toml"), "--root", scene.root, "--port", PORT, "--json-log", FRESH)
    device = ("--tun", "ff0", "--host-ip", Pair.cidr(SERVICE.host[family]), "--ip", SERVICE.peer[family])
    server = t.start(Command(scene.far, "serve", *device, *options))
    scene.issuer(family=family)
    device = ("--tun", "ff0", "--host-ip", Pair.cidr(ENGINE.host[family]), "--ip", ENGINE.peer[family])
    target = url(SERVICE.peer[family], PORT, "/small")
    (first,) = scene.get(target, *device, *scene.shows(family), "--asap-known", "--no-fast-open")
    scene.whole(first)
    check(is_accepted(first), f"first contact: {show(first)}")
    (logged,) = server.requests(1)
    check(early_bytes(logged) > 0 and FAR.host[family] in logged["peer"], show(logged))


@case(family=FAMILIES, narrow=(False, True), needs=("nft",))
def udp_datagrams_grow_as_far_as_the_path_takes_them(t, family, narrow):
    scene = Scene(t)
    scene.root = t.root(large=2_000_000)
    scene.trust(scene.key)
    # Send one datagram per packet: the kernel would carry several of them together across these cables.
    scene.far.ip("link", "set", "veth1", "gso_max_segs", 1)
    # Larger datagrams are dropped without an ICMP error, or only counted.
    verdict = "drop" if narrow else "accept"
    scene.router.nft(f"type filter hook forward priority 0; meta length > 1300 counter {verdict}", chain="narrow")
    server = scene.serve_udp(family)
    (record,) = scene.get(url(FAR.peer[family], PORT, "/large"), "--udp")
    equal((record["status"], record["sha256"]), (200, sha256(body(scene.root, "large"))), show(record))
    check_no_panic(server)
    large = sum(map(int, re.findall(r"> 1300 counter packets (\d+)", scene.router.nft_list())))
    # Narrow path: one probe, which is not repeated at its size. Wide path: most of the response.
    if narrow:
        check(1 <= large <= 2, f"{large} large packets on a narrow path")
    else:
        check(large > 1000, f"{large} large packets on a wide path")


@case(needs=("nft",))
def asap_trust_is_withdrawn_while_the_server_runs(t):
    scene = Scene(t)
    scene.serve_udp(4)
    scene.issuer()
    (record,) = scene.get_udp(4, *scene.shows(4), "--asap-known")
    check(is_accepted(record), show(record))
    scene.trust(scene.keygen("other.key"))
    time.sleep(2.5)
    (record,) = scene.get_udp(4, *scene.shows(4), "--asap-known")
    equal(record["reason"], "untrusted-verifier", show(record))
    scene.whole(record)


@case(needs=("nft",))
def asap_an_upload_that_runs_once_rides_in_the_syn(t):
    scene = Scene(t)
    once = ("--replays", "at-most-once", "--one-time", "--one-time-state", scene.path("one-time"))
    server = scene.serve_udp(4, *once)
    scene.issuer()
    upload = scene.path("upload")
    with open(upload, "wb") as file:
        file.write(bytes(500))
    target = (url(FAR.peer[4], PORT, "/sink"), "--udp", "--upload", upload)
    asked = (*scene.shows(4), "--asap-known")
    (held,) = scene.get(*target, *asked)
    equal((held["status"], held["reason"]), (200, "not-replay-safe"), show(held))
    (once,) = scene.get(*target, *asked, "--asap-once")
    check(once["status"] == 200 and is_accepted(once), show(once))
    equal([early_bytes(record) > 0 for record in server.requests(2)], [False, True], "what came in the SYN")


@case(needs=("nft",))
def asap_after_a_start_nothing_is_taken_that_may_have_been_before(t):
    scene = Scene(t)
    scene.serve_udp(4, fresh=())
    scene.issuer()
    (record,) = scene.get_udp(4, *scene.shows(4), "--asap-known")
    equal(record["reason"], "guard-floor", show(record))
    scene.whole(record)


@case()
def asap_is_published_in_the_dns(t):
    scene = Scene(t)
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
    t.enter_context(answering(scene.far, FAR.peer[4], names))
    asked = ("http://www.example.com:8080/small", "--udp", "--dns", at(FAR.peer[4], 53))
    (first,) = scene.get(*asked, *scene.shows(4))
    scene.whole(first)
    check(is_accepted(first), f"first contact: {show(first)}")
    # The certificate is not used with a server that publishes another verifier.
    other = scene.keygen("other.key")
    told = run(firstflight.BINARY, "asap", "record", "--verifier-key", other, "--udp-port", PORT).stdout
    octets = bytes(int(number) for number in told.split('"')[1].split("\\")[1:])
    param = (65300).to_bytes(2) + len(octets).to_bytes(2) + octets
    names[b"\5_8080\6_https\3www\7example\3com\0", 65] = b"\0\1" + b"\0" + param
    (record,) = scene.get(*asked, *scene.shows(4), "--no-fast-open")
    equal(record["reason"], "not-requested", show(record))


@contextlib.contextmanager
def answering(ns, address, names):
    """A name server with this data for each (name, type)."""
    with ns.entered():
        served = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        served.bind((address, 53))
    served.settimeout(0.1)
    over = threading.Event()

    def serve():
        while not over.is_set():
            try:
                query, client = served.recvfrom(4096)
            except TimeoutError:
                continue
            end = query.index(0, 12) + 1
            question, kind = query[12 : end + 4], int.from_bytes(query[end : end + 2])
            found = names.get((query[12:end].lower(), kind))
            known = any(name == query[12:end].lower() for name, _ in names)
            flags = 0x8580 if known else 0x8583
            head = query[:2] + flags.to_bytes(2) + b"\0\1" + (b"\0\1" if found else b"\0\0") + b"\0\0\0\0"
            answer = b""
            if found:
                ttl = (60).to_bytes(4)
                answer = b"\xc0\x0c" + kind.to_bytes(2) + b"\0\1" + ttl + len(found).to_bytes(2) + found
            served.sendto(head + question + answer, client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        served.close()


@case(needs=("nft",))
def udp_goes_by_the_family_that_works(t):
    """Packets to the server's IPv6 address are dropped; each visit succeeds over IPv4."""
    scene = Scene(t)
    scene.router.nft(
        f"type filter hook forward priority 0; ip6 daddr {FAR.peer[6]} udp dport {PORT} counter drop", chain="silent"
    )
    scene.serve_udp(4)
    name = b"\3www\7example\3com\0"
    addresses = {(name, kind): socket.inet_pton(AF[family], FAR.peer[family]) for kind, family in ((1, 4), (28, 6))}
    t.enter_context(answering(scene.far, FAR.peer[4], addresses))
    target = (f"http://www.example.com:{PORT}/small", "--udp", "--dns", at(FAR.peer[4], 53))
    records = scene.get(*target, "--repeat", 3)
    for record in records:
        scene.whole(record)
        equal(record["remote"], at(FAR.peer[4], PORT), show(record))
    # The second attempt requests nothing. The first visit remembers the address that works, so the next ones use it.
    equal([record["reason"] for record in records], ["not-first-address", "no-credential", None], "outcomes")
    check(scene.router.nft_matched(), "IPv6 was not tried")


@case(needs=("nft",))
def asap_group_of_three(t):
    scene = Scene(t)
    names = {"ams": "10.62.0.3", "nbo": "10.62.0.4"}
    lines, points = [], {}
    for number, (name, address) in enumerate(names.items(), start=1):
        scene.far.ip("addr", "add", f"{address}/24", "dev", "veth1")
        token = scene.path(f"{name}.token")
        run(firstflight.BINARY, "verifier", "keygen", "--vantage-key", token)
        lines.append(f"{number} {name} {at(address, VERIFIER_PORT)} {name}.token\n")
        options = ("--vantage-id", number, "--vantage-key", token)
        points[name] = scene.verifier(*options, address=address)
    group = scene.path("group.txt")
    with open(group, "w") as file:
        file.writelines(lines)
    scene.serve_udp(4)
    scene.issuer("--group", group)
    (record,) = scene.get_udp(4, *scene.shows(4), "--group", group, "--asap-known")
    check(is_accepted(record), f"a server that knows nothing of groups: {show(record)}")

    def certificate(expect):
        command = (firstflight.BINARY, "certificate", "get", *scene.asks(4), "--group", group)
        with contextlib.closing(Result(scene.client, command)) as result:
            equal(result.status, expect, f"exit status: {result.text}")
            return result.text

    check("3 vantage points" in certificate(0), "all are up")
    # One of them cannot reach the client: nothing is certified, and the message names it.
    scene.router.nft(f"type filter hook forward priority 0; ip saddr {names['nbo']} counter drop", chain="mute")
    told = certificate(1)
    check("nbo" in told and "ams" not in told, told)
    scene.router.nft_flush()
    scene.router.nft("type nat hook postrouting priority 100; oifname veth1 counter masquerade")
    points["ams"].popen.terminate()
    points["ams"].wait(10)
    told = certificate(1)
    check("ams" in told and "nbo" not in told, told)


class Result:
    """The result of a command that ran to its end in a namespace."""

    def __init__(self, ns, command):
        self.process = Process(command, ns=ns)
        with self.process:
            self.status = self.process.wait(60)
        self.text = self.process.text()

    def close(self):
        check_no_panic(self.process)
