#!/usr/bin/env python3
"""Two members of a farm on a bad wire, for a long time, while everything happens to them.

    tests/soak/run.py [--minutes N] [--state FILE] [--bin PATH] [--seed N]

The wire loses 2 % of the packets, and reorders and doubles some. Two gateways share a Redis, a TCP port and a key file, in front
of two backends that note each request before they answer it. Clients ask without a pause, in all these ways:

- `kernel, kept`: on connections of HTTP/1.1 and HTTP/2 that are kept
- `kernel, in SYNs`: with cookies of the kernel's Fast Open
- `TUN, member 1` and `2`: with one-time cookies of the members' engines on devices; member 1 also forwards POSTs early
- `UDP`: with certificates, GETs and POSTs; a router sends each client to one of the members

Every few seconds one of these happens: a reload with another order of backends, a turn of the keys, member 2 is killed, a backend
is killed, the wall clocks of members step, packets are answered with RST, the wire is silent.

No POST may be executed twice, and each request must have its answer or an error. At rest, after each period, member 1 may have FILES
descriptors more than at its start, no connection, and MEMORY KiB more than after its first period.

A run appends its periods to the state file, and the next one goes on with the next seed: `--minutes 10` ten times is a soak of
100 minutes of load. A table of all periods is printed at the end. The exit status is 1 if anything failed, in any run. Needs root,
Debian's gcc, nftables and redis-server.
"""

import collections
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
for name in (HERE, os.path.join(TESTS, "gateway"), os.path.join(TESTS, "interop")):
    sys.path.insert(0, name)
sys.dont_write_bytecode = True

import experiment  # noqa: E402
from soak import periods  # noqa: E402


def default_state():
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(os.path.dirname(TESTS), "target"))
    return os.path.join(target, "soak", "state.json")


def listed(numbers):
    return ", ".join(f"{name} {number:,}" for name, number in numbers)


def table(state):
    """What all periods add up to."""
    ways, happened, reasons = collections.defaultdict(collections.Counter), collections.Counter(), collections.Counter()
    for period in state:
        for way, numbers in period["ways"].items():
            ways[way].update(numbers)
        happened.update(period["happened"])
        reasons.update(period["reasons"])
    yield f"{sum(period['seconds'] for period in state) / 60:.0f} minutes of load, in {len(state)} periods. Early: taken in first flights."
    yield ""
    yield "| way | GETs | POSTs | answered | errors | GETs early | POSTs early | POSTs run twice |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for way, numbers in ways.items():
        errors = numbers["GETs"] + numbers["POSTs"] - numbers["answered"]
        early = [numbers.get(f"{method}s taken in first flights", "") for method in ("GET", "POST")]
        cells = (numbers["GETs"], numbers["POSTs"], numbers["answered"], errors, *early, numbers["POSTs executed twice"])
        yield f"| {way} | {' | '.join(f'{cell:,}' if cell != '' else '' for cell in cells)} |"
    yield ""
    for way, numbers in ways.items():
        errors = sorted((name, number) for name, number in numbers.items() if name.startswith(("GET: ", "POST: ")))
        yield f"- Errors, {way}: {listed(errors) or 'none'}"
    yield f"- First flights in UDP: {listed(reasons.most_common())}"
    yield f"- What happened: {listed(sorted(happened.items()))}"
    for name, key in (("memory, KiB", "memory"), ("descriptors", "files")):
        numbers = [period[key] for period in state]
        yield f"- Member 1 at rest, {name}: {numbers[0]:,} after the first period, {numbers[-1]:,} after the last, {max(numbers):,} at most"
    failures = [f"seed {period['seed']}: {failure}" for period in state for failure in period["failures"]]
    yield f"- Failures: {len(failures)}"
    yield from (f"FAILED: {failure}" for failure in failures)


def main():
    parser = experiment.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="how long [10]")
    parser.add_argument("--state", default=default_state(), metavar="FILE", help="where the periods are kept [target/soak/state.json]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first period [1]")
    options = experiment.parse(parser)
    if reason := experiment.missing("ip", "nft", "cc", "redis-server"):
        return experiment.refuse(reason)
    experiment.when_stopped(experiment.unwind)
    os.makedirs(os.path.dirname(os.path.abspath(options.state)), exist_ok=True)
    state = []
    if os.path.exists(options.state):
        with open(options.state) as file:
            state = json.load(file)
    seed = 1 + max((period["seed"] for period in state), default=options.seed - 1)
    for result in periods(options.bin, options.minutes, seed):
        state.append(vars(result))
        with open(options.state + ".new", "w") as file:
            json.dump(state, file, indent=1)
        os.rename(options.state + ".new", options.state)
        print("\n".join(table(state[-1:])), flush=True)
    print("\n".join(table(state)))
    return int(any(period["failures"] for period in state))


if __name__ == "__main__":
    sys.exit(main())
