"""Network namespaces and the cables between them."""

import atexit
import contextlib
import ctypes
import os
import re
import socket
import tempfile

from process import run

CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIVING = {}

FAMILIES = (4, 6)
AF = {4: socket.AF_INET, 6: socket.AF_INET6}


class Pair:
    """The two ends of one link, in both families: `host` is the kernel's end, `peer` the other end."""

    def __init__(self, number):
        self.number = number
        self.host = {4: f"10.{number}.0.1", 6: f"fd00:{number}::1"}
        self.peer = {4: f"10.{number}.0.2", 6: f"fd00:{number}::2"}
        self.net = {4: f"10.{number}.0.0/24", 6: f"fd00:{number}::/64"}

    @staticmethod
    def cidr(address):
        return address + ("/64" if ":" in address else "/24")


def url(address, port, path="/"):
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"


class Namespace:
    """A network namespace that exists during its `with` block.

    Its name contains the pid of the process that runs the test, so tests of two processes do not share a namespace.
    """

    def __init__(self, label):
        self.name = f"ffinterop-{os.getpid()}-{label}"

    def __enter__(self):
        run("ip", "netns", "add", self.name)
        _LIVING[self.name] = self
        self.ip("link", "set", "lo", "up")
        self.sysctl("net.ipv4.tcp_fastopen", 3)
        # One lost packet must not disable Fast Open in the kernel's client for later tests.
        self.sysctl("net.ipv4.tcp_fastopen_blackhole_timeout_sec", 0)
        # No stray packets: they would wake an engine whose timers should not.
        self.sysctl("net.ipv6.conf.default.router_solicitations", 0)
        self.sysctl("net.ipv6.conf.default.accept_dad", 0)
        self.sysctl("net.ipv6.conf.all.accept_dad", 0)
        return self

    def __exit__(self, *_):
        if _LIVING.pop(self.name, None) is not None:
            run("ip", "netns", "del", self.name, check=False)

    def ip(self, *arguments):
        return run("ip", "-n", self.name, *arguments).stdout

    def has(self, device):
        return run("ip", "-n", self.name, "link", "show", device, check=False).returncode == 0

    @contextlib.contextmanager
    def entered(self):
        """The calling thread is in the namespace during the block. Sockets created there stay in it."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/var/run/netns/{self.name}", os.O_RDONLY)
        try:
            _setns(there)
            try:
                yield
            finally:
                _setns(home)
        finally:
            os.close(home)
            os.close(there)

    def sysctl(self, name, value):
        with self.entered(), open("/proc/sys/" + name.replace(".", "/"), "w") as file:
            file.write(f"{value}\n")

    def nft(self, rules, chain="only"):
        """An nftables chain, written as `type … hook … priority …; rule; rule …`."""
        hook, _, rules = rules.partition("; ")
        run("nft", f"table inet path {{ chain {chain} {{ {hook}; {rules}; }}; }}", ns=self)

    def nft_flush(self):
        run("nft", "flush", "ruleset", ns=self)

    def nft_matched(self, times=1):
        """Whether the counters of the rules have counted this many packets."""
        return sum(map(int, re.findall(r"counter packets (\d+)", self.nft_list()))) >= times

    def nft_list(self):
        return run("nft", "list", "ruleset", ns=self).stdout

    def forward(self):
        self.sysctl("net.ipv4.ip_forward", 1)
        self.sysctl("net.ipv6.conf.all.forwarding", 1)


def _setns(descriptor):
    if _LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def cable(left, right, pair, device="veth0"):
    """A veth cable: `left` has the pair's host addresses, `right` its peer addresses."""
    run(
        "ip", "link", "add", device, "netns", left.name, "type", "veth",
        "peer", "name", device, "netns", right.name,
    )  # fmt: skip
    try:
        for ns, ends in ((left, pair.host), (right, pair.peer)):
            ns.ip("link", "set", device, "up")
            ns.ip("addr", "add", Pair.cidr(ends[4]), "dev", device)
            ns.ip("addr", "add", Pair.cidr(ends[6]), "dev", device, "nodad")
        yield
    finally:
        run("ip", "-n", left.name, "link", "del", device, check=False)


@contextlib.contextmanager
def workdir():
    with tempfile.TemporaryDirectory(prefix="ffinterop-") as path:
        os.chmod(path, 0o755)
        yield path


@atexit.register
def delete_all():
    """Deletes the remaining namespaces of this run."""
    for ns in list(_LIVING.values()):
        ns.__exit__()
