"""What `doctor` finds about a machine and its network, and how it is called."""

import contextlib
import os
import shutil
import socket
import struct
import threading
import time

import pytest

import firstflight
from doctor import LAST, PORT, Found, doctor
from firstflight import at
from net import AF, Pair
from process import run
from scene import FAR, SECOND, VERIFIER_PORT


def test_doctor_both_bits_off(far4):
    far4.serve()
    for bits, client, server in ((0, "disabled", "disabled"), (1, "enabled", "disabled"), (2, "disabled", "enabled")):
        far4.client.sysctl("net.ipv4.tcp_fastopen", bits)
        found = far4.doctor()
        assert (found["fast-open-client"], found["fast-open-server"]) == (client, server), f"setting {bits}"
        assert found["cookie"] == ("granted" if client == "enabled" else "client-disabled")
        assert found.problems() == ({"fast-open-client"} if client == "disabled" else set())


@pytest.mark.needs("nft")
def test_doctor_firewall_rules(testbed):
    ns = testbed.namespace("rules")
    assert {doctor(ns)[one] for one in ("synproxy", "source-translation", "destination-translation")} == {"none"}
    ns.nft("type filter hook input priority 0; tcp dport 80 ct state untracked synproxy mss 1460 wscale 7", chain="a")
    found = doctor(ns)
    assert (found["synproxy"], found.problems()) == ("present", {"synproxy"})
    ns.nft_flush()
    ns.nft("type nat hook postrouting priority 100; oifname nowhere masquerade", chain="b")
    found = doctor(ns)
    assert (found["synproxy"], found["source-translation"]) == ("none", "present")
    ns.nft("type nat hook prerouting priority -100; tcp dport 81 redirect to :82", chain="c")
    assert doctor(ns)["destination-translation"] == "present"


@pytest.mark.needs("setpriv")
def test_doctor_without_root(far4):
    """Everything but the firewall's rules. Others know the path as well."""
    far4.serve()
    # The builder's directory may be closed to others.
    binary = shutil.copy(firstflight.BINARY, far4.testbed.root())
    os.chmod(binary, 0o755)
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    done = run(*nobody, binary, "doctor", "--json", far4.at, ns=far4.client, check=False)
    found = Found(done)
    assert (found["cookie"], found["data"], found["namespace"]) == ("granted", "accepted", "own")
    assert {found[one] for one in ("synproxy", "source-translation", "destination-translation")} == {"not-seen"}
    assert found.document["root"] is False and "SYNPROXY" in found.document["root_would_see"]
    far4.server.sysctl("net.ipv4.tcp_fastopen", 0)
    far4.client.ip("tcp_metrics", "flush")
    found = Found(run(*nobody, binary, "doctor", "--json", far4.at, ns=far4.client, check=False))
    assert (found["cookie"], found["option"], found["data"]) == ("not-granted", "kept", "passes")


def test_doctor_without_the_ip_command(far4):
    """Without the kernel's cookies, a stale one cannot be told from a server that ignores it."""
    far4.serve()
    assert far4.doctor()["cookie"] == "granted"
    far4.server.sysctl("net.ipv4.tcp_fastopen", 1)
    # The cookie is from before, and nothing at this port takes it now.
    found = far4.doctor()
    assert (found["data"], found.problems()) == ("not-at-this-port", set())
    hidden = f"mount --bind /dev/null {os.path.realpath(shutil.which('ip'))} && exec \"$@\""
    found = far4.doctor(before=("sh", "-c", hidden, "sh"))
    assert (found["cookies-known"], found["data"]) == ("unreadable", "ambiguous")
    found = far4.doctor("--no-data", before=("sh", "-c", hidden, "sh"))
    assert (found["cookie"], found.problems()) == ("ambiguous", set())
    far4.server.sysctl("net.ipv4.tcp_fastopen", 3)
    found = far4.doctor(before=("sh", "-c", hidden, "sh"))
    assert (found["cookie"], found["data"]) == ("granted", "accepted")


@pytest.mark.needs("nft")
def test_doctor_udp_blocked(scene, family):
    scene.issuer(family=family)
    asked = ("--verifier", at(FAR.peer[family], VERIFIER_PORT))
    found = doctor(scene.client, *asked)
    assert (found["udp"], found["translator"], found["clock"]) == ("answers", "one-address", "agrees")
    scene.router.nft("type filter hook forward priority 0; meta l4proto udp counter drop", chain="block")
    found = doctor(scene.client, *asked)
    assert (found["udp"], found["translator"], found.problems()) == ("blocked", "not-asked", {"udp"})
    # Without a verifier that runs, nothing is known.
    found = doctor(scene.client, "--verifier", at(FAR.peer[family], VERIFIER_PORT + 1))
    assert (found["udp"], found.problems()) == ("silent", set())
    scene.router.nft_flush()
    found = doctor(scene.far, "--verifier", at(FAR.peer[family], VERIFIER_PORT + 1))
    assert found["udp"] == "closed"
    assert doctor(scene.far, *asked)["translator"] == "none"


@pytest.mark.needs("nft")
def test_doctor_translator_with_several_addresses(scene):
    scene.router.nft_flush()
    for address in ("10.62.0.8", "10.62.0.9"):
        scene.router.ip("addr", "add", f"{address}/24", "dev", "veth1")
    scene.router.nft(
        f"type nat hook postrouting priority 100; ip daddr {FAR.peer[4]} snat ip to 10.62.0.8;"
        f" ip daddr {SECOND[4]} snat ip to 10.62.0.9"
    )
    scene.far.ip("addr", "add", Pair.cidr(SECOND[4]), "dev", "veth1")
    scene.issuer()
    scene.verifier("--key-file", scene.path("verifier.key"), address=SECOND[4])
    verifiers = [("--verifier", at(address, VERIFIER_PORT)) for address in (FAR.peer[4], SECOND[4])]
    assert doctor(scene.client, *verifiers[0], *verifiers[1])["translator"] == "several-addresses"


@contextlib.contextmanager
def answering_verifier(ns, address, ahead):
    """A verifier whose clock is wrong. It answers with challenges only (docs/spec/asap.md 5.2, type 2)."""
    with ns.entered():
        served = socket.socket(AF[4], socket.SOCK_DGRAM)
        served.bind((address, VERIFIER_PORT))
    served.settimeout(0.1)
    over = threading.Event()

    def serve():
        while not over.is_set():
            try:
                request, (client, port) = served.recvfrom(4096)
            except TimeoutError:
                continue
            head = request[:3] + struct.pack(">BHH", 2, 64, 0) + request[8:16]
            challenge = struct.pack(">B3xI", 1, int(time.time())) + bytes(range(16))
            seen = bytes(10) + b"\xff\xff" + socket.inet_aton(client)
            rest = struct.pack(">HHI", port, 0, int(time.time() + ahead))
            served.sendto(head + challenge + seen + rest, (client, port))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        served.close()


def test_doctor_wrong_clock(far4):
    """The clock of a machine cannot be wrong in a namespace alone, so the verifier's is."""
    asked = ("--verifier", at(LAST.peer[4], VERIFIER_PORT))
    for ahead, finding in ((0, "agrees"), (5, "differs"), (-5, "differs"), (3600, "wrong"), (-3600, "wrong")):
        with answering_verifier(far4.server, LAST.peer[4], ahead):
            found = doctor(far4.client, *asked)
        assert (found["clock"], found["udp"]) == (finding, "answers"), f"{ahead} s ahead"
        assert found.problems() == ({"clock"} if finding == "wrong" else set())
    assert "ahead of that of the verifier" in found.detail("clock"), found.detail("clock")
    assert doctor(far4.client)["clock"] == "not-compared"


def test_doctor_wrong_clock_of_a_server(far4):
    with far4.server.entered():
        listener = socket.create_server(("", PORT))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.recv(1000)
                    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 7200))
                    client.sendall(f"HTTP/1.0 200 OK\r\nDate: {date}\r\n\r\n".encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    found = far4.doctor()
    # A server alone does not show which of the two is wrong.
    assert (found["server-clock"], found["clock"]) == ("differs", "not-compared")
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_doctor_says_in_one_line_what_is_wrong_with_its_options(testbed):
    ns = testbed.namespace("misuse")
    for wrong in (["host"], ["192.0.2.1:0"], ["0.0.0.0:80"], ["--send", "", "a:1"], ["--no-data", "--send", "x", "a:1"],
                  ["--verifier", "nowhere"], ["--unknown"]):  # fmt: skip
        done = run(firstflight.BINARY, "doctor", *wrong, ns=ns, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), f"{wrong}: {done.stderr}"
        assert done.stderr.startswith("firstflight: "), done.stderr


def test_doctor_tells_people_what_to_do(testbed):
    ns = testbed.namespace("people")
    ns.sysctl("net.ipv4.tcp_fastopen", 0)
    done = run(firstflight.BINARY, "doctor", ns=ns, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, lines[0]) == (1, "", "Machine")
    assert lines[1].startswith("  ✗ problem  fast-open-client ") and "what to do: Set " in lines[2], done.stdout
    assert lines[-1].startswith("1 problem, "), lines[-1]
