"""Linux keys: one key and one address pair give one cookie, in the kernel and in `serve`."""

import kernel
import siphash
from case import FAMILIES, body, case, equal
from firstflight import PORT
from net import Pair

KEY = "0f1e2d3c-4b5a6978-8796a5b4-c3d2e1f0"
PAIR = Pair(75)


def first_visit(t, client, family, root, ours):
    """Starts a server at the pair's peer address, visits it, and gives (SYN data taken, cookie, end)."""
    address = PAIR.peer[family]
    if ours:
        end = t.serve(client, PAIR, root, "--key", KEY)
    else:
        server = t.namespace("server")
        t.cable(client, server, PAIR)
        kernel.set_key(server, KEY)
        end = t.kernel_server(server, family, PORT, root)
    reply = kernel.fetch(client, "sendto", address, PORT, "/small")
    equal(reply.body, body(root, "small"), "body")
    return reply.info.syn_data, kernel.cached_cookie(client, address), end


@case(family=FAMILIES, farm=("kernel-then-ours", "ours-then-kernel"))
def cookie_of_the_other_server(t, family, farm):
    """A client's cookie from one member of a farm is accepted by the other one, at its first visit."""
    root = t.root(small=5000)
    client = t.namespace("client")
    kernel_first = farm == "kernel-then-ours"
    taken, granted, server = first_visit(t, client, family, root, ours=not kernel_first)
    equal(taken, False, "SYN data at the first server")
    equal(granted, siphash.cookie(KEY, PAIR.host[family], PAIR.peer[family]), "cookie")
    server.terminate()
    if kernel_first:
        client.ip("link", "del", "veth0")
    taken, cookie, _ = first_visit(t, client, family, root, ours=kernel_first)
    equal((taken, cookie), (True, granted), "at the second server")
