#!/usr/bin/env python3
"""Visits on networks that interfere with first flights: an address translator, rules of nftables, 40 ms of wire.

    tests/networks/run.py [--check | --samples N | --write] [-k PATTERN] [--list] [--json FILE]

A sample is a client with an empty cache and ten visits. It alternates with a plain visit in the same network. The
test checks that every visit succeeds, that its outcome has the expected word, and that data which may run once is
executed at most once. Without --check it also checks a bound: the first byte of the first, second and tenth visit is
at most later than a plain visit's by the delay of one second attempt, if a network makes one necessary, and 20 ms.
This applies to the 99th percentile, with random loss to the 90th. The exit status is 1, after a line for each
failure, if a check fails, and 77 if a required program is missing. See docs/networks.md.

Needs root, nftables and iproute2; run `cargo build --release -p firstflight-cli -p firstflight-lab` first. It
creates only network namespaces and processes, which end with it.
"""

import os
import queue
import sys
import threading
import time
import traceback


HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "interop")]
sys.dont_write_bytecode = True

import figures  # noqa: E402
import experiment  # noqa: E402
from networks import lines  # noqa: E402
from testbed import Testbed  # noqa: E402
from visits import get  # noqa: E402
from world import World  # noqa: E402

#: Number of lines that are measured at the same time, because they mostly wait. Lines with many clients run alone.
LANES = 14
#: Number of samples of a line.
SAMPLES = 300
#: Number of at-most-once uploads of a line.
UPLOADS, CHECKED_UPLOADS = 20, 1
#: Seconds reserved for each line with many clients.
CROWDS = 90
#: The number of samples after which a line's progress is printed; it is printed at its end as well.
TELL_EVERY = 100
#: Seconds within which a server's log shows what it executed, if it executed it; a busy machine takes some.
LOGGED_WITHIN = 20
#: Seconds to wait for a second execution, or for one of an upload that failed.
SETTLES_WITHIN = 0.3


class Table:
    """The lines to measure, and the results."""

    def __init__(self, options):
        self.options, self.results = options, []
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.deadline = time.monotonic() + options.minutes * 60
        self.wanted = [line for line in lines() if options.k in line.name]

    def over(self, deadline):
        return self.stop.is_set() or time.monotonic() > deadline

    def run(self):
        crowds = [line for line in self.wanted if hasattr(line, "clients")]
        others = [line for line in self.wanted if line not in crowds]
        self.lanes(others, self.options.lanes, self.deadline - CROWDS * len(crowds))
        self.lanes(crowds, 1, self.deadline)
        order = {line.name: number for number, line in enumerate(self.wanted)}
        self.results.sort(key=lambda result: order[result["line"]])

    def lanes(self, wanted, count, deadline):
        """Measures the slow lines first, so that none of them runs alone at the end."""
        jobs = queue.SimpleQueue()
        for line in sorted(wanted, key=lambda line: -sum(line.second)):
            jobs.put(line)
        lanes = [threading.Thread(target=self.lane, args=(jobs, number, count, deadline)) for number in range(count)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def lane(self, jobs, number, lanes, deadline):
        while not self.stop.is_set():
            try:
                line = jobs.get_nowait()
            except queue.Empty:
                return
            # Share the remaining time, so that no line has fewer samples because others took long.
            now, rounds = time.monotonic(), 1 + jobs.qsize() // lanes
            try:
                result = self.one(line, f"nets{number}", now + (deadline - now) / rounds)
            except Exception as error:  # noqa: BLE001 - a line that cannot be measured has failed
                result = self.broken(line, error)
            with self.lock:
                self.results.append(result)
                self.tell(result)

    def one(self, line, label, deadline):
        """Measures a line. Except for the first one, no sample begins after the deadline."""
        found = figures.Figures(line)
        samples = min(line.checked if self.options.check else line.most, self.options.samples)
        with Testbed() as context:
            try:
                world = World(context, label, line.wire)
                line.servers(world)
                line.warm_up(world)
                line.meddle(world)
                began = time.monotonic()
                while len(found.samples) < samples and not (self.over(deadline) and found.samples):
                    found.samples += line.samples(world)
                    found.plains += line.plains(world)
                    self.progress(line, found, began)
                extra = list(line.more_failures(world, len(found.samples)))
                if line.uploads:
                    self.upload(world, line, found)
            except Exception:
                sys.stderr.write("\n".join(context.tails(3)) + "\n")
                raise
        return found.summary(not self.options.check, extra)

    def upload(self, world, line, found):
        """Uploads data that may run once. Each upload must be executed at most once, whether it succeeds or not."""
        before = world.once.executed()
        for _ in range(CHECKED_UPLOADS if self.options.check else min(UPLOADS, self.options.samples)):
            if self.over(self.deadline) and found.uploads:
                return
            memory = world.fresh("memory")
            # The second upload uses what the first one learnt.
            for _ in range(2):
                (visit,) = get(world, *line.upload_options(world, memory)).visits
                executed = self.settled(world, before, visit.ok)
                found.uploads += 1
                found.rode += visit.ok and visit.word == "accepted"
                found.unexecuted += visit.ok and executed == before
                found.most = max(found.most, executed - before)
                found.executed += executed - before
                before = executed

    @staticmethod
    def settled(world, before, wait):
        """Number of requests that the server has executed; with `wait` there must be more than `before`."""
        deadline = time.monotonic() + LOGGED_WITHIN
        while wait and world.once.executed() == before and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(SETTLES_WITHIN)
        return world.once.executed()

    def progress(self, line, found, began):
        count = len(found.samples)
        if not self.options.check and count % TELL_EVERY == 0 and count < self.options.samples:
            with self.lock:
                took = time.monotonic() - began
                print(f"     {line.name}: {count} samples in {took:.0f} s", file=sys.stderr, flush=True)

    def broken(self, line, error):
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames[-2:]]
        result = figures.Figures(line).summary(False)
        result["failures"] = [f"{type(error).__name__}: {error} at {', '.join(where)}"]
        return result

    def tell(self, result):
        words = [figures.listed(visit["words"]) for visit in result["visits"]]
        times = " ".join(figures.pair(visit) for visit in (*result["visits"], result["plain"]))
        print(f"{'FAIL' if result['failures'] else 'ok  '} {result['line']}: {'; '.join(words)}; {times}", flush=True)
        for text in result["failures"]:
            print(f"     {text}", flush=True)


def arguments():
    parser = experiment.parser(__doc__)
    parser.add_argument("--check", action="store_true", help="what must hold at any speed, in a minute")
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help=f"of each line at most [{SAMPLES}]")
    parser.add_argument("-k", default="", metavar="PATTERN", help="only lines with this in their name")
    parser.add_argument("--list", action="store_true", help="list the lines")
    parser.add_argument("--minutes", type=float, default=28, metavar="N", help="no sample begins after so long [28]")
    parser.add_argument("--lanes", type=int, default=LANES, metavar="N", help=f"lines at the same time [{LANES}]")
    parser.add_argument("--json", metavar="FILE", help="write what was measured into this file")
    parser.add_argument("--write", action="store_true", help="write the table of docs/networks.md, docs/data/networks.txt")
    options = experiment.parse(parser)
    if options.write and (options.check or options.k or options.samples < SAMPLES):
        parser.error("--write is for the whole table")
    return options


def main():
    options = arguments()
    table = Table(options)
    if options.list:
        print("\n".join(f"{line.name}: {line.network}; {line.way}" for line in table.wanted))
        return 0
    if reason := experiment.missing("nft", "ip", "chrt"):
        return experiment.refuse(reason)
    # The visits under way end first.
    experiment.when_stopped(lambda _: table.stop.set())
    began, before = time.monotonic(), os.getloadavg()[0]
    table.run()
    if options.json:
        experiment.write_json(options.json, {"load": [before, os.getloadavg()[0]], "lines": table.results})
    if not options.check:
        print(f"\n{figures.table(table.results)}\n")
    if options.write:
        experiment.write_table("networks.txt", figures.table(table.results))
    failed = sum(bool(result["failures"]) for result in table.results)
    samples = sum(result["samples"] for result in table.results)
    print(f"{samples} samples in {time.monotonic() - began:.0f} s, load {before:.1f} to {os.getloadavg()[0]:.1f}")
    print(f"{len(table.results) - failed} lines held, {failed} not")
    return 1 if failed or len(table.results) < len(table.wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
