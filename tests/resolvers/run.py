#!/usr/bin/env python3
"""What a lookup and a first flight inside it cost through real resolvers, in a small Internet on this machine.

    tests/resolvers/run.py [--quick | --check] [--part NAME …] [--resolver NAME …] [--family 4|6] [--json]

Measures, for each resolver and family:

  fetch    lookup, handshake and request with `firstflight get`, over TCP and over TCP in UDP, and `get --via-dns`
  flight   a first flight in seven fragments: from the client's questions to the relayed datagram at the server
  thesis   the same in one name of four or five labels, in the thesis' form (5.1)
  cost     processor time of the resolver for a lookup, and for one with a first flight beside it
  broken   resolvers that are silent, slow, lying or filter odd octets
  visit    a first visit with `get --via-dns`, when nothing is known of the server
  limits   fetches through dnsdist in front of unbound, which refuses or drops questions above a limit
  loss     fetches while the wires between the resolver and the authorities lose packets
  fronts   first flights to a DNS-path zone with two name servers
  signed   first flights below zones that NSD or BIND serves signed, through resolvers that validate

The parts from `visit` on also check what must hold at any speed: all fetches succeed, each request is executed once,
first flights arrive at one of two fronts, and answers validate. The exit status is 1, after a line for each failure,
if a check fails, and 77 if a package is missing. `--check` does only these checks, as ./check needs it.

Needs root and the packages of packages.txt; `cargo build --release -p firstflight-cli -p firstflight-lab` first. All
it makes are network namespaces and processes, which end with it.
"""

import collections
import contextlib
import json
import os
import shutil
import sys


HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "interop")]
sys.dont_write_bytecode = True

import authority  # noqa: E402
import broken  # noqa: E402
import cost  # noqa: E402
import experiment  # noqa: E402
import fronts  # noqa: E402
import limits  # noqa: E402
import loss  # noqa: E402
import report  # noqa: E402
import resolvers  # noqa: E402
import signed  # noqa: E402
import visit  # noqa: E402
from measure import AT_ONCE, DnsPath, Fetch, summary  # noqa: E402
from sealed import Keys  # noqa: E402
from dnswire import letters  # noqa: E402
from sniffer import Sniffer  # noqa: E402
from world import HOSTS, RTTS, World, ZONE  # noqa: E402

PARTS = ("fetch", "flight", "thesis", "cost", "broken", "visit", "limits", "loss", "fronts", "signed")
#: The parts of --check.
CHECKED = ("limits", "fronts", "signed")
#: The parts that run for each resolver.
OF_RESOLVERS = {"fetch", "flight", "thesis", "cost"}
#: The parts that run in the same small Internet, only with unbound.
OF_ONE = {"broken": broken, "visit": visit, "limits": limits}


def flights(world, kind, keys, options):
    """With warm caches, then each time from the start: with the site's name server known, or with nothing known."""
    results = {}
    with contextlib.ExitStack() as stack:
        at_front = stack.enter_context(Sniffer(world.front, "front"))
        at_server = stack.enter_context(Sniffer(world.server, "relay"))
        with kind(world), world.asker() as asker:
            dns_path = DnsPath(world, at_front, at_server, asker)
            dns_path.warm()
            results["plain"] = summary([dns_path.plain() for _ in range(options.count)])
            if {"flight", "signed"} & set(options.parts):
                results["flight"] = summary([dns_path.flight(keys.fragments()) for _ in range(options.count)])
            if "thesis" in options.parts:
                for count in (4, 5):
                    times = [dns_path.thesis(count) for _ in range(options.count)]
                    results[f"thesis-{count}"] = summary(times)
        if not {"flight", "signed"} & set(options.parts):
            return results
        for state in ("parent", "cold"):
            times = {"plain": [], "flight": [], "parity": []}
            for what in [*times] * options.restarts:
                with kind(world), world.asker() as asker:
                    dns_path = DnsPath(world, at_front, at_server, asker)
                    if state == "parent":
                        dns_path.warm_parent()
                    fragments = keys.fragments(what == "parity")
                    times[what].append(dns_path.plain() if what == "plain" else dns_path.flight(fragments))
            results.update({f"{what}-{state}": summary(found) for what, found in times.items()})
    return results


def fetches(world, kind, options):
    """Fetches today's way and inside the lookup, of names that the resolver knows, and of unknown names in a zone
    that it knows."""
    results = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(kind(world))
        asker = stack.enter_context(world.asker())
        at_resolver = stack.enter_context(Sniffer(world.client, "resolver"))
        at_server = stack.enter_context(Sniffer(world.client, "server"))
        DnsPath(world, at_resolver, at_server, asker).warm()
        fetch = Fetch(world, at_resolver, at_server)
        for way in ("tcp", "udp"):
            for known in ("known", "unknown"):
                fetch.today("www.xyz.com", way)
                hosts = [host(known) for _ in range(options.count)]
                results[f"fetch-{way}-{known}"] = summary([fetch.today(name, way)[0] for name in hosts])
        fetch.learn()
        for known in ("known", "unknown"):
            hosts = [host(known, number) for number in range(options.count)]
            found = []
            while hosts:
                found += fetch.via_dns(hosts[:AT_ONCE])
                del hosts[:AT_ONCE]
            ways = collections.Counter(f"{record['way']} {record['held_back'] or ''}".strip() for _, record in found)
            results[f"fetch-dns-{known}"] = {**summary([time for time, _ in found]), "ways": ways}
    return results


def host(known, number=None):
    """A name that the resolver knows, or one that it does not know. With a number, one that the server has a name
    for."""
    if known == "known":
        return "www.xyz.com"
    return f"{letters(12).decode()}.xyz.com" if number is None else f"h{number}.xyz.com"


def measured(options):
    """Yields a line for each resolver and family, and for each manner of misbehaviour."""
    keys = Keys(ZONE)
    found = []
    for family in options.family:
        for kind, measure in worlds(keys, options):
            with kind(family, options.rtts, keys) as world:
                try:
                    found.extend(measure(world, options))
                except Exception:
                    print("\n".join(world.tails()), file=sys.stderr)
                    raise
    return found


def worlds(keys, options):
    """The kinds of small Internets, and what is measured in each."""
    parts = set(options.parts)
    if parts & (OF_RESOLVERS | OF_ONE.keys()):
        yield World, lambda world, options: measured_in(world, keys, options)
    if "loss" in parts:
        yield loss.LossyWorld, loss.measured
    if "fronts" in parts:
        yield fronts.TwoFronts, fronts.measured
    if "signed" in parts:
        for kind in signed.WORLDS[: 1 if options.check else None]:
            yield kind, lambda world, options: signed.measured(world, options, flights)


def measured_in(world, keys, options):
    parts = set(options.parts)
    if {"fetch", *OF_ONE} & parts:
        world.web_servers()
    for kind in options.resolver if parts & OF_RESOLVERS else ():
        results = {}
        if {"flight", "thesis"} & parts:
            results.update(flights(world, kind, keys, options))
        if "fetch" in parts:
            results.update(fetches(world, kind, options))
        line = {"resolver": kind.label, "version": kind.version(), "family": world.family, "ms": results}
        if "cost" in parts:
            line["cost_us"] = cost.measured(world, kind, keys, options)
        report.progress(line)
        yield line
    for part, module in OF_ONE.items():
        if part in parts:
            yield from module.measured(world, options)


def arguments():
    names = {kind.__name__.lower(): kind for kind in resolvers.ALL}
    parser = experiment.parser(__doc__)
    parser.add_argument("--count", type=int, default=200, metavar="N", help="measurements of each kind [200]")
    parser.add_argument("--quick", action="store_true", help="five of each kind")
    parser.add_argument("--check", action="store_true", help="what must hold, in a minute: unbound, IPv4, no figures")
    parser.add_argument("--resolver", action="append", choices=names, help="only this one; once more for others")
    parser.add_argument("--family", action="append", type=int, choices=(4, 6), help="only this one")
    parser.add_argument("--part", action="append", choices=PARTS, dest="parts", help="only this part")
    for name, milliseconds in RTTS.items():
        parser.add_argument(f"--rtt-{name}", type=float, default=milliseconds, metavar="MS", help=f"[{milliseconds}]")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = experiment.parse(parser)
    if options.check:
        options.count, options.resolver, options.family = 1, ["unbound"], [4]
        options.parts = options.parts or CHECKED
        if unchecked := set(options.parts) & (OF_RESOLVERS | {"broken"}):
            parser.error(f"--check has nothing to check in {', '.join(sorted(unchecked))}: leave --check out")
    elif options.quick:
        options.count = 5
    if not 1 <= options.count <= HOSTS:
        parser.error(f"--count is from 1 to {HOSTS}")
    # These measurements restart the resolver.
    options.restarts = max(2, options.count // 20) if not options.check else 0
    options.resolver = [names[name] for name in options.resolver or names]
    options.family = options.family or [4, 6]
    options.parts = options.parts or PARTS
    options.rtts = {name: getattr(options, f"rtt_{name}") for name in RTTS}
    return options


def missing(options):
    """What has to be done before this can run, or None."""
    lacking = [kind.package for kind in options.resolver if kind.missing()]
    needed = {"limits": limits.NEEDS, "signed": authority.NEEDS}
    for part in needed.keys() & set(options.parts):
        lacking += [package for command, package in needed[part].items() if shutil.which(command) is None]
    return experiment.missing(packages=lacking, tun=False)


def main():
    options = arguments()
    if reason := missing(options):
        return experiment.refuse(reason)
    experiment.when_stopped(experiment.unwind)
    found = measured(options)
    if options.check:
        for line in found:
            print(f"{report.title(line)}: {'FAILED' if line['failures'] else 'ok'}")
    elif options.json:
        print(json.dumps({"count": options.count, "rtt_ms": options.rtts, "results": found}))
    else:
        print(report.text(found, options))
    failures = [f"{report.title(line)}: {text}" for line in found for text in line.get("failures", ())]
    for text in failures:
        print(f"tests/resolvers/run.py: {text}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
