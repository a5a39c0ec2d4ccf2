"""A backend on HTTP/1.1 that prints one JSON line for each request, run as a separate process.

Paths: `/slow` answers in pieces until a line comes on standard input, `/early` answers 425 to a request that is marked as
early, everything else answers with its own path.
"""

import http.server
import json
import socketserver
import sys
import threading

released = threading.Event()


def emit(**record):
    print(json.dumps(record), flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        emit(event="request", method=self.command, path=self.path, headers=headers, bytes=len(body))
        if self.path == "/early" and headers.get("early-data") == "1":
            self.reply(425, b"")
        elif self.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", "20")
            self.end_headers()
            self.wfile.write(b"x" * 10)
            self.wfile.flush()
            released.wait(60)
            self.wfile.write(b"y" * 10)
        else:
            self.reply(200, self.path.encode())

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = answer


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    address, port = sys.argv[1].rsplit(":", 1)
    server = Server((address, int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    emit(event="listening")
    for _ in sys.stdin:
        released.set()


if __name__ == "__main__":
    main()
