"""A first visit: the client knows nothing about the server or the network."""

import contextlib
import os
import shutil

import report
from checks import executed_once, settled, succeeded
from dnswire import letters
from measure import UDP_TODAY, DnsPath, Fetch, summary
from resolvers import Unbound

#: Maximum number of visits of each kind.
MOST = 40
KINDS = ("today", "first", "known")


def measured(world, options):
    """Yields a line, with unbound as the resolver."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(Unbound(world))
        with world.asker() as asker:
            DnsPath(world, None, None, asker).warm()
        line = visits(Fetch.entered(stack, world), min(MOST, options.count))
    line = {"part": "visit", "resolver": Unbound.label, "version": Unbound.version(), "family": world.family, **line}
    report.progress(line)
    return [line]


def visits(fetch, count):
    """Visits of three kinds: ordinary ones; with `--via-dns` and nothing known; with `--via-dns` and the server
    known from an earlier visit, but without certificate and proof. The resolver knows no host's address."""
    before, found = fetch.world.executed(), {kind: [] for kind in KINDS}
    fetch.learn()
    learnt = f"{fetch.memory}.learnt"
    shutil.copy(fetch.memory, learnt)
    for number in range(count):
        for kind in KINDS:
            host = f"{letters(12).decode()}.xyz.com"
            if kind == "first":
                host = f"h{number}.xyz.com"
                os.unlink(fetch.memory)
            elif kind == "known":
                host = f"h{count + number}.xyz.com"
                shutil.copy(learnt, fetch.memory)
            found[kind].append(visit(fetch, host, UDP_TODAY if kind == "today" else fetch.by_lookup(verified=False)))
    executed = settled(fetch, before)
    records = {kind: [record for _, record in some] for kind, some in found.items()}
    return {
        "ms": {kind: summary([time for time, _ in some]) for kind, some in found.items()},
        "ways": {kind: report.ways(some) for kind, some in records.items()},
        "executed": executed,
        "failures": [*succeeded(records), *executed_once(executed)],
    }


def visit(fetch, host, options):
    """One visit. Returns the ms from the first packet of any kind to the first packet of the response."""
    (record,) = fetch.reports([[host]], *options)
    sent = [p.time for sniffer in (fetch.at_resolver, fetch.at_server) for p in sniffer.packets if p.sent]
    came = [p.time for p in fetch.responses()]
    return (came[0] - min(sent)) * 1000 if record["status"] == 200 and came else None, record
