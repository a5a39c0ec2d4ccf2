"""`proxy` with curl, Go and Python, and what left in the SYN."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys

import firstflight
import name_server
import nginx
import pytest
from firstflight import Command, check_no_panic, explain
from net import Pair
from process import Process, run
from test_tls import NAME, Certificates
from testbed import body, sha256
from wire import Wire
from wire import command as wire_command

PAIR = Pair(86)
#: The server's address, which is not a private one.
SERVER = "203.0.113.1"
PROXY = "127.0.0.1:3128"
A = 1


def wire_name(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


class Site:
    """A client with a proxy, and a server on the other end of a cable."""

    def __init__(self, testbed, *options, rtt=None):
        self.testbed = testbed
        self.client, self.server = testbed.namespace("client"), testbed.namespace("server")
        if rtt is None:
            testbed.cable(self.client, self.server, PAIR, "veth0")
        else:
            testbed.start(Wire(self.client, self.server, PAIR, "--rtt", rtt))
        self.server.ip("addr", "add", f"{SERVER}/32", "dev", "lo")
        self.client.ip("route", "add", SERVER, "via", PAIR.peer[4])
        self.root = testbed.root(small=5000, large=20_000_000)
        self.files = Certificates(testbed.root())
        self.names = {(wire_name(NAME), A): socket.inet_aton(SERVER)}
        testbed.enter_context(name_server.answering(self.client, "127.0.0.1", self.names))
        self.proxy = testbed.start(
            Process([firstflight.BINARY, "proxy", "--json", "--dns", "127.0.0.1:53", *options], ns=self.client)
        )
        (self.told,) = self.proxy.wait_records(1, "the first line", lambda r: r["event"] == "listening")

    def serve(self, port, *options):
        listen = ("--root", self.root, "--listen", f"{SERVER}:{port}", "--json-log")
        return self.testbed.start(Command(self.server, "serve", *listen, *options))

    def serve_tls(self):
        return self.serve(443, "--tls-cert", self.files.certificate, "--tls-key", self.files.key)

    def events(self, kind, count):
        return self.proxy.wait_records(count, f"{count} × {kind}", lambda r: r["event"] == kind)

    def capture(self):
        path = os.path.join(self.root, "wire.pcap")
        command = ["tcpdump", "-i", "veth0", "-w", path, "-n", "-Z", "root", "-U", "--immediate-mode", "-s", "4096", "tcp"]
        dump = self.testbed.start(Process(command, ns=self.client))
        dump.wait_until(lambda: "listening on" in dump.text(), "start of the capture")
        return path, dump

    def curl(self, proxy, url, *options, check=True):
        shown = ("-sS", "-m", 20, "-x", proxy, "--cacert", self.files.ca, "-w", "%{http_code}")
        return run("curl", *shown, "-o", os.path.join(self.root, "got"), *options, url, ns=self.client, check=check)

    def fetch(self, proxy, url, name="small"):
        assert self.curl(proxy, url + name).stdout == "200"
        assert body(self.root, "got") == body(self.root, name), name


def syns(path):
    """The data of each SYN without ACK in a capture of tcpdump on Ethernet."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:4] == b"\xd4\xc3\xb2\xa1", "a capture in this machine's byte order"
    at, found = 24, []
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        packet = data[at + 16 + 14 : at + 16 + length]
        at += 16 + length
        tcp = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4])]
        if tcp[13] & 0x12 == 2:
            found.append(tcp[(tcp[12] >> 4) * 4 :])
    return found


def is_hello(data):
    """Whether this is one record with a ClientHello for the server's name, all of it."""
    return data[:2] == b"\x16\x03" and len(data) == 5 + int.from_bytes(data[3:5]) and NAME.encode() in data


@pytest.mark.needs("curl", "openssl", "tcpdump")
@pytest.mark.parametrize("proxy", (f"http://{PROXY}", f"socks5h://{PROXY}"), ids=("connect", "socks5h"))
def test_curls_hello_leaves_in_the_syn(testbed, proxy):
    site = Site(testbed)
    site.serve_tls()
    path, dump = site.capture()
    for _ in range(3):
        site.fetch(proxy, f"https://{NAME}/")
    first, *others = site.events("connected", 3)
    assert (first["early_yes"], first["outcome"], first["round_trips_saved"]) == (False, "handshake", 0), first
    for contact in others:
        assert (contact["early_yes"], contact["outcome"], contact["round_trips_saved"]) == (True, "accepted", 1), contact
    dump.wait_until(lambda: len(syns(path)) >= 3, "three SYNs in the capture")
    assert dump.terminate() == 0
    plain, *early = syns(path)
    assert plain == b"" and len(early) == 2
    assert all(map(is_hello, early)), early
    connections, summary = explain(path)
    assert [one["outcome"] for one in connections] == ["handshake", "accepted", "accepted"]
    assert [one["acked_bytes"] for one in connections[1:]] == [len(hello) for hello in early]


@pytest.mark.needs("curl", "openssl", wire_command())
def test_round_trips(testbed):
    """No visit is faster than its round trips. `-s` shows what the test measured, with the proxy and without."""
    site = Site(testbed, rtt="100ms")
    site.serve_tls()
    direct = ("--noproxy", "*", "--resolve", f"{NAME}:443:{SERVER}")
    for name, options, trips in (("direct", direct, (3, 3, 3)), ("proxy", (), (3, 2, 2))):
        times = []
        for least in trips:
            done = site.curl(f"http://{PROXY}", f"https://{NAME}/small", "-w", "%{time_starttransfer}", *options)
            times.append(round(1000 * float(done.stdout)))
            assert times[-1] >= 100 * least, f"{name}: {times}"
        print(name, times)
    saved = [one["round_trips_saved"] for one in site.events("connected", 3)]
    assert saved == [0, 1, 1]


@pytest.mark.needs("curl", "tcpdump")
def test_a_get_of_plain_http_rides(testbed):
    site = Site(testbed)
    server = site.serve(80)
    # By name, and by SOCKS, where the proxy sees the request in a tunnel. Connections to servers are used again, so each
    # visit has its own port.
    other = site.serve(8080)
    path, dump = site.capture()
    site.fetch(f"http://{PROXY}", f"http://{NAME}/")
    site.fetch(f"http://{PROXY}", f"http://{NAME}:8080/")
    site.fetch(f"socks5h://{PROXY}", f"http://{NAME}:8080/")
    assert [request["early_bytes"] > 0 for request in server.requests(1)] == [False]
    assert [request["early_bytes"] > 0 for request in other.requests(2)] == [True, True]
    dump.wait_until(lambda: len(syns(path)) >= 3, "three SYNs in the capture")
    plain, *early = syns(path)
    assert plain == b"" and all(data.startswith(b"GET /small HTTP/1.1\r\n") for data in early), early
    post = site.curl(f"http://{PROXY}", f"http://{NAME}:8080/sink", "-T", os.path.join(site.root, "small"), "-H", "Expect:")
    assert post.stdout == "200"


@pytest.mark.needs("curl", "openssl")
def test_large_transfers_and_uploads(testbed):
    site = Site(testbed)
    site.serve_tls()
    site.serve(80)
    for scheme in ("https", "http"):
        site.fetch(f"http://{PROXY}", f"{scheme}://{NAME}/", "large")
        done = site.curl(f"http://{PROXY}", f"{scheme}://{NAME}/sink", "-T", os.path.join(site.root, "large"))
        assert done.stdout == "200"
        assert sha256(body(site.root, "large")) in body(site.root, "got").decode()


@pytest.mark.needs("curl")
def test_failures_are_true(testbed):
    site = Site(testbed)
    for proxy, url, status, code in (
        (f"http://{PROXY}", f"https://{NAME}/", "502", 56),
        (f"http://{PROXY}", f"http://{NAME}/", "502", 0),
        (f"http://{PROXY}", "https://nowhere.example.com/", "502", 56),
        (f"http://{PROXY}", "https://127.0.0.1/", "403", 56),
        (f"http://{PROXY}", "http://169.254.169.254/latest/meta-data/", "403", 0),
    ):
        done = site.curl(proxy, url, "-w", "%{http_code} %{http_connect}", check=False)
        assert done.returncode == code and status in done.stdout, f"{url}: {done.returncode} {done.stdout} {done.stderr}"
    for url, reply in ((f"https://{NAME}/", "(5)"), ("https://nowhere.example.com/", "(4)"), ("https://127.0.0.1/", "(2)")):
        done = site.curl(f"socks5h://{PROXY}", url, check=False)
        assert done.returncode == 97 and reply in done.stderr, f"{url}: {done.stderr}"
    reasons = {event["error_type"] for event in site.events("failed", 8)}
    assert reasons == {"connection_refused", "dns_error", "destination_ip_prohibited"}


@pytest.mark.needs("curl", "openssl")
def test_a_server_that_is_gone_after_an_early_yes_is_a_reset(testbed):
    site = Site(testbed)
    server = site.serve_tls()
    for _ in range(2):
        site.fetch(f"http://{PROXY}", f"https://{NAME}/")
    server.terminate()
    done = site.curl(f"http://{PROXY}", f"https://{NAME}/small", check=False)
    # curl's word for a reset in TLS' handshake.
    assert done.returncode == 35 and "reset" in done.stderr.lower(), f"{done.returncode}: {done.stderr}"
    (failed,) = site.events("failed", 1)
    assert failed["reset"] is True and failed["error_type"] == "connection_refused"
    done = site.curl(f"http://{PROXY}", f"https://{NAME}/small", check=False)
    assert done.returncode == 56 and "502" in done.stderr, f"{done.returncode}: {done.stderr}"


@pytest.mark.needs("curl")
def test_a_rebound_name_reaches_nothing_inside(testbed):
    """The name is a public address first, and then one of this machine."""
    site = Site(testbed)
    site.serve(80)
    inside = testbed.start(Command(site.client, "serve", "--root", site.root, "--listen", "127.0.0.1:80", "--json-log"))
    site.fetch(f"http://{PROXY}", f"http://{NAME}/")
    for address in ("127.0.0.1", "0.0.0.0", "169.254.169.254", PAIR.host[4]):
        site.names[(wire_name(NAME), A)] = socket.inet_aton(address)
        # The connection that is open belongs to the address that was right: a new one is what counts.
        done = site.curl(f"http://{PROXY}", f"http://{NAME}:8000/small", check=False)
        assert done.stdout == "403", f"{address}: {done.stdout}"
        done = site.curl(f"socks5h://{PROXY}", f"http://{NAME}/small", check=False)
        assert done.returncode == 97, f"{address}: {done.stderr}"
    assert inside.executed() == 0


@pytest.mark.needs("curl")
def test_status_and_pac_are_for_this_host_only(testbed):
    site = Site(testbed, "--pac", "--allow-host", "listed.example")
    server = site.serve(80)
    for _ in range(2):
        site.fetch(f"socks5h://{PROXY}", f"http://{NAME}/")
    server.requests(2)

    def ask(url, *options):
        done = run("curl", "-sS", "-m", 10, "-w", "\n%{http_code}", *options, url, ns=site.client)
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    status, pac = ask(site.told["pac"])
    assert status == 200 and f'"{NAME}": 1' in pac and '"listed.example": 1' in pac, pac
    document = site.told["status"].replace("/status?", "/status.json?")
    status, text = ask(document)
    (server,) = json.loads(text)["servers"]
    assert status == 200 and server["last"]["outcome"] == "accepted" and server["round_trips_saved"] == 1, text
    assert ask(document.split("?")[0])[0] == 401
    for url in (document, site.told["pac"]):
        rebound = ("--resolve", "evil.example.com:3128:127.0.0.1")
        assert ask(url.replace("127.0.0.1", "evil.example.com"), *rebound)[0] == 421
        assert ask(url, "-H", "Origin: http://evil.example.com")[0] == 403
        assert ask(url, "-H", "Sec-Fetch-Site: cross-site")[0] == 403
    # What a request of plain HTTP carried is shown, too, while its connection is kept.
    before = server["received"]
    site.fetch(f"http://{PROXY}", f"http://{NAME}/")
    carried = lambda: json.loads(ask(document)[1])["servers"][0]["received"] - before  # noqa: E731
    site.proxy.wait_until(lambda: carried() > 5000, "the bytes on the page", 10)


PYTHON = """
import ssl, sys, urllib.request
proxy, ca, *urls = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
handlers = (urllib.request.ProxyHandler({"http": proxy, "https": proxy}), urllib.request.HTTPSHandler(context=context))
opener = urllib.request.build_opener(*handlers)
for url in urls:
    with opener.open(url, timeout=20) as answer:
        print(answer.status, len(answer.read()))
"""


@pytest.mark.needs("openssl")
def test_python(testbed):
    site = Site(testbed)
    site.serve_tls()
    site.serve(80)
    urls = [f"https://{NAME}/small", f"https://{NAME}/small", f"http://{NAME}/small"]
    done = run(sys.executable, "-c", PYTHON, f"http://{PROXY}", site.files.ca, *urls, ns=site.client)
    assert done.stdout.splitlines() == ["200 5000"] * 3
    assert [one["round_trips_saved"] for one in site.events("connected", 3)][:2] == [0, 1]


GO = """
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	pem, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	for _, url := range os.Args[2:] {
		// Go's default is hybrid, which fits no SYN.
		config := &tls.Config{RootCAs: pool, CurvePreferences: []tls.CurveID{tls.X25519}}
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config}
		answer, err := (&http.Client{Transport: transport}).Get(url)
		if err != nil {
			panic(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			panic(err)
		}
		answer.Body.Close()
		transport.CloseIdleConnections()
		fmt.Println(answer.StatusCode, len(body))
	}
}
"""


@pytest.fixture
def go_program(tmp_path):
    """The program in Go. The first build on a machine compiles Go's library, which takes longer than a test may."""
    (tmp_path / "main.go").write_text(GO)
    env = {**os.environ, "GO111MODULE": "off"}
    command = ["go", "build", "-o", tmp_path / "main", tmp_path / "main.go"]
    subprocess.run(command, env=env, check=True, timeout=600)
    return tmp_path / "main"


@pytest.mark.needs("go", "openssl")
def test_go(testbed, go_program):
    site = Site(testbed)
    site.serve_tls()
    site.serve(80)
    for scheme, proxy in (("https", "https_proxy"), ("http", "http_proxy")):
        env = {**os.environ, proxy: f"http://{PROXY}"}
        client = testbed.start(
            Process([go_program, site.files.ca, *[f"{scheme}://{NAME}/small"] * 2], ns=site.client, env=env)
        )
        assert client.wait(30) == 0, client.text()
        assert client.text("out").splitlines() == ["200 5000"] * 2
    first, second = site.events("connected", 2)
    assert (first["outcome"], second["outcome"], second["early_yes"]) == ("handshake", "accepted", True)


JAVA = """
import java.net.HttpURLConnection;
import java.net.URI;

public class Main {
    public static void main(String[] urls) throws Exception {
        for (String url : urls) {
            HttpURLConnection answer = (HttpURLConnection) URI.create(url).toURL().openConnection();
            answer.setRequestProperty("Connection", "close");
            int length = answer.getInputStream().readAllBytes().length;
            System.out.println(answer.getResponseCode() + " " + length);
        }
    }
}
"""


@pytest.mark.needs("javac", "keytool", "openssl")
def test_java(testbed):
    site = Site(testbed)
    site.serve_tls()
    site.serve(80)
    directory = testbed.root()
    source, store = os.path.join(directory, "Main.java"), os.path.join(directory, "store")
    with open(source, "w") as file:
        file.write(JAVA)
    run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", site.files.ca, "-keystore", store,
        "-storepass", "changeit")  # fmt: skip
    settings = {"javax.net.ssl.trustStore": store, "javax.net.ssl.trustStorePassword": "changeit"}
    for scheme in ("http", "https"):
        settings |= {f"{scheme}.proxyHost": "127.0.0.1", f"{scheme}.proxyPort": "3128"}
    options = [f"-D{name}={value}" for name, value in settings.items()]
    urls = [f"https://{NAME}/small", f"https://{NAME}/small", f"http://{NAME}/small"]
    done = run("java", *options, source, *urls, ns=site.client, timeout=100)
    assert done.stdout.splitlines() == ["200 5000"] * 3
    assert [one["early_yes"] for one in site.events("connected", 3)][:2] == [False, True]


def test_misuse_is_one_line_and_its_exit_code(testbed):
    for options, code, said in (
        (("--listen", "0.0.0.0:3128"), 2, "--allow-remote"),
        (("--allow-host", "x"), 2, "--pac"),
        (("--pac", "--allow-host", "http://x"), 2, "is not a host"),
        (("--verifier", "192.0.2.1:1"), 2, "--verifier-key"),
        # The address may come later.
        (("--listen", "192.0.2.77:1", "--allow-remote"), 1, "cannot listen on"),
    ):
        done = run(firstflight.BINARY, "proxy", *options, check=False)
        assert done.returncode == code and done.stdout == "", f"{options}: {done.returncode} {done.stdout}"
        assert len(done.stderr.splitlines()) == 1 and said in done.stderr, f"{options}: {done.stderr}"


@pytest.mark.needs("curl", "openssl")
def test_it_stops_in_order(testbed):
    site = Site(testbed, "--drain", "1s")
    site.serve_tls()
    site.fetch(f"http://{PROXY}", f"https://{NAME}/")
    with site.client.entered():
        held = socket.create_connection(("127.0.0.1", 3128), 20)
    held.sendall(f"CONNECT {NAME}:443 HTTP/1.1\r\n\r\n".encode())
    assert held.recv(100).startswith(b"HTTP/1.1 200")
    assert site.proxy.terminate() == 0
    check_no_panic(site.proxy)
    # What is cut off is reset, so that it does not look like an end.
    with pytest.raises(ConnectionResetError):
        held.recv(100)
    held.close()


MEETS = """
import http.client, random, sys, threading, time
host, count = sys.argv[1], int(sys.argv[2])
wrong = []

def visit(seed):
    pauses = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", 3128, timeout=20)
    for _ in range(count):
        # nginx closes a connection that waits for 20 ms.
        time.sleep(pauses.uniform(0.015, 0.025))
        connection.request("GET", f"http://{host}/small")
        answer = connection.getresponse()
        size = len(answer.read())
        if (answer.status, size) != (200, 5000):
            wrong.append((answer.status, size))

threads = [threading.Thread(target=visit, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(wrong), wrong[:5])
"""


@pytest.mark.needs("nginx")
def test_gets_that_meet_the_end_of_nginx_connections(testbed):
    """nginx closes kept connections while requests are on their way: none of them fails."""
    site = Site(testbed)
    listen = f"listen {SERVER}:80; keepalive_timeout 20ms;"
    nginx.start(testbed, site.server, site.root, f"{SERVER}:80", listen)
    done = run(sys.executable, "-c", MEETS, NAME, "150", ns=site.client, timeout=100)
    assert done.stdout.split()[0] == "0", done.stdout


@pytest.mark.needs("curl", "nginx")
def test_an_upload_that_nginx_refuses_gets_its_answer(testbed):
    site = Site(testbed)
    limit = f"listen {SERVER}:80; client_max_body_size 1k; lingering_close off;"
    nginx.start(testbed, site.server, site.root, f"{SERVER}:80", limit)
    direct = ("--noproxy", "*", "--resolve", f"{NAME}:80:{SERVER}")
    for extra in ((), ("-H", "Expect:"), ("-H", "Transfer-Encoding: chunked")):
        for name in ("small", "large"):
            upload = ("-T", os.path.join(site.root, name), *extra)
            answers = [
                site.curl(f"http://{PROXY}", f"http://{NAME}/upload", *upload, *way, check=False) for way in ((), direct)
            ]
            statuses = [answer.stdout for answer in answers]
            # Without the proxy curl may lose the answer to nginx' reset.
            assert statuses[0] == statuses[1] or answers[1].returncode == 55, f"{extra} {name}: {answers}"
            assert statuses[0] in ("413", "405"), f"{extra} {name}: {answers}"


@pytest.mark.needs("nginx")
def test_clients_that_leave_make_room_for_others(testbed):
    """More clients than there are places ask for a server that is silent, and leave. The next one is served."""
    site = Site(testbed)
    site.serve(80)
    site.client.ip("route", "add", "192.0.2.0/24", "via", PAIR.peer[4])
    site.server.ip("route", "add", "blackhole", "192.0.2.0/24")
    ask = b"\x05\x01\x00\x05\x01\x00\x01" + socket.inet_aton("192.0.2.1") + (80).to_bytes(2, "big")
    with site.client.entered():
        for _ in range(1100):
            client = socket.create_connection(("127.0.0.1", 3128), 20)
            client.sendall(ask)
            client.close()
    site.fetch(f"socks5h://{PROXY}", f"http://{NAME}/")
    descriptors = f"/proc/{site.proxy.pid}/fd"
    site.proxy.wait_until(lambda: len(os.listdir(descriptors)) < 100, "few open files")


@pytest.mark.needs("curl")
def test_a_silent_resolver_takes_few_threads_and_no_name_of_the_hosts_file(testbed):
    """600 requests for as many names that have no answer, and others beside them."""
    client, server = testbed.namespace("client"), testbed.namespace("server")
    testbed.cable(client, server, PAIR, "veth0")
    server.ip("addr", "add", f"{SERVER}/32", "dev", "lo")
    client.ip("route", "add", SERVER, "via", PAIR.peer[4])
    testbed.start(Command(server, "serve", "--root", testbed.root(small=5000), "--listen", f"{SERVER}:80"))
    directory = f"/etc/netns/{client.name}"
    os.makedirs(directory)
    testbed.callback(shutil.rmtree, directory, ignore_errors=True)
    for name, text in (("resolv.conf", "nameserver 127.0.0.1\n"), ("hosts", f"{SERVER} inhosts.example\n")):
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
    with client.entered():
        silent = testbed.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        silent.bind(("127.0.0.1", 53))
    proxy = testbed.start(Process([firstflight.BINARY, "proxy", "--json"], ns=client))
    proxy.wait_records(1, "the first line", lambda r: r["event"] == "listening")
    shown = ("-sS", "-x", f"http://{PROXY}", "-o", "/dev/null", "-w", "%{http_code}\\n")
    many = ("curl", "-Z", "--parallel-immediate", "--parallel-max", "300", "--max-time", "8", *shown)
    asking = [
        testbed.start(Process([*many, f"http://n[1-300].{zone}.example/"], ns=client)) for zone in ("a", "b")
    ]
    most, got = 0, []
    while any(one.popen.poll() is None for one in asking):
        most = max(most, len(os.listdir(f"/proc/{proxy.popen.pid}/task")))
        got.append(run("curl", "-m", 20, *shown, "http://inhosts.example/small", ns=client, check=False).stdout.strip())
    assert set(got) == {"200"}, got
    assert most < 100, f"{most} threads"


def test_the_proxy_may_open_as_many_files_as_the_system_allows(testbed):
    command = ["prlimit", "--nofile=256:5000", firstflight.BINARY, "proxy", "--json", "--listen", "127.0.0.1:0"]
    proxy = testbed.start(Process(command, ns=testbed.namespace("client")))
    proxy.wait_records(1, "the first line", lambda r: r["event"] == "listening")
    with open(f"/proc/{proxy.popen.pid}/limits") as limits:
        (files,) = [line.split() for line in limits if line.startswith("Max open files")]
    assert files[3:5] == ["5000", "5000"]
