"""A name server with the data that a test gives it."""

import contextlib
import socket
import threading

HTTPS = 65


@contextlib.contextmanager
def answering(ns, address, names, authentic=False, late=0):
    """A name server with this data for each (name, type). `authentic`: it says that it has validated it (the bit AD). HTTPS records
    come `late` seconds later."""
    with ns.entered():
        served = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        served.bind((address, 53))
    served.settimeout(0.1)
    over = threading.Event()

    def serve():
        while not over.is_set():
            try:
                query, client = served.recvfrom(4096)
            except TimeoutError:
                continue
            end = query.index(0, 12) + 1
            question, kind = query[12 : end + 4], int.from_bytes(query[end : end + 2])
            found = names.get((query[12:end].lower(), kind))
            known = any(name == query[12:end].lower() for name, _ in names)
            flags = (0x8580 if known else 0x8583) | (0x20 if authentic else 0)
            head = query[:2] + flags.to_bytes(2) + b"\0\1" + (b"\0\1" if found else b"\0\0") + b"\0\0\0\0"
            answer = b""
            if found:
                ttl = (60).to_bytes(4)
                answer = b"\xc0\x0c" + kind.to_bytes(2) + b"\0\1" + ttl + len(found).to_bytes(2) + found
            reply = head + question + answer
            if late and kind == HTTPS:
                threading.Timer(late, served.sendto, (reply, client)).start()
            else:
                served.sendto(reply, client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        served.close()
