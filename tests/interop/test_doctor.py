"""What `doctor` finds about servers and the path to them: one small network for each condition."""

import contextlib
import socket
import threading
import time

import pytest

import firstflight
import kernel
from doctor import BETWEEN, FIRST, LAST, OTHER, PORT, SYN, Far, Farm, doctor
from firstflight import at
from name_server import answering
from net import Pair
from process import run
from scene import FAR, NEAR

#: The device of the engine.
ENGINE = Pair(86)
SYN_ACK = "tcp flags & (syn|ack) == (syn|ack)"
STRIP = "reset tcp option fastopen; {} reset tcp option 254"
#: Bytes of headers in a SYN without data are fewer.
WITH_DATA = "meta length > 100"
KEY = "00112233-44556677-8899aabb-ccddeeff"


def test_doctor_all_is_well(far):
    far.serve()
    found = far.doctor()
    assert found.problems() == set()
    for check, finding in {
        "fast-open-client": "enabled", "fast-open-server": "enabled", "namespace": "own", "syn-cookies": "as-needed",
        "synproxy": "none", "source-translation": "none", "destination-translation": "none", "cookies-known": "none",
        "connect": "answers", "cookie": "granted", "option": None, "data": "accepted", "syn-data": "passes",
        "server-clock": "agrees", "clock": "agrees", "asap-record": "no-name", "udp": "not-asked",
    }.items():  # fmt: skip
        assert found[check] == finding, check
    again = far.doctor()
    assert (again["cookies-known"], again["cookie"], again["data"]) == ("some", "known", "accepted")
    there = doctor(far.server)
    assert there["server-counters"] == "fine"
    assert "accepted 8 first flights and refused 0" in there.detail("server-counters"), there.detail("server-counters")


def test_doctor_syn_cookies_for_every_syn(far):
    far.serve()
    far.server.sysctl("net.ipv4.tcp_syncookies", 2)
    there = doctor(far.server)
    assert (there["syn-cookies"], there.problems()) == ("always", {"syn-cookies"})
    assert far.doctor()["cookie"] == "not-granted"
    far.server.sysctl("net.ipv4.tcp_fastopen", 1)
    there = doctor(far.server)
    assert (there["syn-cookies"], there.problems()) == ("always-at-client", set())


def test_doctor_server_without_fast_open(testbed, family):
    far = Far(testbed, family, fast_open=1)
    far.serve()
    found = far.doctor()
    # The option arrives at the last router, and the path passes data: what is missing is the server's grant.
    assert (found["cookie"], found["option"], found["data"]) == ("not-granted", "kept", "passes")
    assert "router 2" in found.detail("option") and "last" in found.detail("option"), found.detail("option")
    assert found.problems() == {"cookie"}


@pytest.mark.needs("nft")
def test_doctor_option_removed(far):
    far.serve()
    far.meddle(f"{SYN} {STRIP.format(SYN)}")
    found = far.doctor()
    assert (found["cookie"], found["option"], found["data"]) == ("not-granted", "removed", "passes")
    assert f"router 2 ({BETWEEN.peer[far.family]})" in found.detail("option"), found.detail("option")


@pytest.mark.needs("nft")
def test_doctor_only_the_old_option_passes(far4):
    far4.serve()
    far4.meddle(f"{SYN} reset tcp option fastopen")
    found = far4.doctor()
    assert (found["cookie"], found["data"], found.problems()) == ("on-second-try", "accepted", set())


@pytest.mark.needs("nft")
def test_doctor_option_dropped(far):
    far.serve()
    far.meddle(f"{SYN} tcp option fastopen exists counter drop", f"{SYN} tcp option 254 exists counter drop")
    found = far.doctor()
    assert (found["connect"], found["cookie"]) == ("answers", "option-dropped")
    assert (found["option"], found["data"]) == ("kept", "passes")
    assert "router 1" in found.detail("option") and "No later router" in found.detail("option")


@pytest.mark.needs("nft")
def test_doctor_cookie_removed_on_the_way_back(far):
    """The client cannot tell this from a server without Fast Open. The server's counters can."""
    far.serve()
    far.meddle(f"{SYN_ACK} {STRIP.format(SYN_ACK)}")
    found = far.doctor()
    assert (found["cookie"], found["option"], found["data"]) == ("not-granted", "kept", "passes")
    there = doctor(far.server).detail("server-counters")
    # Two connections, and one SYN that followed the path.
    assert "3 requests for a cookie" in there, there


@pytest.mark.needs("nft")
def test_doctor_cookie_removed_from_syns_with_data(far):
    far.serve()
    far.meddle(f"{SYN} {WITH_DATA} {STRIP.format(f'{SYN} {WITH_DATA}')}")
    found = far.doctor()
    assert (found["cookie"], found["data"], found["option"]) == ("granted", "ignored", "removed")
    assert f"router 2 ({BETWEEN.peer[far.family]})" in found.detail("option"), found.detail("option")


@pytest.mark.needs("nft")
def test_doctor_syn_data_dropped(far):
    far.serve()
    far.meddle(f"{SYN} {WITH_DATA} counter drop")
    found = far.doctor()
    assert (found["cookie"], found["data"], found["option"]) == ("granted", "dropped", "kept")
    assert found.problems() == {"data"}
    # One server is no sign of what the network does.
    assert found["syn-data"] == "not-seen"
    again = doctor(far.client)
    assert (again["syn-losses"], again.problems()) == ("lost", set())


@pytest.mark.needs("nft")
def test_doctor_one_syn_with_data_lost(far4):
    """One loss is no sign of a path that drops."""
    far4.serve()
    far4.meddle(f"{SYN} {WITH_DATA} limit rate 1/hour burst 1 packets counter drop")
    found = far4.doctor()
    assert (found["data"], found.problems()) == ("lost-once", set())


@pytest.mark.needs("nft")
def test_doctor_routers_that_quote_nothing(testbed):
    far = Far(testbed, fast_open=1)
    far.serve()
    far.client.nft("type filter hook input priority 0; icmp type time-exceeded drop")
    found = far.doctor()
    assert (found["cookie"], found["option"]) == ("not-granted", "not-quoted")


@pytest.mark.needs("nft")
def test_doctor_syn_data_dropped_on_the_way_to_all_servers(far4):
    """Without a cookie too: a server without Fast Open shows whether the path passes data in SYNs."""
    other = far4.testbed.namespace("other")
    far4.testbed.cable(far4.edge, other, OTHER, "veth3")
    far4.route(other, "default", OTHER.host)
    far4.route(far4.near, OTHER.net, BETWEEN.peer)
    other.sysctl("net.ipv4.tcp_fastopen", 1)
    far4.serve()
    far4.serve(other)
    far4.meddle(f"{SYN} {WITH_DATA} counter drop")
    found = far4.doctor(at(OTHER.peer[4], PORT))
    assert found["syn-data"] == "dropped"
    servers = {one["server"]: one["finding"] for one in found.checks if one["check"] == "data"}
    assert servers == {far4.at: "dropped", at(OTHER.peer[4], PORT): "dropped"}


def test_doctor_a_stale_cookie_is_renewed(far):
    far.serve()
    kernel.set_key(far.server, KEY)
    assert far.doctor()["cookie"] == "granted"
    kernel.set_key(far.server, KEY.replace("0", "1"))
    found = far.doctor()
    assert (found["cookie"], found["data"]) == ("known", "accepted")
    assert "stale, and renewed" in found.detail("data")


OTHER_KEY = KEY.replace("f", "0")


@pytest.mark.needs("nft")
@pytest.mark.parametrize("keys", ((KEY, KEY), (KEY, OTHER_KEY)), ids=("one-key", "two-keys"))
@pytest.mark.parametrize("how", ("share", "translate"))
def test_doctor_farm(testbed, how, keys):
    """Differing keys and a translator look alike from outside. With one key and one address all is well."""
    farm = Farm(testbed, keys)
    getattr(farm, how)()
    found = farm.doctor()
    well = how == "share" and len(set(keys)) == 1
    assert (found["cookie"], found["data"]) == ("granted", "accepted" if well else "differing-cookies")
    assert found.problems() == (set() if well else {"data"})
    if not well:
        assert "2 different cookies" in found.detail("data"), found.detail("data")
        assert doctor(farm.server)["server-counters"] == "mostly-refused"
    there = doctor(farm.edge)
    assert there["destination-translation"] == ("present" if how == "translate" else "none")


@pytest.mark.needs("nft")
def test_doctor_farm_with_a_member_without_fast_open(testbed):
    farm = Farm(testbed, (KEY, KEY))
    farm.share()
    farm.other.sysctl("net.ipv4.tcp_fastopen", 1)
    found = farm.doctor()
    assert (found["cookie"], found["data"]) == ("granted", "some-ignored"), found.detail("data")


@pytest.mark.needs("nft")
def test_doctor_clients_with_several_addresses(scene):
    """To the server the client is at another address each time, so its cookies are refused: they are differing ones,
    though there is one key."""
    scene.router.nft_flush()
    for address in ("10.62.0.8", "10.62.0.9"):
        scene.router.ip("addr", "add", f"{address}/24", "dev", "veth1")
    turn = "numgen inc mod 2 map { 0 : 10.62.0.8, 1 : 10.62.0.9 }"
    scene.router.nft(f"type nat hook postrouting priority 100; oifname veth1 snat ip to {turn}")
    scene.testbed.kernel_server(scene.far, 4, PORT, scene.root)
    found = doctor(scene.client, at(FAR.peer[4], PORT))
    assert (found["data"], found.problems()) == ("differing-cookies", {"data"})
    assert doctor(scene.router)["source-translation"] == "present"


@pytest.mark.needs("nft")
def test_doctor_the_kernel_pauses_after_a_black_hole(far4):
    far4.serve()
    assert far4.doctor()["data"] == "accepted"
    far4.client.sysctl("net.ipv4.tcp_fastopen_blackhole_timeout_sec", 3600)
    far4.meddle(f"{SYN} counter drop")
    with kernel.client_socket(far4.client, 4) as sock:
        sock.setblocking(False)
        sock.sendto(b"data", kernel.MSG_FASTOPEN, (LAST.peer[4], PORT))
        deadline = time.monotonic() + 20
        while kernel.counters(far4.client)["Blackhole"] == 0:
            assert time.monotonic() < deadline, "the kernel has not noticed the black hole"
            time.sleep(0.1)
    far4.near.nft_flush()
    found = far4.doctor()
    assert (found["black-hole-timeout"], found["client-counters"]) == ("pauses", "black-holes")
    assert (found["cookie"], found["data"], found.problems()) == ("paused", None, set())


@pytest.mark.needs("nft")
def test_doctor_servers_that_do_not_answer(far4):
    assert far4.doctor()["connect"] == "refused"
    far4.meddle(f"{SYN} counter drop")
    found = far4.doctor()
    assert (found["connect"], found["cookie"], found.problems()) == ("silent", None, {"connect"})
    far4.client.ip("route", "del", "default")
    assert far4.doctor()["connect"] == "unreachable"
    found = doctor(far4.client, "www.example.com:80", "--dns", at(FIRST.host[4], 53))
    assert (found["address"], found.problems()) == ("lookup-failed", {"address"})


def test_doctor_sends_what_it_may(far4):
    far4.serve()
    found = far4.doctor("--no-data")
    assert (found["cookie"], found["data"]) == ("granted", "not-tried")
    assert kernel.counters(far4.server)["Passive"] == 0, "data was sent"
    with far4.server.entered():
        listener = socket.create_server(("", 9000))
    listener.setsockopt(socket.IPPROTO_TCP, kernel.TCP_FASTOPEN, 16)
    got = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    got.append(client.recv(100))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    found = doctor(far4.client, at(LAST.peer[4], 9000))
    assert found["data"] == "accepted"
    assert set(got) == {b"\r\n"} and len(got) <= 10, got
    got.clear()
    doctor(far4.client, at(LAST.peer[4], 9000), "--send", r"PING\r\n")
    assert set(got) == {b"PING\r\n"}, got
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize("options", ((), ("--one-time",)), ids=("cookies", "one-time"))
def test_doctor_visits_serve(testbed, family, options):
    """The engine's cookies, also those for one use."""
    ns = testbed.namespace("serve")
    root = testbed.root(small=100)
    # One engine takes packets in their order. Another one may take a SYN before the ACK that makes its cookie valid.
    more = (*options, "--one-time-state", f"{root}/state", "--threads", 1) if options else ()
    serve = testbed.serve(ns, ENGINE, root, *more)
    found = doctor(ns, at(ENGINE.peer[family], PORT))
    assert (found["cookie"], found["data"], found.problems()) == ("granted", "accepted", set())
    # An ordinary visit, one for the cookie, and four with it. Lines of connections on several threads have no order.
    assert sorted(record["outcome"] for record in serve.requests(6)) == ["accepted"] * 4 + ["handshake"] * 2


@pytest.mark.needs("nft")
def test_doctor_asap_in_the_record_and_in_udp(scene):
    told = run(firstflight.BINARY, "asap", "record", "--verifier-key", scene.key, "--udp-port", PORT).stdout
    octets = bytes(int(number) for number in told.split('"')[1].split("\\")[1:])
    param = (65300).to_bytes(2) + len(octets).to_bytes(2) + octets
    names = {
        (b"\3www\7example\3com\0", 1): socket.inet_aton(FAR.peer[4]),
        (b"\5_8080\6_https\3www\7example\3com\0", 65): b"\0\1" + b"\0" + param,
        (b"\5plain\7example\3com\0", 1): socket.inet_aton(FAR.peer[4]),
    }
    named = (f"www.example.com:{PORT}", "--dns", at(NEAR.host[4], 53))
    plain = scene.testbed.kernel_server(scene.far, 4, PORT, scene.root)
    with answering(scene.router, NEAR.host[4], names):
        found = doctor(scene.client, *named)
        assert (found["data"], found["asap-record"], found["asap-udp"]) == ("accepted", "published", "silent")
        plain.terminate()
        scene.serve_udp(4, "--identity", "www.example.com")
        found = doctor(scene.client, *named)
        assert (found["asap-record"], found["asap-udp"], found.problems()) == ("published", "answers", set())
        scene.router.nft("type filter hook forward priority 0; meta l4proto udp counter drop", chain="block")
        found = doctor(scene.client, *named)
        assert (found["data"], found["asap-udp"], found.problems()) == ("accepted", "silent", {"asap-udp"})
        found = doctor(scene.client, f"plain.example.com:{PORT}", *named[1:])
        assert (found["asap-record"], found["asap-udp"]) == ("none", None)
