"""First flights sealed for the front, by the implementation that makes the test vectors (tools/dns-vectors)."""

import os
import secrets
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
KEY_ID = RELAY_KEY_ID = 1
#: Bytes of the request, so that a first flight has seven fragments.
REQUEST = 60
FRAGMENTS = 7


def _load(name):
    loader = SourceFileLoader(name.replace("-", "_"), os.path.join(TOOLS, name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Keys:
    """The keys of one run's front, and first flights sealed to them."""

    def __init__(self, zone):
        self.tool = _load("dns-vectors")
        self.private, self.relay_key = secrets.token_bytes(32), secrets.token_bytes(32)
        self.public = self.tool.x25519_public(self.private)
        self.zone = self.tool.zone_bytes(zone)
        asap = self.tool.ASAP
        flight = asap.Flight("any", "192.0.2.1", asap.WWW, bytes(REQUEST), "udp", relayed=True)
        self.info = self.tool.connection_info(flight, window_scale=7)

    def dns_path(self):
        return f"key {KEY_ID} {self.private.hex()}\n"

    def relay(self):
        return f"relay {RELAY_KEY_ID} {self.relay_key.hex()}\n"

    def fragments(self, parity=False):
        """The labels of a new first flight: seven, and the parity."""
        sealed, _ = self.tool.seal(self.info, self.zone, KEY_ID, self.public, os.urandom(32))
        return self.tool.labels(sealed, 0)[: None if parity else FRAGMENTS]
