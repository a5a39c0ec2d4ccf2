#!/usr/bin/env python3
"""The pages of `firstflight-lab pages`, served by nginx and loaded by Chromium, with and without the kernel's Fast Open.

    tests/pages/run.py [--loads N] [-k PAGE] [--rtt MS …] [--page FILE] [--down KBIT] [--initial-window N] [--no-reuse] … [--write]

The pages are the same; the line is that of the model, emulated between two network namespaces: 4 Mbit/s down, 256 kbit/s
up, 128 KB buffers, or as the options say. Both kernels have the congestion control and the initial window of the options;
with --no-reuse the server ends each connection after one response.
Lookups go over the line, too. Each load is by a new browser with an empty profile, with and without Fast Open
in turn. The client's kernel has a valid cookie of every host. The table has the model's times beside the browser's, and by how
many percentage points the model's gain is higher. The model has Chromium's lengths of requests and of what is in front of a
response's body, and its own time before the first packet and behind the document's first byte, as measured. --write puts
the table into the docs, in the place for this window and reuse.

Needs root, a C compiler, nginx and chromium-headless-shell; run `cargo build --release -p firstflight-cli -p
firstflight-lab` first. It creates only network namespaces, /etc/netns/NAME for each, and processes, which end with it.
`./check` does not run it.
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "interop")]
sys.dont_write_bytecode = True

import experiment  # noqa: E402
import nginx  # noqa: E402
from browser import COMMAND, Browser  # noqa: E402
from name_server import answering  # noqa: E402
from net import Pair  # noqa: E402
from process import run  # noqa: E402
from site_files import Site  # noqa: E402
from testbed import Testbed  # noqa: E402
from wire import DEVICE, Wire, command  # noqa: E402

PAIR = Pair(93)
RTTS = 20, 100, 200
LOADS = 5
#: Settings of the line: name, default, unit.
LINE = ("down", 4000, "KBIT"), ("up", 256, "KBIT"), ("buffer", 128, "KB"), ("mtu", 1500, "BYTES"), ("loss", 0.0, "PERCENT")
WAYS = {False: "handshake", True: "Fast Open"}
#: Initial windows with tables in the docs.
WINDOWS = 3, 10
#: Percentage points within which the model's gain is to be the browser's.
NEAR = 3.0


class World:
    """Two namespaces with the line between them, servers and lookups behind it."""

    def __init__(self, context, sites, rtt, preload, options):
        self.preload, self.own = preload, []
        self.near, self.far = context.namespace(f"pages-near-{rtt}"), context.namespace(f"pages-far-{rtt}")
        for ns in (self.near, self.far):
            # No memory of windows and round-trip times from load to load. Cookies are remembered.
            ns.sysctl("net.ipv4.tcp_no_metrics_save", 1)
        rates = ("--rate-down", f"{options.down}k", "--rate-up", f"{options.up}k", "--queue", str(options.buffer * 1024))
        line = ("--rtt", f"{rtt}ms", *rates, "--loss", f"{options.loss}%", "--mtu", str(options.mtu))
        context.start(Wire(self.near, self.far, PAIR, *line, prefix=("chrt", "-f", "10")))
        for ns, address in ((self.near, PAIR.host[4]), (self.far, PAIR.peer[4])):
            route = ("dev", DEVICE, "proto", "kernel", "scope", "link", "src", address)
            ns.ip("route", "replace", f"10.{PAIR.number}.0.0/24", *route, "initcwnd", str(options.initial_window), "congctl", options.congestion)
        names, root = {}, context.root()
        for number in range(max(len(site.hosts) for site in sites)):
            address = f"10.{PAIR.number}.0.{100 + number}"
            self.far.ip("addr", "add", f"{address}/24", "dev", DEVICE)
            for site in sites:
                if number < len(site.hosts):
                    labels = b"".join(bytes([len(part)]) + part.encode() for part in site.hosts[number].split("."))
                    names[(labels + b"\0", 1)] = bytes(map(int, address.split(".")))
        for site in sites:
            site.write(root)
        context.enter_context(answering(self.far, PAIR.peer[4], names))
        context.enter_context(resolver(self.near, PAIR.peer[4]))
        self.log = os.path.join(root, "requests")
        # A browser applies only styles that are called so.
        types = "types { text/html html; text/css css; text/javascript js; image/gif gif; }"
        http = f"log_format one '$status $request_length $bytes_sent $body_bytes_sent'; access_log {self.log} one; {types}"
        # A browser with a window asks for an icon when the page has loaded.
        reuse = "keepalive_timeout 0;" if options.no_reuse else ""
        server = f"listen 80 fastopen=256; {reuse} location = /favicon.ico {{ access_log off; return 204; }}"
        nginx.start(context, self.far, root, "0.0.0.0:80", server, http, connections=1024)

    def load(self, site, fast_open):
        before = len(self.answers())
        with Browser(self.near, self.preload if fast_open else None) as browser:
            seconds, setup, commit = browser.load(site.url)
        answers = self.answers()[before:]
        if [status for status, *_ in answers] != [200] * len(site.resources):
            raise RuntimeError(f"{site.title}: {len(answers)} answers, {len(site.resources)} expected")
        self.own.append((setup, commit))
        return seconds

    def answers(self):
        """Each answer so far: its status, the bytes of the request, of the answer, and of its body. The browser does not
        report what styles of other hosts load."""
        with open(self.log) as file:
            return [tuple(map(int, line.split())) for line in file]

    def overhead(self):
        """What each load cost beside the page, as options of `firstflight-lab pages`: means of bytes and milliseconds."""
        _, requests, sent, bodies = (statistics.mean(column) for column in zip(*self.answers(), strict=True))
        setup, commit = (statistics.mean(column) * 1000 for column in zip(*self.own, strict=True))
        return {"request": requests, "fields": sent - bodies, "setup": setup, "commit": commit}

    def counted(self, ns, counter):
        names, values = (line.split()[1:] for line in run("cat", "/proc/net/netstat", ns=ns).stdout.splitlines()[:2])
        return int(values[names.index(counter)])


@contextlib.contextmanager
def resolver(ns, address):
    """Programs in `ns` ask this name server: `ip netns exec` puts the file in place of /etc/resolv.conf."""
    place = f"/etc/netns/{ns.name}"
    os.makedirs(place)
    try:
        with open(os.path.join(place, "resolv.conf"), "w") as file:
            file.write(f"nameserver {address}\n")
        yield
    finally:
        shutil.rmtree(place)
        with contextlib.suppress(OSError):
            os.rmdir("/etc/netns")


def progress(text):
    print(f"pages: {text}", file=sys.stderr, flush=True)


def measure(options, sites, preload):
    """The times of every page, round-trip time and way, and what a load costs beside the page."""
    times, overhead = {}, []
    for rtt in options.rtt:
        with Testbed() as context:
            world = World(context, sites, rtt, preload, options)
            for site in sites:
                # The first visit gets the cookies, and warms the machine's caches.
                world.load(site, True)
                for number in range(options.loads):
                    for fast_open in WAYS:
                        progress(f"{site.title}, {rtt} ms, {WAYS[fast_open]}, {number + 1} of {options.loads}")
                        before = world.counted(world.far, "TCPFastOpenPassive")
                        seconds = world.load(site, fast_open)
                        taken = world.counted(world.far, "TCPFastOpenPassive") - before
                        if (taken > 0) != fast_open:
                            raise RuntimeError(f"{site.title} by {WAYS[fast_open]}: the server took {taken} first flights")
                        times.setdefault((site.title, rtt, fast_open), []).append(seconds)
            overhead.append(world.overhead())
    return times, {name: round(statistics.mean(world[name] for world in overhead)) for name in overhead[0]}


def model(options, overhead):
    """What `firstflight-lab pages` says, with servers that do not think, and what the browser was seen to need."""
    arguments = ["--rtt", ",".join(map(str, options.rtt)), "--initial-window", str(options.initial_window)]
    for name in ("down", "up", "buffer", "mtu", "loss", "congestion"):
        value = str(getattr(options, name))
        arguments += [f"--{name}", "newreno" if value == "reno" else value]
    for name, value in overhead.items():
        arguments += [f"--{name}", str(value)]
    suffix = ", no reuse" if options.no_reuse else ""
    rows = {f"{way}{suffix}": fast_open for fast_open, way in WAYS.items()}
    for row in rows:
        arguments += ["--row", row]
    report = json.loads(run(command(), "pages", *page(options), "--json", "--full", "--think", "0", *arguments, timeout=600).stdout)
    return {
        (case["page"], case["rtt_ms"], rows[case["way"]]): case["seconds"]
        for case in report["cases"]
        if case["way"] in rows
    }


def page(options):
    """Arguments of `pages` for the file with the pages, if there is one."""
    return ("--page", options.page) if options.page else ()


def table(options, sites, measured, modelled, overhead):
    head = f"{'':<24}{'Chromium, Linux':>27}{'the model':>27}{'points':>9}"
    columns = f"{'plain':>9}{'TFO':>8}{'gain':>10}"
    out = [head, f"{'page':<18}{'RTT':>6}{columns}{columns}{'higher':>9}"]
    near = cells = 0
    for site in sites:
        for rtt in options.rtt:
            line, gains = f"{site.title:<18}{rtt:>6}", []
            for times in ({key: statistics.mean(loads) for key, loads in measured.items()}, modelled):
                plain, fast = times[site.title, rtt, False], times[site.title, rtt, True]
                gains.append((1 - fast / plain) * 100)
                line += f"{plain:>9.2f}{fast:>8.2f}{gains[-1]:>8.1f} %"
            higher = gains[1] - gains[0]
            cells, near = cells + 1, near + (abs(higher) <= NEAR)
            out.append(f"{line}{higher:>9.1f}")
    spread = max(statistics.pstdev(loads) / statistics.mean(loads) for loads in measured.values())
    out.append(f"the model's gain is within {NEAR:.0f} points in {near} of {cells} rows")
    out.append(f"seconds, means of {options.loads} loads; largest standard deviation of Chromium {spread * 100:.1f} %")
    measures = " ".join(f"--{name} {value}" for name, value in overhead.items())
    out.append(f"the model: means of 20 loads with `--think 0 {measures}`, as measured here")
    reuse = "one response a connection" if options.no_reuse else "connections are used again"
    out.append(f"{options.congestion} and an initial window of {options.initial_window} on both sides; {reuse}")
    return "\n".join(out)


def write(text, options):
    """Writes the table of these options, which docs/papers-pages.md names."""
    name = f"browser-{options.initial_window}{'-no-reuse' if options.no_reuse else ''}.txt"
    experiment.write_table(name, text)


def arguments():
    parser = experiment.parser(__doc__)
    parser.add_argument("--loads", type=int, default=LOADS, metavar="N", help=f"of each page in each way [{LOADS}]")
    parser.add_argument("-k", default="", metavar="PAGE", help="only pages with this in their name")
    parser.add_argument("--rtt", type=int, nargs="+", default=list(RTTS), metavar="MS", help="round-trip times, ms")
    parser.add_argument("--page", metavar="FILE", help="pages of this file, as of `firstflight-lab record`")
    for name, default, unit in LINE:
        parser.add_argument(f"--{name}", type=type(default), default=default, metavar=unit, help=f"of the line [{default}]")
    parser.add_argument("--congestion", default="cubic", choices=("cubic", "bbr", "reno"), help="of both kernels [cubic]")
    parser.add_argument("--initial-window", type=int, default=10, metavar="N", help="of both kernels, segments [10]")
    parser.add_argument("--no-reuse", action="store_true", help="one response for each connection")
    parser.add_argument("--json", metavar="FILE", help="write what was measured into this file")
    parser.add_argument("--write", action="store_true", help="write the table of docs/papers-pages.md, in docs/data")
    options = experiment.parse(parser)
    if options.loads < 1:
        parser.error("--loads: at least 1")
    if min(options.rtt) < 1 or not 1 <= options.initial_window <= 1000:
        parser.error("--rtt: at least 1; --initial-window: from 1 to 1000")
    usual = all(getattr(options, name) == default for name, default, _ in LINE) and options.congestion == "cubic"
    if options.write and not (usual and options.initial_window in WINDOWS and not options.page and not options.k and options.rtt == list(RTTS)):
        parser.error("--write is for the whole table")
    return options


def main():
    options = arguments()
    if reason := experiment.missing("ip", "chrt", "nginx", "cc", COMMAND):
        return experiment.refuse(reason)
    described = json.loads(run(command(), "pages", *page(options), "--describe").stdout)
    sites = [site for site in map(Site, described) if options.k in site.title]
    if not sites:
        print(f"tests/pages/run.py: no page with {options.k!r} in its name", file=sys.stderr)
        return 2
    began = time.monotonic()
    with Testbed() as context:
        preload = os.path.join(context.root(), "fastopen.so")
        compiler = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", preload]
        subprocess.run([*compiler, f"{HERE}/fastopen.c", "-ldl"], check=True)
        measured, overhead = measure(options, sites, preload)
    text = table(options, sites, measured, model(options, overhead), overhead)
    print(text)
    if options.json:
        rows = [
            {"page": page, "rtt_ms": rtt, "way": WAYS[way], "seconds": loads}
            for (page, rtt, way), loads in measured.items()
        ]
        experiment.write_json(options.json, {"overhead": overhead, "loads": rows})
    if options.write:
        write(text, options)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
