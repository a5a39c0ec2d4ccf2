"""The Linux kernel's TCP as the peer: Fast Open sockets, TCP_INFO, counters, cookies."""

import collections
import os
import re
import socket
import struct
import sys
import time

from net import AF
from process import Process, run

TCP_FASTOPEN = 23
TCP_FASTOPEN_CONNECT = 30
TCP_INFO = 11
MSG_FASTOPEN = 0x20000000
TCPI_OPT_SYN_DATA = 32

#: The two ways in which a kernel client uses Fast Open.
MODES = ("sendto", "connect-option")

Info = collections.namedtuple("Info", "syn_data client_fail")
Reply = collections.namedtuple("Reply", "status body info")


def tcp_info(sock):
    raw = sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 104)
    return Info(bool(raw[5] & TCPI_OPT_SYN_DATA), raw[7] >> 1 & 3)


def counters(ns):
    """The TCPFastOpen… counters of the namespace, without that prefix in their names."""
    with ns.entered(), open("/proc/thread-self/net/netstat") as file:
        lines = [line.split() for line in file]
    for names, values in zip(lines[::2], lines[1::2]):
        if names[0] == "TcpExt:":
            prefix = "TCPFastOpen"
            return collections.Counter(
                {n[len(prefix):]: int(v) for n, v in zip(names, values) if n.startswith(prefix)}
            )
    raise AssertionError("no TcpExt line in netstat")


class Counted:
    """How much the Fast Open counters grew inside the `with` block: `grew["Active"]`."""

    def __init__(self, ns):
        self.ns = ns

    def __enter__(self):
        self._before = counters(self.ns)
        return self

    def __exit__(self, *_):
        self._after = counters(self.ns)

    def __getitem__(self, name):
        if name not in self._after:
            raise KeyError(name)
        return self._after[name] - self._before[name]


def client_socket(ns, family, timeout=20):
    with ns.entered():
        sock = socket.socket(AF[family], socket.SOCK_STREAM)
    # Use a blocking socket with the kernel's own time limits. A Python timeout makes the socket non-blocking, and
    # then sendto(MSG_FASTOPEN) without a cookie returns EINPROGRESS and sends nothing.
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", timeout, 0))
    return sock


def send_first(sock, mode, address, port, data):
    """Opens the connection with `data` as the first flight."""
    if mode == "sendto":
        sent = sock.sendto(data, MSG_FASTOPEN, (address, port))
    else:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
        sock.connect((address, port))
        sent = sock.send(data)
    if sent < len(data):
        sock.sendall(data[sent:])


def read_reply(sock):
    """Reads one HTTP response with a Content-Length. Returns it with the final TCP_INFO of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        block = sock.recv(65536)
        if not block:
            raise AssertionError(f"the connection ended inside the head: {data[:200]!r}")
        data += block
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"(?im)^content-length: *(\d+)", head)
    if not found:
        raise AssertionError(f"no Content-Length: {head!r}")
    parts = [body]
    left = int(found[1]) - len(body)
    while left > 0:
        block = sock.recv(min(left, 1 << 20))
        if not block:
            raise AssertionError(f"the body is short by {left} bytes")
        parts.append(block)
        left -= len(block)
    return Reply(int(head.split()[1]), b"".join(parts), tcp_info(sock))


def request(address, path):
    host = f"[{address}]" if ":" in address else address
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def fetch(ns, mode, address, port, path):
    """Fetches a path with a kernel client that uses Fast Open."""
    with client_socket(ns, 6 if ":" in address else 4) as sock:
        send_first(sock, mode, address, port, request(address, path))
        return read_reply(sock)


def set_key(ns, key):
    """Sets the namespace's server key. Listeners use it from the next SYN on."""
    ns.sysctl("net.ipv4.tcp_fastopen_key", key)


def flush_cookies(ns):
    run("ip", "-n", ns.name, "tcp_metrics", "flush", check=False)


def cached_cookie(ns, address):
    """The cookie (hexadecimal) that the kernel's client has for a server, or None."""
    family = "-6" if ":" in address else "-4"
    shown = run("ip", family, "-n", ns.name, "tcp_metrics", "show").stdout
    for line in shown.splitlines():
        if line.split()[:1] == [address] and (found := re.search(r"fo_cookie ([0-9a-f]+)", line)):
            return found[1]
    return None


def traffic(ns, device):
    """Octets that the device has carried, in both directions together."""
    with ns.entered(), open("/proc/thread-self/net/dev") as file:
        for line in file:
            name, _, values = line.partition(":")
            if name.strip() == device:
                return int(values.split()[0]) + int(values.split()[8])
    return 0


def wait_for_traffic(ns, device, octets, since=None, timeout=30):
    """Waits until the device has carried this many octets more than now, or than `since`."""
    deadline = time.monotonic() + timeout
    start = traffic(ns, device) if since is None else since
    while (carried := traffic(ns, device) - start) < octets:
        if time.monotonic() > deadline:
            raise AssertionError(f"{device} carried {carried} octets in {timeout} s")
        time.sleep(0.02)


class KernelServer(Process):
    """The HTTP server of kernel_server.py in a namespace, on all addresses of one family."""

    def __init__(self, ns, family, port, root):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel_server.py")
        wildcard = "0.0.0.0" if family == 4 else "::"
        super().__init__(
            [sys.executable, script, "--address", wildcard, "--port", port, "--root", root], ns=ns
        )

    def __enter__(self):
        self.events("listening", 1)
        return self

    def events(self, event, count):
        """Waits for the first `count` events of a kind, and returns them."""
        return self.wait_records(count, f"{count} × {event}", lambda r: r.get("event") == event)
