"""Packets on a device, and what is in them."""

import contextlib
import socket
import struct
import threading

from wire import DEVICE

SO_TIMESTAMPNS, ETH_P_ALL = 35, 3
#: A datagram of the encapsulation that has a TCP segment (docs/udp-encapsulation.md), and where that segment begins.
SEGMENT, BEHIND = 0x08, 4


class Capture:
    """The packets of a namespace on a device without Ethernet: (Unix time, it left, bytes)."""

    def __init__(self, ns, device=DEVICE):
        with ns.entered():
            # Without a protocol it gets nothing until it is bound to the device.
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
            # The kernel's time: this thread may be late.
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.socket.bind((device, ETH_P_ALL))
        self.socket.settimeout(0.1)
        self.packets, self.over = [], False
        self.thread = threading.Thread(target=self.record, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()
        self.socket.close()

    def record(self):
        while not self.over:
            with contextlib.suppress(TimeoutError):
                packet, ancillary, _, (_, _, kind, *_) = self.socket.recvmsg(4096, 64)
                ((*_, stamp),) = ancillary
                seconds, nanoseconds = struct.unpack("qq", stamp)
                self.packets.append((seconds + nanoseconds / 1e9, kind == socket.PACKET_OUTGOING, packet))

    def save(self, path):
        with open(path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
            for at_time, _, packet in self.packets:
                seconds = int(at_time)
                file.write(struct.pack("<IIII", seconds, int((at_time - seconds) * 1e6), len(packet), len(packet)))
                file.write(packet)


class Segment:
    """A TCP segment in an IPv4 packet, or in a UDP datagram in one.

    `server` is the port of the server: with UDP the one of UDP. `connection` tells connections apart. `data` is the number
    of bytes behind TCP's options."""

    def __init__(self, left, packet):
        ip = (packet[0] & 15) * 4
        self.left, self.udp = left, packet[9] == socket.IPPROTO_UDP
        tcp = ip + 8 + BEHIND if self.udp else ip
        outer, inner = (struct.unpack_from("!HH", packet, start) for start in (ip, tcp))
        self.server = outer[1 if left else 0]
        self.connection = (self.udp, *(inner if left else inner[::-1]))
        self.flags = packet[tcp + 13]
        (total,) = struct.unpack_from("!H", packet, 2)
        self.data = total - tcp - (packet[tcp + 12] >> 4) * 4

    @property
    def is_opening(self):
        """A SYN of a client."""
        return self.left and self.flags & 0x12 == 2


def segment(left, packet):
    """The segment in a packet, or None."""
    if len(packet) < 40 or packet[0] >> 4 != 4:
        return None
    start = (packet[0] & 15) * 4
    if packet[9] == socket.IPPROTO_TCP:
        return Segment(left, packet)
    if packet[9] == socket.IPPROTO_UDP and packet[start + 8 : start + 9] == bytes([SEGMENT]) and len(packet) >= start + 32:
        return Segment(left, packet)
    return None
