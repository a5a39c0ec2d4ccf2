"""What left in the first packets of connections, captured on the wire."""

import os
import struct

from certificates import NAME
from net import workdir
from packets import segment
from process import Process

#: SYNs of TCP, and datagrams of the encapsulation with a SYN: behind UDP's header are four bytes of the encapsulation.
_FILTER = "(tcp dst port {0} and tcp[13] & 0x12 == 2) or (udp dst port {0} and udp[8] == 8 and udp[25] & 0x12 == 2)"
#: The least that a file and a packet have in front, in a capture.
_FILE, _PACKET = 24, 16
HELLO = b"\x16\x03\x01"


def hello(data):
    """What of a ClientHello for the server's name is in these bytes: `whole`, `part`, or None."""
    start = data.find(HELLO)
    if start < 0 or len(data) < start + 5:
        return None
    record = data[start:]
    if len(record) < 5 + int.from_bytes(record[3:5]):
        return "part"
    return "whole" if NAME.encode() in record else None


def whole_hello(data):
    """The whole ClientHello in these bytes, or nothing."""
    return data[data.find(HELLO) :] if hello(data) == "whole" else b""


class Openings:
    """Captures first packets during a `with` block."""

    def __init__(self, ns, *ports):
        self.ns, self.filter = ns, " or ".join(_FILTER.format(port) for port in ports)

    def __enter__(self):
        self.directory = workdir()
        self.file = os.path.join(self.directory.__enter__(), "syns.pcap")
        command = ["tcpdump", "-i", "wire0", "-w", self.file, "-n", "-Z", "root", "-U", "--immediate-mode", self.filter]
        self.dump = Process(command, ns=self.ns)
        self.dump.wait_until(lambda: "listening on" in self.dump.text(), "start of the capture", 60)
        return self

    def __exit__(self, *failure):
        self.dump.kill()
        self.directory.__exit__(*failure)

    def found(self):
        """(in UDP, port of the server, the data) of each first packet so far."""
        with open(self.file, "rb") as file:
            data = file.read()
        place, found = _FILE, []
        while place + _PACKET <= len(data):
            length = struct.unpack_from("<I", data, place + 8)[0]
            packet = data[place + _PACKET : place + _PACKET + length]
            place += _PACKET + length
            opening = segment(True, packet) if len(packet) == length else None
            if opening:
                found.append((opening.udp, opening.server, packet[len(packet) - opening.data :] if opening.data else b""))
        return found

    def counts(self):
        """First packets without data, with a whole ClientHello, with a part of one, and with other data."""
        counted = {"empty": 0, "whole": 0, "part": 0, "other": 0}
        for _, _, data in self.found():
            counted["empty" if not data else hello(data) or "other"] += 1
        return counted
