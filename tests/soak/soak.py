"""Periods of load on a farm, while everything happens to it. `run.py` says what must hold."""

import collections
import os
import random
import subprocess
import sys
import time

from members import DEVICE_PORT, DEVICES, MEMBERS_UDP, PAIR, UDP_PORT, Farm
from place import BACKENDS, PORT, Result, Visitors, judge
from process import Process
from wire import DEVICE

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Seconds of load in a period, and between two events.
PERIOD, BETWEEN = 240, (2, 12)
#: What the member that is never killed may grow by, at rest: KiB, and descriptors since its start.
MEMORY, FILES = 32 * 1024, 0
#: Seconds within which a member is at rest when nobody asks any more: a client behind the wire may have gone without its FIN, and
#: connections to backends are kept.
REST = 75
#: GETs and POSTs in first flights that must be taken in each way before anything happens, and within how many seconds: members that
#: start take no certificates for half a minute.
TAKEN, WITHIN = 5, 90
#: Who asks: the way, the script, where, and its options.
CLIENTS = (
    ("kernel, kept", "gateway/visitors.py", (PAIR, PORT), ("--gets", 4, "--posts", 2, "--h2", 1, "--resets")),
    ("kernel, in SYNs", "soak/first.py", (PAIR, PORT), ("--gets", 2, "--posts", 2, "--label", "kernel")),
    ("TUN, member 1", "soak/first.py", (DEVICES[0], DEVICE_PORT), ("--gets", 2, "--posts", 3, "--label", "tun1", "--bare")),
    ("TUN, member 2", "soak/first.py", (DEVICES[1], DEVICE_PORT), ("--gets", 2, "--posts", 2, "--label", "tun2")),
    ("UDP", "soak/certified.py", (PAIR, UDP_PORT), ("--gets", 1, "--posts", 2, "--label", "udp")),
)
#: Results of requests that the client sent again itself, as their server allowed.
AGAIN = ("again", "refused")


def label_of(line):
    """The target is /METHOD/NUMBER, or /METHOD/LABEL/NUMBER."""
    parts = line.split("/")
    return parts[2] if len(parts) == 4 else None


class Asking(Visitors):
    """Visitors in another namespace than that of the members."""

    def __init__(self, at, script, where, options):
        pair, port = where
        command = [sys.executable, os.path.join(TESTS, script), f"{pair.peer[4]}:{port}", *options]
        if script.endswith("certified.py"):
            command += ["--get", at.binary, "--key", at.verifier]
        super(Visitors, self).__init__(command, ns=at.client, stdin=subprocess.PIPE)

    def taken(self):
        """First flights that were taken: the fewer of GETs and POSTs."""
        records = self.records()
        early = records[-1]["early"] if records else {}
        return min(early.get(method, 0) for method in ("GET", "POST"))


class Soak(Farm):
    """Periods of load, and rest."""

    def period(self, seed, seconds, between):
        random.seed(seed)
        self.happened.clear()
        for port in BACKENDS:
            open(self.log(port), "w").close()
        asking = [(way, options, self.start(Asking(self, script, where, options))) for way, script, where, options in CLIENTS]
        members = [f"{PAIR.peer[4]}:{port}" for port in MEMBERS_UDP]
        command = [sys.executable, os.path.join(TESTS, "soak/copies.py"), DEVICE, UDP_PORT, *members]
        copies = self.start(Process(command, ns=self.client, stdin=subprocess.PIPE))
        for _, _, visitors in asking[1:]:
            visitors.wait_until(lambda: visitors.taken() >= TAKEN, f"{TAKEN} first flights", WITHIN)  # noqa: B023
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            time.sleep(random.uniform(*between))
            self.happen()
        result = Result(f"seed {seed}")
        result.seed, result.seconds = seed, round(time.monotonic() - began)
        result.ways, result.happened = {}, dict(self.happened)
        for way, options, visitors in asking:
            counts = visitors.end()
            label = options[options.index("--label") + 1] if "--label" in options else None
            self.judge(result, way, label, counts)
        copies.popen.stdin.close()
        result.must(copies.wait() == 0, f"the copies ended: {copies.text('err')}")
        result.happened["copies of first flights"] = copies.records()[-1]["copies"]
        return result

    def judge(self, result, way, label, counts):
        mine = {line: n for line, n in self.executed().items() if label_of(line) == label}
        part = Result(way)
        judge(part, counts, mine, resets_of_get=10**9, least=10)
        told = collections.Counter()
        for method in ("GET", "POST"):
            for what, number in counts[method].items():
                what = what.partition(" (")[0]
                if what not in AGAIN:
                    told[f"{method}s"] += number
                    told[what if what == "answered" else f"{method}: {what}"] += number
        told["POSTs executed twice"] = part.numbers["POSTs executed twice"]
        if "early" in counts:
            told |= {f"{method}s taken in first flights": counts["early"].get(method, 0) for method in ("GET", "POST")}
        result.failures += [f"{way}: {failure}" for failure in part.failures]
        result.ways[way] = dict(told)
        result.reasons = counts.get("reasons", {})

    def at_rest(self, files=0):
        """Memory, KiB, descriptors and connections of the member that is never killed, when its clients have gone. It has time to come
        down to so many descriptors."""
        until = time.monotonic() + REST
        while time.monotonic() < until:
            time.sleep(1)
            if (connections := self.metric(0, "firstflight_gateway_connections")) == 0 and self.descriptors() <= files:
                break
        with open(f"/proc/{self.members[0].pid}/status") as file:
            memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
        return memory, self.descriptors(), connections

    def descriptors(self):
        # Without that of the question for the metrics.
        time.sleep(1)
        return len(os.listdir(f"/proc/{self.members[0].pid}/fd"))


def periods(binary, minutes, seed, between=BETWEEN):
    """Yields the result of each period."""
    with Soak(binary) as at:
        before, idle = None, at.descriptors()
        end = time.monotonic() + minutes * 60
        while (left := end - time.monotonic()) > 5:
            result = at.period(seed, min(PERIOD, left), between)
            result.must(at.members[0].popen.poll() is None, "the member that is never killed ended")
            result.memory, result.files, connections = at.at_rest(idle + FILES)
            before = before or result.memory
            result.must(connections == 0, f"{connections} connections are left")
            result.must(result.memory - before <= MEMORY, f"memory grew from {before} to {result.memory} KiB")
            result.must(result.files <= idle + FILES, f"descriptors grew from {idle} to {result.files}")
            for member in at.members:
                result.must("panicked" not in member.text(), f"a panic: {member.text('err')[-300:]}")
            yield result
            seed += 1
        for member in at.members:
            if member.terminate(60) != 0:
                raise AssertionError("a member did not end in order")
