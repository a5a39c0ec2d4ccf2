"""One transfer at a time, each over its own wire, in two namespaces that stay."""

import contextlib
import hashlib
import json
import os
import subprocess

from firstflight import PORT, Get, Serve
from net import Namespace, Pair, url
from process import Process, run
from wire import Wire

#: Sender → receiver. The data goes from the right namespace to the left one. The last direction is the reference.
DIRECTIONS = ("ours→kernel", "kernel→ours", "kernel→kernel")

#: The networks of a lane: its wire, the device of our client, the device of our server. A transfer's numbers are
#: not reused soon, so that the rest of the last transfer cannot reach this one.
FIRST, LAST = 20, 230

NGINX = """
daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{ }}
http {{
  access_log off; sendfile on; tcp_nopush on; client_body_temp_path body; proxy_temp_path proxy;
  fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{ listen 80; root {root}; }}
}}
"""


class Lane(contextlib.ExitStack):
    """Two namespaces with the kernel's server in the right one."""

    def __init__(self, number, root, realtime, captures=None):
        super().__init__()
        self.number, self.root, self.realtime, self.captures = number, root, realtime, captures
        self.network = FIRST

    def __enter__(self):
        with contextlib.ExitStack() as begun:
            begin = begun.enter_context
            self.left, self.right = (begin(Namespace(f"{side}{self.number}")) for side in ("left", "right"))
            for ns in (self.left, self.right):
                ns.forward()
                # IPv6 would send its own packets on each new wire, and change which packets the wire damages.
                ns.sysctl("net.ipv6.conf.default.disable_ipv6", 1)
                # What one transfer learns about the path must not affect the next one.
                ns.sysctl("net.ipv4.tcp_no_metrics_save", 1)
            begin(self._nginx())
            # Nothing failed, so everything stays until the lane ends.
            self.push(begun.pop_all())
        return self

    def _nginx(self):
        config = os.path.join(self.root, f"nginx-{self.number}.conf")
        with open(config, "w") as file:
            file.write(NGINX.format(root=self.root))
        prefix = os.path.join(self.root, f"nginx-{self.number}")
        os.makedirs(prefix, exist_ok=True)
        return Process(["nginx", "-p", prefix, "-e", "stderr", "-c", config], ns=self.right)

    def transfer(self, scenario, direction, name, seed, limit):
        """Transfers the file. Returns the seconds from the client's first step to the last byte, and whether the
        file is equal."""
        numbers = range(self.network, self.network + 3)
        self.network = self.network + 3 if self.network + 6 <= LAST else FIRST
        pairs = Networks(*map(Pair, numbers))
        got = os.path.join(self.root, f"got-{self.number}")
        with contextlib.suppress(FileNotFoundError):
            os.remove(got)
        with contextlib.ExitStack() as stack:
            prefix = ("chrt", "-f", "10") if self.realtime else ()
            options = scenario.options(seed)
            line = Line(self.left, self.right, pairs, options, prefix)
            # Register its end first, so that a failed start leaves nothing behind.
            stack.push(line)
            line.__enter__()
            if self.captures:
                label = f"{scenario.name}-{name}-{direction.replace('→', '-')}-{seed}"
                stack.enter_context(self._captured(label))
            function = {
                "ours→kernel": self._from_serve,
                "kernel→ours": self._by_get,
                "kernel→kernel": self._by_kernel,
            }[direction]
            seconds = function(stack, pairs, name, got, scenario.mtu, limit)
        return seconds, digest(got) == digest(os.path.join(self.root, name))

    def _by_kernel(self, _stack, pairs, name, got, _mtu, limit):
        return self._curl(url(pairs.wire.peer[4], 80, f"/{name}"), got, limit)

    def _from_serve(self, stack, pairs, name, got, mtu, limit):
        options = ("--mtu", mtu, "--no-fast-open")
        stack.enter_context(Serve(self.right, pairs.serve, self.root, *options, families=(4,)))
        return self._curl(url(pairs.serve.peer[4], PORT, f"/{name}"), got, limit)

    def _curl(self, target, got, limit):
        done = run(
            "curl", "-gsS", "--fail", "-m", limit, "-o", got, "-w", "%{json}", target, ns=self.left,
            timeout=limit + 10,
        )  # fmt: skip
        return json.loads(done.stdout)["time_total"]

    def _by_get(self, stack, pairs, name, got, mtu, limit):
        target = url(pairs.wire.peer[4], 80, f"/{name}")
        options = ("-o", got, "--mtu", mtu, "--no-fast-open", "--timeout", limit)
        client = stack.enter_context(Get(self.left, pairs.get, target, *options, families=(4,)))
        status = client.finish(limit + 10)
        (record,) = client.fetches()
        if status != 0:
            raise AssertionError(f"get ended with {status}: {record['error']}")
        # Without the start of the command, as with curl.
        return (record["total_ms"] - record["waited_ms"]) / 1000

    def _captured(self, label):
        stack = contextlib.ExitStack()
        for side, ns in (("left", self.left), ("right", self.right)):
            path = os.path.join(self.captures, f"{label}-{side}.pcap")
            command = ["tcpdump", "-i", "wire0", "-s", "120", "--immediate-mode", "-U", "-w", path, "-Z", "root"]
            dump = stack.enter_context(Process(command, ns=ns))
            dump.wait_until(lambda dump=dump: "listening on" in dump.text(), "tcpdump to listen")
        return stack


class Networks:
    """The numbers of one transfer's networks."""

    def __init__(self, wire, get, serve):
        self.wire, self.get, self.serve = wire, get, serve


class Line(Wire):
    """A wire with a route to each engine behind it. Only IPv4, because IPv6 does not permit an MTU of 576.

    The routes set the kernel's congestion control, because a namespace may not choose one that the machine
    restricts.
    """

    def __init__(self, left, right, pairs, options, prefix):
        self.pairs = pairs
        super().__init__(left, right, pairs.wire, *options, prefix=prefix)

    def __enter__(self):
        self.wait_until(lambda: self.text("out").startswith("ready "), "a `ready` line")
        (left, host), (right, peer) = self.ends
        for ns, addresses, beyond in ((left, host, self.pairs.serve), (right, peer, self.pairs.get)):
            commands = (
                f"link set {self.device} up\n"
                f"addr add {Pair.cidr(addresses[4])} dev {self.device} noprefixroute\n"
                f"route add {self.pairs.wire.net[4]} dev {self.device} congctl cubic\n"
                f"route add {beyond.net[4]} dev {self.device} congctl cubic\n"
            )
            subprocess.run(
                ["ip", "-n", ns.name, "-batch", "-"], input=commands, text=True, check=True, timeout=30
            )
        return self


def digest(path):
    """SHA-256 of a file; None if the file does not exist."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
