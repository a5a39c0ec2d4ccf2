#!/usr/bin/env python3
"""Unmodified programs through `firstflight proxy`, a wire, and `firstflight gateway` in front of nginx, in network namespaces.

    tests/gateway/run.py [--quick] [--rtt MS,…] [--samples N] [-k TEXT] [--list] [--json [FILE]] [--svg FILE] [--write]

curl visits a page with three objects, four times by each client: through proxy and gateway, and in turn by a plain
connect to nginx over the same wire. Paths: nothing is done; SYNs with data are dropped; the option is stripped; certificates in
UDP; UDP is blocked; the client's ports change during a download. Each with round-trip times of 20, 100 and 400 ms, without
loss and with 2 %. No case may be slower than plain by more than the delay of a second attempt, where one is needed, and 20 ms.
A row fails only if the lower end of our quantile is above the upper end of plain's and what is allowed (95 % each); then it is
measured once more, and all samples count together. Requests are counted in nginx's log, and first packets are captured. Then
come checks with curl, raw sockets, and programs in Go and Java, and Chromium, and of the gateway alone: backends killed, reloads,
drains, ambiguous requests, edges of framing, h2spec. What cannot run on this machine is skipped, and said.

--quick is what must hold at any speed, in a minute: six rows at 30 ms, and checks without browser, Go and Java; times are
printed and not judged. The exit status is 1 after a line for each fault, and 77 if a program is missing without which nothing
runs.

Needs root; run `cargo build --release -p firstflight-cli -p firstflight-lab` first. It creates only network namespaces and
processes, which end with it, also on SIGTERM.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback


HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, *(os.path.join(TESTS, name) for name in ("interop", "client", "networks"))]
sys.dont_write_bytecode = True

import alone  # noqa: E402
import bounds  # noqa: E402
import browser  # noqa: E402
import checks  # noqa: E402
import experiment  # noqa: E402
import matrix  # noqa: E402
import others  # noqa: E402
import report  # noqa: E402
from certificates import Certificates  # noqa: E402
from net import workdir  # noqa: E402
from process import run  # noqa: E402
from testbed import Testbed  # noqa: E402
from wire import command  # noqa: E402
from world import World  # noqa: E402

RTTS, QUICK_RTT, CHECKS_RTT = (20, 100, 400), 30, 100
SAMPLES, QUICK_SAMPLES = 50, 2
CHECKS = (*checks.CHECKS, *others.CHECKS, *browser.CHECKS, *alone.CHECKS)


class Run:
    """Everything that was asked for, and its results."""

    def __init__(self, options):
        self.options, self.stop = options, threading.Event()
        self.cells = matrix.cells(options)
        self.checks = [check for check in CHECKS if options.k in check.name and (check.quick or not options.quick)]
        self.results = []
        self.count = sum(len(cells) for cells in self.cells.values())
        self.done, self.checking = 0, False

    def end(self, *_):
        """On a signal: the visits under way end, or the check does at once, and then the namespaces."""
        self.stop.set()
        if self.checking:
            raise matrix.Stopped

    def run(self):
        rtt = QUICK_RTT if self.options.quick else CHECKS_RTT
        with workdir() as directory:
            self.certificates = Certificates(directory)
            todo = dict(self.cells)
            if self.checks:
                # They use the world of the cells that are like it.
                todo.setdefault((rtt, 0), [])
            for number, (where, cells) in enumerate(todo.items()):
                self.one_world(f"gateway{number}", where, cells, self.checks if where == (rtt, 0) else ())

    def one_world(self, label, where, cells, wanted):
        verifiers = max(2, min(10, self.options.samples // 5))
        with Testbed() as context:
            try:
                world = World(context, label, *where, self.certificates, verifiers, self.stop)
                # A gateway takes no certificates in its first half minute.
                for udp in (False, True):
                    for cell in cells:
                        if cell.path.asap == udp:
                            self.one_cell(world, cell)
                    for check in wanted:
                        if check.udp == udp:
                            self.one_check(world, check)
            except matrix.Stopped:
                raise
            except Exception:
                sys.stderr.write("\n".join(context.tails(5)) + "\n")
                raise

    def one_cell(self, world, cell):
        self.done += 1
        report.progress(f"{self.done}/{self.count} curl: {cell.name}")
        began = time.monotonic()
        cell.measure(world)
        if not self.options.quick:
            cell.judge_times()
            if cell.late:
                report.progress(f"    measured again: {'; '.join(cell.late)}")
                cell.repeated += 1
                cell.measure(world)
                cell.judge_times()
        cell.judge_what_holds_at_any_speed()
        faults = cell.faults + cell.late
        first = cell.result()["visits"]
        times = "; ".join(
            f"{name} {report.pair(told['ours']['first'])}, plain {report.pair(told['plain']['first'])}"
            for name, told in first.items()
        )
        report.progress(f"    {'ok' if not faults else 'NOT HELD'}, {time.monotonic() - began:.0f} s; first byte, ms: {times}")
        for fault in faults[:5]:
            report.progress(f"    {fault}")

    def one_check(self, world, check):
        if self.stop.is_set():
            raise matrix.Stopped
        report.progress(f"check: {check.name}")
        self.checking = True
        try:
            result = check.run(world, self.options.quick)
        finally:
            self.checking = False
        self.results.append(result)
        said = result["fault"] and f"NOT HELD: {result['fault']}" or result["skipped"] or result["said"]
        report.progress(f"    {result['seconds']:.0f} s: {said}")

    def told(self, load, seconds):
        cells = [cell.result() for cells in self.cells.values() for cell in cells if cell.samples]
        cells.sort(key=lambda cell: [path.name for path in matrix.PATHS].index(cell["path"]))
        return {
            "command": self.options.told, "samples": self.options.samples, "load": load,
            "seconds": round(seconds), "cells": cells, "checks": self.results,
        }  # fmt: skip


def round_trips(text):
    return [int(part) for part in text.split(",")]


def arguments():
    parser = experiment.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="what must hold at any speed, in a minute")
    parser.add_argument("--rtt", type=round_trips, metavar="MS,…", help="round-trip times of the wire [20,100,400]")
    parser.add_argument("--samples", type=int, metavar="N", help=f"clients of each row [{SAMPLES}]")
    parser.add_argument("-k", default="", metavar="TEXT", help="only rows and checks with this in their names; rows: `curl`")
    parser.add_argument("--list", action="store_true", help="list the rows and checks")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write what was measured as JSON, in place of the tables")
    parser.add_argument("--svg", metavar="FILE", help="draw it into this file")
    parser.add_argument("--write", action="store_true", help="write the tables and the drawing of docs/gateway.md")
    options = experiment.parse(parser)
    if options.write and (options.quick or options.k):
        parser.error("--write is for the whole table")
    rtts = ",".join(map(str, options.rtt or ()))
    asked = {"--quick": options.quick, "--rtt": rtts, "--samples": options.samples, "-k": options.k}
    words = [name if value is True else f"{name} {value}" for name, value in asked.items() if value]
    options.told = " ".join(["firstflight-lab gateway", *words])
    options.rtt = options.rtt or ([QUICK_RTT] if options.quick else list(RTTS))
    if options.samples is None:
        options.samples = QUICK_SAMPLES if options.quick else SAMPLES
    if options.samples < 1 or min(options.rtt) < 1:
        parser.error("--samples and --rtt: at least 1")
    return options


def show(results, options):
    text = report.table(results)
    if options.json == "-":
        print(json.dumps(results, indent=1))
    else:
        print(text)
    if options.json not in (None, "-"):
        experiment.write_json(options.json, results)
    if results["cells"] and (options.svg or options.write):
        experiment.draw(results, options.svg or experiment.figure("gateway.svg"), "gateway-plot")
    if options.write:
        experiment.write_table("gateway.txt", f"{text}\n\n![First byte of each row in round trips](figures/gateway.svg)")


def main():
    options = arguments()
    bounds.self_test()
    whole = Run(options)
    if options.list:
        print("\n".join([*(f"curl, {cell.name}" for cells in whole.cells.values() for cell in cells),
                         *(check.name for check in whole.checks)]))  # fmt: skip
        return 0
    if reason := experiment.missing("ip", "chrt", "nft", "nginx", "curl", "openssl", "tcpdump"):
        return experiment.refuse(reason)
    experiment.when_stopped(whole.end)
    load, failed = [os.getloadavg()[0]], False
    try:
        whole.run()
    except matrix.Stopped:
        print("tests/gateway/run.py: stopped", file=sys.stderr)
        return 128 + signal.SIGTERM
    except Exception:  # noqa: BLE001 - what was measured so far is shown
        traceback.print_exc()
        failed = True
    results = whole.told([*load, os.getloadavg()[0]], time.monotonic() - report.BEGAN)
    show(results, options)
    out = sys.stderr if options.json == "-" else sys.stdout
    faults = [(f"{cell['path']}, {cell['rtt_ms']} ms, {cell['loss']} %", cell["faults"]) for cell in results["cells"]]
    faults += [(check["check"], [check["fault"]]) for check in results["checks"] if check["fault"]]
    for name, said in faults:
        for fault in said:
            print(f"NOT HELD: {name}: {fault}", file=out)
    for check in results["checks"]:
        if check["skipped"]:
            print(f"skipped: {check['check']}: {check['skipped']}", file=out)
    bad = sum(bool(said) for _, said in faults)
    total = len(results["cells"]) + sum(not check["skipped"] for check in results["checks"])
    print(f"{results['seconds']} s; {total - bad} held, {bad} not", file=out)
    return 1 if bad or failed else 0


if __name__ == "__main__":
    sys.exit(main())
