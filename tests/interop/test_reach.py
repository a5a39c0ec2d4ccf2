"""Which networks let a never contacted server's answer in (RFC 4787). Each kind of network is made with nftables."""

import json

import pytest

import firstflight
from firstflight import at, show
from net import Pair
from process import run
from scene import FAR, NEAR, SECOND, STRANGER, VERIFIER_PORT, Scene

#: The UDP port that is tested.
CLIENT_PORT = 5000

#: For each kind of network: the router's rules, and the two results: whether all servers see one port, and whether
#: unknown servers can reach the client.
NETWORKS = {
    "open": ((), True, True),
    # All ports of the translator lead to the client, for any sender.
    "full-cone": (("masquerade", "all-in"), True, True),
    # Linux' behaviour: the port is kept, and only contacted addresses may answer.
    "masquerade": (("masquerade",), True, False),
    "masquerade-random": (("masquerade-random",), False, False),
    "stateful-firewall": (("stateful",), True, False),
    # A contacted host may answer from any port.
    "address-dependent": (("by-address",), True, False),
}


def rules(ns, family, kinds):
    ip, udp_in = ("ip", "iif veth1 meta l4proto udp") if family == 4 else ("ip6", "iif veth1 meta l4proto udp")
    for kind in kinds:
        if kind.startswith("masquerade"):
            random = " fully-random" if kind.endswith("random") else ""
            ns.nft(f"type nat hook postrouting priority 100; oifname veth1 masquerade{random}", chain="out")
        elif kind == "all-in":
            to = NEAR.peer[family] if family == 4 else f"[{NEAR.peer[family]}]"
            ns.nft(
                f"type nat hook prerouting priority -100; {udp_in} udp dport {CLIENT_PORT}"
                f" dnat {ip} to {to}:{CLIENT_PORT}",
                chain="into",
            )
        elif kind == "stateful":
            ns.nft(f"type filter hook forward priority 0; {udp_in} ct state new,invalid drop", chain="into")
        elif kind == "by-address":
            address = "ipv4_addr" if family == 4 else "ipv6_addr"
            text = (
                f"table inet path {{ set asked {{ type {address}; size 1000; flags dynamic,timeout; timeout 1m; }};"
                f" chain into {{ type filter hook forward priority 0;"
                f" oif veth1 meta l4proto udp update @asked {{ {ip} daddr }};"
                f" {udp_in} {ip} saddr != @asked drop; }}; }}"
            )
            run("nft", text, ns=ns)


@pytest.mark.needs("nft")
@pytest.mark.parametrize("network", NETWORKS)
def test_reach_behind(testbed, family, network):
    kinds, one_port, strangers = NETWORKS[network]
    scene = Scene(testbed, masquerade=False)
    for address in (SECOND, STRANGER):
        scene.far.ip("addr", "add", Pair.cidr(address[family]), "dev", "veth1", *(["nodad"] if family == 6 else []))
    scene.far.ip(f"-{family}", "route", "add", NEAR.net[family], "via", FAR.host[family])
    rules(scene.router, family, kinds)
    scene.issuer("--probe-from", at(STRANGER[family], 0), family=family)
    scene.verifier("--key-file", scene.path("verifier.key"), address=SECOND[family], family=family)
    verifiers = [("--verifier", at(address[family], VERIFIER_PORT)) for address in (FAR.peer, SECOND)]
    asked = run(
        firstflight.BINARY, "reach", "--json", "--port", CLIENT_PORT, *verifiers[0], *verifiers[1], ns=scene.client
    )
    found = json.loads(asked.stdout)
    mapping = "endpoint-independent" if one_port else "endpoint-dependent"
    assert (found["mapping"], found["strangers"]) == (mapping, strangers), f"behind {network}: {show(found)}"
    assert found["open"] == (one_port and strangers), show(found)
