"""What is measured. Times are in milliseconds, None where nothing came."""

import contextlib
import functools
import json
import os
import random
import statistics
import time

import firstflight
from dnswire import A, AAAA, labels, letters
from firstflight import at
from process import Process, run
from sniffer import Sniffer
from world import ENGINE, HOSTS, PORT, RELAY_PORT, THESIS_ZONE, ZONE

CARRIAGE, THESIS, SITE = labels(ZONE), labels(THESIS_ZONE), labels("xyz.com")
#: Octets of all labels of a name of the thesis' form together, and their lengths: 255 and below.
THESIS_LABELS = {4: 59, 5: 47}


def summary(times):
    """Of a list of times: how many there are, how many are missing, median, tenth and ninetieth percentile."""
    there = sorted(time for time in times if time is not None)
    if not there:
        return {"count": 0, "missing": len(times), "median": None, "p10": None, "p90": None}
    tenth = (len(there) - 1) // 10
    return {
        "count": len(there),
        "missing": len(times) - len(there),
        "median": statistics.median(there),
        "p10": there[tenth],
        "p90": there[-1 - tenth],
    }


class Carriage:
    """Queries of the client's, and when they arrive behind the resolver."""

    def __init__(self, world, at_front, at_server, asker, patience=5):
        self.world, self.at_front, self.at_server, self.asker = world, at_front, at_server, asker
        #: How long an arrival is waited for, s.
        self.patience = patience

    def arrival(self, names, wanted, sniffer, answers):
        """Asks for `names`; ms until the sniffer has what is wanted."""
        sniffer.clear()
        began = self.asker.send(names)
        packet = sniffer.wait(wanted, self.patience)
        self.asker.answers(answers, timeout=5 if packet else 0.1)
        # What the resolver does on its own has an end.
        time.sleep(0.01)
        return (packet.time - began) * 1000 if packet else None

    def warm(self):
        """All name servers are known, and what a resolver wants to know of them besides: some ask for their addresses
        again."""
        for zone in (CARRIAGE, THESIS):
            for _ in range(20):
                self.asker.ask([letters(12), *zone])

    def warm_parent(self):
        """The name server of the site is known, not those of its children."""
        self.asker.ask([letters(12), *SITE], AAAA if self.world.family == 6 else A)

    def plain(self, zone=CARRIAGE):
        """A name directly below the zone, alone: until its question is at the zone's name server."""
        name = [letters(12), *zone]
        return self.arrival([name], lambda p: not p.sent and p.name == tuple(name), self.at_front, 1)

    def flight(self, fragments):
        """A first flight in fragments, beside the question for the host: until the server has it."""
        names = [labels("www.xyz.com"), *([fragment, *CARRIAGE] for fragment in fragments)]
        relayed = lambda p: not p.sent and p.protocol == 17 and p.destination == RELAY_PORT  # noqa: E731
        return self.arrival(names, relayed, self.at_server, len(names))

    def thesis(self, count):
        """One name of `count` labels of random letters: until the whole of it is at the zone's name server."""
        parts = [letters(THESIS_LABELS[count]) for _ in range(count)]
        name = [b"a", *parts, *THESIS]
        return self.arrival([name], lambda p: not p.sent and p.name == tuple(name), self.at_front, 1)


#: Options of a fetch as programs do it now, over TCP in UDP.
UDP_TODAY = ("--no-fast-open", "--udp")
#: First flights of one zone in a minute, and so of one run of the command (section 10 of docs/spec/dns-carriage.md).
AT_ONCE = 4


@functools.cache
def verify_first():
    """The option that does so; builds without it wait always."""
    option = "--verify-first"
    return (option,) if option in run(firstflight.BINARY, "get", "--help").stdout else ()


class Fetch:
    """`firstflight get` in the client's namespace, timed at its devices: from the first question that goes out to the
    first packet of the response that comes in."""

    def __init__(self, world, at_resolver, at_server):
        self.world, self.at_resolver, self.at_server = world, at_resolver, at_server
        self.memory = os.path.join(world.directory, f"memory-{random.randrange(1 << 32)}.json")
        #: Fetches so far, and how many of them succeeded.
        self.asked = self.succeeded = 0

    @classmethod
    def entered(cls, stack, world):
        """One whose devices are listened at as long as the stack lasts."""
        return cls(world, *(stack.enter_context(Sniffer(world.client, device)) for device in ("resolver", "server")))

    def run(self, hosts, *options):
        """Fetches from the hosts, one after the other; a time, or None, and a report for each."""
        found = self.tried(hosts, *options)
        if [record["status"] for _, record in found] != [200] * len(hosts):
            raise AssertionError(f"{' '.join(options)}: {[record for _, record in found]}")
        return found

    def tried(self, hosts, *options):
        """As `run`, but fetches may fail: they have no time."""
        reports = self.reports([hosts], *options)
        asked = [p for p in self.at_resolver.packets if p.sent and p.destination == 53]
        times = self.times(hosts, asked, self.responses())
        return [(time if record["status"] == 200 else None, record) for time, record in zip(times, reports)]

    def at_once(self, runs, *options):
        """Fetches at the same time: `runs` has the hosts of each run of the command. Returns ms from the first question to
        the last response's first packet, None if a fetch failed, and the reports."""
        hosts = [host for run in runs for host in run]
        reports = self.reports(runs, "--parallel", str(len(hosts)), *options)
        began = next((p.time for p in self.at_resolver.packets if p.sent and p.destination == 53), None)
        # By TCP's ports, which are inside of UDP: a connection for each fetch.
        first = {(p.destination, p.data[4:8]): p.time for p in reversed(self.responses())}
        if began is None or len(first) < len(hosts) or [report["status"] for report in reports] != [200] * len(hosts):
            return None, reports
        return (max(first.values()) - began) * 1000, reports

    def reports(self, runs, *options):
        """Runs the command, at the same time for each of several lists of hosts; its reports, also of fetches that it did
        not come to."""
        self.at_resolver.clear()
        self.at_server.clear()
        reports = []
        with contextlib.ExitStack() as stack:
            commands = [
                [firstflight.BINARY, "get", "--json", *(f"http://{host}:{PORT}/small" for host in hosts), *options]
                for hosts in runs
            ]
            started = [stack.enter_context(Process(command, ns=self.world.client)) for command in commands]
            for hosts, get in zip(runs, started):
                get.wait(120)
                found = [record for record in get.records() if "outcome" in record]
                lost = {"status": None, "way": None, "held_back": None, "error": get.text("err")}
                reports += found + [lost] * (len(hosts) - len(found))
        self.asked += len(reports)
        self.succeeded += sum(record["status"] == 200 for record in reports)
        return reports

    def responses(self):
        """The first packets of responses, and more: a response is larger than a handshake."""
        return [p for p in self.at_server.packets if not p.sent and p.source == PORT and p.length > 500]

    @staticmethod
    def times(hosts, asked, came):
        after = 0
        for host in hosts:
            name = tuple(labels(host))
            began = next((p.time for p in asked if p.time > after and p.name == name), None)
            ended = next((p.time for p in came if began is not None and p.time > began), None)
            if ended is None:
                yield None
            else:
                after = ended
                yield (ended - began) * 1000

    def today(self, host, way):
        """As programs do it now: the system's resolver, then a handshake."""
        world = self.world
        options = UDP_TODAY
        if way == "tcp":
            address, engine = (ends[world.family] for ends in (ENGINE.host, ENGINE.peer))
            options = ("--no-fast-open", "--tun", "ff0", "--host-ip", ENGINE.cidr(address), "--ip", engine)
        return self.run([host], *options)[0]

    def via_dns(self, hosts, *options):
        """The request inside the lookup, of a client that the server has not met."""
        return self.run(hosts, *self.by_lookup(), *options)

    def by_lookup(self, verified=True):
        """Options of such a request, once the client has a new address. `verified`: it waits until a verifier has found
        that strangers can answer."""
        world = self.world
        world.renumber()
        return (
            "--udp", "--via-dns", "--dns", at(world.resolver_address, 53), "--dns-memory", self.memory,
            "--verifier", world.issuer, "--verifier-key", world.verifier_key, "--second-verifier", world.second,
            "--network-id", "0" * 31 + "1", *(verify_first() if verified else ()),
        )  # fmt: skip

    def learn(self):
        """What the server publishes is known from an earlier visit, for all of its hosts."""
        known = None
        # A resolver that begins may fail to find the record.
        for _ in range(3):
            self.tried(["www.xyz.com"], *self.by_lookup())
            with open(self.memory, encoding="utf-8") as file:
                memory = json.load(file)
            if memory["servers"]:
                (known,) = memory["servers"]
                break
        if known is None:
            raise AssertionError("the command does not learn what www.xyz.com publishes")
        memory["servers"] += [{**known, "name": f"h{number}.xyz.com"} for number in range(HOSTS)]
        memory["stops"] = []
        with open(self.memory, "w", encoding="utf-8") as file:
            json.dump(memory, file)
