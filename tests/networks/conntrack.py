"""Makes an address translator forget its mappings, as after a restart."""

import socket
import struct

NETLINK_NETFILTER = 12
#: NFNL_SUBSYS_CTNETLINK and IPCTNL_MSG_CT_DELETE. Without a tuple it deletes all entries.
DELETE = 1 << 8 | 2
REQUEST_ACK = 1 | 4


def flush(ns):
    """Forgets every IPv4 mapping of the namespace."""
    family = struct.pack("=BBH", socket.AF_INET, 0, 0)
    message = struct.pack("=IHHII", 16 + len(family), DELETE, REQUEST_ACK, 1, 0) + family
    with ns.entered(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
        netlink.bind((0, 0))
        netlink.send(message)
        answer = netlink.recv(4096)
    (error,) = struct.unpack_from("=i", answer, 16)
    if error != 0:
        raise OSError(-error, "conntrack flush")
