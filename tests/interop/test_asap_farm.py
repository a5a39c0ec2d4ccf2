"""Two members of a farm that take certificates: a request is executed once, whichever member its copy reaches."""

import os
import secrets
import socket
import time

import pytest
from firstflight import at, is_accepted, show
from net import url
from packets import Capture, segment
from redis_server import Redis
from scene import FAR, PORT, Scene
from testbed import body

#: UDP port of the second member. Its TCP port, and so its identity, is that of the first.
OTHER_PORT = 8082
#: IPv4 and UDP.
HEADERS = 28


@pytest.mark.needs("nft", "redis-server")
@pytest.mark.parametrize("shared", (True, False), ids=("store", "per-site"))
def test_asap_a_copy_at_the_other_member(testbed, shared):
    scene = Scene(testbed)
    scene.issuer()
    options = ("--per-site",)
    if shared:
        keys = scene.path("farm.keys")
        with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(48))
        options = ("--store", testbed.start(Redis(scene.root)).url, "--store-keys", keys)
    states = [("--store-state", scene.path(f"state{number}")) if shared else () for number in (1, 2)]
    start = [
        lambda: scene.serve_udp(4, *options, *states[0]),
        lambda: scene.serve_udp(4, *options, *states[1], "--port", PORT, listen=at(FAR.peer[4], OTHER_PORT)),
    ]
    if shared:
        # A member's first start begins a new memory for all.
        for begin in start:
            assert begin().terminate() == 0, "exit status"
    first, other = (begin() for begin in start)
    capture = testbed.enter_context(Capture(scene.router, "veth1"))
    # What was made before the memory began, and a little later, is refused.
    deadline = time.monotonic() + 60
    while True:
        del capture.packets[:]
        (record,) = scene.get_udp(4, *scene.shows(4), "--asap-known")
        if is_accepted(record) or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert is_accepted(record), show(record)
    seen = [(segment(left, packet), packet) for _, left, packet in list(capture.packets)]
    (flight,) = [packet for one, packet in seen if one and one.udp and one.is_opening and one.data]
    # An eavesdropper behind the same translator.
    with scene.router.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((FAR.host[4], 0))
        sock.sendto(flight[HEADERS:], (FAR.peer[4], OTHER_PORT))
        # It is answered in any case: with the response, or with a handshake.
        sock.settimeout(20)
        assert sock.recv(2000)
    # A later request was handled after it.
    (record,) = scene.get(url(FAR.peer[4], PORT, "/small"), "--udp", "--udp-port", OTHER_PORT, "--no-fast-open")
    assert (record["status"], record["bytes"]) == (200, len(body(scene.root, "small"))), show(record)
    taken = [is_accepted(record) for record in other.requests(1 if shared else 2)]
    assert taken == ([False] if shared else [True, False]), "requests at the other member"
    assert first.terminate() == 0 and other.terminate() == 0, "exit status"
    asked = [record for member in (first, other) for record in member.records() if record.get("event") == "store"]
    assert sum(record["refused"] for record in asked) >= shared, asked
