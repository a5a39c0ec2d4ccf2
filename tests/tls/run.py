#!/usr/bin/env python3
"""Round trips of TLS and of sealed first flights until the first byte of the response, in network namespaces.

    tests/tls/run.py [--check | --samples N] [-k PATTERN] [--list] [--json FILE] [--svg FILE] [--write]

Both ends are this project's libraries with rustls, a server certificate of an authority that is made for the run, and an
emulated wire. Each row is measured on the kernel's TCP, on an engine's TCP on a TUN device, and in UDP; curl, OpenSSL,
nginx and QUIC (quinn) beside them, in turn. What both ends say about each visit must be as the row says, and no visit may
be faster than its round trips. Without --check the medians must be the round trips of the row, and the rows that claim
one round trip at most 1.05. The exit status is 1, after a line for each fault, if something is not so, and 77 if a
program is missing. A visit that sent more SYNs than its connections was disturbed by the load of the machine, and is
made again, five times at most.

Needs root; run `cargo build --release -p firstflight-cli -p firstflight-lab` first. It creates only network namespaces and
processes, which end with it.
"""

import os
import statistics
import sys
import time


HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "interop")]
sys.dont_write_bytecode = True

import experiment  # noqa: E402
import report  # noqa: E402
from others import OTHERS  # noqa: E402
from process import run  # noqa: E402
from rows import ROWS  # noqa: E402
from testbed import Testbed  # noqa: E402
from wire import command  # noqa: E402
from world import World  # noqa: E402

#: Round-trip times of the wire, ms.
RTT, CHECKED_RTT = 100, 30
SAMPLES = 9
#: How often a visit is made that the machine disturbs.
TRIES = 5
#: How much of a round trip a median may take beyond those of its row.
MARGIN = 0.25


class Cell:
    """The visits of a row by one way."""

    def __init__(self, row, way):
        self.row, self.way = row, way
        self.records, self.faults, self.disturbed = [], [], 0

    @property
    def name(self):
        return self.row.name if self.way == "other" else f"{self.row.name} ({report.WAYS[self.way]})"

    def measure(self, world):
        for _ in range(TRIES):
            record = self.row.measure(world) if self.way == "other" else world.ask(self.row.visit(self.way, world.asked))
            flights, syns = world.first_flights(record["began"], record["ended"])
            if syns <= self.row.connections and not record.get("raced"):
                break
            self.disturbed += 1
        record["flights"] = flights
        self.records.append(record)
        self.judge(world, record, syns)

    def judge(self, world, record, syns):
        """What does not depend on the speed of the machine."""
        wrong = self.faults.append
        if syns != self.row.connections:
            wrong(f"{syns} SYNs, {self.row.connections} expected")
        if record["ms"] < world.rtt * self.row.trips:
            wrong(f"{record['ms']:.1f} ms: faster than {self.row.trips} round trips")
        if self.way == "other":
            if ("early data" in self.row.name) != (record["early_data"] == "accepted"):
                wrong(f"early data: {record['early_data']}")
            return
        for name, expected in self.row.expected(self.way).items():
            seen = report.word(record, name)
            if seen != expected:
                wrong(f"{name} is {seen!r}, not {expected!r}: {report.short(record)}")
        for syn, behind in record["flights"]:
            # A credential that the server refuses has data behind it; without one nothing rides.
            if (syn > 0) != (self.row.credential != "none"):
                wrong(f"{syn} bytes in the SYN")
            if behind and self.way != "udp":
                wrong(f"{behind} bytes behind the SYN, before anything came back")

    def judge_times(self, rtt):
        trips = self.trips(rtt)
        bound = getattr(self.row, "bound", None)
        if bound is not None and trips > bound:
            self.faults.append(f"{trips:.3f} round trips, {bound} allowed")
        elif not getattr(self.row, "limited", False) and not self.row.trips <= trips < self.row.trips + MARGIN:
            self.faults.append(f"{trips:.3f} round trips, not {self.row.trips}")

    def trips(self, rtt):
        return statistics.median(record["ms"] for record in self.records) / rtt


class Table:
    """The cells to measure."""

    def __init__(self, options):
        self.options = options
        cells = [Cell(row, way) for row in ROWS for way in row.ways] + [Cell(other, "other") for other in OTHERS]
        self.cells = [cell for cell in cells if options.k in cell.row.name]
        self.over = False

    def run(self, world):
        for number in range(self.options.samples):
            for at, cell in enumerate(self.cells):
                if self.over:
                    return
                report.progress(f"round {number + 1} of {self.options.samples}, {at + 1}/{len(self.cells)}: {cell.name}")
                cell.measure(world)
        report.progress("")


def arguments():
    parser = experiment.parser(__doc__)
    parser.add_argument("--check", action="store_true", help="what must hold at any speed: each row once, in a minute")
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help=f"of each row [{SAMPLES}]")
    parser.add_argument("-k", default="", metavar="PATTERN", help="only rows with this in their name")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--chain", type=int, default=2700, metavar="BYTES", help="the server's certificates [2700]")
    parser.add_argument("--json", metavar="FILE", help="write what was measured into this file")
    parser.add_argument("--svg", metavar="FILE", help="draw it into this file")
    parser.add_argument("--write", action="store_true", help="write the table and the drawing of docs/tls.md")
    options = experiment.parse(parser)
    if options.write and (options.check or options.k or options.samples < SAMPLES):
        parser.error("--write is for the whole table")
    if options.samples < 1:
        parser.error("--samples: at least 1")
    if options.check:
        options.samples = 1
    return options


def measure(table, options):
    """Measures, and returns the results."""
    rtt = CHECKED_RTT if options.check else RTT
    before = os.getloadavg()[0]
    with Testbed() as context:
        try:
            world = World(context, rtt, options.chain)
            table.run(world)
        except Exception:
            sys.stderr.write("\n".join(context.tails(5)) + "\n")
            raise
    if not options.check:
        for cell in table.cells:
            if cell.records:
                cell.judge_times(rtt)
    return report.results(table.cells, world, [before, os.getloadavg()[0]])


def main():
    options = arguments()
    table = Table(options)
    if options.list:
        print("\n".join(f"{cell.name}: {cell.row.trips}" for cell in table.cells))
        return 0
    if reason := experiment.missing("ip", "chrt", "nginx", "curl", "openssl"):
        return experiment.refuse(reason)
    # The visit under way ends first.
    experiment.when_stopped(lambda _: setattr(table, "over", True))
    began = time.monotonic()
    results = measure(table, options)
    text = report.table(results)
    print(text)
    if options.json:
        experiment.write_json(options.json, results)
    if options.svg or options.write:
        experiment.draw(results, options.svg or experiment.figure("tls.svg"), "tls-end", "plot")
    if options.write:
        experiment.write_table("tls.txt", text)
    faults = [(cell.name, fault) for cell in table.cells for fault in cell.faults]
    for name, fault in faults:
        print(f"NOT HELD: {name}: {fault}")
    unmeasured = sum(not cell.records for cell in table.cells)
    held = len(table.cells) - unmeasured - len({name for name, _ in faults})
    print(f"{time.monotonic() - began:.0f} s; {held} cells held, {len(table.cells) - held} not")
    return 1 if faults or unmeasured else 0


if __name__ == "__main__":
    sys.exit(main())
