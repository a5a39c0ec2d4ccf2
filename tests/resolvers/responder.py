"""The authority that the thesis (5.1) wants for `www.xyz.com`: responder.py ADDRESS ZONE SERVER

Names `a.….ZONE` have the server's address, and so has the zone itself. The names in between exist without records
(NODATA), as RFC 8020 and RFC 4592 section 2.2.2 require for empty non-terminals. UDP only.
"""

import ipaddress
import socket
import sys

from dnswire import A, AAAA, SOA, answer, labels, pack_name, question, record


def respond(message, zone, server):
    found = question(message)
    if found is None:
        return None
    name, kind, end = found
    address = record(AAAA if server.version == 6 else A, 0, server.packed)
    if kind == (AAAA if server.version == 6 else A) and (name == zone or name[:1] == [b"a"]):
        return answer(message, end, [address])
    about = pack_name([b"ns", *zone]) + pack_name([b"hostmaster", *zone]) + b"\0\0\0\1" * 4 + b"\0\0\0\x3c"
    return answer(message, end, (), [record(SOA, 60, about, pack_name(zone))])


def main():
    address, zone, server = sys.argv[1], labels(sys.argv[2]), ipaddress.ip_address(sys.argv[3])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind((address, 53))
    print("ready", flush=True)
    while True:
        message, peer = sock.recvfrom(4096)
        reply = respond(message, zone, server)
        if reply is not None:
            sock.sendto(reply, peer)


if __name__ == "__main__":
    main()
