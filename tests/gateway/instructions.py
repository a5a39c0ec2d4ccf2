#!/usr/bin/env python3
"""Counts the instructions that a gateway's process executes for one request of a file of 300 bytes, by callgrind.

    tests/gateway/instructions.py --bin BINARY
    sudo tests/gateway/instructions.py --bin BINARY --on tun     # or card: the engine on a device, in network namespaces

Needs valgrind. The kernel's work is not counted. BINARY should be optimised: `cargo build --release -p firstflight-cli`.
"""

import argparse
import contextlib
import ctypes
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

#: Requests before the count begins, and those that are counted.
BEFORE, COUNTED = 50, 400
SIZE = 300
#: `linux/sched.h`.
CLONE_NEWNET = 0x40000000
FILE = """
[gateway]
threads = 1
log = "off"
[[listener]]
name = "web"
mode = "http"
service = "site"
{place}
[[service]]
name = "site"
root = "{root}"
"""
#: Where the gateway is, and the rest of its listener.
PLACES = {
    "sockets": ("127.0.0.1", 'address = ["127.0.0.1:{port}"]\nudp_port = 0'),
    "tun": ("10.66.1.2", '[listener.tun]\ndevice = "ff0"\nhost = ["10.66.1.1/24"]\naddress = ["10.66.1.2"]\nport = {port}'),
    "card": ("10.66.0.2", '[listener.xdp]\ndevice = "veth0"\naddress = ["10.66.0.2"]\nallow = ["any"]\nport = {port}'),
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@contextlib.contextmanager
def namespaces():
    """Puts this process into a network namespace, and yields another one at the end of a cable."""
    near, far = (f"ff-instructions-{os.getpid()}-{end}" for end in ("near", "far"))
    try:
        for name in (near, far):
            subprocess.run(["ip", "netns", "add", name], check=True)
        cable = ["ip", "link", "add", "veth0", "netns", near, "type", "veth", "peer", "name", "veth0", "netns", far]
        subprocess.run(cable, check=True)
        for name, host in ((near, 1), (far, 2)):
            subprocess.run(["ip", "-n", name, "addr", "add", f"10.66.0.{host}/24", "dev", "veth0"], check=True)
            for device in ("veth0", "lo"):
                subprocess.run(["ip", "-n", name, "link", "set", device, "up"], check=True)
        with open(f"/var/run/netns/{near}") as file:
            if ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) != 0:
                sys.exit("cannot enter a network namespace")
        yield ["ip", "netns", "exec", far]
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "del", name], check=False)


def ask(client, keeps):
    """One request, and its answer to the end."""
    close = b"" if keeps else b"Connection: close\r\n"
    client.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\n" + close + b"\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer or len(answer) < answer.index(b"\r\n\r\n") + 4 + SIZE:
        answer += client.recv(65536)
    while not keeps and client.recv(65536):
        pass


def counted(binary, root, keeps, on, within):
    host, place = PLACES[on]
    at = (host, free_port())
    path, out = os.path.join(root, "gateway.toml"), os.path.join(root, "out")
    with open(path, "w", encoding="utf-8") as file:
        file.write(FILE.format(place=place.format(port=at[1]), root=root))
    valgrind = [*within, "valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    server = subprocess.Popen([*valgrind, binary, "gateway", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None:
            try:
                socket.create_connection(at).close()
                break
            except OSError:
                time.sleep(0.1)
        client = socket.create_connection(at)
        for number in range(BEFORE + COUNTED):
            if number == BEFORE:
                subprocess.run(["callgrind_control", "-i", "on", str(server.pid)], check=True, stdout=subprocess.DEVNULL)
            ask(client, keeps)
            if not keeps:
                client.close()
                client = socket.create_connection(at)
        subprocess.run(["callgrind_control", "-i", "off", str(server.pid)], check=True, stdout=subprocess.DEVNULL)
        client.close()
    finally:
        server.terminate()
        server.wait()
    with open(out, encoding="utf-8") as file:
        return max(map(int, re.findall(r"^(?:totals|summary): (\d+)", file.read(), re.MULTILINE))) // COUNTED


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the firstflight binary")
    parser.add_argument("--on", choices=PLACES, default="sockets", help="where it listens")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        far = [] if options.on == "sockets" else stack.enter_context(namespaces())
        # The device of TUN is the client's, too.
        report(options, far if options.on == "card" else [])


def report(options, within):
    for keeps, what in ((True, "on a kept connection"), (False, "on a connection of its own")):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "file"), "wb") as file:
                file.write(b"x" * SIZE)
            print(f"{counted(options.bin, root, keeps, options.on, within):,} instructions for a request {what}", flush=True)


if __name__ == "__main__":
    main()
