#!/usr/bin/env python3
"""An eavesdropper on the client's side, who sends first flights in UDP again, later, from another port to each member.

    copies.py DEVICE PORT MEMBER:PORT…

Each copy is of a SYN with data to PORT. It ends when standard input does, and prints how many copies were sent, as JSON.
"""

import heapq
import itertools
import json
import random
import select
import socket
import sys
import time

ETH_P_ALL, UDP = 3, 17
#: The encapsulation's header; the place of the flags and the least length of TCP's.
ENCAPSULATION, FLAGS, TCP = 4, 13, 20
SYN, ACK = 2, 16
#: One first flight of so many is copied: a copy that is refused has a place among those that wait for their client.
OF = 20
#: Seconds after which it is sent: the farm's store has been told of it, also by a member that did not reach it at once, or began anew.
LATER = (5, 40)


def opening(packet, port):
    """The payload, if it is a SYN with data to this port."""
    start = (packet[0] & 15) * 4
    if packet[0] >> 4 != 4 or packet[9] != UDP or int.from_bytes(packet[start + 2 : start + 4]) != port:
        return None
    payload = packet[start + 8 :]
    is_syn = len(payload) > ENCAPSULATION + TCP and payload[ENCAPSULATION + FLAGS] & (SYN | ACK) == SYN
    return payload if is_syn and len(payload) > ENCAPSULATION + (payload[ENCAPSULATION + 12] >> 4) * 4 else None


def main(device, port, *members):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    wire.bind((device, ETH_P_ALL))
    places = [(host, int(number)) for host, number in (member.rsplit(":", 1) for member in members)]
    waiting, numbers, sent = [], itertools.count(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while True:
            ready, _, _ = select.select([wire, sys.stdin], [], [], 0.1)
            if sys.stdin in ready:
                break
            if wire in ready:
                packet, (_, _, kind, *_) = wire.recvfrom(65535)
                payload = opening(packet, int(port)) if kind == socket.PACKET_OUTGOING else None
                if payload and random.randrange(OF) == 0:
                    heapq.heappush(waiting, (time.monotonic() + random.uniform(*LATER), next(numbers), payload))
            while waiting and waiting[0][0] < time.monotonic():
                payload = heapq.heappop(waiting)[2]
                for place in places:
                    sender.sendto(payload, place)
                    sent += 1
    print(json.dumps({"copies": sent}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
