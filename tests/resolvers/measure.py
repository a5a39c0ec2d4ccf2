"""The measurements. Times are in milliseconds; None if nothing arrived."""

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

DNS_PATH, THESIS, SITE = labels(ZONE), labels(THESIS_ZONE), labels("xyz.com")
#: The length of each label of a thesis name by the number of labels, in octets. The whole name then has 255 octets.
THESIS_LABELS = {4: 59, 5: 47}


def summary(times):
    """Summarises a list of times: how many there are, how many are missing, median, tenth and ninetieth percentile."""
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


class DnsPath:
    """The client's queries, and when they arrive behind the resolver."""

    def __init__(self, world, at_front, at_server, asker, patience=5):
        self.world, self.at_front, self.at_server, self.asker = world, at_front, at_server, asker
        #: How long to wait for an arrival, s.
        self.patience = patience

    def arrival(self, names, wanted, sniffer, answers):
        """Asks for `names`. Returns the ms until the sniffer has the wanted packet."""
        sniffer.clear()
        began = self.asker.send(names)
        packet = sniffer.wait(wanted, self.patience)
        self.asker.answers(answers, timeout=5 if packet else 0.1)
        # Wait until the resolver's own activity has ended.
        time.sleep(0.01)
        return (packet.time - began) * 1000 if packet else None

    def warm(self):
        """Makes the resolver learn all name servers, and what else it wants to know of them: some resolvers query
        their addresses again."""
        for zone in (DNS_PATH, THESIS):
            for _ in range(20):
                self.asker.ask([letters(12), *zone])

    def warm_parent(self):
        """Makes the resolver learn the name server of the site, but not those of its children."""
        self.asker.ask([letters(12), *SITE], AAAA if self.world.family == 6 else A)

    def plain(self, zone=DNS_PATH):
        """Queries a single name directly below the zone. Measures until the question is at the zone's name server."""
        name = [letters(12), *zone]
        return self.arrival([name], lambda p: not p.sent and p.name == tuple(name), self.at_front, 1)

    def flight(self, fragments):
        """Sends a first flight in fragments, in parallel with the question for the host. Measures until the server
        has it."""
        names = [labels("www.xyz.com"), *([fragment, *DNS_PATH] for fragment in fragments)]
        relayed = lambda p: not p.sent and p.protocol == 17 and p.destination == RELAY_PORT  # noqa: E731
        return self.arrival(names, relayed, self.at_server, len(names))

    def thesis(self, count):
        """Queries one name of `count` labels of random letters. Measures until the whole name is at the zone's name
        server."""
        parts = [letters(THESIS_LABELS[count]) for _ in range(count)]
        name = [b"a", *parts, *THESIS]
        return self.arrival([name], lambda p: not p.sent and p.name == tuple(name), self.at_front, 1)


#: Options of a fetch as programs do it today, over TCP in UDP.
UDP_TODAY = ("--no-fast-open", "--udp")
#: First flights of one zone in a minute, and therefore of one run of the command (section 10 of
#: docs/spec/dns-path.md).
AT_ONCE = 4


@functools.cache
def verify_first():
    """The option that waits for verifiers first. Builds without this option always wait."""
    option = "--verify-first"
    return (option,) if option in run(firstflight.BINARY, "get", "--help").stdout else ()


class Fetch:
    """`firstflight get` in the client's namespace, timed at its devices: from the first question that is sent to the
    first packet of the response that arrives."""

    def __init__(self, world, at_resolver, at_server):
        self.world, self.at_resolver, self.at_server = world, at_resolver, at_server
        self.memory = os.path.join(world.directory, f"memory-{random.randrange(1 << 32)}.json")
        #: Number of fetches so far, and of those that succeeded.
        self.asked = self.succeeded = 0

    @classmethod
    def entered(cls, stack, world):
        """A fetch whose devices are observed until the stack ends."""
        return cls(world, *(stack.enter_context(Sniffer(world.client, device)) for device in ("resolver", "server")))

    def run(self, hosts, *options):
        """Fetches from the hosts, one after the other. Returns a time, or None, and a report for each."""
        found = self.tried(hosts, *options)
        if [record["status"] for _, record in found] != [200] * len(hosts):
            raise AssertionError(f"{' '.join(options)}: {[record for _, record in found]}")
        return found

    def tried(self, hosts, *options):
        """Like `run`, but fetches may fail; these have no time."""
        reports = self.reports([hosts], *options)
        asked = [p for p in self.at_resolver.packets if p.sent and p.destination == 53]
        times = self.times(hosts, asked, self.responses())
        return [(time if record["status"] == 200 else None, record) for time, record in zip(times, reports)]

    def at_once(self, runs, *options):
        """Fetches at the same time. `runs` has the hosts of each run of the command. Returns the ms from the first
        question to the first packet of the last response, or None if a fetch failed, and the reports."""
        hosts = [host for run in runs for host in run]
        reports = self.reports(runs, "--parallel", str(len(hosts)), *options)
        began = next((p.time for p in self.at_resolver.packets if p.sent and p.destination == 53), None)
        # Group by the TCP ports inside of UDP: each fetch has one connection.
        first = {(p.destination, p.data[4:8]): p.time for p in reversed(self.responses())}
        if began is None or len(first) < len(hosts) or [report["status"] for report in reports] != [200] * len(hosts):
            return None, reports
        return (max(first.values()) - began) * 1000, reports

    def reports(self, runs, *options):
        """Runs the command, once for each list of hosts, all at the same time. Returns its reports, including those
        of fetches that it did not start."""
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
        """The first and later packets of responses. They are longer than those of a handshake."""
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
        """A fetch as programs do it today: the system's resolver, then a handshake."""
        world = self.world
        options = UDP_TODAY
        if way == "tcp":
            address, engine = (ends[world.family] for ends in (ENGINE.host, ENGINE.peer))
            options = ("--no-fast-open", "--tun", "ff0", "--host-ip", ENGINE.cidr(address), "--ip", engine)
        return self.run([host], *options)[0]

    def via_dns(self, hosts, *options):
        """Sends the request inside the lookup, as a client that the server has not seen before."""
        return self.run(hosts, *self.by_lookup(), *options)

    def by_lookup(self, verified=True):
        """Options of such a request. Gives the client a new address first. With `verified`, the request waits until
        a verifier has found that unknown servers can reach the client."""
        world = self.world
        world.renumber()
        self.forget_servers()
        return (
            "--udp", "--via-dns", "--dns", at(world.resolver_address, 53), "--cache", self.memory,
            "--verifier", world.issuer, "--verifier-key", world.verifier_key, "--second-verifier", world.second,
            "--network-id", "0" * 31 + "1", *(verify_first() if verified else ()),
        )  # fmt: skip

    def forget_servers(self):
        """Forgets cookies and round-trip times, which are those of the former address."""
        if not os.path.exists(self.memory):
            return
        with open(self.memory, encoding="utf-8") as file:
            memory = json.load(file)
        memory["servers"] = []
        with open(self.memory, "w", encoding="utf-8") as file:
            json.dump(memory, file)

    def learn(self):
        """Learns what the server publishes, as in an earlier visit, for all of its hosts."""
        known = None
        # A resolver that has just started may fail to find the record.
        for _ in range(3):
            self.tried(["www.xyz.com"], *self.by_lookup())
            with open(self.memory, encoding="utf-8") as file:
                memory = json.load(file)
            if memory["records"]:
                (known,) = memory["records"]
                break
        if known is None:
            raise AssertionError("the command does not learn what www.xyz.com publishes")
        memory["records"] += [{**known, "name": f"h{number}.xyz.com"} for number in range(HOSTS)]
        memory["resolvers"] = []
        with open(self.memory, "w", encoding="utf-8") as file:
            json.dump(memory, file)
