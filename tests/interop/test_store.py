"""A farm of two members that share a Redis: a first flight is executed once, whichever member it reaches."""

import collections
import os
import secrets
import signal

import kernel
from case import FAMILIES, body, case, check, equal
from firstflight import PORT, TUN, is_accepted, show
from net import Pair
from process import run
from redis_server import Redis
from replayer import Replayer, first_flight

PAIR = Pair(76)
KEY = "5a5a5a5a-00112233-44556677-8899aabb"
ONE_TIME = ("--replays", "at-most-once", "--one-time")


class Farm:
    """Two namespaces with the same addresses. Each contains a member, and the client on its side of the network."""

    def __init__(self, t, root, *options, store=None, one_time=True):
        keys = secret(root, "farm.keys", secrets.token_hex(48))
        self.spaces, self.members, self.wires, self._start = [], [], [], []
        for number in (1, 2):
            ns = t.namespace(f"member{number}")
            extra = ["--key", KEY, *options]
            if store:
                state = os.path.join(root, f"store-state{number}")
                extra += ["--store", store.url, "--store-keys", keys, "--store-state", state]
            if one_time:
                extra += ["--one-time-state", os.path.join(root, f"state{number}"), "--issuer", number]
            self.spaces.append(ns)
            self._start.append(lambda ns=ns, extra=extra: t.serve(ns, PAIR, root, *extra))
        if store:
            # A member's first start begins a new memory for all. Let that happen before the test.
            for start in self._start:
                equal(start().terminate(), 0, "exit status")
        for ns, start in zip(self.spaces, self._start):
            self.members.append(start())
            self.wires.append(t.enter_context(Replayer(ns, TUN)))

    def restart(self, t, number):
        """Restarts a member that has ended. Returns its previous log."""
        before = self.members[number].records()
        self.members[number] = self._start[number]()
        self.wires[number] = t.enter_context(Replayer(self.spaces[number], TUN))
        return before

    def fetch(self, member, family, path):
        return kernel.fetch(self.spaces[member], "sendto", PAIR.peer[family], PORT, path)

    def executed(self):
        """How often each path was requested, at both members together."""
        logs = [record for member in self.members for record in member.records()]
        return collections.Counter(record["path"] for record in logs if record.get("event") == "request")

    def settled(self, family, path):
        """Every member has handled all earlier packets: it answers an ordinary request after them."""
        for member in (0, 1):
            equal(self.fetch(member, family, path).status, 200, "status")
        for member in self.members:
            member.wait_until(lambda m=member: path in m.text(), f"log of {path}")


def secret(root, name, text):
    path = os.path.join(root, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(text)
    return path


@case(family=FAMILIES, replays=("allow", "at-most-once"), needs=("nft", "redis-server"))
def replay_at_the_other_member(t, family, replays):
    """A recorded SYN is also executed by the other member if replays are allowed, otherwise by none."""
    root = t.root(small=5000, again=100, last=100)
    once = replays == "at-most-once"
    store = t.start(Redis(root)) if once else None
    farm = Farm(t, root, *(ONE_TIME if once else ()), store=store, one_time=once)
    farm.fetch(0, family, "/small")
    reply = farm.fetch(0, family, "/again")
    equal((reply.body, reply.info.syn_data), (body(root, "again"), True), "second visit")
    (syn,) = farm.wires[0].recorded()
    # The kernel there does not know the connection. Its RST would end the request.
    farm.spaces[1].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    farm.wires[1].send(syn)
    if not once:
        farm.members[1].wait_until(lambda: "/again" in farm.members[1].text(), "second execution")
    farm.spaces[1].nft_flush()
    farm.settled(family, "/last")
    equal(farm.executed()["/again"], 1 if once else 2, "executions")
    if once:
        counters = stop(farm)
        equal((sum(c["accepted"] for c in counters), sum(c["refused"] for c in counters)), (2, 1), "the store's answers")


def requests(farm):
    return [r for member in farm.members for r in member.records() if r.get("event") == "request"]


def stop(farm):
    """Ends the members. Returns their counters of the store."""
    for member in farm.members:
        equal(member.terminate(), 0, "exit status")
    return [r for member in farm.members for r in member.records() if r.get("event") == "store"]


@case(family=FAMILIES, needs=("nft", "redis-server"))
def a_cookie_travels_through_the_farm(t, family):
    """A cookie granted by one member opens a connection at the other member, and after that at neither."""
    root = t.root(small=5000, moved=100, last=100)
    store = t.start(Redis(root))
    farm = Farm(t, root, *ONE_TIME, store=store)
    farm.fetch(0, family, "/small")
    client, server = PAIR.host[family], PAIR.peer[family]
    cookie = kernel.cached_cookie(farm.spaces[0], server)
    # The kernel does not know the connection. Its RST would end the request.
    farm.spaces[1].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    data = kernel.request(server, "/moved")
    farm.wires[1].send(first_flight(client, server, (40000, PORT), cookie, data))
    (record,) = farm.members[1].requests(1)
    equal((record["path"], is_accepted(record)), ("/moved", True), show(record))
    farm.spaces[1].nft_flush()
    # Again, from other ports: only the owner of the cookie's address could have sent it.
    for member in (0, 1):
        for port in (40000, 40001):
            farm.wires[member].send(first_flight(client, server, (port, PORT), cookie, data))
    farm.settled(family, "/last")
    equal(farm.executed()["/moved"], 1, "executions")


@case(needs=("redis-server",))
def a_farm_that_starts_is_closed_for_copies(t):
    """no-duplicates: the farm does not know what was accepted before, so it uses handshakes for 2 MSL and reports
    why."""
    root = t.root(small=5000)
    store = t.start(Redis(root))
    farm = Farm(t, root, "--replays", "no-duplicates", store=store, one_time=False)
    for visit in (1, 2):
        equal(farm.fetch(0, 4, "/small").body, body(root, "small"), "body")
    record = farm.members[0].requests(2)[-1]
    equal((is_accepted(record), record["reason"]), (False, "guard-floor"), show(record))


@case(how=("killed", "stopped"), needs=("redis-server",))
def store_lost_under_load(t, how):
    """200 requests; Redis is lost at the 67th and back at the 134th. All are answered, and none is executed twice.

    After it was killed, it is empty. After it was stopped, it remembers every cookie that was used in vain in the
    meantime.
    """
    count, lost, back, noticed = 200, 67, 134, 144
    paths = [f"n{n}" for n in range(count)]
    root = t.root(last=100, **{path: 100 for path in paths})
    store = t.start(Redis(root))
    farm = Farm(t, root, *ONE_TIME, store=store)
    recorded = []
    for n, path in enumerate(paths):
        if n == lost:
            store.kill() if how == "killed" else os.kill(store.pid, signal.SIGSTOP)
        if n == back and how == "killed":
            store = t.start(Redis(root))
        elif n == back:
            os.kill(store.pid, signal.SIGCONT)
        if n == noticed:
            for member in farm.members:
                member.wait_until(lambda m=member: "answers again" in m.text("err"), "return of the store")
        reply = farm.fetch(n % 2, 4, f"/{path}")
        equal((reply.status, reply.body), (200, body(root, path)), f"answer {n}")
        # Each SYN is also sent to the other member, some of them at once, while Redis is up, down and new.
        for packet in farm.wires[n % 2].recorded():
            recorded.append(packet)
            farm.wires[1 - n % 2].send(packet)
    for packet in recorded:
        for wire in farm.wires:
            wire.send(packet)
    farm.settled(4, "/last")
    times = farm.executed()
    logs = {record["path"]: record for record in requests(farm)}
    twice = {path: times[f"/{path}"] for path in paths if times[f"/{path}"] != 1}
    equal(twice, {}, "executed not once")
    accepted = [is_accepted(logs[f"/{path}"]) for path in paths]
    before, down, after = accepted[:lost], accepted[lost:back], accepted[back:]
    print(
        f"     {len(recorded)} SYNs with data replayed; accepted {sum(before)} of {len(before)} before, "
        f"{sum(down)} of {len(down)} while Redis was down, {sum(after)} of {len(after)} after",
        flush=True,
    )
    reasons = collections.Counter(logs[f"/{path}"]["reason"] for path in paths)
    print(f"     reasons: {dict(reasons)}", flush=True)
    check(sum(before) > len(before) // 2, f"{sum(before)} accepted before")
    equal(sum(down), 0, "accepted without a store")
    check(sum(after) > len(after) // 2, f"{sum(after)} accepted after")
    for member in farm.members:
        told = [member.text("err").count(words) for words in ("store is lost", "answers again")]
        check(0 < told[0] <= 3 and told[0] == told[1], f"{told} losses and returns in the log")


@case(how=("terminated", "killed"), needs=("nft", "redis-server"))
def killed_in_an_outage(t, how):
    """A member refuses a first flight while Redis does not answer, and ends. No member accepts the recorded SYN."""
    root = t.root(small=5000, refused=100, last=100)
    store = t.start(Redis(root))
    farm = Farm(t, root, *ONE_TIME, store=store)
    client, server = PAIR.host[4], PAIR.peer[4]
    cookies = []
    for _ in (1, 2):
        run("ip", "-n", farm.spaces[0].name, "tcp_metrics", "flush", "all")
        farm.fetch(0, 4, "/small")
        cookies.append(kernel.cached_cookie(farm.spaces[0], server))
    check(None not in cookies and cookies[0] != cookies[1], f"two cookies: {cookies}")
    farm.wires[0].recorded()
    os.kill(store.pid, signal.SIGSTOP)
    # The first question times out. After that the member does not ask any more.
    farm.wires[0].send(first_flight(client, server, (40000, PORT), cookies[0], b"GET /lost"))
    farm.members[0].wait_until(lambda: "store is lost" in farm.members[0].text("err"), "loss of the store")
    reply = farm.fetch(0, 4, "/refused")
    equal((reply.status, reply.body), (200, body(root, "refused")), "answer in the outage")
    (syn,) = farm.wires[0].recorded()
    (record,) = [r for r in farm.members[0].requests(3) if r["path"] == "/refused"]
    equal((is_accepted(record), record["reason"]), (False, "store-unavailable"), show(record))
    if how == "terminated":
        equal(farm.members[0].terminate(), 0, "exit status")
    else:
        farm.members[0].kill()
    os.kill(store.pid, signal.SIGCONT)
    before = farm.restart(t, 0)
    # The kernels do not know the copies' connections. Drop their RSTs, which would end the requests.
    for space in farm.spaces:
        space.nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    for wire in farm.wires:
        wire.send(syn)
    farm.settled(4, "/last")
    executed = sum(r.get("path") == "/refused" for r in before) + farm.executed()["/refused"]
    equal(executed, 1, "executions")


@case(family=FAMILIES)
def one_time_cookies_of_one_server(t, family):
    """Without a store: a cookie is valid once, and after a restart earlier cookies are no longer valid."""
    root = t.root(small=5000, again=100, once=100, more=100)
    options = ("--one-time-state", os.path.join(root, "state"), *ONE_TIME)
    ns = t.namespace("alone")
    address = PAIR.peer[family]
    seen = []
    for start in (1, 2):
        serve = t.serve(ns, PAIR, root, *options)
        wire = t.enter_context(Replayer(ns, TUN))
        for path in ("/small", "/again"):
            kernel.fetch(ns, "sendto", address, PORT, path)
        for packet in wire.recorded():
            wire.send(packet)
        kernel.fetch(ns, "sendto", address, PORT, "/more")
        records = serve.requests(3)
        equal([r["path"] for r in records], ["/small", "/again", "/more"], "executions")
        seen.append([(is_accepted(r), r["reason"]) for r in records])
        equal(serve.terminate(), 0, "exit status")
    good = (True, None)
    equal(seen[0], [(False, "no-credential"), good, good], "at the first start")
    equal(seen[1], [(False, "expired"), good, good], "after a restart")


@case()
def one_server_that_starts_is_closed_for_copies(t):
    """no-duplicates without a store: also closed for 2 MSL."""
    root = t.root(small=5000)
    ns = t.namespace("alone")
    serve = t.serve(ns, PAIR, root, "--replays", "no-duplicates", "--replay-memory", 1)
    for _ in range(2):
        kernel.fetch(ns, "sendto", PAIR.peer[4], PORT, "/small")
    record = serve.requests(2)[-1]
    equal((is_accepted(record), record["reason"]), (False, "guard-floor"), show(record))
