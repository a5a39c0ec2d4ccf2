"""A farm of two members that share a Redis: a first flight is executed once, whichever member it reaches."""

import collections
import concurrent.futures
import operator
import os
import secrets
import signal

import pytest

import kernel
from certificates import Certificates
from firstflight import PORT, TUN, is_accepted, show
from net import Pair
from packets import Capture
from process import run
from redis_server import Redis
from replayer import Replayer, first_flight
from store_servers import Server, Switch
from testbed import body

PAIR = Pair(76)
KEY = "5a5a5a5a-00112233-44556677-8899aabb"
ONE_TIME = ("--replays", "at-most-once", "--one-time")


class Farm:
    """Two namespaces with the same addresses. Each contains a member, and the client on its side of the network."""

    def __init__(self, testbed, root, *options, store=None, one_time=True, spaces=None):
        keys = secret(root, "farm.keys", secrets.token_hex(48))
        self.spaces = spaces or [testbed.namespace(f"member{number}") for number in (1, 2)]
        self.members, self.wires, self._start = [], [], []
        for number, ns in enumerate(self.spaces, 1):
            # With the offload a recorded SYN has no checksum, and its copy would be dropped.
            extra = ["--key", KEY, "--no-offload", *options]
            if store:
                state = os.path.join(root, f"store-state{number}")
                extra += ["--store", store.url, "--store-keys", keys, "--store-state", state]
            if one_time:
                extra += ["--one-time-state", os.path.join(root, f"state{number}"), "--issuer", number]
            self._start.append(lambda ns=ns, extra=extra: testbed.serve(ns, PAIR, root, *extra))
        if store:
            # A member's first start begins a new memory for all. Let that happen before the test.
            for start in self._start:
                assert start().terminate() == 0, "exit status"
        for ns, start in zip(self.spaces, self._start):
            self.members.append(start())
            self.wires.append(testbed.enter_context(Replayer(ns, TUN)))

    def restart(self, testbed, number):
        """Restarts a member that has ended. Returns its previous log."""
        before = self.members[number].records()
        self.members[number] = self._start[number]()
        self.wires[number] = testbed.enter_context(Replayer(self.spaces[number], TUN))
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
            assert self.fetch(member, family, path).status == 200, "status"
        for member in self.members:
            member.wait_until(lambda m=member: path in m.text(), f"log of {path}")


def secret(root, name, text):
    path = os.path.join(root, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(text)
    return path


@pytest.mark.needs("nft", "redis-server")
@pytest.mark.parametrize("replays", ("allow", "at-most-once"))
def test_replay_at_the_other_member(testbed, family, replays):
    """A recorded SYN is also executed by the other member if replays are allowed, otherwise by none."""
    root = testbed.root(small=5000, again=100, last=100)
    once = replays == "at-most-once"
    store = testbed.start(Redis(root)) if once else None
    farm = Farm(testbed, root, *(ONE_TIME if once else ()), store=store, one_time=once)
    farm.fetch(0, family, "/small")
    reply = farm.fetch(0, family, "/again")
    assert (reply.body, reply.info.syn_data) == (body(root, "again"), True), "second visit"
    (syn,) = farm.wires[0].recorded()
    # The kernel there does not know the connection. Its RST would end the request.
    farm.spaces[1].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    farm.wires[1].send(syn)
    if not once:
        farm.members[1].wait_until(lambda: "/again" in farm.members[1].text(), "second execution")
    farm.spaces[1].nft_flush()
    farm.settled(family, "/last")
    assert farm.executed()["/again"] == (1 if once else 2), "executions"
    if once:
        counters = stop(farm)
        assert (sum(c["accepted"] for c in counters), sum(c["refused"] for c in counters)) == (2, 1), (
            "the store's answers"
        )


def executed_soon(member):
    """Whether a member's first request comes within some seconds."""
    try:
        return bool(member.wait_records(1, "requests", lambda it: it.get("event") == "request", 3))
    except AssertionError:
        return False


def requests(farm):
    return [r for member in farm.members for r in member.records() if r.get("event") == "request"]


def stop(farm):
    """Ends the members. Returns their counters of the store."""
    for member in farm.members:
        assert member.terminate() == 0, "exit status"
    return [r for member in farm.members for r in member.records() if r.get("event") == "store"]


@pytest.mark.needs("nft", "redis-server")
def test_a_copy_that_reaches_the_other_member_first(testbed, family):
    """The copy is executed. The SYN is a repeat then, and its connection is reset before its data could run again."""
    paths = [f"/order{n}" for n in range(5)]
    root = testbed.root(small=5000, last=100, **{path[1:]: 100 for path in paths})
    store = testbed.start(Redis(root))
    farm = Farm(testbed, root, *ONE_TIME, store=store)
    farm.fetch(0, family, "/small")
    farm.wires[0].recorded()
    # The kernel there does not know the connection. Its RST would end the request.
    farm.spaces[1].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    for attempts, path in enumerate(paths, 1):
        # The SYN waits at its own member.
        os.kill(farm.members[0].pid, signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                client = pool.submit(farm.fetch, 0, family, path)
                while not (syns := farm.wires[0].recorded()):
                    assert not client.done(), client.exception()
                farm.wires[1].send(syns[0])
                # On a busy machine the store may answer too late, so the copy is refused, and the client's data runs after its handshake.
                runs = executed_soon(farm.members[1])
                os.kill(farm.members[0].pid, signal.SIGCONT)
                if runs:
                    with pytest.raises(ConnectionResetError):
                        client.result()
                    break
                client.result()
        finally:
            os.kill(farm.members[0].pid, signal.SIGCONT)
    (record,) = farm.members[1].requests(1)
    assert (record["path"], is_accepted(record)) == (path, True), show(record)
    farm.spaces[1].nft_flush()
    farm.settled(family, "/last")
    assert all(farm.executed()[path] == 1 for path in paths[:attempts]), "executions"
    assert sum(c["refused"] for c in stop(farm)) == attempts, "the store's answers"
    engines = [r for member in farm.members for r in member.records() if r.get("event") == "counters"]
    assert sum(engine["repeats_reset"] for engine in engines) == 1, "resets"


@pytest.mark.needs("nft", "redis-server")
def test_a_cookie_travels_through_the_farm(testbed, family):
    """A cookie granted by one member opens a connection at the other member, and after that at neither."""
    root = testbed.root(small=5000, moved=100, last=100)
    store = testbed.start(Redis(root))
    farm = Farm(testbed, root, *ONE_TIME, store=store)
    farm.fetch(0, family, "/small")
    client, server = PAIR.host[family], PAIR.peer[family]
    cookie = kernel.cached_cookie(farm.spaces[0], server)
    # The kernel does not know the connection. Its RST would end the request.
    farm.spaces[1].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    data = kernel.request(server, "/moved")
    farm.wires[1].send(first_flight(client, server, (40000, PORT), cookie, data))
    (record,) = farm.members[1].requests(1)
    assert (record["path"], is_accepted(record)) == ("/moved", True), show(record)
    farm.spaces[1].nft_flush()
    # Again, from other ports: only the owner of the cookie's address could have sent it.
    for member in (0, 1):
        for port in (40000, 40001):
            farm.wires[member].send(first_flight(client, server, (port, PORT), cookie, data))
    farm.settled(family, "/last")
    assert farm.executed()["/moved"] == 1, "executions"


@pytest.mark.needs("redis-server")
def test_a_farm_that_starts_is_closed_for_copies(testbed):
    """no-duplicates: the farm does not know what was accepted before, so it uses handshakes for 2 MSL and reports
    why."""
    root = testbed.root(small=5000)
    store = testbed.start(Redis(root))
    farm = Farm(testbed, root, "--replays", "no-duplicates", store=store, one_time=False)
    for visit in (1, 2):
        assert farm.fetch(0, 4, "/small").body == body(root, "small"), "body"
    record = farm.members[0].requests(2)[-1]
    assert (is_accepted(record), record["reason"]) == (False, "guard-floor"), show(record)


@pytest.mark.needs("redis-server")
@pytest.mark.parametrize("how", ("killed", "stopped"))
def test_store_lost_under_load(testbed, how):
    """200 requests; Redis is lost at the 67th and back at the 134th. All are answered, and none is executed twice.

    After it was killed, it is empty. After it was stopped, it remembers every cookie that was used in vain in the
    meantime.
    """
    count, lost, back, noticed = 200, 67, 134, 144
    paths = [f"n{n}" for n in range(count)]
    root = testbed.root(reported=100, last=100, **{path: 100 for path in paths})
    store = testbed.start(Redis(root))
    farm = Farm(testbed, root, *ONE_TIME, store=store)
    recorded = []
    for n, path in enumerate(paths):
        if n == lost:
            store.kill() if how == "killed" else os.kill(store.pid, signal.SIGSTOP)
        if n == back and how == "killed":
            store = testbed.start(Redis(root))
        elif n == back:
            os.kill(store.pid, signal.SIGCONT)
        if n == noticed:
            for member in farm.members:
                member.wait_until(lambda m=member: "answers again" in m.text("err"), "return of the store")
        reply = farm.fetch(n % 2, 4, f"/{path}")
        assert (reply.status, reply.body) == (200, body(root, path)), f"answer {n}"
        # Each SYN is also sent to the other member, while Redis is up, down and new: at once, if the other member can
        # know how it ended. It cannot if this member refused the SYN because it had lost Redis on its own, which
        # happens on a busy machine (docs/farm-store.md, "When a member forgets").
        known = reply.info.syn_data or lost <= n < back
        for packet in farm.wires[n % 2].recorded():
            recorded.append(packet)
            if known:
                farm.wires[1 - n % 2].send(packet)
    # From here on every member has reported what it refused.
    wait_for_returns(farm)
    farm.settled(4, "/reported")
    wait_for_returns(farm)
    for packet in recorded:
        for wire in farm.wires:
            wire.send(packet)
    farm.settled(4, "/last")
    times = farm.executed()
    logs = {record["path"]: record for record in requests(farm)}
    twice = {path: times[f"/{path}"] for path in paths if times[f"/{path}"] != 1}
    assert twice == {}, "executed not once"
    accepted = [is_accepted(logs[f"/{path}"]) for path in paths]
    before, down, after = accepted[:lost], accepted[lost:back], accepted[back:]
    print(
        f"{len(recorded)} SYNs with data replayed; accepted {sum(before)} of {len(before)} before, "
        f"{sum(down)} of {len(down)} while Redis was down, {sum(after)} of {len(after)} after"
    )
    reasons = collections.Counter(logs[f"/{path}"]["reason"] for path in paths)
    print(f"reasons: {dict(reasons)}")
    assert sum(before) > len(before) // 2, f"{sum(before)} accepted before"
    assert sum(down) == 0, "accepted without a store"
    assert sum(after) > len(after) // 2, f"{sum(after)} accepted after"
    wait_for_returns(farm)
    assert all(losses_and_returns(member)[0] > 0 for member in farm.members), "losses in the log"


def wait_for_returns(farm):
    """Waits until no member has lost its store. On a busy machine any question may time out, which is a loss."""
    for member in farm.members:
        member.wait_until(lambda m=member: operator.eq(*losses_and_returns(m)), "return of the store")


def losses_and_returns(member):
    """How often a member logged that its store is lost, and that it answers again."""
    text = member.text("err")
    return text.count("store is lost"), text.count("answers again")


@pytest.mark.needs("nft", "redis-server")
@pytest.mark.parametrize("how", ("terminated", "killed"))
def test_killed_in_an_outage(testbed, how):
    """A member refuses a first flight while Redis does not answer, and ends. No member accepts the recorded SYN."""
    root = testbed.root(small=5000, refused=100, last=100)
    store = testbed.start(Redis(root))
    farm = Farm(testbed, root, *ONE_TIME, store=store)
    client, server = PAIR.host[4], PAIR.peer[4]
    cookies = []
    for _ in (1, 2):
        run("ip", "-n", farm.spaces[0].name, "tcp_metrics", "flush", "all")
        farm.fetch(0, 4, "/small")
        cookies.append(kernel.cached_cookie(farm.spaces[0], server))
    assert None not in cookies and cookies[0] != cookies[1], f"two cookies: {cookies}"
    farm.wires[0].recorded()
    os.kill(store.pid, signal.SIGSTOP)
    # The first question times out. After that the member does not ask any more.
    farm.wires[0].send(first_flight(client, server, (40000, PORT), cookies[0], b"GET /lost"))
    farm.members[0].wait_until(lambda: "store is lost" in farm.members[0].text("err"), "loss of the store")
    reply = farm.fetch(0, 4, "/refused")
    assert (reply.status, reply.body) == (200, body(root, "refused")), "answer in the outage"
    (syn,) = farm.wires[0].recorded()
    (record,) = [r for r in farm.members[0].requests(3) if r["path"] == "/refused"]
    assert (is_accepted(record), record["reason"]) == (False, "store-unavailable"), show(record)
    if how == "terminated":
        assert farm.members[0].terminate() == 0, "exit status"
    else:
        farm.members[0].kill()
    os.kill(store.pid, signal.SIGCONT)
    before = farm.restart(testbed, 0)
    # The kernels do not know the copies' connections. Drop their RSTs, which would end the requests.
    for space in farm.spaces:
        space.nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    for wire in farm.wires:
        wire.send(syn)
    farm.settled(4, "/last")
    executed = sum(r.get("path") == "/refused" for r in before) + farm.executed()["/refused"]
    assert executed == 1, "executions"


@pytest.mark.needs("openssl", "redis-server")
@pytest.mark.parametrize("scheme", ("redis", "rediss"))
def test_what_a_capture_shows_of_the_store(testbed, scheme):
    """The packets between a member and Redis have the password, the questions and the answers, with TLS none of them."""
    root, private = testbed.root(small=100, again=100), testbed.root()
    switch = Switch(testbed)
    ns, host = switch.host("member"), switch.host("store")
    files = Certificates(private)
    certificate, key = files.certify("store", switch.address[host])
    password = secrets.token_hex(16)
    tls = ("--tls-port", 6380, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", files.ca)
    testbed.start(Server(switch, host, private, *tls, "--tls-auth-clients", "no", "--requirepass", password))
    port = {"redis": 6379, "rediss": 6380}[scheme]
    access = ("--store-login", secret(private, "login", f"password {password}\n"))
    access += ("--store-ca", files.ca) if scheme == "rediss" else ()
    keys = secret(private, "farm.keys", secrets.token_hex(48))
    capture = testbed.enter_context(Capture(ns, "eth0"))
    serve = testbed.serve(
        ns, PAIR, root, *ONE_TIME, "--one-time-state", os.path.join(private, "state"), "--issuer", 1,
        "--store", f"{scheme}://{switch.address[host]}:{port}", "--store-keys", keys, *access,
    )  # fmt: skip
    for path in ("/small", "/again"):
        kernel.fetch(ns, "sendto", PAIR.peer[4], PORT, path)
    assert [is_accepted(record) for record in serve.requests(2)] == [False, True], "the second one by the store"
    assert serve.terminate() == 0, "exit status"
    packets = [packet for _, _, packet in list(capture.packets)]
    assert packets, "nothing was captured"
    for text in (password.encode(), b"firstflight:", b"MULTI", b"run_id:"):
        assert any(text in packet for packet in packets) == (scheme == "redis"), text


def test_one_time_cookies_of_one_server(testbed, family):
    """Without a store: a cookie is valid once, and after a restart earlier cookies are no longer valid."""
    root = testbed.root(small=5000, again=100, once=100, more=100)
    options = ("--one-time-state", os.path.join(root, "state"), "--no-offload", *ONE_TIME)
    ns = testbed.namespace("alone")
    address = PAIR.peer[family]
    seen = []
    for start in (1, 2):
        serve = testbed.serve(ns, PAIR, root, *options)
        wire = testbed.enter_context(Replayer(ns, TUN))
        for path in ("/small", "/again"):
            kernel.fetch(ns, "sendto", address, PORT, path)
        for packet in wire.recorded():
            wire.send(packet)
        kernel.fetch(ns, "sendto", address, PORT, "/more")
        records = serve.requests(3)
        assert [r["path"] for r in records] == ["/small", "/again", "/more"], "executions"
        seen.append([(is_accepted(r), r["reason"]) for r in records])
        assert serve.terminate() == 0, "exit status"
    good = (True, None)
    assert seen[0] == [(False, "no-credential"), good, good], "at the first start"
    assert seen[1] == [(False, "expired"), good, good], "after a restart"


def test_one_server_that_starts_is_closed_for_copies(testbed):
    """no-duplicates without a store: also closed for 2 MSL."""
    root = testbed.root(small=5000)
    ns = testbed.namespace("alone")
    serve = testbed.serve(ns, PAIR, root, "--replays", "no-duplicates", "--replay-memory", 1)
    for _ in range(2):
        kernel.fetch(ns, "sendto", PAIR.peer[4], PORT, "/small")
    record = serve.requests(2)[-1]
    assert (is_accepted(record), record["reason"]) == (False, "guard-floor"), show(record)
