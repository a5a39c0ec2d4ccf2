"""The control experiment: with the kernel at both ends, the results must be those that the other tests expect of us."""

import pytest

import kernel
import siphash
from net import Pair
from testbed import body

KEY = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4"
PAIR = Pair(70)


@pytest.mark.parametrize("mode", kernel.MODES)
def test_kernel_with_kernel(testbed, family, mode):
    root = testbed.root(small=5000)
    client, server = testbed.namespace("client"), testbed.namespace("server")
    testbed.cable(client, server, PAIR)
    kernel.set_key(server, KEY)
    http = testbed.kernel_server(server, family, 80, root)
    address = PAIR.peer[family]
    for visit, early in enumerate((False, True), 1):
        with kernel.Counted(client) as ours, kernel.Counted(server) as theirs:
            reply = kernel.fetch(client, mode, address, 80, "/small")
        assert reply.body == body(root, "small"), "body"
        assert reply.info.syn_data == early, f"SYN data acknowledged at visit {visit}"
        assert http.events("accepted", visit)[-1]["syn_data"] == early, "the server's view"
        assert (ours["Active"], theirs["Passive"]) == (early, early), "counters"
    cookie = kernel.cached_cookie(client, address)
    assert cookie == siphash.cookie(KEY, PAIR.host[family], address), "cookie"


def test_cookie_reference(testbed):
    key = "00000000-00000000-00000000-00000000"
    assert siphash.cookie(KEY, "192.0.2.1", "192.168.0.1") == "3021b9d889017eeb", "IPv4"
    assert siphash.cookie(key, "192.0.2.1", "192.168.0.1") == "b7c12350a90dc8f5", "IPv4, zero key"
    assert siphash.cookie(KEY, "fd3d:fa7b:d17d::1", "fd3d:0a0b:17d6::1") == "c1d1e9742a47a9bc", "IPv6"
    assert siphash.cookie(KEY, "192.0.2.2", "192.168.0.1") != "3021b9d889017eeb", "address ignored"
