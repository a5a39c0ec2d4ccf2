#!/usr/bin/env python3
"""Counts the instructions that a gateway's process executes for one request of a file of 300 bytes, by callgrind.

    tests/gateway/instructions.py --bin BINARY

Needs valgrind. The kernel's work is not counted. BINARY should be optimised: `cargo build --profile ci -p firstflight-cli`.
"""

import argparse
import os
import re
import socket
import subprocess
import tempfile
import time

#: Requests before the count begins, and those that are counted.
BEFORE, COUNTED = 50, 400
SIZE = 300
FILE = """
[gateway]
threads = 1
log = "off"
[[listener]]
name = "web"
address = ["127.0.0.1:{port}"]
udp_port = 0
mode = "http"
service = "site"
[[service]]
name = "site"
root = "{root}"
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def ask(client, keeps):
    """One request, and its answer to the end."""
    close = b"" if keeps else b"Connection: close\r\n"
    client.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\n" + close + b"\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer or len(answer) < answer.index(b"\r\n\r\n") + 4 + SIZE:
        answer += client.recv(65536)
    while not keeps and client.recv(65536):
        pass


def counted(binary, root, keeps):
    at = ("127.0.0.1", free_port())
    path, out = os.path.join(root, "gateway.toml"), os.path.join(root, "out")
    with open(path, "w", encoding="utf-8") as file:
        file.write(FILE.format(port=at[1], root=root))
    valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
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
    options = parser.parse_args()
    for keeps, what in ((True, "on a kept connection"), (False, "on a connection of its own")):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "file"), "wb") as file:
                file.write(b"x" * SIZE)
            print(f"{counted(options.bin, root, keeps):,} instructions for a request {what}", flush=True)


if __name__ == "__main__":
    main()
