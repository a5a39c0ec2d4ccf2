"""Farms: with one key and one address pair, the kernel and `serve` compute the same cookie; also keys that change."""

import json
import os
import time

import pytest

import firstflight
import kernel
import siphash
from firstflight import PORT
from net import Pair
from process import run
from testbed import body

KEY = "0f1e2d3c-4b5a6978-8796a5b4-c3d2e1f0"
PAIR = Pair(75)


def first_visit(testbed, client, family, root, ours):
    """Starts a server at the pair's peer address and visits it. Returns (SYN data accepted, cookie, end)."""
    address = PAIR.peer[family]
    if ours:
        end = testbed.serve(client, PAIR, root, "--key", KEY)
    else:
        server = testbed.namespace("server")
        testbed.cable(client, server, PAIR)
        kernel.set_key(server, KEY)
        end = testbed.kernel_server(server, family, PORT, root)
    reply = kernel.fetch(client, "sendto", address, PORT, "/small")
    assert reply.body == body(root, "small"), "body"
    return reply.info.syn_data, kernel.cached_cookie(client, address), end


@pytest.mark.parametrize("farm", ("kernel-then-ours", "ours-then-kernel"))
def test_cookie_of_the_other_server(testbed, family, farm):
    """A client's cookie from one member of a farm is accepted at its first visit to the other member."""
    root = testbed.root(small=5000)
    client = testbed.namespace("client")
    kernel_first = farm == "kernel-then-ours"
    taken, granted, server = first_visit(testbed, client, family, root, ours=not kernel_first)
    assert taken is False, "SYN data at the first server"
    assert granted == siphash.cookie(KEY, PAIR.host[family], PAIR.peer[family]), "cookie"
    server.terminate()
    if kernel_first:
        client.ip("link", "del", "veth0")
    taken, cookie, _ = first_visit(testbed, client, family, root, ours=kernel_first)
    assert (taken, cookie) == (True, granted), "at the second server"


#: Hours of a key's period. A change during the test is unlikely.
PERIOD = 168


def keys(*arguments):
    """The output of `firstflight keys`."""
    return run(firstflight.BINARY, "keys", *arguments).stdout.strip()


def farm_secret(root):
    path = os.path.join(root, "secret")
    keys("new", "--secret", "-o", path)
    assert os.stat(path).st_mode & 0o777 == 0o600, "mode of the secret"
    return path


@pytest.mark.parametrize("member", ("now", "before-the-turn", "after-the-turn", "two-turns-later"))
def test_kernel_member_of_a_scheduled_farm(testbed, family, member):
    """A kernel with exported keys accepts a cookie of `key_schedule` until the key has changed twice."""
    root = testbed.root(small=5000)
    secret = farm_secret(root)
    address = PAIR.peer[family]
    client = testbed.namespace("client")
    serve = testbed.serve(client, PAIR, root, "--key-schedule", secret, "--key-period", PERIOD)
    kernel.fetch(client, "sendto", address, PORT, "/small")
    granted = kernel.cached_cookie(client, address)
    serve.terminate()

    schedule = json.loads(keys("schedule", secret, "--period", PERIOD, "--json"))
    at = {
        "now": str(int(time.time())),
        # From this time on, the key's backup is the next key.
        "before-the-turn": schedule[1]["accepted_from"],
        "after-the-turn": schedule[0]["grants_until"],
        "two-turns-later": schedule[1]["grants_until"],
    }
    exported = keys("export", secret, "--format", "linux", "--period", PERIOD, "--at", at[member])
    primary = exported.split(",")[0]
    server = testbed.namespace("server")
    testbed.cable(client, server, PAIR)
    kernel.set_key(server, exported)
    testbed.kernel_server(server, family, PORT, root)
    reply = kernel.fetch(client, "sendto", address, PORT, "/small")
    assert reply.body == body(root, "small"), "body"
    assert reply.info.syn_data == (member != "two-turns-later"), "SYN data taken"
    # Cookies of the backup key are replaced, and so are invalid ones.
    fresh = siphash.cookie(primary, PAIR.host[family], address)
    assert kernel.cached_cookie(client, address) == fresh, "cookie afterwards"
    assert (fresh == granted) == (member in ("now", "before-the-turn")), "the same key"


def replace(path, text):
    """Replaces a file atomically by another one."""
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
    os.replace(path + ".new", path)


def test_key_file_replaced_under_load(testbed, family):
    """At least 200 requests while the keys change. All are answered, and all but the first are accepted in the SYN."""
    root = testbed.root(small=5000)
    address = PAIR.peer[family]
    path = os.path.join(root, "key")
    old, new = keys("new"), keys("new")
    replace(path, old)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root, "--key-file", path)
    cookie = {key: siphash.cookie(key, PAIR.host[family], address) for key in (old, new)}
    early = []

    def load(until, count):
        deadline = time.monotonic() + 30
        while count > 0 or kernel.cached_cookie(ns, address) != until:
            assert time.monotonic() < deadline, f"no cookie of the new key after {len(early)} requests"
            reply = kernel.fetch(ns, "sendto", address, PORT, "/small")
            assert (reply.status, reply.body) == (200, body(root, "small")), f"request {len(early)}"
            early.append(reply.info.syn_data)
            count -= 1

    load(cookie[old], 50)
    replace(path, "nonsense")
    serve.wait_until(lambda: "stay as they are" in serve.text(), "warning about the bad file")
    load(cookie[old], 50)
    replace(path, f"{new},{old}")
    load(cookie[new], 100)
    assert (early[0], all(early[1:])) == (False, True), "first flights taken"
    logged = serve.requests(len(early))
    assert {record["status"] for record in logged} == {200}, "status in the log"
    assert serve.text().count("stay as they are") == 1, "warnings"
