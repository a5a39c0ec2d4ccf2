"""Sealed first flights of `get` and `serve`, with DNS servers, Redis, curl and OpenSSL."""

import contextlib
import os
import re
import signal
import socket
import threading

import pytest

import firstflight
from firstflight import Command, check_no_panic, explain, is_accepted, show
from name_server import answering
from process import Process, run
from redis_server import Redis
from scene import FAR, FRESH
from scene import PORT as SCENE_PORT
from test_tls import NAME, PORT, Certificates, s_client
from testbed import body, sha256

#: The names of its address and of its HTTPS record, as in a query.
HOST = b"\3www\7example\3com\0"
A, HTTPS = 1, 65
HERE = socket.inet_aton("127.0.0.1")
#: An address of this host that is not a loopback one.
NEIGHBOUR = "10.87.0.1"
PUBLIC = "front.example.net"

pytestmark = pytest.mark.needs("openssl")


def service(port):
    return b"".join(bytes([len(label)]) + label for label in (f"_{port}".encode(), b"_https")) + HOST


def octets(printed, key):
    """The bytes of a parameter that `asap record` has printed."""
    value = re.search(rf'key{key}="([^"]*)"', printed)[1]
    return bytes(int(number) for number in value.split("\\")[1:])


def https(*printed):
    """The data of an HTTPS record with these parameters."""
    found = [(key, octets(text, key)) for key in (65300, 65301) for text in printed if f"key{key}=" in text]
    return b"\0\1\0" + b"".join(key.to_bytes(2) + len(value).to_bytes(2) + value for key, value in found)


class Site:
    """A server with a certificate and a seal key, and a name server that knows its address."""

    def __init__(self, testbed, name=NAME):
        self.testbed, self.ns = testbed, testbed.namespace("seal")
        self.ns.ip("address", "add", f"{NEIGHBOUR}/32", "dev", "lo")
        self.root = testbed.root(small=500)
        self.files = Certificates(testbed.root())
        self.key, self.record = self.keygen("seal", "--name", name)

    def path(self, name):
        return self.files.path(name)

    def keygen(self, name, *options):
        """Makes a key. Returns its file and a file of the record."""
        key, record = self.path(f"{name}.seal"), self.path(f"{name}.record")
        run(firstflight.BINARY, "seal", "keygen", "-o", key, *options)
        with open(record, "w") as file:
            file.write(self.printed(key))
        return key, record

    @staticmethod
    def printed(key):
        return run(firstflight.BINARY, "asap", "record", "--seal-key", key).stdout

    def serve(self, *options, port=PORT, seal=True, fresh=(FRESH,)):
        listen = ("--root", self.root, "--listen", f"127.0.0.1:{port}", "--udp-port", 0, "--json-log", "-v")
        tls = ("--tls-cert", self.files.certificate, "--tls-key", self.files.key)
        sealing = ("--seal", self.key, *fresh) if seal else ()
        return self.testbed.start(Command(self.ns, "serve", *listen, *tls, *sealing, *options))

    def names(self, record=None, address="127.0.0.1", authentic=False):
        """Starts the name server, which also has this HTTPS record."""
        names = {(HOST, A): HERE}
        if record:
            names[(service(PORT), HTTPS)] = record
        self.testbed.enter_context(answering(self.ns, address, names, authentic))

    def get(self, *options, path="/small", dns="127.0.0.1", expect=0):
        url = f"https://{NAME}:{PORT}{path}"
        command = [firstflight.BINARY, "get", url, "--dns", f"{dns}:53", "--ca-file", self.files.ca, "--json", *options]
        client = Process(command, ns=self.ns)
        with client:
            self.testbed.processes.append(client)
            assert client.wait(100) == expect, client.text()
            check_no_panic(client)
            return [record for record in client.records() if "outcome" in record]

    def whole(self, record):
        assert (record["status"], record["sha256"]) == (200, sha256(body(self.root, "small"))), show(record)


@pytest.fixture
def site(testbed):
    return Site(testbed)


def seals(records):
    return [(record["seal"], record["seal_reason"]) for record in records]


ONE = ("one-round-trip", None)
AFTER = ("transport-refused", "after-handshake")


def test_a_key_from_a_file(site):
    server = site.serve()
    site.names()
    fetches = site.get("--seal", site.record, "--repeat", 3)
    for number, record in enumerate(fetches):
        site.whole(record)
        assert is_accepted(record) == (number > 0), show(record)
    # The first visit has no cookie.
    assert seals(fetches) == [AFTER, ONE, ONE]
    logged = server.requests(3)
    assert seals(logged) == [AFTER, ("one-round-trip", "replayable"), ("one-round-trip", "replayable")]
    assert all(record["early_bytes"] > 0 for record in logged), "what ran before Finished"


def test_a_key_from_plain_dns_is_for_requests_without_secrets(site):
    server = site.serve()
    site.names(https(site.printed(site.key)))
    (held,) = site.get("--seal", "dns")
    assert seals([held]) == [("no-key", "untrusted")]
    site.whole(held)
    (sealed,) = site.get("--seal", "dns", "--seal-any")
    assert seals([sealed]) in ([ONE], [AFTER])
    site.whole(sealed)
    assert [record["seal"] is None for record in server.requests(2)] == [True, False]


def test_the_ad_bit_counts_on_a_trusted_path_only(site):
    site.serve()
    site.names(https(site.printed(site.key)), address=NEIGHBOUR, authentic=True)
    (forged,) = site.get("--seal", "dns", dns=NEIGHBOUR)
    assert seals([forged]) == [("no-key", "untrusted")]
    (trusted,) = site.get("--seal", "dns", "--trust-ad", dns=NEIGHBOUR)
    assert seals([trusted]) in ([ONE], [AFTER])


class Authority(Process):
    """BIND, with a zone of a file."""

    def __init__(self, site, zone):
        config, directory = site.path("named.conf"), site.files.directory
        with open(config, "w") as file:
            file.write(
                f'options {{ directory "{directory}"; listen-on port 5300 {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n'
                "pid-file none; session-keyfile none; recursion no; dnssec-validation no; };\ncontrols { };\n"
                f'zone "example.com" {{ type primary; file "{zone}"; }};\n'
            )
        super().__init__(["named", "-g", "-c", config], ns=site.ns)

    def __enter__(self):
        self.wait_until(lambda: "all zones loaded" in self.text(), "`all zones loaded`")
        return self


class Unbound(Process):
    """A resolver that validates what the authority says."""

    def __init__(self, site, anchor):
        config = site.path("unbound.conf")
        with open(config, "w") as file:
            file.write(
                f'server:\n  interface: 127.0.0.1\n  chroot: ""\n  username: ""\n  pidfile: ""\n  use-syslog: no\n'
                f'  directory: "{site.files.directory}"\n  do-daemonize: no\n  do-not-query-localhost: no\n'
                f'  module-config: "validator iterator"\n  trust-anchor: "{anchor}"\n'
                "remote-control:\n  control-enable: no\n"
                'stub-zone:\n  name: "example.com"\n  stub-addr: 127.0.0.1@5300\n'
            )
        super().__init__(["unbound", "-d", "-d", "-c", config], ns=site.ns)

    def __enter__(self):
        self.wait_until(lambda: "start of service" in self.text(), "`start of service`")
        return self


def signed(site, record):
    """Signs a zone with the site's address and this parameter. Returns its file and the trust anchor."""
    zone, directory = site.path("example.com.zone"), site.files.directory
    with open(zone, "w") as file:
        file.write(
            "$TTL 300\n@ SOA ns hostmaster 1 3600 900 604800 300\n@ NS ns\nns A 127.0.0.1\nwww A 127.0.0.1\n"
            f"_{PORT}._https.www HTTPS 1 {NAME}. {record}\n"
        )
    made = run("dnssec-keygen", "-q", "-a", "ECDSAP256SHA256", "-f", "KSK", "-K", directory, "example.com").stdout
    run("dnssec-signzone", "-S", "-z", "-K", directory, "-d", directory, "-o", "example.com", "-f", f"{zone}.signed", zone)
    anchor = run("dnssec-dsfromkey", "-2", site.path(f"{made.strip()}.key")).stdout.strip()
    return f"{zone}.signed", anchor


@pytest.mark.needs("unbound", "named", "dnssec-signzone")
@pytest.mark.parametrize("forged", (False, True), ids=("genuine", "forged"))
def test_a_key_from_a_signed_zone(site, forged):
    server = site.serve()
    zone, anchor = signed(site, site.printed(site.key).strip())
    if forged:
        with open(zone) as file:
            text = file.read()
        changed = re.sub(r"(\sHTTPS\s+)1 ", r"\g<1>2 ", text)
        assert changed != text, "the record is not in the zone"
        with open(zone, "w") as file:
            file.write(changed)
    site.testbed.start(Authority(site, zone))
    site.testbed.start(Unbound(site, anchor))
    fetches = site.get("--seal", "dns", "--trust-ad", "--repeat", 2)
    for record in fetches:
        site.whole(record)
    assert seals(fetches) == ([("no-key", "lookup-failed")] * 2 if forged else [AFTER, ONE])
    assert [record["seal"] is None for record in server.requests(2)] == [forged] * 2


def test_no_key(site):
    server = site.serve()
    site.names()
    fetches = site.get("--seal", "dns", "--trust-ad", "--repeat", 2)
    assert seals(fetches) == [("no-key", "no-record")] * 2
    for record in fetches:
        site.whole(record)
    assert seals(server.requests(2)) == [(None, None)] * 2


@contextlib.contextmanager
def captured(site, path):
    """A capture of the loopback device."""
    command = ["tcpdump", "-i", "lo", "-s", "0", "-U", "--immediate-mode", "-Z", "root", "-w", path, "tcp"]
    with Process(command, ns=site.ns) as dump:
        site.testbed.processes.append(dump)
        dump.wait_until(lambda: "listening on" in dump.text("err"), "`listening on`")
        yield
        dump.terminate()


@pytest.mark.needs("tcpdump")
def test_a_stale_key_costs_a_round_trip_and_the_request_runs_once(site):
    server = site.serve()
    site.names()
    _, stale = site.keygen("other", "--name", NAME)
    path = site.path("stale.pcap")
    with captured(site, path):
        fetches = site.get("--seal", stale, "--repeat", 3)
        logged = server.requests(3)
    # After two failures in a row nothing is sealed.
    assert seals(fetches) == [("stale-key", "rejected")] * 2 + [("declined", "failure-memory")]
    for record in fetches:
        site.whole(record)
    assert seals(logged) == [("stale-key", "not-opened")] * 2 + [(None, None)]
    assert server.executed() == 3
    connections, _ = explain(path)
    shown = [connection["seal"] and (connection["seal"]["answer"], connection["seal"]["outcome"]) for connection in connections]
    assert shown == [("reject", "stale-key")] * 2 + [None], shown


def test_keys_change_under_load(site):
    server = site.serve()
    site.names()
    url = f"https://{NAME}:{PORT}/small"
    options = ("--dns", "127.0.0.1:53", "--ca-file", site.files.ca, "--json", "--seal", site.record)
    command = [firstflight.BINARY, "get", url, *options, "--repeat", 150, "--parallel", 4]
    with Process(command, ns=site.ns) as load:
        site.testbed.processes.append(load)
        load.wait_until(lambda: len(load.records()) >= 20, "the first fetches")
        new, record = site.keygen("new", "--after", site.key)
        os.replace(new, site.key)
        server.wait_until(lambda: "has 2 seal keys" in server.text("err"), "the new key")
        # A service manager asks for a reload; and a file that is not right changes nothing.
        server.popen.send_signal(signal.SIGHUP)
        server.wait_until(lambda: server.text("err").count("has 2 seal keys") >= 2, "the reload")
        assert load.wait(100) == 0, load.text()
        fetches = load.records()
    assert len(fetches) == 150 and set(seals(fetches)) <= {ONE, AFTER}, set(seals(fetches))
    (fresh,) = site.get("--seal", record)
    assert seals([fresh]) in ([ONE], [AFTER])
    with open(site.key, "w") as file:
        file.write("nothing")
    server.wait_until(lambda: "stay as they are" in server.text("err"), "a complaint")
    (after,) = site.get("--seal", record)
    assert seals([after]) in ([ONE], [AFTER])


@pytest.mark.needs("curl")
def test_peers_that_know_nothing_of_seals(site):
    server = site.serve()
    site.names()
    resolve = ("--resolve", f"{NAME}:{PORT}:127.0.0.1")
    shown = ("-o", "/dev/null", "-w", "%{ssl_verify_result} %{http_code}")
    url = f"https://{NAME}:{PORT}/small"
    assert run("curl", "-sS", "--cacert", site.files.ca, *resolve, *shown, url, ns=site.ns).stdout == "0 200"
    request = f"GET /small HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"
    said = s_client(site.ns, site.files, stdin=request)
    assert "200 OK" in said and "Verify return code: 0 (ok)" in said, said
    (plain,) = site.get()
    assert seals([plain]) == [(None, None)]
    (sealed,) = site.get("--seal", site.record)
    assert seals([sealed]) in ([ONE], [AFTER])
    assert [record["seal"] is None for record in server.requests(4)] == [True, True, True, False]


def test_a_server_that_knows_nothing_of_seals(site):
    """It answers with an alert. The request goes again in ordinary TLS."""
    server = site.serve(seal=False)
    site.names()
    fetches = site.get("--seal", site.record, "--repeat", 3)
    for record in fetches:
        site.whole(record)
    failed = ("transport-refused", "flight-failed")
    assert seals(fetches) == [failed, failed, ("declined", "failure-memory")]
    assert server.executed() == 3


def test_an_upload_waits_for_the_end_of_the_handshake(site):
    server = site.serve()
    site.names()
    # What does not fit beside a ClientHello with a ticket is not sealed.
    upload = ("--upload", os.path.join(site.testbed.root(tiny=50), "tiny"))
    fetches = site.get("--seal", site.record, "--repeat", 2, *upload, path="/sink")
    assert seals(fetches) == [("transport-refused", "after-finished")] * 2
    assert [record["status"] for record in fetches] == [200, 200]
    logged = server.requests(2)
    assert seals(logged) == [("transport-refused", "incomplete")] * 2
    assert [record["early_bytes"] for record in logged] == [0, 0]


def test_after_a_start_nothing_runs_early(site):
    server = site.serve(fresh=())
    site.names()
    site.whole(site.get("--seal", site.record)[0])
    assert seals(server.requests(1)) == [("transport-refused", "floor")]


@pytest.mark.needs("tcpdump")
def test_a_hidden_name_is_never_in_clear(testbed):
    site = Site(testbed, name=PUBLIC)
    server = site.serve("--seal-name", NAME)
    site.names()
    path = site.path("hidden.pcap")
    with captured(site, path):
        fetches = site.get("--seal", site.record, "--seal-hide", "--repeat", 2)
        assert seals(fetches) == [AFTER, ONE]
        for record in fetches:
            site.whole(record)
        # A key that the server does not have: the attempt fails.
        _, stale = site.keygen("other", "--name", PUBLIC)
        (failed,) = site.get("--seal", stale, "--seal-hide", expect=1)
        assert seals([failed]) == [("stale-key", "rejected")] and "hidden" in failed["error"], show(failed)
        (keyless,) = site.get("--seal", "dns", "--seal-hide", expect=1)
        assert seals([keyless]) == [("no-key", "no-record")], show(keyless)
        server.requests(2)
    with open(path, "rb") as file:
        packets = file.read()
    assert len(packets) > 2000 and NAME.encode() not in packets, "the name is in a packet"
    assert server.executed() == 2


def test_several_public_names(site):
    """Each name is served with the keys of its public name, and with no others."""
    other, record = site.keygen("other", "--name", PUBLIC)
    server = site.serve("--seal", other, "--seal-name", f"b.example.com@{PUBLIC}")
    site.names()
    (right,) = site.get("--seal", site.record)
    assert seals([right]) in ([ONE], [AFTER])
    (wrong,) = site.get("--seal", record)
    assert seals([wrong]) == [("stale-key", "rejected")], "a name of other keys"
    assert seals(server.requests(2))[1] == ("stale-key", "other-name")


def test_metrics(site):
    server = site.serve("--metrics", "127.0.0.1:7413")
    site.names()
    _, stale = site.keygen("other", "--name", NAME)
    site.get("--seal", site.record)
    site.get("--seal", stale)
    server.requests(2)
    done = run("python3", "-c", SCRAPE, ns=site.ns).stdout
    series = 'firstflight_sealed_flights_total{side="server",outcome="%s",reason="%s"} 1'
    assert series % ("stale-key", "not-opened") in done, done
    taken = [series % ("transport-refused", "after-handshake"), series % ("one-round-trip", "replayable")]
    assert any(line in done for line in taken), done


SCRAPE = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7413/metrics', timeout=20).read().decode())"


class Relay:
    """Passes connections at the site's port on to another one, and keeps what the client of the last one has sent before
    the server answered."""

    def __init__(self, ns, port):
        self.ns, self.port, self.kept = ns, port, b""
        with ns.entered():
            self.listening = socket.create_server(("127.0.0.1", PORT))
        self.over = False
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join()

    def connect(self, port):
        with self.ns.entered():
            return socket.create_connection(("127.0.0.1", port), timeout=60)

    def run(self):
        while not self.over:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            with client, self.connect(self.port) as server:
                # A flight has at most 1024 bytes here, in one write.
                self.kept = client.recv(4096)
                server.sendall(self.kept)
                back = threading.Thread(target=pass_on, args=(server, client), daemon=True)
                back.start()
                pass_on(client, server)
                back.join()

    def copy(self, port):
        """Sends a copy, and returns the answer."""
        with self.connect(port) as sock:
            sock.sendall(self.kept)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while len(answer) < 100 and (piece := sock.recv(4096)):
                    answer += piece
            return answer


def pass_on(source, sink):
    with contextlib.suppress(OSError):
        while piece := source.recv(4096):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


def stopped(server):
    return server.wait_records(1, "a stopped request", lambda record: record.get("event") == "stopped")[0]


def test_a_copy_gets_no_response(site):
    server = site.serve("--seal-port", PORT, port=5001)
    site.names()
    with Relay(site.ns, 5001) as relay:
        site.whole(site.get("--seal", site.record)[0])
        assert relay.copy(5001) == b""
    assert seals([stopped(server)]) == [("unknown", "seen")]
    assert server.executed() == 1


@pytest.mark.needs("redis-server")
@pytest.mark.parametrize("shared", (True, False), ids=("shared", "apart"))
def test_the_members_of_a_farm_share_what_ran(site, shared):
    def store(_):
        return ()

    if shared:
        redis = site.testbed.start(Redis(site.files.directory))
        keys = site.path("store.keys")
        with open(keys, "w") as file:
            file.write("01" * 48)
        os.chmod(keys, 0o600)

        def store(port):
            return ("--store", redis.url, "--store-keys", keys, "--store-state", site.path(f"{port}.state"))

    first, second = (site.serve("--seal-port", PORT, *store(port), port=port) for port in (5001, 5002))
    site.names()
    with Relay(site.ns, 5001) as relay:
        site.whole(site.get("--seal", site.record)[0])
        answer = relay.copy(5002)
    if shared:
        # The second member began a new memory, which may have forgotten what ran. So nothing runs early yet. But the request
        # is known from now on.
        (logged,) = first.requests(1)
        assert logged["seal"] == "transport-refused" and logged["seal_reason"] in ("floor", "no-table"), show(logged)
        assert answer == b"" and seals([stopped(second)]) == [("unknown", "seen")]
        assert second.executed() == 0
        # A member that stops in order leaves the proof that it owes the store nothing.
        assert first.terminate() == 0
        assert os.path.getsize(site.path("5001.state")) > 0, first.text("err")
    else:
        assert answer[:1] == b"\x16", "TLS of a member that does not know of the first one"
        second.requests(1)


@pytest.mark.needs("nft")
@pytest.mark.parametrize("trusted", (True, False), ids=("trusted", "refused"))
def test_a_certificate_and_a_verifier_that_is_refused(testbed, scene, trusted):
    """A first contact in UDP: with a certificate that the server takes, the sealed request runs at once."""
    files = Certificates(scene.root)
    key = scene.path("seal.key")
    run(firstflight.BINARY, "seal", "keygen", "--name", NAME, "-o", key)
    certificate, tls_key = files.certify("far", FAR.peer[4])
    listen = ("--listen", f"{FAR.peer[4]}:{SCENE_PORT}", "--root", scene.root, "--json-log", FRESH)
    tls = ("--tls-cert", certificate, "--tls-key", tls_key, "--seal", key)
    server = testbed.start(Command(scene.far, "serve", *listen, "--trust", scene.path("trust.toml"), *tls))
    scene.issuer()
    told = run(
        firstflight.BINARY, "asap", "record", "--verifier-key", scene.key, "--udp-port", SCENE_PORT, "--seal-key", key
    ).stdout
    if not trusted:
        scene.trust(scene.keygen("other.key"))
        server.popen.terminate()
        server.wait(10)
        server = testbed.start(Command(scene.far, "serve", *listen, "--trust", scene.path("trust.toml"), *tls))
    names = {(HOST, A): socket.inet_aton(FAR.peer[4]), (service(SCENE_PORT), HTTPS): https(told)}
    testbed.enter_context(answering(scene.far, FAR.peer[4], names, authentic=True))
    dns = ("--dns", f"{FAR.peer[4]}:53", "--trust-ad", "--ca-file", files.ca)
    (record,) = scene.get(f"https://{NAME}:{SCENE_PORT}/small", *scene.shows(4), *dns, "--seal", "dns")
    scene.whole(record)
    (logged,) = server.requests(1)
    if trusted:
        assert is_accepted(record) and seals([record]) == [ONE], show(record)
        assert seals([logged]) == [("one-round-trip", "block")], show(logged)
    else:
        assert record["reason"] == "untrusted-verifier" and seals([record]) == [AFTER], show(record)
        assert seals([logged]) == [AFTER], show(logged)
