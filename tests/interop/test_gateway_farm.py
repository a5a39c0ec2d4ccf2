"""Farms of gateways: a first flight runs at one backend once, whichever gateway it reaches."""

import collections
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import threading

import pytest

import kernel
from firstflight import PORT as WEB_PORT
from firstflight import TUN, is_accepted, show
from net import Pair
from redis_server import Redis
from replayer import Replayer
from test_gateway import APP, BACKEND, GLOBAL, WEB, Backend, Gateway
from test_sealed import Relay, Site, seals
from test_store import KEY, secret
from test_tls import PORT

PAIR = Pair(77)

ONCE = """
[one_time]
state = "{root}/state{number}"
issuer = {number}
"""

STORE = """
[store]
redis = "{url}"
keys = "{root}/farm.keys"
state = "{root}/store-state{number}"
"""

LISTENER = """
[[listener]]
name = "web"
mode = "http"
service = "app"
early = "any"
key_file = "{root}/cookie.key"
{once}
[listener.tun]
device = "{tun}"
host = {host}
address = {peer}
port = {port}
offload = false
"""


def write(root, name, *parts):
    path = os.path.join(root, name)
    with open(path, "w") as file:
        file.write("\n".join(parts))
    return path


def listed(*texts):
    return "[" + ", ".join(f'"{text}"' for text in texts) + "]"


class Farm:
    """Two namespaces with the same addresses, each with a gateway, its backend, and the client beside it."""

    def __init__(self, testbed, root, store):
        self.testbed, self.root = testbed, root
        secret(root, "farm.keys", secrets.token_hex(48))
        secret(root, "cookie.key", KEY)
        self.spaces = [testbed.namespace(f"gateway{number}") for number in (1, 2)]
        self.files = [self.file(number, store) for number in (1, 2)]
        self.backends = [testbed.start(Backend(ns, BACKEND)) for ns in self.spaces]
        if store:
            # A member's first start begins a new memory for all. Let that happen before the test.
            for member in (0, 1):
                assert self.start(member).terminate() == 0, "exit status"
        self.members = [self.start(member) for member in (0, 1)]
        self.wires = [testbed.enter_context(Replayer(ns, TUN)) for ns in self.spaces]

    def file(self, number, store):
        once = 'one_time = true\nreplays = "at-most-once"' if store else ""
        host = listed(*(Pair.cidr(address) for address in PAIR.host.values()))
        listener = LISTENER.format(
            root=self.root, once=once, tun=TUN, host=host, peer=listed(*PAIR.peer.values()), port=WEB_PORT
        )
        memory = [text.format(root=self.root, number=number, url=store.url) for text in (ONCE, STORE)] if store else []
        return write(self.root, f"gateway{number}.toml", GLOBAL, *memory, listener, APP)

    def start(self, member):
        return self.testbed.start(Gateway(self.spaces[member], self.files[member]))

    def fetch(self, member, path):
        return kernel.fetch(self.spaces[member], "sendto", PAIR.peer[4], WEB_PORT, path)

    def executed(self, path):
        """How often the backends have run a request."""
        records = [record for backend in self.backends for record in backend.records()]
        return sum(record.get("path") == path for record in records)

    def settled(self):
        """Every gateway has handled all earlier packets: it answers an ordinary request after them."""
        self.spaces[1].nft_flush()
        for member in (0, 1):
            assert self.fetch(member, "/last").status == 200, "status"


@pytest.mark.needs("nft", "redis-server")
@pytest.mark.parametrize("once", (False, True), ids=("allow", "at-most-once"))
def test_a_recorded_first_flight_at_the_other_gateway(testbed, once):
    """It runs at the other backend too if copies are allowed, otherwise at one."""
    root = testbed.root()
    farm = Farm(testbed, root, testbed.start(Redis(root)) if once else None)
    farm.fetch(0, "/first")
    reply = farm.fetch(0, "/again")
    assert (reply.body, reply.info.syn_data) == (b"/again", True), "second visit"
    (syn,) = farm.wires[0].recorded()
    # The kernel there does not know the connection. Its RST would end the request.
    farm.spaces[1].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    farm.wires[1].send(syn)
    if not once:
        farm.members[1].wait_until(lambda: farm.executed("/again") == 2, "second execution")
    farm.settled()
    assert farm.executed("/again") == (1 if once else 2), "executions"


@pytest.mark.needs("nft", "redis-server")
def test_a_gateway_that_was_killed_forgets_nothing(testbed):
    """It comes back without its note, so a new memory begins, and what the farm took before is refused."""
    root = testbed.root()
    farm = Farm(testbed, root, testbed.start(Redis(root)))
    farm.fetch(0, "/first")
    assert farm.fetch(0, "/again").info.syn_data
    (syn,) = farm.wires[0].recorded()
    farm.members[0].popen.send_signal(signal.SIGKILL)
    farm.members[0].popen.wait()
    farm.members[0] = farm.start(0)
    wire = testbed.enter_context(Replayer(farm.spaces[0], TUN))
    farm.spaces[0].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    farm.spaces[1].nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    wire.send(syn)
    farm.wires[1].send(syn)
    farm.spaces[0].nft_flush()
    farm.settled()
    assert farm.executed("/again") == 1, "executions"
    # Clients get new cookies, and first flights are taken again.
    farm.fetch(0, "/new")
    record = farm.members[0].logged(1)[-1]
    assert farm.fetch(0, "/newer").info.syn_data, show(record)



def visits(farm, member, name, asked, may_fail=False):
    """Visits that do not end before `asked` is full, each with a copy of its first flight to every member at once."""
    for number in range(asked.maxlen):
        path = f"/{name}{number}"
        answered = False
        with contextlib.suppress(OSError, AssertionError) if may_fail else contextlib.nullcontext():
            answered = farm.fetch(member, path).status == 200
        asked.append((path, answered))
        # The device is gone while its member is.
        with contextlib.suppress(OSError):
            for syn in farm.wires[member].recorded():
                for wire in farm.wires:
                    wire.send(syn)


@pytest.mark.needs("nft", "redis-server")
def test_a_farm_that_is_killed_and_reloaded_under_load_runs_each_request_once(testbed):
    root = testbed.root()
    farm = Farm(testbed, root, testbed.start(Redis(root)))
    for space in farm.spaces:
        # The kernel beside the other member does not know the connection. Its RST would end the request.
        space.nft("type filter hook output priority 0; tcp flags & rst == rst drop")
    asked = {name: collections.deque(maxlen=count) for name, count in (("killed", 30), ("beside", 60), ("after", 30))}
    killed = threading.Thread(target=visits, args=(farm, 0, "killed", asked["killed"], True))
    beside = threading.Thread(target=visits, args=(farm, 1, "beside", asked["beside"]))
    killed.start(), beside.start()
    farm.members[0].wait_until(lambda: len(asked["killed"]) >= 10, "ten visits")
    farm.members[0].popen.send_signal(signal.SIGKILL)
    farm.members[0].popen.wait()
    farm.members[0] = farm.start(0)
    farm.wires[0] = testbed.enter_context(Replayer(farm.spaces[0], TUN))
    for _ in range(3):
        farm.members[1].reload("was read again")
    killed.join(), beside.join()
    visits(farm, 0, "after", asked["after"])
    farm.settled()
    for path, answered in (visit for visited in asked.values() for visit in visited):
        if answered:
            farm.backends[0].wait_until(lambda: farm.executed(path), f"the execution of {path}")  # noqa: B023
        assert farm.executed(path) <= 1, f"{path}: {farm.executed(path)} executions"
    assert all(len(visited) == visited.maxlen for visited in asked.values()), "a client gave up"
    lost = [path for name in ("beside", "after") for path, answered in asked[name] if not answered]
    assert not lost, f"no answer: {lost}"
    records = [record for member in farm.members for record in member.records() if record.get("event") == "request"]
    assert any(is_accepted(record) for record in records), "no first flight was taken"


SEALED = """
[[listener]]
name = "web"
address = ["127.0.0.1:{port}"]
udp_port = 0
mode = "http"
service = "app"
early = "any"
first_start = {first}
[listener.tls]
certificate = [{{ chain = "{chain}", key = "{key}" }}]
[listener.seal]
keys = ["{seal}"]
port = {seen}
"""


@pytest.mark.needs("openssl", "redis-server")
@pytest.mark.parametrize("shared", (True, False), ids=("shared", "apart"))
def test_the_gateways_of_a_farm_share_what_ran(testbed, shared):
    """A copy of a sealed first flight, at the gateway that took it and at another one."""
    site = Site(testbed)
    root = site.files.directory
    secret(root, "farm.keys", secrets.token_hex(48))
    store = testbed.start(Redis(root)) if shared else None
    backend = testbed.start(Backend(site.ns, BACKEND))

    def start(port):
        memory = STORE.format(root=root, number=port, url=store.url) if shared else ""
        listener = SEALED.format(
            port=port,
            first=str(not shared).lower(),
            chain=site.files.certificate,
            key=site.files.key,
            seal=site.key,
            seen=PORT,
        )
        text = GLOBAL.replace("admin", "# admin")
        return testbed.start(Gateway(site.ns, write(root, f"{port}.toml", text, memory, listener, APP)))

    first, second = start(5001), start(5002)
    site.names()
    with Relay(site.ns, 5001) as relay:
        (record,) = site.get("--seal", site.record, path="/sealed")
        assert record["status"] == 200, show(record)
        assert relay.copy(5001) == b""
        answer = relay.copy(5002)
    (logged,) = first.logged(1)
    if shared:
        # The second member began a new memory, which may have forgotten what ran, so nothing runs early yet. But the request
        # is known.
        assert logged["seal"] == "transport-refused" and logged["seal_reason"] in ("floor", "no-table"), show(logged)
        assert answer == b""
        stopped = second.logged(1, "connection")
        assert [record["end"] for record in stopped] == ["stopped"]
        assert seals(stopped) == [("unknown", "seen")]
        assert backend.count("GET") == 1, "executions"
        # A member that stops in order leaves the proof that it owes the store nothing.
        assert first.terminate() == 0
        assert os.path.getsize(os.path.join(root, "store-state5001")) > 0, first.text("err")
    else:
        assert logged["seal"] == "transport-refused" and logged["seal_reason"] == "after-handshake", show(logged)
        assert answer[:1] == b"\x16", "TLS of a member that does not know of the first one"



def test_what_root_makes_belongs_to_the_user_that_it_becomes(testbed):
    """Otherwise the gateway could not write the state of its cookies, nor the farm's secret, after it has given up root."""
    root, ns = testbed.root(), testbed.namespace("user")
    os.chmod(root, 0o755)
    state = os.path.join(root, "state")
    os.mkdir(state)
    shutil.chown(state, "nobody")
    listener = WEB + "one_time = true\n"
    once = f'[one_time]\nstate = "{state}/serials"\n'
    path = write(root, "gateway.toml", GLOBAL + 'user = "nobody"\n', once, listener, APP)
    for _ in range(2):
        member = testbed.start(Gateway(ns, path))
        assert member.terminate() == 0
        assert "needs to read it" not in member.text("err"), member.text("err")
        owners = {name: os.stat(os.path.join(state, name)).st_uid for name in os.listdir(state)}
        assert set(owners) == {"serials"} and set(owners.values()) == {pwd.getpwnam("nobody").pw_uid}, owners


@pytest.mark.needs("openssl")
def test_a_listener_that_comes_back_has_not_forgotten_what_ran(testbed):
    """`first_start` is about the start of the process. A listener that a reload takes out and puts back remembers nothing."""
    site = Site(testbed)
    backend = testbed.start(Backend(site.ns, BACKEND))
    text = GLOBAL.replace("admin", "# admin")
    listener = SEALED.format(
        port=5001, first="true", chain=site.files.certificate, key=site.files.key, seal=site.key, seen=PORT
    )
    other = WEB.replace('"web"', '"other"').replace(f":{WEB_PORT}", ":5009").replace(f":{PORT}", ":5009")
    path = write(site.files.directory, "g.toml", text, listener, other, APP)
    member = testbed.start(Gateway(site.ns, path))
    site.names()
    with Relay(site.ns, 5001) as relay:
        (record,) = site.get("--seal", site.record, path="/sealed")
        assert record["status"] == 200, show(record)
        for parts in ((other,), (listener, other)):
            write(site.files.directory, "g.toml", text, *parts, APP)
            member.reload("was read again")
        relay.copy(5001)
    assert backend.count("GET") == 1, "executions"
