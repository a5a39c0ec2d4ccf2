"""An HTTP server on the kernel's TCP with Fast Open, run as a separate process.

Prints one JSON line for each event: `listening`, then for each connection `accepted` (with its TCP_INFO), and for
each request `sending` (the response has begun) and `request` (it is done).
GET serves files of the root; GET /drip never ends; PUT answers the SHA-256 of the body.
"""

import argparse
import hashlib
import http.server
import json
import os
import socket
import sys
import threading

from kernel import TCP_FASTOPEN, tcp_info

LOCK = threading.Lock()


def emit(event, **fields):
    with LOCK:
        print(json.dumps({"event": event, **fields}), flush=True)


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN, 512)
        super().server_bind()

    def handle_error(self, request, client_address):
        emit("error", error=repr(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]))


class Server6(Server):
    address_family = socket.AF_INET6


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root = "."

    def setup(self):
        super().setup()
        emit("accepted", peer=self.client_address[0], syn_data=tcp_info(self.connection).syn_data)

    def log_message(self, *_):
        pass

    def _begin(self, length):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()
        emit("sending", path=self.path)

    def do_GET(self):
        if self.path == "/drip":
            # This length is never reached, so a client that reads to the end would wait forever.
            self._begin(1 << 40)
            block = bytes(65536)
            while True:
                self.wfile.write(block)
        name = os.path.join(self.root, os.path.basename(self.path))
        if not os.path.isfile(name):
            self.send_error(404)
            return
        with open(name, "rb") as file:
            body = file.read()
        self._begin(len(body))
        self.wfile.write(body)
        emit("request", method="GET", path=self.path, bytes=len(body))

    def do_PUT(self):
        digest, count = hashlib.sha256(), 0
        for block in self._body():
            digest.update(block)
            count += len(block)
        answer = json.dumps({"bytes": count, "sha256": digest.hexdigest()}).encode()
        self._begin(len(answer))
        self.wfile.write(answer)
        emit("request", method="PUT", path=self.path, bytes=count, sha256=digest.hexdigest())

    do_POST = do_PUT

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while (size := int(self.rfile.readline().split(b";")[0], 16)) > 0:
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left > 0:
            block = self.rfile.read(min(left, 65536))
            if not block:
                raise EOFError("the body ended early")
            left -= len(block)
            yield block


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", required=True)
    arguments = parser.parse_args()
    Handler.root = arguments.root
    kind = Server6 if ":" in arguments.address else Server
    server = kind((arguments.address, arguments.port), Handler)
    emit("listening")
    server.serve_forever()


if __name__ == "__main__":
    main()
