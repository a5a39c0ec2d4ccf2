"""Records the SYNs with data that are sent to a TUN device, and replays them, as an eavesdropper does."""

import ipaddress
import socket
import struct

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SYN, ACK = 0x02, 0x10


def syn_with_data(packet):
    """The data of a SYN, or None."""
    if packet[0] >> 4 == 4:
        at, protocol, end = (packet[0] & 15) * 4, packet[9], struct.unpack("!H", packet[2:4])[0]
    else:
        at, protocol, end = 40, packet[6], 40 + struct.unpack("!H", packet[4:6])[0]
    if protocol != socket.IPPROTO_TCP or packet[at + 13] & (SYN | ACK) != SYN:
        return None
    return packet[at + (packet[at + 12] >> 4) * 4 : end] or None


def _checksum(data):
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def first_flight(client, server, ports, cookie, data):
    """A SYN with a Fast Open cookie (hexadecimal) and data. Addresses are text; `ports` are those of client and
    server."""
    cookie = bytes.fromhex(cookie)
    options = struct.pack("!BBH", 2, 4, 1460) + bytes((34, 2 + len(cookie))) + cookie
    options += b"\1" * (-len(options) % 4)
    source, target = ipaddress.ip_address(client).packed, ipaddress.ip_address(server).packed
    length = 20 + len(options) + len(data)

    def segment(checksum):
        head = struct.pack(
            "!HHIIBBHHH", *ports, 0x01020304, 0, (5 + len(options) // 4) << 4, SYN, 65535, checksum, 0
        )
        return head + options + data

    pseudo = source + target + struct.pack("!II", length, socket.IPPROTO_TCP)
    tcp = segment(_checksum(pseudo + segment(0)))
    if len(source) == 16:
        return struct.pack("!IHBB", 6 << 28, length, socket.IPPROTO_TCP, 64) + source + target + tcp

    def header(checksum):
        fields = (0x45, 0, 20 + length, 1, 0x4000, 64, socket.IPPROTO_TCP, checksum)
        return struct.pack("!BBHHHBBH", *fields) + source + target

    return header(_checksum(header(0))) + tcp


class Replayer:
    """A packet socket on a device of a namespace."""

    def __init__(self, ns, device):
        with ns.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.bind((device, ETH_P_ALL))
        self._device = device

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def recorded(self):
        """The packets whose SYN carried data since the last call, without those that it sent itself."""
        found = []
        while True:
            try:
                packet, origin = self._socket.recvfrom(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            if origin[2] == PACKET_OUTGOING and syn_with_data(packet):
                found.append(packet)

    def send(self, packet):
        """Sends the packet to the engine behind the device."""
        kind = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
        self._socket.sendto(packet, (self._device, kind))
