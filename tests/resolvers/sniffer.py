"""Listens on a device and keeps the UDP datagrams and TCP segments that arrive there, with the kernel's time."""

import collections
import socket
import struct
import threading
import time

from dnswire import question

SO_TIMESTAMPNS = 35
ETH_P_ALL = 3
OUTGOING = 4

#: `time` is in seconds of the wall clock; `name` is the name in a DNS query; `sent` is true if the packet leaves by
#: the device.
Packet = collections.namedtuple("Packet", "time sent protocol source destination name length data")


def parse(packet, when, sent):
    if len(packet) >= 28 and packet[0] >> 4 == 4:
        protocol, payload = packet[9], packet[(packet[0] & 15) * 4 :]
    elif len(packet) >= 48 and packet[0] >> 4 == 6:
        protocol, payload = packet[6], packet[40:]
    else:
        return None
    if protocol not in (6, 17) or len(payload) < 8:
        return None
    source, destination = struct.unpack_from("!2H", payload)
    name = None
    if protocol == 17 and destination == 53:
        found = question(payload[8:])
        name = tuple(found[0]) if found else None
    return Packet(when, sent, protocol, source, destination, name, len(packet), payload[8:] if protocol == 17 else b"")


class Sniffer:
    """The packets that arrive at a device of a namespace, or at all devices, or leave by it, during the `with`
    block."""

    def __init__(self, ns, device=None):
        with ns.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        if device:
            self.socket.bind((device, ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.settimeout(0.2)
        self.packets = collections.deque(maxlen=100_000)
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over = True
        self._thread.join()
        self.socket.close()

    def _listen(self):
        while not self._over:
            try:
                data, control, _, address = self.socket.recvmsg(65536, 128)
            except TimeoutError:
                continue
            except OSError:
                # The device is gone.
                return
            seconds, nanos = next(struct.unpack("@qq", value) for _, kind, value in control if kind == SO_TIMESTAMPNS)
            packet = parse(data, seconds + nanos / 1e9, address[2] == OUTGOING)
            if packet is not None:
                with self._changed:
                    self.packets.append(packet)
                    self._changed.notify_all()

    def clear(self):
        with self._changed:
            self.packets.clear()

    def wait(self, wanted, timeout=5):
        """The first wanted packet; None if none arrives in time."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for packet in self.packets:
                    if wanted(packet):
                        return packet
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
