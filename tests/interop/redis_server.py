"""A Redis of the test's own, on a socket in a directory of its own."""

import os
import socket

from process import Process


class Redis(Process):
    """Without persistence: killed, it has forgotten everything. A namespace does not matter to its socket."""

    def __init__(self, directory):
        self.socket = os.path.join(directory, "redis.sock")
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        super().__init__(
            [
                "redis-server", "--port", 0, "--unixsocket", self.socket,
                "--save", "", "--appendonly", "no", "--dir", directory,
            ]
        )  # fmt: skip

    def __enter__(self):
        self.wait_until(self.answers, "answer of redis-server")
        return self

    @property
    def url(self):
        return f"redis+unix://{self.socket}"

    def answers(self):
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(self.socket)
            except OSError:
                return False
            sock.sendall(b"PING\r\n")
            return sock.recv(100).startswith(b"+PONG")
