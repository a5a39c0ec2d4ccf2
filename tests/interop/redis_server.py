"""A Redis server of the test, on a socket in its own directory."""

import os
import socket

from process import Process


class Redis(Process):
    """Has no persistence, so it has forgotten everything after it was killed. Its socket works in every namespace."""

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
