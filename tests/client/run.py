#!/usr/bin/env python3
"""`Client` and `Server` against plain connects, in network namespaces with an emulated wire.

    tests/client/run.py first [--captures DIR]    first contact and next visit by each way, 100 ms
    tests/client/run.py slower [--samples N] [--write] [-k PATTERN]    never slower: paths, round-trip times, loss
    tests/client/run.py --check                   both, quickly, without judging times

`first` shows the first byte in round trips, counted from when the addresses are known, with the lookup beside it, and
the request's bytes in the SYN as they were captured on the wire. `slower` visits servers ten times with an empty memory,
and by plain connects in turn. The first byte of the first, second and tenth visit may come later than a plain
connect's by the delay of the second attempt and 20 ms (99th percentile; with random loss the 90th). On paths that do
nothing to first flights, a visit opens one socket, and what must not run twice runs at most once on all of them.

Needs root, nftables and iproute2; run `cargo build --release -p firstflight-cli -p firstflight-lab` and `cargo build
--release -p firstflight --features asap --example visits` first. It creates only network namespaces and processes,
which end with it.
"""

import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "interop")]
sys.dont_write_bytecode = True

import experiment  # noqa: E402
import firstflight  # noqa: E402
import nginx  # noqa: E402
from firstflight import Command, at  # noqa: E402
from name_server import answering  # noqa: E402
from packets import Capture, segment  # noqa: E402
from paths import (  # noqa: E402
    ARRIVES,
    DEAD,
    MARGIN,
    PAIR,
    PORT,
    SYN_ARRIVES,
    UNKNOWN_RTT,
    Path,
    World,
    learns,
    percentile,
    race,
)
from process import Process, run  # noqa: E402
from testbed import Testbed  # noqa: E402

FIRST = "10.96.0.1"
CLOSED_PORT, VERIFIER_PORT = 8081, 4433
NAME, LABELS = "www.example.com", b"\3www\7example\3com\0"
PATHS = (
    Path("nothing"),
    Path("nothing, with certificates", asap=True),
    Path("SYNs with data are dropped", f"{SYN_ARRIVES} ip length > 80 drop", delay=learns),
    Path("option 34 is removed", f"{SYN_ARRIVES} reset tcp option fastopen"),
    Path("UDP is blocked, with certificates", f"{ARRIVES} udp dport {PORT} drop", asap=True,
         delay=lambda rtt: (UNKNOWN_RTT, race(rtt), 0)),
    Path("the server has no Fast Open", fast=1),
    # A refusal may be of the option, so an ordinary SYN follows it at the first visit.
    Path("the port is closed", port=CLOSED_PORT, delay=lambda rtt: (race(rtt), 0, 0)),
    Path("the first address is dead", dead=True, delay=lambda _: (0, 0, 0)),
)  # fmt: skip


def visits_binary():
    return experiment.beside("examples/visits")


# --- never slower ------------------------------------------------------------------------------------


class Cell:
    """The visits of one path, round-trip time and loss."""

    def __init__(self, path, rtt, loss, samples, at_once):
        self.path, self.rtt, self.loss, self.samples, self.at_once = path, rtt, loss, samples, at_once
        self.records, self.faults, self.extra, self.most = [], [], None, None

    def measure(self, label):
        path = self.path
        with Testbed() as context:
            world = World(context, label, self.rtt, self.loss, path.fast)
            verifier = at(PAIR.peer[4], VERIFIER_PORT)
            serve = Process([visits_binary(), "serve", "--listen", f"0.0.0.0:{PORT}", "--verifier", verifier],
                            ns=world.far)  # fmt: skip
            context.start(serve)
            serve.wait_until(lambda: serve.text("out").startswith("ready"), "a `ready` line")
            world.meddle(*path.rules)
            world.count_syns()
            common = [visits_binary(), "client", "--server", at(FIRST, path.port), "--at-once", self.at_once]
            common += ["--verifier", verifier] * path.asap + ["--dead", at(DEAD, path.port)] * path.dead
            self.records = self.run(world, [*common, "--samples", self.samples])
            self.extra = self.second_sockets(world.syns())
            if path.port == PORT:
                # What must not run twice, at a tenth of the samples.
                self.run(world, [*common, "--once", "--visits", 3, "--samples", max(1, self.samples // 10)])
                self.most = self.executions(world)
        self.judge()

    def run(self, world, command):
        client = Process(command, ns=world.client)
        with client:
            status = client.wait(600)
            if status != 0:
                raise AssertionError(f"exit status {status}: {client.text()[-2000:]}")
            return client.records()

    def executions(self, world):
        """The most executions of one request that must not run twice."""
        ask = Process(["curl", "-s", "--retry", 3, f"http://{FIRST}:{PORT}/executed"], ns=world.client)
        with ask:
            ask.wait(60)
            return json.loads(ask.text("out"))["most"]

    def visits(self, side, number=None):
        for record in self.records:
            yield from record[side] if number is None else record[side][number : number + 1]

    def second_sockets(self, syns):
        """The share of visits that opened a second socket on the kernel's TCP. SYNs that are sent again look alike, so
        it is known only where nothing is lost. A refusal is answered by a plain SYN, which is no race."""
        if self.loss or self.path.rules or self.path.dead or self.path.port != PORT:
            return None
        by_kernel = sum(visit.get("way") != "udp" for visit in self.visits("ours"))
        visits = by_kernel + sum(1 for _ in self.visits("plain"))
        return max(0, syns - visits) / max(1, by_kernel)

    def judge(self):
        closed = self.path.port != PORT
        for side in ("ours", "plain"):
            failed = [visit for visit in self.visits(side) if ("error" in visit) != closed]
            if failed:
                self.faults.append(f"{len(failed)} visits ({side}) went wrong: {failed[0]}")
        if self.most is not None and self.most > 1:
            self.faults.append(f"a request ran {self.most} times")

    def judge_times(self):
        share = 0.9 if self.loss else 0.99
        # What a busy machine adds to the round-trip time is a part of what clients measure.
        measured = [visit["rtt"] for visit in self.visits("ours", 0) if visit.get("rtt")]
        rtt = max(self.rtt, percentile(measured, share)) if measured else self.rtt
        delays = self.path.delay(rtt)
        if self.loss:
            # Any visit may need a second attempt.
            delays = tuple(max(delay, race(rtt)) for delay in delays)
        for number, delay in zip((0, 1, 9), delays, strict=True):
            ours, plain = (percentile([v["ms"] for v in self.visits(side, number)], share) for side in ("ours", "plain"))
            if ours > plain + delay + MARGIN:
                self.faults.append(
                    f"visit {number + 1}: {ours:.0f} ms, plain {plain:.0f} ms, allowed {delay + MARGIN:.0f} ms more"
                )
        if self.extra is not None and self.extra >= 0.01:
            self.faults.append(f"{self.extra:.1%} of the visits opened a second socket")

    def row(self):
        cells = [self.path.name, str(self.rtt), f"{self.loss} %"]
        for number in (0, 1, 9):
            for side in ("ours", "plain"):
                times = [visit["ms"] for visit in self.visits(side, number)]
                cells.append(f"{percentile(times, 0.5):.0f}, {percentile(times, 0.9 if self.loss else 0.99):.0f}")
        accepted = [sum(v.get("outcome") == "accepted" for v in self.visits("ours", n)) for n in (0, 1, 9)]
        cells.append(", ".join(f"{100 * count // max(1, len(self.records))}" for count in accepted))
        cells.append("" if self.extra is None else f"{self.extra:.1%}")
        return "| " + " | ".join(cells) + " |"


HEAD = (
    "| path | RTT, ms | loss | 1st visit, ms | plain | 2nd | plain | 10th | plain | accepted, % | second sockets |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def slower(options):
    cells = [
        Cell(path, rtt, loss, options.samples, options.at_once)
        for path in PATHS
        if options.k in path.name
        for rtt in ((20,) if options.check else (20, 100, 400))
        for loss in ((0,) if options.check else (0, 2))
    ]
    print(HEAD, flush=True)
    faults = []
    for number, cell in enumerate(cells):
        cell.measure(f"slower{number}")
        if not options.check:
            cell.judge_times()
        print(cell.row(), flush=True)
        for fault in cell.faults:
            faults.append(fault)
            print(f"NOT HELD: {cell.path.name}, {cell.rtt} ms, {cell.loss} %: {fault}", flush=True)
    print(f"{len(cells)} cells of {options.samples} samples, {len(faults)} faults")
    if options.write:
        experiment.write_table("never-slower.txt", "\n".join([HEAD, *(cell.row() for cell in cells)]))
    return bool(faults)


# --- first contact -----------------------------------------------------------------------------------


def request_in_syn(capture):
    """Bytes of the request in the last SYN that left: in TCP behind the header, in UDP from `GET` on."""
    for _, left, packet in reversed(capture.packets):
        found = segment(left, packet)
        if found and found.is_opening and found.server in (PORT, 80):
            if found.udp:
                return len(packet) - max(packet.find(b"GET "), 0) if b"GET " in packet else 0
            return found.data
    return 0


def first(options):
    rtt = 20 if options.check else 100
    rows, bad = [], 0
    with Testbed() as context:
        world = World(context, "first", rtt, 0)
        root = context.root(small=1000)
        key = run(firstflight.BINARY, "verifier", "keygen", "-o", os.path.join(root, "key")).stdout.split()[1]
        with open(os.path.join(root, "trust"), "w") as file:
            file.write(f'# begin\n[[verifier]]\nkey = "{key}"\nown = true\n# end\n')
        verifier = at(PAIR.peer[4], VERIFIER_PORT)
        context.start(Command(world.far, "verifier", "--listen", verifier, "--key-file", os.path.join(root, "key"),
                              "--allow-prefix", PAIR.net[4]))  # fmt: skip
        told = run(firstflight.BINARY, "asap", "record", "--verifier-key", key, "--udp-port", PORT).stdout
        octets = bytes(int(number) for number in told.split('"')[1].split("\\")[1:])
        param = (65300).to_bytes(2) + len(octets).to_bytes(2) + octets
        names = {
            (LABELS, 1): bytes(map(int, PAIR.peer[4].split("."))),
            (b"\5_8080\6_https" + LABELS, 65): b"\0\1" + b"\0" + param,
        }
        context.enter_context(answering(world.far, PAIR.peer[4], names))
        context.start(Command(world.far, "serve", "--root", root, "--listen", at(PAIR.peer[4], PORT), "--json-log",
                              "--trust", os.path.join(root, "trust"), "--first-start", "--identity", NAME))  # fmt: skip
        nginx.start(context, world.far, root, "0.0.0.0:80", "listen 0.0.0.0:80 fastopen=256;", "access_log off;")
        dns = ("--dns", at(PAIR.peer[4], 53))
        certified = ("--verifier", verifier, "--verifier-key", key, "--verify-first")
        plan = (
            ("plain", PORT, ("--no-fast-open",), ()),
            ("Fast Open, `Server`", PORT, (), ("no-credential", "accepted")),
            ("ASAP in UDP, `Server`", PORT, certified, ("accepted", "accepted")),
            ("Fast Open, nginx", 80, (), ("no-credential", "accepted")),
        )
        for name, port, more, expected in plan:
            # The kernel keeps one cookie for an address, whatever the port.
            run("ip", "tcp_metrics", "flush", "all", ns=world.client)
            with Capture(world.client) as capture:
                # A client of its own for the first contact and the next visit. The second lookup is not needed by a
                # client that runs on, and is measured all the same.
                command = [firstflight.BINARY, "get", f"http://{NAME}:{port}/small", *dns, *more, "--json"]
                client = Process([*command, "--repeat", 2, "--interval", 400], ns=world.client)
                with client:
                    syns = []
                    for number in (1, 2):
                        client.wait_until(lambda number=number: len(client.records()) >= number, "a fetch", 30)
                        syns.append(request_in_syn(capture))
                    client.wait(30)
                    visits = client.records()
            if options.captures:
                os.makedirs(options.captures, exist_ok=True)
                capture.save(os.path.join(options.captures, re.sub(r"\W+", "-", name).strip("-") + ".pcap"))
            for number, (visit, in_syn) in enumerate(zip(visits, syns, strict=True)):
                connect = (visit["first_byte_ms"] - visit["waited_ms"]) / rtt
                word = visit["outcome"] if visit["reason"] is None else visit["reason"]
                rows.append((name, ("first", "next")[number], visit["way"], word, f"{connect:.3f}",
                             f"{visit['waited_ms'] / rtt:.2f}", in_syn))  # fmt: skip
                wrong = bool(expected) and word != expected[number]
                late = word == "accepted" and not options.check and connect > 1.02
                hidden = word == "accepted" and in_syn == 0
                bad += wrong or late or hidden
    print("| way | contact | by | outcome | first byte, RTT | before it: lookup, certificate, RTT | request in the SYN, B |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print(f"{rtt} ms, {bad} rows are not as they should be")
    return bad > 0


def main():
    parser = experiment.parser(__doc__)
    parser.add_argument("what", nargs="?", choices=("first", "slower"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="into docs/data/never-slower.txt, which docs/networks.md includes")
    parser.add_argument("-k", default="", metavar="PATTERN")
    parser.add_argument("--captures", metavar="DIR")
    options = experiment.parse(parser)
    if reason := experiment.missing("ip", "nft", "nginx", "curl"):
        return experiment.refuse(reason)
    experiment.when_stopped(experiment.unwind)
    if options.check:
        options.samples, options.at_once = min(options.samples, 4), 4
    failed = False
    if options.what in (None, "first"):
        failed |= first(options)
    if options.what in (None, "slower"):
        if not os.path.exists(visits_binary()):
            return experiment.refuse(f"no example at {visits_binary()}: cargo build --release -p firstflight --features asap --example visits")
        failed |= slower(options)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
