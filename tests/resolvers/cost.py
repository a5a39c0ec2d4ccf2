"""What a first flight costs a resolver in addition to the lookup: processor time of its processes."""

import os

from dnswire import letters
from measure import DNS_PATH, SITE, DnsPath

#: Fragments of a first flight of 85 bytes or less (IPv4).
FRAGMENTS = 7


def processor_time(processes):
    """The processor time of all threads, ns."""
    total = 0
    for process in processes:
        tasks = f"/proc/{process.popen.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    return total


def measured(world, kind, keys, options):
    """µs of a lookup of an unknown name, without and with a first flight in parallel; medians of rounds."""
    rounds, size = 5, max(10, options.count // 5)
    times = {"lookup": [], "flight": []}
    with kind(world) as resolver, world.asker() as asker:
        DnsPath(world, None, None, asker).warm()
        processes = [resolver, *([resolver.behind] if hasattr(resolver, "behind") else [])]
        for _ in range(rounds):
            for what, taken in times.items():
                began = processor_time(processes)
                for _ in range(size):
                    names = [[letters(12), *SITE]]
                    if what == "flight":
                        names += [[fragment, *DNS_PATH] for fragment in keys.fragments()]
                    asker.send(names)
                    if len(asker.answers(len(names))) < len(names):
                        raise AssertionError(f"{kind.label} does not answer")
                taken.append((processor_time(processes) - began) / size / 1000)
    lookup, flight = (sorted(taken)[rounds // 2] for taken in times.values())
    return {"lookup": lookup, "flight": flight, "added": flight - lookup, "a name": (flight - lookup) / FRAGMENTS}
