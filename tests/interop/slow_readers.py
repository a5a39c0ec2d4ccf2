#!/usr/bin/env python3
"""Measures what clients cost a server that request a file and never read.

    tests/interop/slow_readers.py [--bin PATH] [--clients N ...] [--file BYTES] [--watch SECONDS] [-- OPTION ...]

Each client is a socket of the Linux kernel with the smallest receive buffer, in a separate namespace. It sends one
GET and reads nothing. All clients have the same address. Prints for each N the number of remaining connections, and
the server's resident memory before, when it has settled, and after `--watch` seconds. Options after `--` are those of
serve_config.py. Needs root.
"""

import argparse
import os
import resource
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import firstflight  # noqa: E402
from net import Pair  # noqa: E402
from testbed import Testbed  # noqa: E402

PAIR = Pair(77)


def resident(pid):
    """Resident memory of a process, bytes."""
    with open(f"/proc/{pid}/status") as file:
        (line,) = [line for line in file if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def slow_readers(ns, count, path="/file", address=PAIR.peer[4], port=firstflight.PORT):
    """Opens `count` sockets that send a request and do not read."""
    request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    sockets = []
    with ns.entered():
        for _ in range(count):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            sock.settimeout(30)
            try:
                sock.connect((address, port))
                sock.sendall(request)
            except ConnectionError:
                # The server's limit is reached.
                sock.close()
                continue
            sock.setblocking(False)
            sockets.append(sock)
    return sockets


#: TCP states of /proc/net/tcp in which the client still has its connection.
OPEN = ("01", "04", "05", "08")


def alive(ns, port=firstflight.PORT):
    """How many connections to the server still exist in the clients' kernel."""
    with ns.entered(), open("/proc/thread-self/net/tcp") as file:
        rows = [line.split() for line in file][1:]
    return sum(row[2].endswith(f":{port:04X}") and row[3] in OPEN for row in rows)


def settled(pid, seconds=2.0, most=60.0):
    """Waits until the resident memory has not grown by more than 1 % for a while, and returns it."""
    until, last = time.monotonic() + most, 0
    while time.monotonic() < until:
        now = resident(pid)
        if now <= last * 1.01:
            return now
        last = now
        time.sleep(seconds)
    return last


def measure(count, size, watch, options):
    with Testbed() as t:
        root = t.root(file=size)
        ns = t.namespace("slow")
        serve = t.serve(ns, PAIR, root, *options)
        pid = serve.popen.pid
        before = resident(pid)
        began = time.monotonic()
        held = slow_readers(ns, count)
        after = settled(pid)
        left = alive(ns)
        took = time.monotonic() - began
        print(
            f"{count:7} clients {left:7} left {before / 1e6:9.1f} MB before {after / 1e6:9.1f} MB after {took:5.1f} s"
            f" {(after - before) / max(left, 1) / 1e3:9.1f} kB for each", end="", flush=True,
        )  # fmt: skip
        if watch:
            time.sleep(watch)
            print(f" {alive(ns):7} left {resident(pid) / 1e6:9.1f} MB {watch} s later", end="")
        print()
        del held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", default=firstflight.default_binary(), metavar="PATH", help="the command")
    parser.add_argument("--clients", type=int, nargs="+", default=[2000], metavar="N", help="how many")
    parser.add_argument("--file", type=int, default=200_000, metavar="BYTES", help="length of the file")
    parser.add_argument("--watch", type=int, default=0, metavar="SECONDS", help="measure again after this time")
    parser.add_argument("options", nargs="*", help="of the server")
    arguments = parser.parse_args()
    firstflight.BINARY = os.path.abspath(arguments.bin)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for count in arguments.clients:
        measure(count, arguments.file, arguments.watch, arguments.options)


if __name__ == "__main__":
    main()
