"""First flights to a DNS-path zone with two name servers: two fronts, each at its own address and wire, that forward
fragments to each other."""

import contextlib
import os

import documented
import firstflight
import report
from checks import fetched_once
from firstflight import at
from measure import DnsPath, Fetch, summary
from net import Pair
from process import run
from sniffer import Sniffer
from world import RELAY, World

#: The second front's wires to the resolver and the server, and the one between the fronts.
TO_SECOND, SECOND_RELAY, FORWARD = (Pair(number) for number in range(107, 110))
FORWARD_PORT = 4455
#: Minimum and maximum number of first flights through each resolver.
LEAST, FLIGHTS = 12, 100
#: Longer than fronts keep fragments, s.
PATIENCE = 3.5
#: The share of first flights that must arrive.
ARRIVE = 0.9


class TwoFronts(World):
    """The DNS-path zone has a second name server."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.second_address = TO_SECOND.peer[self.family]

    def wires(self):
        super().wires()
        self.second = self.namespace("second")
        self.wire(self.resolver, self.second, TO_SECOND, "front", device="second")
        self.wire(self.second, self.server, SECOND_RELAY, "relay", device="relay2")
        self.wire(self.front, self.second, FORWARD, "relay", device="forward")
        family = self.family
        # The server listens for both fronts at one address.
        self.second.ip(f"-{family}", "route", "add", RELAY.net[family], "via", SECOND_RELAY.peer[family])

    def delegation(self):
        addresses = {documented.FIRST: self.front_address, documented.SECOND: self.second_address}
        return documented.records("ns2.f", self.family, addresses)

    def fronts(self):
        zone = "@ NS ns1\n@ NS ns2\n"
        zone += f"ns1 {self.kind} {self.front_address}\nns2 {self.kind} {self.second_address}\n"
        for number, ns, address in ((0, self.front, self.front_address), (1, self.second, self.second_address)):
            self.dns_path_server(ns, address, zone, number, *self.forwarding(number))

    def forwarding(self, number):
        """Options with which a front forwards the fragments that belong to the other one."""
        if not can_forward():
            return ()
        ends = [at(address[self.family], FORWARD_PORT) for address in (FORWARD.host, FORWARD.peer)]
        key = os.path.join(self.directory, "forward.key")
        if number == 0:
            run(firstflight.BINARY, "dns", "keygen", "--relay", "-o", key)
        return ("--forward-listen", ends[number], "--forward-to", ends[1 - number], "--forward-key", key)


def can_forward():
    """Whether this build forwards fragments. The losses of older builds can also be measured."""
    return "--forward-to" in run(firstflight.BINARY, "dns", "--help").stdout


def measured(world, options):
    """Yields a line for each resolver."""
    world.web_servers()
    count = min(FLIGHTS, max(LEAST, options.count))
    for kind in options.resolver:
        with contextlib.ExitStack() as stack:
            at_server = stack.enter_context(Sniffer(world.server))
            stack.enter_context(kind(world))
            asker = stack.enter_context(world.asker())
            dns_path = DnsPath(world, None, at_server, asker, patience=PATIENCE)
            # This takes longer than the fronts need to find each other.
            dns_path.warm()
            times = [dns_path.flight(world.keys.fragments()) for _ in range(count)]
            line = {"arrived": [sum(time is not None for time in times), count], "ms": {"flight": summary(times)}}
            line.update(fetched_once(Fetch.entered(stack, world)))
        line = {"part": "fronts", "resolver": kind.label, "version": kind.version(), "family": world.family, **line}
        line["forwarding"] = can_forward()
        if line["arrived"][0] < ARRIVE * count:
            line["failures"].append("{} of {} first flights arrived".format(*line["arrived"]))
        report.progress(line)
        yield line
