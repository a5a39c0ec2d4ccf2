"""Long transfers, many connections at once, peers that are killed."""

import json
import os
import re
import threading

import pytest

import kernel
import wire
from firstflight import PORT, TUN, early_bytes, is_accepted
from net import Pair, url
from process import Process, run
from testbed import body, sha256

MEGABYTES_20 = 20_000_000
PAIR = Pair(76)


@pytest.mark.needs("curl")
def test_curl_downloads_20_mb(testbed, family):
    root = testbed.root(large=MEGABYTES_20)
    ns = testbed.namespace("serve")
    testbed.serve(ns, PAIR, root)
    file = os.path.join(root, "got")
    run("curl", "-gsS", "--fail", "-m", 60, "-o", file, url(PAIR.peer[family], PORT, "/large"), ns=ns, timeout=70)
    assert sha256(body(root, "got")) == sha256(body(root, "large")), "digest"


@pytest.mark.needs("curl")
def test_curl_uploads_20_mb(testbed, family):
    root = testbed.root(large=MEGABYTES_20)
    ns = testbed.namespace("serve")
    testbed.serve(ns, PAIR, root)
    answer = run(
        "curl", "-gsS", "--fail", "-m", 60, "-T", os.path.join(root, "large"),
        url(PAIR.peer[family], PORT, "/sink"), ns=ns, timeout=70,
    ).stdout  # fmt: skip
    assert sha256(body(root, "large")) in answer, f"digest: {answer}"
    assert re.search(rf"\b{MEGABYTES_20}\b", answer), f"count: {answer}"


def test_get_downloads_20_mb(testbed, family):
    root = testbed.root(large=MEGABYTES_20)
    ns = testbed.namespace("get")
    testbed.kernel_server(ns, family, 80, root)
    file = os.path.join(root, "got")
    (record,) = testbed.get(ns, PAIR, url(PAIR.host[family], 80, "/large"), "-o", file)
    digest = sha256(body(root, "large"))
    assert (record["bytes"], record["sha256"]) == (MEGABYTES_20, digest), "record"
    assert sha256(body(root, "got")) == digest, "digest of the file"


def test_get_uploads_20_mb(testbed, family):
    root = testbed.root(large=MEGABYTES_20)
    ns = testbed.namespace("get")
    server = testbed.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/sink")
    (record,) = testbed.get(ns, PAIR, target, "--upload", os.path.join(root, "large"))
    assert record["status"] == 200, "status"
    (event,) = server.events("request", 1)
    assert (event["bytes"], event["sha256"]) == (MEGABYTES_20, sha256(body(root, "large"))), "what came"


def test_kernel_clients_200_at_once(testbed, family):
    """All connections are open before the first answer is read. Each uses a cookie."""
    root = testbed.root(medium=60_000)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    kernel.fetch(ns, "sendto", address, PORT, "/medium")
    wanted, replies, errors = body(root, "medium"), [], []
    together = threading.Barrier(200, timeout=60)

    def visit(sock):
        try:
            with sock:
                together.wait()
                kernel.send_first(sock, "sendto", address, PORT, kernel.request(address, "/medium"))
                together.wait()
                replies.append(kernel.read_reply(sock))
        except (OSError, AssertionError, threading.BrokenBarrierError) as error:
            errors.append(repr(error))
            together.abort()

    threads = [
        threading.Thread(target=visit, args=(kernel.client_socket(ns, family, 60),), daemon=True) for _ in range(200)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert errors[:3] == [], "errors"
    assert sum(reply.body == wanted for reply in replies) == 200, "right bodies"
    records = serve.requests(201)[1:]
    early = sum(is_accepted(record) and early_bytes(record) > 0 for record in records)
    assert early == sum(reply.info.syn_data for reply in replies), "first flights taken, log and kernel"
    assert early > 0, "no first flight was taken"


def test_get_200_at_once(testbed, family):
    root = testbed.root(medium=60_000)
    ns = testbed.namespace("get")
    ns.sysctl("net.core.somaxconn", 1024)
    testbed.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/medium")
    fetches = testbed.get(ns, PAIR, target, "--parallel", 200, "--repeat", 200, timeout=90)
    assert len(fetches) == 200, "fetches"
    digest = sha256(body(root, "medium"))
    assert sum(f["status"] == 200 and f["sha256"] == digest for f in fetches) == 200, "right bodies"


def test_server_killed_in_the_middle(testbed, family):
    """`get` fails with an error line; it neither hangs nor panics."""
    root = testbed.root()
    ns = testbed.namespace("get")
    server = testbed.kernel_server(ns, family, 80, root)
    client = testbed.client(ns, PAIR, url(PAIR.host[family], 80, "/drip"), "--timeout", 60)
    server.events("sending", 1)
    kernel.wait_for_traffic(ns, TUN, 1_000_000)
    server.kill()
    assert client.finish(90) == 1, "exit status"
    assert [bool(record["error"]) for record in client.fetches()] == [True], "failures reported"


@pytest.mark.needs("curl")
def test_curl_killed_in_the_middle(testbed, family):
    """`serve` continues, and answers the next request."""
    root = testbed.root(large=MEGABYTES_20, small=5000)
    ns = testbed.namespace("serve")
    serve = testbed.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    for _ in range(3):
        target = url(address, PORT, "/large")
        # The kernel's receive buffer may accept everything before this process checks again.
        before = kernel.traffic(ns, TUN)
        curl = testbed.start(Process(["curl", "-gsS", "--limit-rate", "200k", "-o", "/dev/null", target], ns=ns))
        kernel.wait_for_traffic(ns, TUN, 300_000, since=before)
        curl.kill()
        reply = kernel.fetch(ns, "sendto", address, PORT, "/small")
        assert (reply.status, reply.body) == (200, body(root, "small")), "the next request"
    assert serve.terminate() == 0, "exit status of serve"


@pytest.mark.needs("firstflight-lab", "curl", "taskset")
def test_the_benchmark_measures_both_ways():
    """Every transfer has to be complete, or the command fails."""
    report = json.loads(run(wire.command(), "bench", "bulk", "--quick", "--rounds", 5, "--json", timeout=120).stdout)
    assert [row["way"] for row in report["rows"]] == ["to curl", "from curl"]
    assert all(row["mb_per_s"] > 0 and row["kernel_mb_per_s"] > 0 for row in report["rows"])
