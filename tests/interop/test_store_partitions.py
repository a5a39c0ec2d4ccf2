"""A farm of two members whose store is cut apart by nftables. A first flight is executed once, whatever can be reached."""

import collections
import os
import shutil
import time

import pytest

import kernel
from firstflight import PORT
from replayer import first_flight
from store_servers import Clustered, Switch, Watched
from test_store import ONE_TIME, PAIR, Farm, losses_and_returns, wait_for_returns
from testbed import body

#: The most visits of a test, and the pause between two while something is waited for.
MOST, PAUSE = 3000, 0.02
#: Cookies that the first member grants before the cut, and the first of the ports that they are shown from.
COOKIES, FIRST = 40, 40_000
#: The hosts m1 and m2 are the members. s1 has a master of the store; the others have what may replace it.
Cut = collections.namedtuple("Cut", "some others losing isolated accepting copied")
# losing: how many masters each member loses. isolated: the members that reach no memory of the farm then. accepting: those
# that accept first flights before the network is whole again. copied: whether a first flight at a member is copied to the
# other one also if it was refused, because that one is isolated, or because its memory is another one.
CUTS = {
    "the members from the master": Cut("m1 m2", "s1", (1, 1), (0, 1), (), (True, True)),
    "a member from the master": Cut("m1", "s1", (1, 0), (0,), (1,), (False, True)),
    "the master from its replicas": Cut("s1", "s2 s3", (1, 1), (), (0, 1), (False, False)),
    "the master and a member": Cut("m1 s1", "m2 s2 s3", (1, 1), (0,), (1,), (True, True)),
}
CLUSTER_CUTS = {
    "a master from all others": Cut("s1", "s2", (1, 1), (), (0, 1), (False, False)),
    "a master and a member": Cut("m1 s1", "m2 s2", (2, 1), (0,), (1,), (False, True)),
}
#: The kernel of each member's client uses ports of its own, so it can tell copies of the other one's connections.
PORTS = ("20000-29999", "30000-39999")


class Visits:
    """First flights at both members of a farm, and their copies."""

    def __init__(self, testbed, store):
        self.testbed, self.next, self.copies, self.before = testbed, 0, 0, []
        self.recorded, self.accepted, self.kept = [], [], []
        self.root = testbed.root(settled=100, last=100, **{f"n{number}": 20 for number in range(MOST)})
        for number in range(COOKIES):
            shutil.copy(os.path.join(self.root, "last"), os.path.join(self.root, f"kept{number}"))
        self.switch = Switch(testbed)
        spaces = [self.switch.host(f"member{number}") for number in (1, 2)]
        servers = store(testbed, self.switch, self.root)
        self.hosts = {f"m{number + 1}": ns for number, ns in enumerate(spaces)}
        self.hosts |= {f"s{number + 1}": ns for number, ns in enumerate(servers.hosts)}
        self.farm = Farm(testbed, self.root, *ONE_TIME, store=servers, spaces=spaces)
        for ns, ours, theirs in zip(spaces, PORTS, reversed(PORTS)):
            ns.sysctl("net.ipv4.ip_local_port_range", ours.replace("-", " "))
            # The kernel does not know the connections of copies. Its RSTs would end the requests.
            ns.nft(
                f"type filter hook output priority 0; tcp sport {{ {theirs}, {FIRST}-{FIRST + COOKIES} }} "
                "tcp flags & rst == rst drop"
            )

    def visit(self, member, copied=(False, False)):
        """Returns whether the first flight was accepted. If it was, or if the member's are to be `copied`, a copy of every
        second one is sent to the other member at once. That of the others comes later, from `show`: a member that has
        refused a copy would use it up.

        A first flight that was refused because its member alone had lost the store may be accepted elsewhere until that
        member has reported it (docs/farm-store.md, "When a member forgets"). Its copy is sent at the end only.
        """
        path = f"n{self.next}"
        self.next += 1
        reply = self.farm.fetch(member, 4, f"/{path}")
        assert (reply.status, reply.body) == (200, body(self.root, path)), f"answer {path}"
        for packet in self.farm.wires[member].recorded():
            self.recorded.append(packet)
            if reply.info.syn_data:
                self.accepted.append(packet)
            if self.next % 2 and (reply.info.syn_data or copied[member]):
                self.copies += 1
                self.farm.wires[1 - member].send(packet)
        return reply.info.syn_data

    def keep(self):
        """Keeps SYNs with cookies that are good before the cut. A replica that takes over has those, too."""
        ns, client, server = self.farm.spaces[0], PAIR.host[4], PAIR.peer[4]
        for number in range(COOKIES):
            kernel.flush_cookies(ns)
            self.visit(0)
            data = kernel.request(server, f"/kept{number}")
            cookie = kernel.cached_cookie(ns, server)
            self.kept.append(first_flight(client, server, (FIRST + number, PORT), cookie, data))
        kernel.flush_cookies(ns)

    def show(self, packets):
        """Sends copies to both members, few at a time: the answer to a question that waits for others comes too late."""
        for number, packet in enumerate(packets):
            for wire in self.farm.wires:
                self.copies += 1
                wire.send(packet)
            if number % 5 == 0:
                time.sleep(PAUSE)

    def shares(self, copied=(False, False), count=20):
        """Visits both members so often. Returns how many first flights each accepted."""
        accepted = [0, 0]
        for _ in range(count):
            for member in (0, 1):
                accepted[member] += self.visit(member, copied)
        return accepted

    def accept(self, members, copied=(False, False), count=10):
        """Visits both members until each of these has accepted so many first flights one after the other."""
        row, most = [0, 0], [0, 0]
        while any(most[member] < count for member in members):
            for member in (0, 1):
                row[member] = row[member] + 1 if self.visit(member, copied) else 0
                most[member] = max(most[member], row[member])
            time.sleep(PAUSE)

    def losses(self):
        return [losses_and_returns(member)[0] for member in self.farm.members]

    def cut(self, cut):
        """Visits both members until they have noticed the cut. At once half of the kept SYNs reach the first one, which may
        accept them for as long as the lease of its master lasts."""
        wait_for_returns(self.farm)
        before = self.losses()
        self.switch.cut(*([self.hosts[host] for host in side.split()] for side in (cut.some, cut.others)))
        for packet in self.kept[::2]:
            self.farm.wires[0].send(packet)
            time.sleep(PAUSE)
        while any(now < then + masters for now, then, masters in zip(self.losses(), before, cut.losing)):
            self.shares(count=1)
            time.sleep(PAUSE)

    def are_executed_once(self):
        """Shows every first flight to both members again, and ends them. Returns how many of the kept ones were accepted."""
        # A member that stops in order has reported all that it refused. If it could not, its start begins a new memory.
        for member in (0, 1):
            assert self.farm.members[member].terminate() == 0, "exit status"
            self.before += self.farm.restart(self.testbed, member)
        self.show(self.recorded + self.kept)
        self.farm.settled(4, "/last")
        for member in self.farm.members:
            assert member.terminate() == 0, "exit status"
        logs = self.before + [record for member in self.farm.members for record in member.records()]
        times = collections.Counter(r["path"] for r in logs if r.get("event") == "request")
        expected = {f"/n{number}": 1 for number in range(self.next)}
        assert {path: times[path] for path in expected if times[path] != 1} == {}, "executed not once"
        kept = [times[f"/kept{number}"] for number in range(COOKIES)]
        assert max(kept) <= 1, f"executions of the SYNs with older cookies: {kept}"
        return sum(kept)


def partition(testbed, store, name, cut):
    """Cuts servers apart, shows first flights and their copies, and prints what became of them."""
    visits = Visits(testbed, store)
    visits.accept((0, 1))
    before = visits.shares()
    visits.keep()
    visits.cut(cut)
    noticed = visits.shares(cut.copied)
    visits.accept(cut.accepting, cut.copied)
    visits.show(visits.accepted + visits.kept)
    # Copies may have cost a member the store, if it is slow.
    visits.accept(cut.accepting, cut.copied)
    later = visits.shares(cut.copied)
    # The members have handled all copies before they can reach each other's memory again.
    visits.farm.settled(4, "/settled")
    visits.switch.heal()
    visits.accept((0, 1))
    after = visits.shares()
    kept = visits.are_executed_once()
    shares = " | ".join(f"{one}, {other}" for one, other in (before, noticed, later, after))
    print(f"| {name} | {shares} | {visits.next} | {kept} | {visits.copies} | once |")
    for member in cut.isolated:
        assert noticed[member] + later[member] == 0, f"accepted without a memory: {shares}"


@pytest.mark.needs("nft", "redis-server", "redis-cli")
@pytest.mark.parametrize("name", CUTS)
def test_a_master_with_sentinels(testbed, name):
    """Members, the master and its replicas are cut apart. First flights wait where a copy could be accepted elsewhere."""
    partition(testbed, Watched, name, CUTS[name])


@pytest.mark.needs("nft", "redis-server", "redis-cli")
@pytest.mark.parametrize("name", CLUSTER_CUTS)
def test_a_master_of_a_cluster(testbed, name):
    """One of three masters is cut off, and replaced. The other two thirds of the first flights go on where they can."""
    partition(testbed, Clustered, name, CLUSTER_CUTS[name])
