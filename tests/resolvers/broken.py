"""Fetches inside lookups through resolvers that misbehave. Each fetch must succeed, at least in the ordinary way."""

import contextlib
import os
import shutil
import statistics

import report
from dnswire import letters
from measure import DnsPath, Fetch, summary
from process import Process
from proxy import MANNERS
from resolvers import LocalUnbound
from sniffer import Sniffer


#: Number of fetches with one memory after which a client can know a resolver's behaviour. The last one is measured.
LESSONS = 4


def proxy(world, manner):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "proxy.py")
    address, port = LocalUnbound.listen
    process = Process(["python3", script, world.resolver_address, address, port, manner], ns=world.resolver)
    process.wait_until(lambda: "ready" in process.text(), "the proxy")
    return process


def told(record):
    """The way that a request took, and why it did not travel inside the lookup."""
    return f"{record['way']} {record['held_back'] or ''}".strip()


def measured(world, options):
    """Yields a line for each manner."""
    lines = []
    for manner in MANNERS:
        with contextlib.ExitStack() as stack:
            stack.enter_context(LocalUnbound(world))
            stack.enter_context(proxy(world, manner))
            asker = stack.enter_context(world.asker())
            at_resolver = stack.enter_context(Sniffer(world.client, "resolver"))
            at_server = stack.enter_context(Sniffer(world.client, "server"))
            # Warm up the zone of the fragments as well, with a name that no manner affects.
            DnsPath(world, at_resolver, at_server, asker).warm()
            lines.append(one(Fetch(world, at_resolver, at_server), manner, world, options))
        report.progress(lines[-1])
    return lines


def one(fetch, manner, world, options):
    fetch.learn()
    learnt = f"{fetch.memory}.learnt"
    shutil.copy(fetch.memory, learnt)
    today, via = [], []
    for number in range(options.restarts):
        today.append(fetch.today(f"{letters(12).decode()}.xyz.com", "udp"))
        # Restore the memory, so that this resolver is new to the client.
        shutil.copy(learnt, fetch.memory)
        via.append(fetch.via_dns([f"h{number}.xyz.com"])[0])
    # The client keeps what it has learnt about the resolver, from the last of these fetches and some more.
    for number in range(options.restarts, options.restarts + LESSONS):
        (again,) = fetch.via_dns([f"h{number}.xyz.com"])
    times = {"today": [time for time, _ in today], "via-dns": [time for time, _ in via], "again": [again[0]]}
    known = {name: statistics.median(found) for name, found in times.items() if None not in found}
    return {
        "resolver": f"unbound behind a proxy: {manner}",
        "family": world.family,
        "manner": manner,
        "ms": {name: summary(found) for name, found in times.items()},
        "added": known["via-dns"] - known["today"] if {"via-dns", "today"} <= known.keys() else None,
        "ways": sorted({told(record) for _, record in via}),
        "way_again": told(again[1]),
    }
