"""Long transfers, many connections at once, peers that are killed."""

import os
import re
import threading

import kernel
from case import FAMILIES, body, case, check, equal, sha256
from firstflight import PORT, TUN, early_bytes, is_accepted
from net import Pair, url
from process import Process, run

MEGABYTES_20 = 20_000_000
PAIR = Pair(76)


@case(family=FAMILIES, needs=("curl",))
def curl_downloads_20_mb(t, family):
    root = t.root(large=MEGABYTES_20)
    ns = t.namespace("serve")
    t.serve(ns, PAIR, root)
    file = os.path.join(root, "got")
    run("curl", "-gsS", "--fail", "-m", 60, "-o", file, url(PAIR.peer[family], PORT, "/large"), ns=ns, timeout=70)
    equal(sha256(body(root, "got")), sha256(body(root, "large")), "digest")


@case(family=FAMILIES, needs=("curl",))
def curl_uploads_20_mb(t, family):
    root = t.root(large=MEGABYTES_20)
    ns = t.namespace("serve")
    t.serve(ns, PAIR, root)
    answer = run(
        "curl", "-gsS", "--fail", "-m", 60, "-T", os.path.join(root, "large"),
        url(PAIR.peer[family], PORT, "/sink"), ns=ns, timeout=70,
    ).stdout  # fmt: skip
    check(sha256(body(root, "large")) in answer, f"digest: {answer}")
    check(re.search(rf"\b{MEGABYTES_20}\b", answer), f"count: {answer}")


@case(family=FAMILIES)
def get_downloads_20_mb(t, family):
    root = t.root(large=MEGABYTES_20)
    ns = t.namespace("get")
    t.kernel_server(ns, family, 80, root)
    file = os.path.join(root, "got")
    (record,) = t.get(ns, PAIR, url(PAIR.host[family], 80, "/large"), "-o", file)
    digest = sha256(body(root, "large"))
    equal((record["bytes"], record["sha256"]), (MEGABYTES_20, digest), "record")
    equal(sha256(body(root, "got")), digest, "digest of the file")


@case(family=FAMILIES)
def get_uploads_20_mb(t, family):
    root = t.root(large=MEGABYTES_20)
    ns = t.namespace("get")
    server = t.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/sink")
    (record,) = t.get(ns, PAIR, target, "--upload", os.path.join(root, "large"))
    equal(record["status"], 200, "status")
    (event,) = server.events("request", 1)
    equal((event["bytes"], event["sha256"]), (MEGABYTES_20, sha256(body(root, "large"))), "what came")


@case(family=FAMILIES)
def kernel_clients_200_at_once(t, family):
    """All connections are open before the first answer is read. Each uses a cookie."""
    root = t.root(medium=60_000)
    ns = t.namespace("serve")
    serve = t.serve(ns, PAIR, root)
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
        threading.Thread(target=visit, args=(kernel.client_socket(ns, family, 60),), daemon=True)
        for _ in range(200)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    equal(errors[:3], [], "errors")
    equal(sum(reply.body == wanted for reply in replies), 200, "right bodies")
    records = serve.requests(201)[1:]
    early = sum(is_accepted(record) and early_bytes(record) > 0 for record in records)
    equal(early, sum(reply.info.syn_data for reply in replies), "first flights taken, log and kernel")
    check(early > 0, "no first flight was taken")


@case(family=FAMILIES)
def get_200_at_once(t, family):
    root = t.root(medium=60_000)
    ns = t.namespace("get")
    ns.sysctl("net.core.somaxconn", 1024)
    t.kernel_server(ns, family, 80, root)
    target = url(PAIR.host[family], 80, "/medium")
    fetches = t.get(ns, PAIR, target, "--parallel", 200, "--repeat", 200, timeout=90)
    equal(len(fetches), 200, "fetches")
    digest = sha256(body(root, "medium"))
    equal(sum(f["status"] == 200 and f["sha256"] == digest for f in fetches), 200, "right bodies")


@case(family=FAMILIES)
def server_killed_in_the_middle(t, family):
    """`get` fails with an error line; it neither hangs nor panics."""
    root = t.root()
    ns = t.namespace("get")
    server = t.kernel_server(ns, family, 80, root)
    client = t.client(ns, PAIR, url(PAIR.host[family], 80, "/drip"), "--timeout", 60)
    server.events("sending", 1)
    kernel.wait_for_traffic(ns, TUN, 1_000_000)
    server.kill()
    equal(client.finish(90), 1, "exit status")
    equal([bool(record["error"]) for record in client.fetches()], [True], "failures reported")


@case(family=FAMILIES, needs=("curl",))
def curl_killed_in_the_middle(t, family):
    """`serve` continues, and answers the next request."""
    root = t.root(large=MEGABYTES_20, small=5000)
    ns = t.namespace("serve")
    serve = t.serve(ns, PAIR, root)
    address = PAIR.peer[family]
    for _ in range(3):
        target = url(address, PORT, "/large")
        # The kernel's receive buffer may accept everything before this process checks again.
        before = kernel.traffic(ns, TUN)
        curl = t.start(Process(["curl", "-gsS", "--limit-rate", "200k", "-o", "/dev/null", target], ns=ns))
        kernel.wait_for_traffic(ns, TUN, 300_000, since=before)
        curl.kill()
        reply = kernel.fetch(ns, "sendto", address, PORT, "/small")
        equal((reply.status, reply.body), (200, body(root, "small")), "the next request")
    equal(serve.terminate(), 0, "exit status of serve")
