#!/usr/bin/env python3
"""Transfers between the Linux kernel's TCP and ours over bad wires, both directions, compared with kernel to kernel.

    tests/impairment/run.py [--quick] [--filter PATTERN] [--seeds N] [--small-seeds N] [--json FILE]

Needs root and the packages of tests/interop/packages.txt, and the release builds of firstflight-cli and firstflight-lab.
Each transfer has a wire of its own (`firstflight-lab wire`). The three directions take turns on the same seed. The
received file must equal the sent one; the exit status is 1 if it differs or did not arrive. Times are printed and
never judged. See docs/impairment.md.
"""

import json
import os
import queue
import random
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "interop")]
sys.dont_write_bytecode = True

import experiment  # noqa: E402
from net import workdir  # noqa: E402
from scenarios import SCENARIOS, SMALL, quick  # noqa: E402
from table import lines  # noqa: E402
from transfer import DIRECTIONS, Lane  # noqa: E402

#: Short transfers mostly wait, so this many run at the same time. Long transfers run alone, and so do transfers
#: over a wire so short that they mostly work.
LANES = 4


class Run:
    """The transfers to do, and the results."""

    def __init__(self, arguments, root):
        self.arguments, self.root = arguments, root
        self.results, self.lock = [], threading.Lock()
        self.stop = threading.Event()
        self.deadline = time.monotonic() + arguments.minutes * 60

    def over(self):
        return self.stop.is_set() or time.monotonic() > self.deadline

    def one(self, lane, scenario, size, direction, seed):
        """Does one transfer and records its result."""
        result = {
            "scenario": scenario.name, "size": size, "direction": direction, "seed": seed, "seconds": None,
            "same": False,
        }  # fmt: skip
        try:
            name = f"file-{size}"
            took = lane.transfer(scenario, direction, name, seed, self.arguments.limit)
            result["seconds"], result["same"] = took
        except Exception as error:  # noqa: BLE001 - a transfer that fails is a result
            result["error"] = f"{type(error).__name__}: {error}"
        with self.lock:
            self.results.append(result)
            if not result["same"]:
                print(f"FAIL {json.dumps(result, ensure_ascii=False)}", flush=True)

    def series(self, scenarios, size_of, seeds, lanes):
        """Does all transfers of one kind. The directions of a seed take turns on the same lane."""
        jobs = queue.SimpleQueue()
        # A run that is cut short has then tried every scenario, but less often.
        for seed in range(1, seeds + 1):
            for scenario in scenarios:
                jobs.put((scenario, size_of(scenario), seed, seed == seeds))
        workers = [threading.Thread(target=self._work, args=(jobs, number)) for number in range(lanes)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if (left := jobs.qsize()) > 0:
            print(f"{left} of the seeds did not get their turn", flush=True)

    def _work(self, jobs, number):
        realtime, captures = not self.arguments.no_realtime, self.arguments.capture
        try:
            with Lane(number, self.root, realtime, captures) as lane:
                while not self.over():
                    try:
                        scenario, size, seed, last = jobs.get_nowait()
                    except queue.Empty:
                        return
                    for direction in self.arguments.directions:
                        if not self.stop.is_set():
                            self.one(lane, scenario, size, direction, seed)
                    if last:
                        self.progress(scenario, size)
        except Exception as error:  # noqa: BLE001 - reported below, by the exit status
            with self.lock:
                self.results.append({"lane": number, "same": False, "error": repr(error)})
            print(f"FAIL lane {number}: {error}", flush=True)

    def progress(self, scenario, size):
        with self.lock:
            mine = [r for r in self.results if (r.get("scenario"), r.get("size")) == (scenario.name, size)]
            for line in lines(mine, [scenario]):
                print(line, flush=True)


def options():
    parser = experiment.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="few scenarios, little data, two seeds")
    parser.add_argument("--filter", default="", metavar="PATTERN", help="scenarios with this in their name")
    parser.add_argument("--seeds", type=int, metavar="N", help="of each long transfer [7; quick: 2]")
    parser.add_argument("--small-seeds", type=int, metavar="N", help="of each short one [60; quick: 4]")
    parser.add_argument("--directions", nargs="+", choices=DIRECTIONS, default=DIRECTIONS, metavar="DIRECTION")
    parser.add_argument("--minutes", type=float, default=60, help="begin nothing after so long [60]")
    parser.add_argument("--limit", type=int, default=300, metavar="S", help="a transfer has failed then [300]")
    parser.add_argument("--lanes", type=int, default=LANES, help=f"short transfers at once [{LANES}]")
    parser.add_argument("--no-realtime", action="store_true", help="wires without `chrt -f 10`")
    parser.add_argument("--capture", metavar="DIR", help="a pcap file of each end of each wire")
    parser.add_argument("--json", metavar="FILE", help="every transfer's time")
    arguments = experiment.parse(parser)
    arguments.seeds = (2 if arguments.quick else 7) if arguments.seeds is None else arguments.seeds
    if arguments.small_seeds is None:
        arguments.small_seeds = 4 if arguments.quick else 60
    return arguments


def write(root, size):
    with open(os.path.join(root, f"file-{size}"), "wb") as file:
        file.write(random.Random(size).randbytes(size))


def main():
    arguments = options()
    if reason := experiment.missing("ip", "curl", "nginx", "chrt"):
        return experiment.refuse(reason)
    scenarios = [s for s in (quick() if arguments.quick else SCENARIOS) if arguments.filter in s.name]
    if arguments.capture:
        os.makedirs(arguments.capture, exist_ok=True)
    before = os.getloadavg()[0]
    with workdir() as root:
        for size in {SMALL, *(s.large for s in scenarios)}:
            write(root, size)
        run = Run(arguments, root)
        # The transfers under way end first.
        experiment.when_stopped(lambda _: run.stop.set())
        for waits, lanes in ((True, arguments.lanes), (False, 1)):
            some = [s for s in scenarios if s.waits == waits]
            run.series(some, lambda s: SMALL, arguments.small_seeds, lanes)
        run.series(scenarios, lambda s: s.large, arguments.seeds, 1)
    if arguments.json:
        experiment.write_json(arguments.json, {"load": [before, os.getloadavg()[0]], "results": run.results})
    print("\n".join(["", *lines(run.results, scenarios, head=True)]))
    same = sum(result["same"] for result in run.results)
    print(f"load {before:.1f} to {os.getloadavg()[0]:.1f}")
    print(f"{same} transfers complete and equal, {len(run.results) - same} not")
    return 0 if same == len(run.results) > 0 and not run.over() else 1


if __name__ == "__main__":
    sys.exit(main())
