"""Fetches while the wires between the resolver and the authorities lose packets. Fetches in lookups must succeed,
and the DNS path must not stop for long because a packet was lost."""

import contextlib
import json
import statistics
import time

import report
from checks import executed_once, settled, succeeded
from dnswire import letters
from measure import AT_ONCE, UDP_TODAY, DnsPath, Fetch, summary
from world import TO_AUTHORITIES, World

#: Share of packets that each of these wires loses in each direction.
SHARE = "1%"
#: Minimum number of first flights of one resolver, so that some are lost.
LEAST = 24
#: Time until the next fetch, ms. By then or soon after, the answers of a resolver that waited for an authority in
#: vain arrive.
INTERVAL = 600
#: Maximum duration of a stop because of lost packets, s.
LONGEST_STOP = 3600


class LossyWorld(World):
    """A world whose wires to the authorities lose packets."""

    def damage(self, name):
        # Packets that pass in the same order are always lost in the same places.
        return ("--loss", SHARE) if name in TO_AUTHORITIES else ()


def measured(world, options):
    """Yields a line for each resolver."""
    world.web_servers()
    for kind in options.resolver:
        with contextlib.ExitStack() as stack:
            stack.enter_context(kind(world))
            with world.asker() as asker:
                DnsPath(world, None, None, asker).warm()
            line = one(Fetch.entered(stack, world), options)
        line = {"part": "loss", "resolver": kind.label, "version": kind.version(), "family": world.family, **line}
        report.progress(line)
        yield line


def one(fetch, options):
    """Ordinary fetches and fetches in the lookup, with names that the resolver does not know. The client keeps what
    it learns."""
    before = fetch.world.executed()
    fetch.learn()
    count = max(LEAST, options.count)
    today = [fetch.tried([f"{letters(12).decode()}.xyz.com"], *UDP_TODAY)[0] for _ in range(count)]
    via, stops = [], []
    for number in range(0, count, AT_ONCE):
        hosts = [f"h{number + more}.xyz.com" for more in range(min(AT_ONCE, count - number))]
        via += fetch.tried(hosts, *fetch.by_lookup(), "--interval", str(INTERVAL))
        stops.append(longest_stop(fetch.memory))
    executed = settled(fetch, before)
    records = {"today": [record for _, record in today], "in the lookup": [record for _, record in via]}
    # An ordinary fetch fails if the resolver gives up (SERVFAIL) because a packet was lost.
    must = {"in the lookup": records["in the lookup"]}
    return {
        "ms": {"today": summary([time for time, _ in today]), "via-dns": summary([time for time, _ in via])},
        "succeeded": {way: [sum(r["status"] == 200 for r in some), len(some)] for way, some in records.items()},
        "mean": {
            name: statistics.fmean(times) if (times := [time for time, _ in some if time is not None]) else None
            for name, some in (("today", today), ("via-dns", via))
        },
        "ways": report.ways(records["in the lookup"]),
        # The number of runs of the command that knew of a stop when they ended, and the number of runs.
        "stopped": [sum(map(bool, stops)), len(stops)],
        "longest_stop_s": max(stops),
        "executed": executed,
        "failures": [*succeeded(must), *executed_once(executed), *stopped_for_long(stops)],
    }


def longest_stop(memory):
    """The remaining seconds of the longest stop; 0 without one."""
    with open(memory, encoding="utf-8") as file:
        stops = json.load(file).get("resolvers", [])
    return max((max(0, round(stop["until"] / 1000 - time.time())) for stop in stops), default=0)


def stopped_for_long(stops):
    longest = max(stops)
    if longest > LONGEST_STOP:
        yield f"lost packets stop requests in lookups for {longest} s"
