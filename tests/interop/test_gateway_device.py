"""Engines of a gateway on a device: one for each thread."""

import os

import pytest

from firstflight import PORT, TUN
from net import Pair
from process import run
from test_gateway import Gateway

PAIR = Pair(78)

FILE = """
[gateway]
threads = 3
log = "json"
[[listener]]
name = "web"
mode = "http"
service = "site"
max_connections = {most}
[listener.tun]
device = "{tun}"
host = ["{host}/24"]
address = ["{peer}"]
port = {port}
[[service]]
name = "site"
root = "{root}"
"""


@pytest.mark.needs("curl")
@pytest.mark.parametrize("most", (1, 100))
def test_connections_of_all_engines_share_the_listeners_places(testbed, most):
    """A task that waits for a connection must not hold the last place: another engine's connection would wait for ever."""
    ns, root = testbed.namespace("device"), testbed.root(small=1000)
    path = os.path.join(root, "gateway.toml")
    with open(path, "w") as file:
        file.write(FILE.format(most=most, tun=TUN, host=PAIR.host[4], peer=PAIR.peer[4], port=PORT, root=root))
    gateway = testbed.start(Gateway(ns, path))
    for _ in range(12):
        answer = run("curl", "-sS", "-m", 20, "-o", "/dev/null", "-w", "%{http_code}",
                     f"http://{PAIR.peer[4]}:{PORT}/small", ns=ns).stdout
        assert answer == "200"
    assert len(gateway.logged(12)) == 12
