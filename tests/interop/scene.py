"""A client behind an address translator, with verifiers and servers on the other side."""

import os

import firstflight
from firstflight import Command, at, check_no_panic, show
from net import FAMILIES, Pair, url
from process import Process, run
from testbed import body, sha256

#: The networks between client and translator, and between translator and servers; the server's device, and the
#: client's.
NEAR, FAR, SERVICE, ENGINE = Pair(61), Pair(62), Pair(63), Pair(64)
#: The second verifier, and the source of probes: addresses on the far side that the client has never contacted.
SECOND = {4: "10.62.0.3", 6: "fd00:62::3"}
STRANGER = {4: "10.62.0.4", 6: "fd00:62::4"}
PORT = 8080
VERIFIER_PORT = 4433
#: Without it, a server that may have run a minute ago accepts nothing at first, because it does not know what it
#: accepted before.
FRESH = "--first-start"


class Scene:
    """A client behind an address translator. Servers and verifiers on the other side see the translator's address."""

    def __init__(self, testbed, masquerade=True):
        self.testbed = testbed
        self.client, self.router, self.far = (testbed.namespace(name) for name in ("client", "router", "far"))
        testbed.cable(self.router, self.client, NEAR, "veth0")
        testbed.cable(self.router, self.far, FAR, "veth1")
        self.router.forward()
        if masquerade:
            self.router.nft("type nat hook postrouting priority 100; oifname veth1 counter masquerade")
        for family in FAMILIES:
            self.client.ip(f"-{family}", "route", "add", "default", "via", NEAR.host[family])
        self.root = testbed.root(small=5000)
        self.key = self.keygen("verifier.key")
        self.trust(self.key)

    def path(self, name):
        return os.path.join(self.root, name)

    def keygen(self, name):
        told = run(firstflight.BINARY, "verifier", "keygen", "-o", self.path(name)).stdout
        return told.split()[1]

    def trust(self, *keys):
        entries = "".join(f'[[verifier]]\nkey = "{key}"\nown = true\n' for key in keys)
        with open(self.path("trust.toml"), "w") as file:
            file.write(f"# begin\n{entries}# end\n")

    def verifier(self, *options, address=None, family=4):
        """Starts a verifier that certifies the addresses of this scene."""
        listen = at(address or FAR.peer[family], VERIFIER_PORT)
        allow = ("--allow-prefix", FAR.net[family], "--allow-prefix", NEAR.net[family])
        return self.testbed.start(Command(self.far, "verifier", "--listen", listen, *allow, *options))

    def issuer(self, *options, family=4):
        return self.verifier("--key-file", self.path("verifier.key"), *options, family=family)

    def asks(self, family):
        verifier = at(FAR.peer[family], VERIFIER_PORT)
        return ("--verifier", verifier, "--verifier-key", self.key)

    def shows(self, family):
        """Options of a `get` whose first fetch has a certificate."""
        return (*self.asks(family), "--verify-first")

    def serve_udp(self, family, *options, fresh=(FRESH,)):
        """Starts a server in UDP, and on the kernel's TCP."""
        listen = ("--udp", at(FAR.peer[family], PORT))
        trust = ("--trust", self.path("trust.toml"), "--root", self.root, "--json-log")
        return self.testbed.start(Command(self.far, "serve", *listen, *trust, *fresh, *options))

    def get(self, *arguments, expect=0):
        client = Process([firstflight.BINARY, "get", "--json", *arguments], ns=self.client)
        with client:
            self.testbed.processes.append(client)
            assert client.wait(60) == expect, f"exit status of get: {client.text()}"
            check_no_panic(client)
            return [record for record in client.records() if "outcome" in record]

    def get_udp(self, family, *arguments):
        return self.get(url(FAR.peer[family], PORT, "/small"), "--udp", *arguments)

    def whole(self, record):
        assert (record["status"], record["sha256"]) == (200, sha256(body(self.root, "small"))), show(record)
