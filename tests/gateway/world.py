"""A client and a server machine with a wire between them: nginx, the gateway in front of it, verifiers; and clients that
have a proxy each."""

import contextlib
import os
import random
import time

import conntrack
import firstflight
import nginx
import paths
from certificates import NAME
from firstflight import Command, at, check_no_panic
from name_server import answering
from net import workdir
from paths import DEVICE, PAIR, SYN
from process import Process, run
from syns import Openings

LABELS = b"\3www\7example\3com\0"
A, HTTPS = 1, 65
#: Each client has a server address of its own, because the kernel remembers servers by address: one for the gateway, and
#: one for nginx. They are not private ones, which the proxy refuses.
OURS, PLAIN = "11.1.0.0/16", "11.2.0.0/16"
WARM = ("11.1.255.254", "11.2.255.254")
#: The gateway; nginx with TLS; nginx behind the gateway; the server for what nginx does not do; gRPC; a server on TCP
#: behind the gateway, and the gateway's port for it.
PORT, PLAIN_PORT, BACKEND, EXTRA, GRPC, RAW, RAW_PORT = 443, 8443, 8000, 8001, 8002, 8003, 9000
VERIFIER = 4433
CLOSED_PORT = 444
#: Seconds after its start during which a gateway takes no certificates: it cannot know what it took before.
UDP_AFTER = 32
#: Seconds within which nginx has written what it served.
LOGGED_WITHIN = 20
#: The page and its objects, bytes.
OBJECTS = {"page.html": 6_000, "style.css": 20_000, "script.js": 30_000, "image.png": 15_000}
FILES = {"medium": 300_000, "large": 3_000_000}
HTML = """<!doctype html><title>A page</title><link rel="stylesheet" href="style.css"><script src="script.js"></script>
<img src="image.png" alt=""><p>"""

_SERVER = """
    location ~ ^/s\\d+/\\w+/(?<file>[\\w.]+)$ {{ try_files /$file =404; }}
    location /post/ {{ return 200 "done\\n"; }}
    location /put/ {{ root {put}; dav_methods PUT; }}
"""
_HTTP = """
    types {{ text/html html; text/css css; application/javascript js; image/png png; }}
    log_format seen '$server_port $request_method $request_uri $status';
    access_log {log} seen;
    client_max_body_size 0; keepalive_requests 1000000; http2_max_concurrent_streams 128;
    server {{
        listen 0.0.0.0:{plain} ssl http2; root {root};
        ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;
        {server}
    }}
"""
_GATEWAY = """
[gateway]
log = "{log}"

[[listener]]
name = "web"
address = ["0.0.0.0:{port}"]
mode = "http"
service = "nginx"
trust = "{root}/trust.toml"
identity = ["{name}"]
[listener.tls]
certificate = [{{ chain = "{certificate}", key = "{key}" }}]
[[listener.route]]
path = "/extra/"
service = "extra"
[[listener.route]]
path = "/echo.Echo/"
service = "grpc"

[[listener]]
name = "plain"
address = ["0.0.0.0:80"]
mode = "http"
service = "nginx"
udp_port = 0

[[listener]]
name = "raw"
address = ["0.0.0.0:{raw_port}"]
mode = "tcp"
service = "raw"
udp_port = 0

[[service]]
name = "nginx"
backend = ["127.0.0.1:{backend}"]
[[service]]
name = "extra"
backend = ["127.0.0.1:{extra}"]
[[service]]
name = "grpc"
backend = ["127.0.0.1:{grpc}"]
protocol = "h2"
[[service]]
name = "raw"
backend = ["127.0.0.1:{raw}"]
"""


class World(paths.World):
    """Both machines. It ends with `context`."""

    def __init__(self, context, label, rtt, loss, certificates, verifiers, stop, log="off"):
        super().__init__(context, label, rtt, loss, servers=(OURS, PLAIN))
        self.rtt, self.loss, self.files, self.clients, self.stop = rtt, loss, certificates, 0, stop
        self.root = context.enter_context(workdir())
        self.log = self.path("access.log")
        for name, size in {**OBJECTS, **FILES}.items():
            self.write(name, HTML.encode() if name == "page.html" else b"", size)
        self.nginx()
        self.verifiers(verifiers)
        self.gateway = context.start(Command(self.far, "gateway", self.configuration(log)))
        self.udp_from = time.monotonic() + UDP_AFTER
        # What servers do for the first time takes longer: a first TLS handshake 200 ms.
        for port, address in ((PORT, WARM[0]), (PLAIN_PORT, WARM[1])):
            command = ("curl", "-sS", "-m", 60, "--cacert", certificates.ca, "--noproxy", "*", "-o", "/dev/null")
            resolve = ("--resolve", f"{NAME}:{port}:{address}", f"https://{NAME}:{port}/s0/warm/page.html")
            run(*command, *resolve, ns=self.client, timeout=90)

    def path(self, name):
        return os.path.join(self.root, name)

    def write(self, name, head, size):
        with open(self.path(name), "wb") as file:
            file.write(head + random.Random(name).randbytes(max(0, size - len(head))))

    def configuration(self, log):
        ports = dict(port=PORT, raw_port=RAW_PORT, backend=BACKEND, extra=EXTRA, grpc=GRPC, raw=RAW)
        files = dict(certificate=self.files.certificate, key=self.files.key)
        with open(self.path("gateway.toml"), "w") as file:
            file.write(_GATEWAY.format(log=log, root=self.root, name=NAME, **ports, **files))
        return self.path("gateway.toml")

    def nginx(self):
        os.makedirs(self.path("put/put"))
        server = _SERVER.format(put=self.path("put"))
        http = _HTTP.format(log=self.log, plain=PLAIN_PORT, root=self.root, certificate=self.files.certificate,
                            key=self.files.key, server=server)  # fmt: skip
        listen = f"127.0.0.1:{BACKEND}"
        nginx.start(self.context, self.far, self.root, listen, f"listen {listen}; {server}", http, connections=1024)

    def verifiers(self, count):
        key = self.path("verifier.key")
        self.key = run(firstflight.BINARY, "verifier", "keygen", "-o", key).stdout.split()[1]
        with open(self.path("trust.toml"), "w") as file:
            file.write(f'# begin\n[[verifier]]\nkey = "{self.key}"\nown = true\n# end\n')
        self.verifies = [at(PAIR.peer[4], VERIFIER + number) for number in range(count)]
        for address in self.verifies:
            arguments = ("--listen", address, "--key-file", key, "--allow-prefix", PAIR.net[4])
            self.context.start(Command(self.far, "verifier", *arguments))
        told = run(firstflight.BINARY, "asap", "record", "--verifier-key", self.key, "--udp-port", PORT).stdout
        octets = bytes(int(number) for number in told.split('"')[1].split("\\")[1:])
        self.record = b"\0\1\0" + (65300).to_bytes(2) + len(octets).to_bytes(2) + octets

    def wait_for_udp(self):
        """Waits until the gateway takes certificates."""
        while time.monotonic() < self.udp_from and not self.stop.is_set():
            time.sleep(0.1)

    def client_number(self):
        self.clients += 1
        return self.clients

    # --- what a path does

    @contextlib.contextmanager
    def meddling(self, path):
        """What the path does, and counters of what clients send, during the block."""
        self.drop_chains()
        self.meddle(*path.rules)
        self.client.nft(f"type filter hook output priority 10; {SYN} tcp dport {PORT} counter", chain="count")
        if path.nat:
            self.client.nft(f"type nat hook postrouting priority 100; oifname {DEVICE} masquerade fully-random",
                            chain="translate")  # fmt: skip
        try:
            with Openings(self.client, PORT) as openings:
                yield openings
        finally:
            self.drop_chains()

    def drop_chains(self):
        for ns, chain in ((self.far, "meddle"), (self.client, "count"), (self.client, "translate")):
            run("nft", "delete", "chain", "inet", "path", chain, ns=ns, check=False)

    def change_ports(self):
        """Every mapping of the translator is forgotten, and the next packet of each connection gets another port."""
        conntrack.flush(self.client)

    # --- what nginx served

    def served(self, wanted=0, since=0, requests=()):
        """What nginx logged behind position `since`: (port, method, path, status). Waits for `wanted` lines, and for one of each of
        these requests, (method, path). nginx may answer a POST before its body has come, and logs it afterwards."""
        deadline = time.monotonic() + LOGGED_WITHIN
        while True:
            with open(self.log) as file:
                file.seek(since)
                lines = [tuple(line.split()) for line in file if line.endswith("\n")]
            whole = len(lines) >= wanted and set(requests) <= {(method, path) for _, method, path, _ in lines}
            if whole or time.monotonic() > deadline:
                return lines
            time.sleep(0.1)

    def logged(self):
        """The position in the log."""
        return os.path.getsize(self.log) if os.path.exists(self.log) else 0


class Client:
    """A user with a proxy that knows nothing yet."""

    def __init__(self, world, asap):
        self.world, self.number = world, world.client_number()
        high, low = divmod(self.number, 256)
        self.address, self.plain_address = f"11.1.{high}.{low}", f"11.2.{high}.{low}"
        self.resolver, self.port = f"127.1.{high}.{low}", 10_000 + self.number
        self.names = {(LABELS, A): bytes(map(int, self.address.split(".")))}
        self.options = ()
        if asap:
            self.names[(LABELS, HTTPS)] = world.record
            verifier = world.verifies[self.number % len(world.verifies)]
            self.options = ("--verifier", verifier, "--verifier-key", world.key)
        self.stack, self.proxy = contextlib.ExitStack(), None

    def __enter__(self):
        try:
            self.stack.enter_context(answering(self.world.client, self.resolver, self.names))
            command = [firstflight.BINARY, "proxy", "--json", "--listen", f"127.0.0.1:{self.port}"]
            command += ["--dns", f"{self.resolver}:53", "--drain", "0s", *self.options]
            self.proxy = self.stack.enter_context(Process(command, ns=self.world.client))
            self.proxy.wait_records(1, "the first line", lambda record: record["event"] == "listening", timeout=60)
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *failure):
        self.stack.close()
        if self.proxy:
            check_no_panic(self.proxy)

    def contacts(self):
        return [record for record in self.proxy.records() if record["event"] == "connected"]

    def ends(self):
        return [record.get("error") for record in self.proxy.records() if record["event"] == "closed"]

    def where(self, side):
        """Options of curl, and the beginning of an address."""
        if side == "ours":
            return ("-x", f"http://127.0.0.1:{self.port}"), f"https://{NAME}"
        direct = ("--noproxy", "*", "--resolve", f"{NAME}:{PLAIN_PORT}:{self.plain_address}")
        return direct, f"https://{NAME}:{PLAIN_PORT}"
