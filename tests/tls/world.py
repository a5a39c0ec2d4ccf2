"""Two hosts with a wire of a known round-trip time, their servers, and a client that makes visits."""

import json
import os
import subprocess
import time

import nginx
import packets
from name_server import answering
from net import Pair
from process import Process, run
from rows import NGINX, PORT, WAYS
from wire import DEVICE, Wire, command

PAIR, NEAR, FAR = Pair(96), Pair(97), Pair(98)
NAME, LABELS = "www.example.com", b"\3www\7example\3com\0"
#: Seconds until what was on the wire is in the capture.
SETTLE = 0.05


class End(Process):
    """`firstflight-lab tls-end serve` or `visit`. It is ready when the `with` block begins, and ends when it closes."""

    def __init__(self, ns, *arguments):
        super().__init__([command(), "tls-end", *arguments], ns=ns, stdin=subprocess.PIPE)

    def __enter__(self):
        self.wait_until(lambda: "ready" in self.text("out"), "`ready`", 30)
        return self

    def __exit__(self, *failure):
        self.popen.stdin.close()
        super().__exit__(*failure)
        if "panicked at" in self.text():
            raise AssertionError(f"{self.command[2]} panicked: {self.text('err')[-2000:]}")


class World:
    """Everything that a visit needs."""

    name, server = NAME, PAIR.peer[4]

    def __init__(self, context, rtt_ms, chain):
        self.rtt = rtt_ms
        self.near, self.far = context.namespace("tls-near"), context.namespace("tls-far")
        context.start(Wire(self.near, self.far, PAIR, "--rtt", f"{rtt_ms}ms", prefix=("chrt", "-f", "10")))
        for ns, there in ((self.near, FAR), (self.far, NEAR)):
            ns.forward()
            ns.ip("route", "add", there.net[4], "dev", DEVICE)
        self.files = context.root()
        self.told = run(command(), "tls-end", "files", self.files, "--chain", chain).stdout.strip()
        files, resolver = ("--files", self.files), f"{PAIR.host[4]}:53"
        context.start(End(self.far, "serve", *files, "--ip", self.server, "--tun-host", FAR.host[4], "--tun-ip",
                          FAR.peer[4]))  # fmt: skip
        self.nginx(context)
        names = {(LABELS, 1): bytes(map(int, self.server.split(".")))}
        context.enter_context(answering(self.near, PAIR.host[4], names))
        ends = ("--server", self.server, "--tun-server", FAR.peer[4], "--tun-host", NEAR.host[4], "--tun-ip", NEAR.peer[4])
        self.client = context.start(End(self.near, "visit", *files, *ends, "--dns", resolver))
        self.capture = context.enter_context(packets.Capture(self.near))
        self.asked = 0
        for way in WAYS:
            # What the processes do for the first time takes longer.
            self.ask({"way": way, "path": "/warm-up"})

    def nginx(self, context):
        at = f"{self.server}:{NGINX}"
        chain, key = (os.path.join(self.files, name) for name in ("chain.pem", "key.pem"))
        server = (
            f"listen {at} ssl fastopen=256; ssl_protocols TLSv1.3; ssl_early_data on;\n"
            f"ssl_certificate {chain}; ssl_certificate_key {key};"
        )
        # Every path is the same file.
        root = context.root(file=1000)
        nginx.start(context, self.far, root, at, f"{server} try_files /file =404;", "access_log off;")

    def ask(self, visit):
        """Makes a visit, and returns what the client says about it."""
        self.client.popen.stdin.write(json.dumps(visit) + "\n")
        self.client.popen.stdin.flush()
        self.asked += 1
        return self.client.wait_records(self.asked, f"answer to {visit}", timeout=60)[-1]

    def segments(self, began, ended):
        """The segments of this time, other than those to the verifier."""
        time.sleep(SETTLE)
        for at, left, packet in list(self.capture.packets):
            if began <= at <= ended and (found := packets.segment(left, packet)) and found.server in (*range(PORT, PORT + 4), NGINX):
                yield at, found

    def opened(self, began, ended):
        """When the first SYN left."""
        return next(at for at, found in self.segments(began, ended) if found.is_opening)

    def first_flights(self, began, ended):
        """For each connection that began in this time: bytes in its SYN, and bytes behind it that left before anything came
        back; and the number of all SYNs."""
        flights, answered, syns = {}, set(), 0
        for _, found in self.segments(began, ended):
            key = found.connection
            if found.is_opening:
                syns += 1
                flights.setdefault(key, [found.data, 0])
            elif key in flights and not found.left:
                answered.add(key)
            elif key in flights and key not in answered:
                flights[key][1] += found.data
        return list(flights.values()), syns
