"""A DNS proxy in front of a resolver that misbehaves: proxy.py ADDRESS RESOLVER PORT MANNER

Manners, about names below the DNS-path zone (fragments) unless it says all:

  honest     passes everything on
  silent     never answers fragments
  slow       answers fragments 2 s late
  slow-all   answers everything 2 s late
  lying      answers fragments with another address
  filtering  refuses names with octets that no host name has (SERVFAIL)
  mangling   passes such names on with those octets replaced, and answers with what it asked
"""

import heapq
import re
import select
import socket
import struct
import sys
import time

from dnswire import A, SERVFAIL, answer, question, record

MANNERS = ("honest", "silent", "slow", "slow-all", "lying", "filtering", "mangling")
DELAY = 2.0
LIE = socket.inet_aton("198.51.100.66")
ODD = re.compile(rb"[^a-z0-9_-]")
#: Maximum number of questions under way. The oldest one is dropped.
MOST = 4096


class Proxy:
    def __init__(self, address, resolver, port, manner):
        def udp(address):
            return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)

        self.below, self.above = udp(address), udp(resolver)
        self.below.bind((address, 53))
        self.above.connect((resolver, port))
        self.manner = manner
        self.number = 0
        self.asked = {}
        self.later = []

    def from_client(self, message, peer):
        found = question(message)
        if found is None:
            return
        name, kind, end = found
        fragment = len(name[0]) == 63 and name[0].startswith(b"ff0") if name else False
        if fragment and self.manner == "silent":
            return
        if fragment and self.manner == "lying":
            self.below.sendto(answer(message, end, [record(A, 60, LIE)]), peer)
            return
        odd = any(ODD.search(label) for label in name)
        if odd and self.manner == "filtering":
            self.below.sendto(answer(message, end, status=SERVFAIL), peer)
            return
        if odd and self.manner == "mangling":
            message = message[:12] + re.sub(rb"[^\0-\x3fa-z0-9A-Z_-]", b"?", message[12 : end - 4]) + message[end - 4 :]
        self.number = (self.number + 1) % 65536
        late = self.manner == "slow-all" or fragment and self.manner == "slow"
        self.asked[self.number] = (message[:2], peer, late)
        while len(self.asked) > MOST:
            del self.asked[next(iter(self.asked))]
        self.above.send(struct.pack("!H", self.number) + message[2:])

    def from_resolver(self, message):
        identity, peer, late = self.asked.pop(struct.unpack_from("!H", message)[0], (None, None, False))
        if identity is None:
            return
        if late:
            heapq.heappush(self.later, (time.monotonic() + DELAY, identity + message[2:], peer))
        else:
            self.below.sendto(identity + message[2:], peer)

    def run(self):
        while True:
            wait = max(0, self.later[0][0] - time.monotonic()) if self.later else None
            ready, _, _ = select.select([self.below, self.above], [], [], wait)
            if self.below in ready:
                self.from_client(*self.below.recvfrom(4096))
            if self.above in ready:
                try:
                    self.from_resolver(self.above.recv(4096))
                except ConnectionRefusedError:
                    pass
            while self.later and self.later[0][0] <= time.monotonic():
                _, message, peer = heapq.heappop(self.later)
                self.below.sendto(message, peer)


def main():
    address, resolver, port, manner = sys.argv[1:]
    proxy = Proxy(address, resolver, int(port), manner)
    print("ready", flush=True)
    proxy.run()


if __name__ == "__main__":
    main()
