"""`serve` and `get` on the system's sockets: key files, restarts, and the namespace's setting."""

import os

import firstflight
import pytest
from firstflight import Command, is_accepted, show
from process import Process, run

PORT = 8080


@pytest.fixture
def ns(testbed):
    return testbed.namespace("system")


def serve(testbed, ns, root, *options):
    listen = ("--root", root, "--listen", f"127.0.0.1:{PORT}", "--json-log")
    return testbed.start(Command(ns, "serve", *listen, *options))


def get(testbed, ns, *options):
    client = Process([firstflight.BINARY, "get", f"http://127.0.0.1:{PORT}/small", "--json", *options], ns=ns)
    with client:
        testbed.processes.append(client)
        assert client.wait(60) == 0, client.text()
        return client.records()


def test_cookies_outlive_a_restart_and_a_new_key(testbed, ns):
    root = testbed.root(small=1000)
    path = os.path.join(root, "key")
    run(firstflight.BINARY, "keys", "new", "-o", path)
    server = serve(testbed, ns, root, "--key-file", path)
    first, second = get(testbed, ns, "--repeat", 2)
    assert not is_accepted(first) and is_accepted(second), show(second)
    server.terminate()
    server = serve(testbed, ns, root, "--key-file", path, "-v")
    (record,) = get(testbed, ns)
    assert is_accepted(record), f"after a restart: {show(record)}"
    # A new key, with the old one behind it.
    new = os.path.join(root, "new")
    run(firstflight.BINARY, "keys", "new", "-o", new)
    with open(path) as old, open(new) as file:
        keys = (file.read().strip(), old.read().strip())
    changes(server, path, ",".join(keys))
    for _ in range(5):
        (record,) = get(testbed, ns)
        assert is_accepted(record), f"under a new key: {show(record)}"
    # The server has answered the old key's cookie with one of the new key, so the old key can go.
    changes(server, path, keys[0])
    (record,) = get(testbed, ns)
    assert is_accepted(record), f"without the old key: {show(record)}"


def changes(server, path, keys):
    """Writes keys into the file, and waits until the server, which reads it every second, has them."""
    told = lambda: server.text("err").count("cookie keys")  # noqa: E731
    before = told()
    with open(path, "w") as file:
        file.write(keys + "\n")
    server.wait_until(lambda: told() > before, "new cookie keys", 30)


def test_a_namespace_without_fast_open_is_told(testbed, ns):
    ns.sysctl("net.ipv4.tcp_fastopen", 1)
    root = testbed.root(small=1000)
    server = serve(testbed, ns, root)
    assert "without Fast Open" in server.text("out")
    server.wait_until(lambda: "set net.ipv4.tcp_fastopen to 3" in server.text("err"), "a warning", 30)
    for record in get(testbed, ns, "--repeat", 2):
        assert record["status"] == 200 and not is_accepted(record), show(record)


@pytest.mark.needs("curl")
def test_curl_and_get_visit_one_port(testbed, ns):
    root = testbed.root(small=1000)
    server = serve(testbed, ns, root)
    for _ in range(2):
        run("curl", "-sS", "--fail", "-m", 20, "--tcp-fastopen", "-o", os.path.join(root, "got"),
            f"http://127.0.0.1:{PORT}/small", ns=ns)  # fmt: skip
    assert [record["outcome"] for record in server.requests(2)] == ["handshake", "accepted"]
    (record,) = get(testbed, ns, "--udp")
    assert record["status"] == 200, show(record)
