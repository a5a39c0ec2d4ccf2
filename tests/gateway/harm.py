#!/usr/bin/env python3
"""What clients that misbehave cost a gateway, and its other clients.

    tests/gateway/harm.py [--bin PATH] [--json] [--quick] [-k TEXT]

Each row is an attack by clients of one address, while a client of another address visits every 50 ms: the gateway's memory
before, at most and after, its open files at most, and the honest client's first byte, median and 99th percentile. A row
holds if the honest client is always answered with 200, memory stays below a bound, and files are free at the end. Times are
printed and not judged. Needs root and nginx.
"""

import asyncio
import os
import resource
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import frames  # noqa: E402
from place import Place, Result, main  # noqa: E402

import nginx  # noqa: E402

#: The attacker's addresses and the honest client's are in the same namespace.
ATTACKER, HONEST = "127.0.0.9", "127.0.0.1"
PORT, OTHER, SLOW, BACKEND, H2 = 8443, 8444, 8445, 8101, 8102
FILES = 2048
#: A gateway's memory at most, MiB above what it began with.
BOUND = 64
NO_WINDOW = struct.pack(">HI", 4, 0)

CONFIG = """
[gateway]
log = "{log}"
max_connections = 800
{listeners}
[[service]]
name = "h1"
backend = ["127.0.0.1:{backend}"]
[[service]]
name = "h2"
backend = ["127.0.0.1:{h2}"]
protocol = "h2"
"""
LISTENER = """
[[listener]]
name = "{name}"
address = ["127.0.0.1:{port}"]
udp_port = 0
mode = "http"
service = "{service}"
body_timeout = "5s"
"""
#: nginx answers 405 to a POST for a file when it has read the body.
HTTP = f"access_log off; keepalive_requests 1000000; client_max_body_size 0; server {{ listen 127.0.0.1:{H2} http2; root ROOT; }}"
SERVER = f"listen 127.0.0.1:{BACKEND} backlog=4096;"


def memory(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Attack:
    """A row. `run` attacks for so many seconds."""

    def __init__(self, name, port, honest, run, log="off"):
        self.name, self.port, self.honest, self.run, self.log = name, port, honest, run, log


async def connect(port):
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))


async def h2(port, settings=b""):
    reader, writer = await connect(port)
    writer.write(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, settings))
    return reader, writer


def get(path, stream):
    block = frames.header_block(frames.request("GET", path))
    return frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block)


async def quiet(*tasks):
    await asyncio.gather(*tasks, return_exceptions=True)


async def discard(reader):
    try:
        while await reader.read(65536):
            pass
    except OSError:
        pass


async def no_window(port, seconds, connections, streams, path="/big"):
    """Connections whose streams get no window. Each is opened again when it has ended."""
    until = time.monotonic() + seconds

    async def one():
        while time.monotonic() < until:
            try:
                reader, writer = await h2(port, NO_WINDOW)
                for n in range(streams):
                    writer.write(get(path, 2 * n + 1))
                await asyncio.wait_for(discard(reader), max(until - time.monotonic(), 0.1))
            except (OSError, asyncio.TimeoutError):
                await asyncio.sleep(0.05)
            finally:
                writer.close()

    await quiet(*(one() for _ in range(connections)))


async def no_window_h1(port, seconds):
    await no_window(port, seconds, 18, 128)


async def no_window_h2(port, seconds):
    await no_window(port, seconds, 1, 3)


async def slow_readers(port, seconds):
    """Clients of HTTP/1.1 that read 10 kB/s."""

    async def one():
        reader, writer = await connect(port)
        writer.write(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
        until = time.monotonic() + seconds
        while time.monotonic() < until and await reader.read(1000):
            await asyncio.sleep(0.1)
        writer.transport.abort()

    await quiet(*(one() for _ in range(4)))


async def uploads(port, seconds):
    """Uploads whose lengths stand behind many spaces, on a connection that is used again: what the guard of framing kept grew with them."""
    until = time.monotonic() + seconds
    reader, writer = await connect(port)
    reading = asyncio.create_task(discard(reader))
    body = (b"x" * 126 + b"\r\n") * 8192
    head = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length:" + b" " * 140 + str(600 * len(body)).encode() + b"\r\n\r\n"
    try:
        writer.write(head)
        while time.monotonic() < until:
            writer.write(body)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort()
    reading.cancel()


async def resets(port, seconds):
    """Requests that are reset as soon as a backend has them, 100 a second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            reader, writer = await h2(port)
            reading = asyncio.create_task(discard(reader))
            stream = 1
            while time.monotonic() < until and not reading.done():
                writer.write(get("/big", stream))
                await writer.drain()
                await asyncio.sleep(0.01)
                writer.write(frames.frame(frames.RST_STREAM, 0, stream, struct.pack(">I", 8)))
                stream += 2
        except OSError:
            await asyncio.sleep(0.05)
        finally:
            writer.close()


async def long_paths(port, seconds):
    """Requests with long paths, for a log that nobody reads."""
    until = time.monotonic() + seconds
    request = b"GET /" + b"a" * 30_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"

    async def one():
        reader, writer = await connect(port)
        reading = asyncio.create_task(discard(reader))
        while time.monotonic() < until and not reading.done():
            writer.write(request)
            await writer.drain()
        writer.transport.abort()

    await quiet(*(one() for _ in range(4)))


ATTACKS = (
    Attack("a slow reader, HTTP/2 backend (10)", OTHER, OTHER, no_window_h2),
    Attack("four readers of 10 kB/s, HTTP/2 backend (10)", OTHER, OTHER, slow_readers),
    Attack("18 clients without window, 128 streams each (11)", PORT, SLOW, no_window_h1),
    Attack("an upload behind many spaces (12)", PORT, PORT, uploads),
    Attack("paced resets, HTTP/2 backend (13)", OTHER, OTHER, resets),
    Attack("long paths, a log that nobody reads (15)", PORT, PORT, long_paths, log="text"),
)


async def visit(port):
    """The time to the first byte of a small file, in ms, on a connection of its own; None if it was not answered."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(8):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(HONEST, 0))
            writer.write(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.read(6)
            writer.close()
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        return None
    return (time.monotonic() - began) * 1000 if b" 200 " in head and body == b"small\n" else None


async def measure(attack, pid, seconds):
    """Visits while a process of its own attacks. Returns the times, and memory and files at most."""
    command = (sys.executable, os.path.abspath(__file__), "--run", attack.name, str(seconds))
    attacking = subprocess.Popen(command)
    times, most, open_files = [], 0.0, 0
    while attacking.poll() is None:
        times.append(await visit(attack.honest))
        most, open_files = max(most, memory(pid)), max(open_files, files(pid))
        await asyncio.sleep(0.05)
    return times, most, open_files


def quantile(values, share):
    values = sorted(values)
    return values[min(int(len(values) * share), len(values) - 1)]


def row(place, attack, seconds):
    result = Result(attack.name)
    listeners = "".join(
        LISTENER.format(name=f"l{port}", port=port, service=service)
        for port, service in ((PORT, "h1"), (OTHER, "h2"), (SLOW, "h1"))
    )
    config = place.write(CONFIG.format(log=attack.log, listeners=listeners, backend=BACKEND, h2=H2))
    limited = ["prlimit", f"--nofile={FILES}:{FILES}", place.binary, "gateway", config]
    # Nobody reads what it says in the row of the log.
    gateway = subprocess.Popen(["ip", "netns", "exec", place.ns.name, *limited], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        for _ in range(3):
            gateway.stdout.readline()
        if attack.log == "off":
            # Its status lines only.
            threading.Thread(target=gateway.stdout.read, daemon=True).start()
        script = [sys.executable, os.path.join(HERE, "harm.py"), "--attack", attack.name, str(gateway.pid), str(seconds)]
        said = subprocess.run(["ip", "netns", "exec", place.ns.name, *script], stdout=subprocess.PIPE, text=True, check=True)
        before, most, after, open_files, left, median, late, visits, failed = map(float, said.stdout.split())
    finally:
        gateway.kill()
        gateway.wait()
    result.numbers["memory before, at most, after, MiB"] = f"{before:.0f}, {most:.0f}, {after:.0f}"
    result.numbers["open files at most, after"] = f"{open_files:.0f}, {left:.0f}"
    result.numbers["others' first byte, median and 99th percentile, ms"] = f"{median:.1f}, {late:.1f}"
    result.numbers["others' visits, of these not answered"] = f"{visits:.0f}, {failed:.0f}"
    result.must(failed == 0, f"{failed:.0f} of {visits:.0f} visits of others were not answered")
    result.must(most - before < BOUND, f"memory grew by {most - before:.0f} MiB")
    return result


def named(name):
    return next(attack for attack in ATTACKS if attack.name == name)


def attack_here(name, pid, seconds):
    """What runs inside the namespace."""
    attack = named(name)
    time.sleep(0.5)
    before = memory(pid)
    times, most, open_files = asyncio.run(measure(attack, pid, seconds))
    time.sleep(2)
    answered = [one for one in times if one is not None] or [float("nan")]
    failed = sum(one is None for one in times)
    numbers = (before, most, memory(pid), open_files, files(pid), statistics.median(answered), quantile(answered, 0.99), len(times), failed)
    print(*numbers)


def check(binary, quick=False, only=""):
    seconds = 6 if quick else 20
    with Place(binary) as place:
        for name, size in (("big", 50_000_000), ("small", None)):
            with open(place.path(name), "wb") as file:
                file.write(b"small\n" if size is None else bytes(size))
        root = place.directory
        nginx.start(place, place.ns, root, f"127.0.0.1:{BACKEND}", SERVER, HTTP.replace("ROOT", root), 8192)
        for attack in ATTACKS:
            if only in attack.name:
                yield row(place, attack, seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attack"]:
        attack_here(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    elif sys.argv[1:2] == ["--run"]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
        asyncio.run(named(sys.argv[2]).run(named(sys.argv[2]).port, float(sys.argv[3])))
    else:
        only = sys.argv[sys.argv.index("-k") + 1] if "-k" in sys.argv[:-1] else ""
        sys.argv = [word for n, word in enumerate(sys.argv) if word != "-k" and sys.argv[n - 1] != "-k"]
        main(lambda binary, quick: check(binary, quick, only), __doc__)
