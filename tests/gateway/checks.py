"""What has to work through the proxy and the gateway, with curl and raw sockets."""

import base64
import contextlib
import hashlib
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time

from certificates import NAME
from matrix import SIDES, Visit
from process import Process, run
from programs.backend import read_frame
from syns import Openings, whole_hello
from world import CLOSED_PORT, EXTRA, OBJECTS, PLAIN_PORT, PORT, RAW, RAW_PORT, Client

HERE = os.path.dirname(os.path.abspath(__file__))
#: Seconds of the longest step.
PATIENCE = 300
#: GETs beside a POST.
GETS = 99


class Skipped(Exception):
    """Why a check cannot run here."""


class Check:
    """A named check: `function(world, quick)` returns what was seen in a line, and raises AssertionError if it is wrong.
    `udp`: it uses certificates, so it comes when the gateway takes them."""

    def __init__(self, name, function, needs=(), quick=True, udp=False):
        self.name, self.function, self.needs, self.quick, self.udp = name, function, needs, quick, udp

    def run(self, world, quick):
        result = {"check": self.name, "said": "", "fault": None, "skipped": None}
        lacking = [command for command in self.needs if shutil.which(command) is None]
        began = time.monotonic()
        try:
            if lacking:
                raise Skipped(f"no {', '.join(lacking)} here")
            result["said"] = self.function(world, quick)
        except Skipped as reason:
            result["skipped"] = str(reason)
        except (AssertionError, OSError, subprocess.SubprocessError, IndexError, KeyError) as error:
            result["fault"] = f"{type(error).__name__}: {error}"
        result["seconds"] = round(time.monotonic() - began, 1)
        return result


def right(condition, text):
    if not condition:
        raise AssertionError(text)


@contextlib.contextmanager
def backend(world):
    """The server for what nginx does not do."""
    script = os.path.join(HERE, "programs", "backend.py")
    with Process([sys.executable, script, EXTRA, RAW], ns=world.far, stdin=subprocess.PIPE) as process:
        process.wait_until(lambda: "listening" in process.text(), "`listening`", 60)
        yield process


def curl(client, side, path, *options):
    """curl with a base address of a side, and what `-w` prints."""
    where, base = client.where(side)
    command = ("curl", "-sS", "-m", PATIENCE, "--cacert", client.world.files.ca, *where, *options, f"{base}{path}")
    return run(*command, ns=client.world.client, timeout=PATIENCE + 30)


def tunnel(client, port):
    """A connection to the server through the proxy."""
    with client.world.client.entered():
        made = socket.create_connection(("127.0.0.1", client.port), PATIENCE)
    made.sendall(f"CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n".encode())
    told = b""
    while not told.endswith(b"\r\n\r\n"):
        byte = made.recv(1)
        right(byte, f"the proxy closed after {told!r}")
        told += byte
    right(b" 200 " in told.split(b"\r\n")[0], f"the proxy said {told!r}")
    return made


# --- the checks


def first_packets(world, asap):
    """The ClientHello is in the first packet, and by the kernel's TCP a GET of plain HTTP."""
    way = "udp" if asap else "kernel"
    if asap:
        world.wait_for_udp()
    with Client(world, asap) as client, world.client.entered(), Openings(world.client, PORT, PLAIN_PORT, 80) as openings:
        for number in range(4):
            for side in SIDES:
                visit = Visit(client, side, f"{way}{number}", list(OBJECTS)[:1])
                right(visit.ok, visit.error)
        for number in range(0 if asap else 2):
            get = f"http://{NAME}:80/s{client.number}/clear{number}/style.css"
            socks = ("-x", f"socks5h://127.0.0.1:{client.port}", "-o", "/dev/null", "-w", "%{http_code}")
            done = run("curl", "-sS", "-m", 60, *socks, get, timeout=90)
            right(done.stdout == "200", done.stdout)
        client.proxy.wait_until(lambda: len(client.contacts()) >= 4, "four connections")
        accepted = [contact for contact in client.contacts()[:4] if contact["outcome"] == "accepted"]
        found = openings.found()
    hellos = [whole_hello(data) for in_udp, port, data in found if port == PORT and in_udp == asap and whole_hello(data)]
    right(accepted and len(hellos) >= len(accepted), f"{len(accepted)} accepted, {len(hellos)} ClientHellos in first packets")
    right(all(contact["way"] == way for contact in accepted), accepted)
    plain = {len(data) for _, port, data in found if port == PLAIN_PORT}
    right(plain == {0}, f"plain SYNs with {plain} bytes")
    said = f"a ClientHello of {len(hellos[0])} B in the first packet of {len(hellos)} of 4 connections; plain: 0 B"
    if not asap:
        clear = [data for _, port, data in found if port == 80]
        gets = [data for data in clear if data.startswith(b"GET /s")]
        right(len(gets) == 1, f"SYNs to port 80: {[data[:20] for data in clear]}")
        said += f"; by plain HTTP a GET of {len(gets[0])} B"
    return said


def bulk(world, quick, ways):
    """Large files each way, whole."""
    size, said = (5_000_000 if quick else 100_000_000), []
    name, target = world.path("bulk.bin"), world.path("bulk.got")
    with open(name, "wb") as file:
        for seed in range(size // 1_000_000):
            file.write(random.Random(seed).randbytes(1_000_000))
    digest, small = file_hash(name), world.path("medium" if quick else "large")
    for words, side, asap in ways:
        if asap:
            world.wait_for_udp()
        with Client(world, asap) as client:
            if side == "ours":
                for number in range(2):
                    with world.client.entered():
                        right(Visit(client, side, f"bulk{number}", list(OBJECTS)[:1]).ok, "a visit failed")
            # nginx slows an upload by HTTP/2 down, so the large one is by HTTP/1.1.
            down = transfer(client, side, f"/s{client.number}/bulk/bulk.bin", digest, "-o", target)
            up, up2 = (
                transfer(client, side, f"/put/{side}{client.number}", hashed, "-T", upload, "-H", "Expect:", protocol)
                for protocol, upload, hashed in (("--http1.1", name, digest), ("--http2", small, file_hash(small)))
            )
            way = f", by {client.contacts()[-1]['way']}" if side == "ours" else ""
        said.append(f"{words} {down:.1f} MB/s down, {up:.1f} up{way}, {up2:.1f} up by HTTP/2")
    os.unlink(name)
    return f"{size // 1_000_000} MB: {'; '.join(said)}"


def transfer(client, side, path, digest, *options):
    """Its rate, MB/s; the file is the same at the other end."""
    shown = ("-w", " %{http_code} %{speed_upload} %{speed_download}")
    status, up, down = curl(client, side, path, *options, *shown).stdout.split()[-3:]
    right(status in ("200", "201", "204"), f"{path}: status {status}")
    got = client.world.path(f"put{path}") if "-T" in options else options[options.index("-o") + 1]
    right(file_hash(got) == digest, f"{path}: another file")
    os.unlink(got)
    return max(float(up), float(down)) / 1e6


def file_hash(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def half_close(world, quick):
    """The end of one direction passes, and the other goes on: the server answers behind it."""
    content = random.Random(3).randbytes(1_000_000)
    expected = f"{len(content)} {hashlib.sha256(content).hexdigest()}\n".encode()
    with backend(world), Client(world, False) as client:
        for number in range(2):
            with tunnel(client, RAW_PORT) as made:
                made.sendall(content)
                made.shutdown(socket.SHUT_WR)
                got = b""
                while data := made.recv(4096):
                    got += data
            right(got == expected, f"connection {number + 1}: {got!r}")
    return "1 MB, FIN, and then the answer, in both of two connections"


def websocket(world, quick):
    """A WebSocket that is idle, and then still works."""
    idle = 3 if quick else 45
    context = ssl.create_default_context(cafile=world.files.ca)
    with backend(world), Client(world, False) as client:
        with Client(world, False) as other, world.client.entered():
            right(Visit(other, "ours", "ws", list(OBJECTS)[:1]).ok, "a visit failed")
        with tunnel(client, PORT) as plain, context.wrap_socket(plain, server_hostname=NAME) as made:
            key = base64.b64encode(random.Random(5).randbytes(16)).decode()
            made.sendall(
                f"GET /extra/ws HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
            )
            with made.makefile("rb") as file:
                head = iter(file.readline, b"\r\n")
                status = next(head)
                right(b" 101 " in status, status)
                list(head)
                for text in (b"before", b"after"):
                    mask = b"mask"
                    made.sendall(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[n % 4] for n, b in enumerate(text)))
                    right(read_frame(file) == (1, text), f"no echo of {text}")
                    if text == b"before":
                        time.sleep(idle)
    return f"101, an echo, {idle} s of nothing, and an echo"


def streams(world, quick):
    """Many requests of one HTTP/2 connection go on beside a POST that the server does not read. curl makes 100 streams of
    one connection at most."""
    size = 3_000_000
    with backend(world) as server, Client(world, False) as client:
        post = world.path("post.bin")
        with open(post, "wb") as file:
            file.write(bytes(size))
        where, base = client.where("ours")
        shown = ("-w", "%{method} %{http_version} %{http_code} %{num_connects} %{size_download}\\n")
        command = ["curl", "-sS", "-m", 120, "--http2", "--cacert", world.files.ca, *where, "--parallel", "--parallel-max", 100,
                   "--data-binary", f"@{post}", "-H", "Expect:", "-o", world.path("held"), *shown, f"{base}/extra/hold"]  # fmt: skip
        for number in range(GETS):
            command += ["--next", "-sS", "-m", 120, "--http2", "--cacert", world.files.ca, *where, "-o", "/dev/null", *shown]
            command.append(f"{base}/s{client.number}/get{number}/style.css")
        since = world.logged()
        # curl prints at its end, so nginx's log says when the GETs were answered.
        with Process(command, ns=world.client) as process:
            server.wait_until(lambda: "held" in server.text(), "a POST", 110)
            ran = len(world.served(GETS, since))
            right(ran == GETS, f"{ran} of {GETS} GETs were answered beside a POST")
            right(process.popen.poll() is None, process.text()[-500:])
            server.popen.stdin.write("\n")
            server.popen.stdin.flush()
            right(process.wait(120) == 0, process.text()[-500:])
            lines = process.text("out").splitlines()
        right(sum(line.startswith("GET 2 200") for line in lines) == GETS, f"{lines[:5]}")
        connects = sum(int(line.split()[3]) for line in lines)
        right(connects == 1, f"{connects} connections")
        with open(world.path("held")) as file:
            right(file.read() == f"{size}\n", "the POST's body is not whole")
        right(len(world.served(0, since)) == GETS, "a GET ran twice")
    return f"{GETS} GETs of one connection were answered while a POST of {size // 1000} KB waited; then it was whole"


def failures(world, quick):
    """A name without an address, and a closed port."""
    said = []
    with Client(world, False) as client:
        for words, url, way, direct in (
            ("no such name", "https://nowhere.example.com/", "502", 6),
            ("a closed port", f"https://{NAME}:{CLOSED_PORT}/", "502", 7),
        ):
            shown = ("-sS", "-m", 60, "-o", "/dev/null", "-w", "%{http_connect}")
            ours = run("curl", *shown, "-x", f"http://127.0.0.1:{client.port}", url, ns=world.client, check=False, timeout=90)
            right((ours.returncode, ours.stdout) == (56, way), f"{words}: {ours.returncode} {ours.stdout} {ours.stderr}")
            socks = run("curl", *shown, "-x", f"socks5h://127.0.0.1:{client.port}", url, ns=world.client, check=False, timeout=90)
            code = re.search(r"\((\d+)\)\s*$", socks.stderr.strip().rstrip("."))
            right(socks.returncode == 97 and code, f"{words}: {socks.returncode} {socks.stderr}")
            resolve = ("--noproxy", "*", "--resolve", f"{NAME}:{CLOSED_PORT}:{client.address}")
            plain = run("curl", *shown, *resolve, url, ns=world.client, check=False, timeout=90)
            right(plain.returncode == direct, f"{words}, plain: {plain.returncode} {plain.stderr}")
            said.append(f"{words}: {way} and curl's {ours.returncode}, by SOCKS {code[1]}, plain curl's {plain.returncode}")
    return "; ".join(said)


PLAIN, FAST_OPEN, UDP = ("plain", "plain", False), ("Fast Open", "ours", False), ("UDP", "ours", True)
CHECKS = (
    Check("first packets by Fast Open, captured", lambda world, _: first_packets(world, False), ("tcpdump",)),
    Check("first packets in UDP, captured", lambda world, _: first_packets(world, True), ("tcpdump",), udp=True),
    Check("HTTP/2, 100 streams, one of them a held POST", streams),
    Check("half-close", half_close),
    Check("WebSocket, idle", websocket),
    Check("failures", failures),
    Check("large files each way", lambda world, quick: bulk(world, quick, (PLAIN, FAST_OPEN))),
    Check("large files each way in UDP", lambda world, quick: bulk(world, quick, (PLAIN, UDP)), quick=False, udp=True),
)
