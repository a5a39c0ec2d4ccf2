#!/usr/bin/env python3
"""Two members of a gateway on a bad wire, for a long time, while everything happens to them.

    tests/soak/run.py [--minutes N] [--state FILE] [--bin PATH] [--seed N]

The wire loses 2 % of the packets and reorders some. Two gateways share a port and a key file, in front of two backends that
note each request before they answer it. Clients ask without a pause: on connections that are kept and on new ones, by HTTP/1.1
and HTTP/2, and with requests in SYNs. Every few seconds one of these happens: a reload with another order of backends, a turn
of the keys, a member is killed, a backend is killed, packets are answered with RST, the wire is silent.

No POST may be executed twice, nothing may hang and nothing be mixed up. The member that is never killed may grow by at most
MEMORY KiB and FILES descriptors from the end of its first period to the end of each later one, at rest.

A run appends its periods to the state file, and the next one goes on with the next seed: `--minutes 10` ten times is a soak of
100 minutes. A table of all periods is printed at the end. The exit status is 1 if anything failed, in any run. Needs root.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
for name in ("gateway", "interop"):
    sys.path.insert(0, os.path.join(TESTS, name))
sys.dont_write_bytecode = True

import firstflight  # noqa: E402
from net import Pair  # noqa: E402
from place import BACKENDS, PORT, Gateway, Place, Result, Visitors, judge, service  # noqa: E402
from process import run  # noqa: E402
from wire import DEVICE, Wire  # noqa: E402

#: Seconds of load in a period, and between two events.
PERIOD, BETWEEN = 60, (1, 4)
#: What the member that is never killed may grow by, at rest.
MEMORY, FILES = 32 * 1024, 8
#: Seconds within which a member is at rest when nobody asks any more: a client behind the wire may have gone without its FIN.
REST = 75
PAIR = Pair(97)
WIRE = ("--rtt", "20ms", "--loss", "2%", "--reorder", "1%", "--reorder-delay", "5ms")
HEAD = '[gateway]\nlog = "off"\ndrain = "2s"\nthreads = 1\n'
LISTENER = """
[[listener]]
name = "web"
address = ["0.0.0.0:{port}"]
mode = "http"
service = "app"
udp_port = 0
reuse_port = true
idle_timeout = "20s"
key_file = "{keys}"
"""


def default_state():
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(os.path.dirname(TESTS), "target"))
    return os.path.join(target, "soak", "state.json")


class Soak(Place):
    """The machines, the members, and what happens to them."""

    def __enter__(self):
        super().__enter__()
        # The name of `Place`: the machine with the members and the backends.
        self.client = self.namespace("soak-client")
        self.start(Wire(self.client, self.ns, PAIR, *WIRE, "--seed", 7))
        # Both members are told what waits when one of them ends.
        self.ns.sysctl("net.ipv4.tcp_migrate_req", 1)
        self.keys = [self.new_key(), self.new_key()]
        self.backends = {port: self.backend(port) for port in BACKENDS}
        self.order = list(BACKENDS)
        self.write_keys()
        self.configure()
        self.members = [self.member(), self.member()]
        self.happened = collections.Counter()
        return self

    # --- the members

    def new_key(self):
        return "-".join(f"{random.randrange(1 << 32):08x}" for _ in range(4))

    def write_keys(self):
        path = self.path("keys.new")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(",".join(self.keys) + "\n")
        os.rename(path, self.path("keys"))

    def configure(self):
        return self.write(HEAD, LISTENER.format(port=PORT, keys=self.path("keys")), service(self.order))

    def member(self):
        return self.start(Gateway([self.binary, "gateway", self.path("gateway.toml")], ns=self.ns))

    # --- what happens

    def reload(self):
        self.order.reverse()
        self.configure()
        for member in self.members:
            member.reload("was read again")

    def turn_keys(self):
        """A new key, with which cookies are granted; that of before is still good."""
        self.keys = [self.new_key(), self.keys[0]]
        self.write_keys()
        self.reload()

    def kill_member(self):
        self.members[1].kill()
        time.sleep(random.choice((0, 0.5, 2)))
        self.members[1] = self.member()

    def kill_backend(self):
        port = random.choice(BACKENDS)
        self.backends[port].kill()
        time.sleep(random.choice((0, 0.3)))
        self.backends[port] = self.backend(port)

    def resets(self):
        """One of ten segments with data is answered with RST, for a moment."""
        rule = f"iifname {DEVICE} tcp dport {PORT} tcp flags & (syn|ack) == ack numgen random mod 10 == 0"
        self.meddle(f"type filter hook input priority 0; {rule} reject with tcp reset", 0.5)

    def silence(self):
        self.meddle(f"type filter hook input priority 0; iifname {DEVICE} drop", random.choice((0.3, 1, 3)))

    def meddle(self, rules, seconds):
        self.ns.nft(rules, chain="meddle")
        time.sleep(seconds)
        run("nft", "delete", "chain", "inet", "path", "meddle", ns=self.ns)

    def happen(self):
        event = random.choice((self.reload, self.turn_keys, self.kill_member, self.kill_backend, self.resets, self.silence))
        event()
        self.happened[event.__name__.replace("_", " ")] += 1

    # --- load

    def ask(self, script, *options):
        at = f"{PAIR.peer[4]}:{PORT}"
        return self.start(Asking([sys.executable, os.path.join(TESTS, script), at, *options], self.client))

    def period(self, seed, seconds):
        random.seed(seed)
        self.happened.clear()
        for port in BACKENDS:
            open(self.log(port), "w").close()
        kept = self.ask("gateway/visitors.py", "--gets", "6", "--posts", "3", "--h2", "2", "--resets")
        first = self.ask("soak/first.py", "--gets", "4", "--posts", "3")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(random.uniform(*BETWEEN))
            self.happen()
        result = Result(f"seed {seed}")
        counted, early = kept.end(), first.end()
        for name, counts in (("kept", counted), ("in SYNs", early)):
            part = Result(name)
            executed = self.executed()
            mine = {line: n for line, n in executed.items() if ("/first/" in line) == (name == "in SYNs")}
            judge(part, counts, mine, resets_of_get=10**9)
            result.failures += [f"{name}: {failure}" for failure in part.failures]
            for what, number in part.numbers.items():
                result.numbers[what] = result.numbers.get(what, 0) + number
        result.numbers["accepted in SYNs"] = early["early"]
        result.must(early["early"] > 20, f"{early['early']} requests in SYNs were accepted")
        for what, number in self.happened.items():
            result.numbers[what] = number
        return result

    # --- rest

    def at_rest(self):
        """Memory, KiB, and descriptors of the member that is never killed, when its connections have ended."""
        pid, last = self.members[0].pid, None
        for _ in range(REST):
            time.sleep(1)
            files = len(os.listdir(f"/proc/{pid}/fd"))
            if last is not None and files >= last <= 24:
                break
            last = files
        with open(f"/proc/{pid}/status") as file:
            memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
        return memory, len(os.listdir(f"/proc/{pid}/fd"))


class Asking(Visitors):
    """Visitors in another namespace than that of the members."""

    def __init__(self, command, ns):
        super(Visitors, self).__init__(command, ns=ns, stdin=subprocess.PIPE)


def soak(options, state, save):
    seed = 1 + max((period["seed"] for period in state), default=options.seed - 1)
    with Soak(options.bin) as at:
        before = None
        end = time.monotonic() + options.minutes * 60
        while (left := end - time.monotonic()) > 5:
            began = time.monotonic()
            result = at.period(seed, min(PERIOD, left))
            seconds = time.monotonic() - began
            result.must(at.members[0].popen.poll() is None, "the member that is never killed ended")
            memory, files = at.at_rest()
            before = before or (memory, files)
            result.must(memory - before[0] <= MEMORY, f"memory grew from {before[0]} to {memory} KiB")
            result.must(files - before[1] <= FILES, f"descriptors grew from {before[1]} to {files}")
            for member in at.members:
                result.must("panicked" not in member.text(), f"a panic: {member.text('err')[-300:]}")
            result.numbers |= {"memory, KiB": memory, "descriptors": files}
            save({"seed": seed, "seconds": round(seconds), "numbers": result.numbers, "failures": result.failures})
            print(result, flush=True)
            seed += 1
        for member in at.members:
            if member.terminate(60) != 0:
                raise AssertionError("a member did not end in order")


#: What is no sum.
GREATEST = ("memory, KiB", "descriptors")


def table(state):
    numbers = collections.Counter()
    for period in state:
        for name, number in period["numbers"].items():
            numbers[name] = max(numbers[name], number) if name in GREATEST else numbers[name] + number
    failures = [f"seed {period['seed']}: {failure}" for period in state for failure in period["failures"]]
    yield f"| {sum(period['seconds'] for period in state) / 60:.0f} minutes, {len(state)} periods | |"
    yield "|---|---|"
    for name, number in numbers.items():
        yield f"| {name}{', at most' if name in GREATEST else ''} | {number} |"
    yield f"| failures | {len(failures)} |"
    yield from (f"FAILED: {failure}" for failure in failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="how long [10]")
    parser.add_argument("--state", default=default_state(), metavar="FILE", help="where the periods are kept [target/soak/state.json]")
    parser.add_argument("--bin", default=firstflight.default_binary(), metavar="PATH", help="the command `firstflight`; `firstflight-lab` is beside it")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first period [1]")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    firstflight.BINARY = os.path.abspath(options.bin)
    os.makedirs(os.path.dirname(os.path.abspath(options.state)), exist_ok=True)
    state = []
    if os.path.exists(options.state):
        with open(options.state) as file:
            state = json.load(file)

    def save(period):
        state.append(period)
        with open(options.state + ".new", "w") as file:
            json.dump(state, file, indent=1)
        os.rename(options.state + ".new", options.state)

    soak(options, state, save)
    print("\n".join(table(state)))
    sys.exit(any(period["failures"] for period in state))


if __name__ == "__main__":
    main()
