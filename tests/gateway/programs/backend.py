"""What nginx does not do, behind the gateway; run as a separate process: `backend.py HTTP_PORT RAW_PORT`.

On HTTP/1.1: `/extra/hold` does not read the body of its request until a line comes on standard input, and then answers
with the number of its bytes; `/extra/ws` is a WebSocket that returns what it gets. On TCP: reads to the end, and then
answers with the number of bytes and their SHA-256.
"""

import base64
import hashlib
import http.server
import json
import socket
import socketserver
import struct
import sys
import threading

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
released = threading.Event()


def emit(**record):
    print(json.dumps(record), flush=True)


def read_frame(file):
    """Opcode and payload of a WebSocket's frame (RFC 6455 section 5.2), or (8, b"") at the end."""
    head = file.read(2)
    if len(head) < 2:
        return 8, b""
    size = head[1] & 127
    if size == 126:
        (size,) = struct.unpack("!H", file.read(2))
    elif size == 127:
        (size,) = struct.unpack("!Q", file.read(8))
    key = file.read(4) if head[1] & 128 else bytes(4)
    return head[0] & 15, bytes(byte ^ key[at % 4] for at, byte in enumerate(file.read(size)))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        emit(event="held", path=self.path)
        released.wait(120)
        self.answer(f"{len(self.rfile.read(int(self.headers['Content-Length'])))}\n".encode())

    def do_GET(self):
        if self.path != "/extra/ws":
            self.answer(b"?\n")
            return
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + GUID).digest())
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept.decode())):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:
            opcode, data = read_frame(self.rfile)
            self.wfile.write(bytes([0x80 | opcode, len(data)]) + data)
            if opcode == 8:
                return

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Raw(socketserver.StreamRequestHandler):
    def handle(self):
        count, digest = 0, hashlib.sha256()
        while data := self.request.recv(65536):
            count += len(data)
            digest.update(data)
        self.request.sendall(f"{count} {digest.hexdigest()}\n".encode())


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128


def main():
    for port, handler in zip(sys.argv[1:3], (Handler, Raw), strict=True):
        server = Server(("127.0.0.1", int(port)), handler, bind_and_activate=False)
        # What is not read shall soon stop its sender.
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        server.server_bind()
        server.server_activate()
        threading.Thread(target=server.serve_forever, daemon=True).start()
    emit(event="listening")
    for _ in sys.stdin:
        released.set()


if __name__ == "__main__":
    main()
