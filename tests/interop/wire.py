"""A wire with a round-trip time, loss and other impairments between two namespaces: `firstflight-lab wire`."""

import os

import firstflight
from net import Pair
from process import Process

DEVICE = "wire0"


def command():
    """The laboratory's command, in the same directory as the command under test."""
    return os.path.join(os.path.dirname(firstflight.BINARY), "firstflight-lab")


class Wire(Process):
    """`left` (A) has the pair's host addresses, `right` (B) its peer addresses, as with a cable. It is ready when
    the `with` block begins."""

    def __init__(self, left, right, pair, *options, device=DEVICE, prefix=()):
        self.ends = ((left, pair.host), (right, pair.peer))
        self.device = device
        ends = [f"{ns.name}:{device}" for ns, _ in self.ends]
        super().__init__([*prefix, command(), "wire", "--a", ends[0], "--b", ends[1], "--json", *options])

    def __enter__(self):
        self.wait_until(lambda: self.text("out").startswith("ready "), "a `ready` line")
        for ns, addresses in self.ends:
            # Allow only the test's packets.
            ns.ip("link", "set", self.device, "addrgenmode", "none", "up")
            ns.ip("addr", "add", Pair.cidr(addresses[4]), "dev", self.device)
            ns.ip("addr", "add", Pair.cidr(addresses[6]), "dev", self.device, "nodad")
        return self

    def figures(self):
        """Ends the wire. Returns its figures."""
        self.terminate()
        (record,) = [record for record in self.records() if record.get("event") == "wire"]
        return record
