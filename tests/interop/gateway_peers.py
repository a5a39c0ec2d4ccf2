"""A backend and clients for test_gateway_backends.py, which read and write HTTP by hand.

gateway_peers.py backend PORT            answers by the path of the request; says each request
gateway_peers.py mixed PORT              16 connections with 50 requests each, every other one of POSTs: counts of statuses
gateway_peers.py login PORT              what a client is told after another one has logged in
gateway_peers.py resets PORT COUNT       requests by HTTP/2 that are given up
gateway_peers.py hold PORT COUNT         requests that wait, until a line comes
"""

import collections
import json
import socket
import struct
import sys
import threading
import time

LENGTHS = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


def say(**record):
    print(json.dumps(record), flush=True)


def answer(connection):
    """One connection of a backend. Who logged in on it is its user."""
    user, file = "nobody", connection.makefile("rb")
    while True:
        line = file.readline()
        if not line:
            return
        method, path, _ = line.decode().split(" ", 2)
        fields = {}
        while (field := file.readline()) not in (b"\r\n", b""):
            name, value = field.decode().split(":", 1)
            fields[name.lower()] = value.strip()
        file.read(int(fields.get("content-length", 0)))
        say(event="request", method=method, path=path)
        if path == "/wait":
            time.sleep(3600)
        if path == "/lengths":
            connection.sendall(LENGTHS)
            continue
        if path == "/half":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Le")
            return connection.close()
        credentials = fields.get("authorization", "")
        if credentials == "NTLM alice":
            user = "alice"
        if path == "/login" and user == "nobody":
            challenge = "NTLM challenge" if credentials else "NTLM"
            connection.sendall(
                f"HTTP/1.1 401 No\r\nWWW-Authenticate: {challenge}\r\nContent-Length: 0\r\n\r\n".encode()
            )
            continue
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(user)}\r\n\r\n{user}".encode())


def backend(port):
    with socket.create_server(("127.0.0.1", port), backlog=500) as server:
        say(event="listening")
        while True:
            threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


class Client:
    def __init__(self, port):
        self.port = port
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, method, path, fields=""):
        length = "Content-Length: 5\r\n" if method == "POST" else ""
        body = "hello" if method == "POST" else ""
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n{length}{fields}\r\n{body}".encode())

    def ask(self, method, path, fields=""):
        self.send(method, path, fields)
        status = int(self.file.readline().split(b" ")[1])
        length, ends = 0, False
        while (field := self.file.readline()) not in (b"\r\n", b""):
            if field.lower().startswith(b"content-length:"):
                length = int(field.split(b":")[1])
            ends |= field.lower() == b"connection: close\r\n"
        text = self.file.read(length).decode()
        if ends:
            self.connect()
        return status, text


def mixed(port):
    counts = collections.Counter()

    def run(method):
        client = Client(port)
        for _ in range(50):
            counts[f"{method} {client.ask(method, '/small')[0]}"] += 1

    threads = [threading.Thread(target=run, args=(method,)) for method in ["GET", "POST"] * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(**counts)


def login(port):
    alice, other = Client(port), Client(port)
    before = other.ask("GET", "/login")
    steps = [alice.ask("GET", "/login", f"Authorization: NTLM {step}\r\n") for step in ("first", "alice")]
    time.sleep(0.2)
    say(before=before, steps=steps, alice=alice.ask("GET", "/login"), other=other.ask("GET", "/login"))


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def resets(port, count):
    """Each request has a moment to reach a backend. Another connection when one is ended."""
    fields = {b":method": b"GET", b":scheme": b"http", b":path": b"/small", b":authority": b"a"}
    block = b"".join(literal(name, value) for name, value in fields.items())
    sent = connections = 0
    while sent < count:
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(4, 1, 0))
        connections += 1
        stream = 1
        try:
            while sent < count:
                client.sendall(frame(1, 5, stream, block))
                time.sleep(0.0005)
                client.sendall(frame(3, 0, stream, struct.pack(">I", 8)))
                stream, sent = stream + 2, sent + 1
        except OSError:
            pass
    say(sent=sent, connections=connections)


def hold(port, count):
    """Says the statuses of the answers that come, and lets go when a line comes."""
    clients, counts = [], collections.Counter()
    for _ in range(count):
        client = Client(port)
        client.send("GET", "/wait")
        clients.append(client)
    say(event="held")
    sys.stdin.readline()
    for client in clients:
        client.socket.settimeout(0.05)
        try:
            counts[client.file.readline().decode()[9:12]] += 1
        except OSError:
            counts["waits"] += 1
    say(event="counts", **counts)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
