#!/usr/bin/env python3
"""The cost of a question for Redis, by the sections of INFO that it reads: transactions a second, 50 at a time.

Through a Unix socket. Prints the best of five rounds, and Redis' own count of microseconds for one EXEC. Needs
redis-server 7 or later.
"""

import os
import socket
import subprocess
import tempfile
import time

COUNT, BATCH, ROUNDS = 10_000, 50, 5
WAYS = (
    ("no check", []),
    ("server, replication, each by itself", [["server"], ["replication"]]),
    ("server, replication, stats, each by itself (Redis 6.2)", [["server"], ["replication"], ["stats"]]),
    ("server, replication, stats in one", [["server", "replication", "stats"]]),
    ("the same with memory (once a second)", [["server", "replication", "stats", "memory"]]),
)


def command(*words):
    words = [word.encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def until(sock, end):
    last = b""
    while not last.endswith(end):
        last = (last + sock.recv(1 << 20))[-len(end) :]


def measure(sock, sections):
    """Transactions a second, and microseconds of an EXEC."""
    parts = [command("MULTI"), *(command("INFO", *names) for names in sections)]
    parts += [command("GET", "mark"), command("SET", "key", "1", "PX", "120000", "NX"), command("EXEC")]
    batch = b"".join(parts) * BATCH
    sock.sendall(command("CONFIG", "RESETSTAT"))
    until(sock, b"+OK\r\n")
    began = time.perf_counter()
    for n in range(COUNT // BATCH):
        sock.sendall(batch + command("ECHO", f"end{n:06}"))
        until(sock, b"end%06d\r\n" % n)
    rate = COUNT / (time.perf_counter() - began)
    sock.sendall(command("INFO", "commandstats") + command("ECHO", "stats"))
    text = b""
    while not text.endswith(b"stats\r\n"):
        text += sock.recv(1 << 20)
    (line,) = (line for line in text.decode().splitlines() if line.startswith("cmdstat_exec:"))
    return rate, float(line.split("usec_per_call=")[1].split(",")[0])


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "socket")
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", directory]
        server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                while sock.connect_ex(path):
                    time.sleep(0.01)
                best = {name: (0, 1e9) for name, _ in WAYS}
                for _ in range(ROUNDS):
                    for name, sections in WAYS:
                        rate, cost = measure(sock, sections)
                        best[name] = (max(best[name][0], rate), min(best[name][1], cost))
        finally:
            server.kill()
            server.wait()
    print("| a question reads | questions/s | µs of EXEC |\n|---|---|---|")
    for name, (rate, cost) in best.items():
        print(f"| {name} | {rate:,.0f} | {cost:.1f} |")


if __name__ == "__main__":
    main()
