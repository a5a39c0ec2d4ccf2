"""What is measured. Times are in milliseconds, None where nothing came."""

import json
import os
import random
import statistics
import time

import firstflight
from dnswire import A, AAAA, labels, letters
from process import Process
from world import ENGINE, HOSTS, PORT, RELAY_PORT, THESIS_ZONE, ZONE, at

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

    def __init__(self, world, at_front, at_server, asker):
        self.world, self.at_front, self.at_server, self.asker = world, at_front, at_server, asker

    def arrival(self, names, wanted, sniffer, answers):
        """Asks for `names`; ms until the sniffer has what is wanted."""
        sniffer.clear()
        began = self.asker.send(names)
        packet = sniffer.wait(wanted)
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


#: First flights of one zone in a minute, and so of one run of the command (section 10 of docs/spec/dns-carriage.md).
AT_ONCE = 4


class Fetch:
    """`firstflight get` in the client's namespace, timed at its devices: from the first question that goes out to the
    first packet of the response that comes in."""

    def __init__(self, world, at_resolver, at_server):
        self.world, self.at_resolver, self.at_server = world, at_resolver, at_server
        self.memory = os.path.join(world.directory, f"memory-{random.randrange(1 << 32)}.json")

    def run(self, hosts, *options):
        """Fetches from the hosts, one after the other; a time, or None, and a report for each."""
        self.at_resolver.clear()
        self.at_server.clear()
        urls = [f"http://{host}:{PORT}/small" for host in hosts]
        with Process([firstflight.BINARY, "get", "--json", *urls, *options], ns=self.world.client) as get:
            get.wait(120)
        reports = [record for record in get.records() if "outcome" in record]
        if [record["status"] for record in reports] != [200] * len(hosts):
            raise AssertionError(f"{' '.join(get.command)}: {get.text()}")
        asked = [p for p in self.at_resolver.packets if p.sent and p.destination == 53]
        # A response is larger than a handshake.
        came = [p for p in self.at_server.packets if not p.sent and p.source == PORT and p.length > 500]
        return list(zip(self.times(hosts, asked, came), reports))

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
        options = ["--udp"]
        if way == "tcp":
            address, engine = (ends[world.family] for ends in (ENGINE.host, ENGINE.peer))
            options = ["--tun", "ff0", "--host-ip", ENGINE.cidr(address), "--ip", engine]
        return self.run([host], "--no-fast-open", *options)[0]

    def via_dns(self, hosts, *options):
        """The request inside the lookup, of a client that the server has not met."""
        world = self.world
        world.renumber()
        return self.run(
            hosts, "--udp", "--via-dns", "--dns", at(world.resolver_address, 53), "--dns-memory", self.memory,
            "--verifier", world.issuer, "--verifier-key", world.verifier_key, "--second-verifier", world.second,
            "--network-id", "0" * 31 + "1", "--verify-first", *options,
        )  # fmt: skip

    def learn(self):
        """What the server publishes is known from an earlier visit, for all of its hosts."""
        known = None
        # A resolver that begins may fail to find the record.
        for _ in range(3):
            self.via_dns(["www.xyz.com"])
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
