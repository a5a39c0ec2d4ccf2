#!/usr/bin/env python3
"""Clients whose requests are in their SYNs, by the kernel's Fast Open.

    first.py ADDRESS:PORT [--gets N] [--posts N] [--label TEXT] [--bare]

So many threads ask without a pause, each request on a connection of its own. They end when standard input does. Lines of JSON
say how many were answered; the last one has everything, in the words of `tests/gateway/visitors.py`. Targets contain the label.
With `--bare` a POST has no body, so that a gateway may forward it before the client is confirmed.
"""

import argparse
import collections
import itertools
import json
import socket
import sys
import threading

TCP_FASTOPEN_CONNECT = 30
#: A probe after as many seconds, the next ones, and how many.
KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 5}
#: Seconds after which a request hangs.
PATIENCE = 60


class Visitors:
    def __init__(self, options):
        host, port = options.at.rsplit(":", 1)
        self.at, self.numbers, self.options = (host, int(port)), itertools.count(), options
        self.counts = {"GET": collections.Counter(), "POST": collections.Counter()}
        self.failures, self.early, self.stopped = [], collections.Counter(), threading.Event()
        self.lock = threading.Lock()
        self.threads = [
            threading.Thread(target=self.visit, args=(method,))
            for method, count in (("GET", options.gets), ("POST", options.posts))
            for _ in range(count)
        ]

    def name(self, method):
        with self.lock:
            return f"/{method.lower()}/{self.options.label}/{next(self.numbers)}"

    def note(self, method, target, result, early, why=""):
        with self.lock:
            self.counts[method][result] += 1
            self.early[method] += early
            if result != "answered":
                self.failures.append(f"{method} {target}: {result} {why}".rstrip())
        if result != "answered":
            self.stopped.wait(0.05)

    def visit(self, method):
        while not self.stopped.is_set():
            target = self.name(method)
            self.note(method, target, *self.ask(method, target))

    def ask(self, method, target):
        body = target if method == "POST" and not self.options.bare else ""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        request = f"{method} {target} HTTP/1.1\r\nHost: a\r\n{length}Connection: close\r\n\r\n{body}".encode()
        early, got = False, b""
        try:
            with socket.socket() as sock:
                sock.settimeout(PATIENCE)
                sock.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
                # Who waits for an answer sends nothing, and would not hear that an engine was killed: nobody ends its connections.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in KEEPALIVE.items():
                    sock.setsockopt(socket.IPPROTO_TCP, option, value)
                sock.connect(self.at)
                sock.sendall(request)
                while part := sock.recv(4096):
                    got += part
                    # tcpi_options, TCPI_OPT_SYN_DATA: the SYN's data was accepted.
                    early = bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5] & 32)
        except TimeoutError as error:
            # The kernel's own has a number.
            return "timeout" if error.errno else "hung", early
        except ConnectionRefusedError:
            return "refused connect", early
        except OSError:
            return "reset" if not got else "cut", early
        head, end, answer = got.partition(b"\r\n\r\n")
        if not end:
            return "reset" if not got else "cut", early
        status = head.split(b" ")[1].decode()
        if status != "200":
            return f"status {status}", early
        return ("answered" if answer == target.encode() else "cut" if target.encode().startswith(answer) else "wrong"), early

    def run(self):
        for thread in self.threads:
            thread.start()
        ended = threading.Thread(target=sys.stdin.read, daemon=True)
        ended.start()
        while ended.is_alive():
            with self.lock:
                answered = sum(counts["answered"] for counts in self.counts.values())
                print(json.dumps({"answered": answered, "early": self.early}), flush=True)
            ended.join(0.2)
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        print(json.dumps(self.told()), flush=True)

    def told(self):
        return {**self.counts, "early": self.early, "failures": self.failures[:20]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("at")
    parser.add_argument("--label", default="first")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--gets", type=int, default=0)
    parser.add_argument("--posts", type=int, default=0)
    Visitors(parser.parse_args()).run()
