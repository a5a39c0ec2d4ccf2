"""The control experiment: with the kernel at both ends, the results must be those that the other tests expect of us."""

import kernel
import siphash
from case import FAMILIES, body, case, check, equal
from net import Pair

KEY = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4"
PAIR = Pair(70)


@case(family=FAMILIES, mode=kernel.MODES)
def kernel_with_kernel(t, family, mode):
    root = t.root(small=5000)
    client, server = t.namespace("client"), t.namespace("server")
    t.cable(client, server, PAIR)
    kernel.set_key(server, KEY)
    http = t.kernel_server(server, family, 80, root)
    address = PAIR.peer[family]
    for visit, early in enumerate((False, True), 1):
        with kernel.Counted(client) as ours, kernel.Counted(server) as theirs:
            reply = kernel.fetch(client, mode, address, 80, "/small")
        equal(reply.body, body(root, "small"), "body")
        equal(reply.info.syn_data, early, f"SYN data acknowledged at visit {visit}")
        equal(http.events("accepted", visit)[-1]["syn_data"], early, "the server's view")
        equal((ours["Active"], theirs["Passive"]), (early, early), "counters")
    cookie = kernel.cached_cookie(client, address)
    equal(cookie, siphash.cookie(KEY, PAIR.host[family], address), "cookie")


@case()
def cookie_reference(t):
    key = "00000000-00000000-00000000-00000000"
    equal(siphash.cookie(KEY, "192.0.2.1", "192.168.0.1"), "3021b9d889017eeb", "IPv4")
    equal(siphash.cookie(key, "192.0.2.1", "192.168.0.1"), "b7c12350a90dc8f5", "IPv4, zero key")
    equal(
        siphash.cookie(KEY, "fd3d:fa7b:d17d::1", "fd3d:0a0b:17d6::1"), "c1d1e9742a47a9bc", "IPv6"
    )
    check(siphash.cookie(KEY, "192.0.2.2", "192.168.0.1") != "3021b9d889017eeb", "address ignored")
