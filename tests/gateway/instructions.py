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

#: Requests of the two runs. The difference leaves the start and the end out.
FEW, MANY = 100, 600
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


def counted(binary, root, keeps, count):
    at = ("127.0.0.1", free_port())
    path = os.path.join(root, "gateway.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(FILE.format(port=at[1], root=root))
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={root}/out", binary, "gateway", path]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while server.poll() is None:
            try:
                socket.create_connection(at).close()
                break
            except OSError:
                time.sleep(0.1)
        client = socket.create_connection(at)
        for _ in range(count):
            ask(client, keeps)
            if not keeps:
                client.close()
                client = socket.create_connection(at)
        client.close()
    finally:
        server.terminate()
    said = server.communicate()[1]
    return int(re.search(r"Collected : (\d+)", said)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the firstflight binary")
    options = parser.parse_args()
    for keeps, what in ((True, "on a kept connection"), (False, "on a connection of its own")):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "file"), "wb") as file:
                file.write(b"x" * SIZE)
            few, many = (counted(options.bin, root, keeps, count) for count in (FEW, MANY))
        print(f"{(many - few) // (MANY - FEW):,} instructions for a request {what}")


if __name__ == "__main__":
    main()
