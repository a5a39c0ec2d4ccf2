#!/usr/bin/env python3
"""What open_connection costs beside asyncio.open_connection: CPU time of the client's process, and the time until the answer.

    benches/connects.py [--rtt MS [--lab PATH]] [--rounds N] [--visits N] [--uvloop]

In turn, as root, in network namespaces of its own: on loopback, or over a wire of firstflight-lab with this round-trip time. Each
visit sends a request, reads the answer and closes; over a wire the visits of a round run at the same time. Prints medians over the
rounds of the CPU time of a visit, and the median and 99th percentile of all visits.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time

import firstflight

REQUEST = b"GET / HTTP/1.0\r\n\r\n"
NEAR, FAR = f"ffpython{os.getpid()}a", f"ffpython{os.getpid()}b"
LOOPBACK, HOSTS = "127.0.0.1", ("10.94.0.1", "10.94.0.2")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def serve(host):
    async def main():
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"answer")
            writer.close()

        server = await firstflight.start_server(answer, host, 8080, backlog=1024)
        await server.serve_forever()

    asyncio.run(main())


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def plain(host):
    reader, writer = await asyncio.open_connection(host, 8080)
    writer.write(REQUEST)
    return reader, writer


async def ours(host):
    return await firstflight.open_connection(host, 8080, first=REQUEST, replayable=True)


async def visit(connect, host):
    began = time.perf_counter()
    reader, writer = await connect(host)
    assert await reader.read() == b"answer"
    took = time.perf_counter() - began
    writer.close()
    await writer.wait_closed()
    return took


async def visits(connect, host, count):
    if host == LOOPBACK:
        return [await visit(connect, host) for _ in range(count)]
    return await asyncio.gather(*(visit(connect, host) for _ in range(count)))


async def measure(host, rounds, count):
    times, costs = {plain: [], ours: []}, {plain: [], ours: []}
    for connect in (plain, ours, ours):
        await visits(connect, host, 10)
    for number in range(rounds):
        for connect in (plain, ours) if number % 2 else (ours, plain):
            before = cpu()
            times[connect] += await visits(connect, host, count)
            costs[connect].append((cpu() - before) / count)
    for connect in (plain, ours):
        found = sorted(times[connect])
        print(
            f"{connect.__name__}: CPU {statistics.median(costs[connect]) * 1e6:.1f} µs a visit, "
            f"answer after {statistics.median(found) * 1e3:.2f} ms, p99 {found[len(found) * 99 // 100] * 1e3:.2f} ms"
        )
    more = [a - b for a, b in zip(costs[ours], costs[plain])]
    print(f"difference: CPU {statistics.median(more) * 1e6:+.1f} µs (median of {rounds} pairs of {count} visits)")


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def inside(namespace, *arguments):
    """This program in a namespace."""
    return subprocess.Popen(["ip", "netns", "exec", namespace, sys.executable, os.path.abspath(__file__), *arguments])


def run(options):
    """Both ends, each in a namespace of its own; on loopback they share one."""
    names = (NEAR, FAR) if options.rtt else (NEAR, NEAR)
    host = HOSTS[1] if options.rtt else LOOPBACK
    wire = server = None
    try:
        for name in set(names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_fastopen=3")
        if options.rtt:
            ends = [f"--{end}={name}:w0" for end, name in zip("ab", names)]
            command = [options.lab, "wire", *ends, "--rtt", f"{options.rtt}ms"]
            wire = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            wire.stdout.readline()
            for name, address in zip(names, HOSTS):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "w0")
                ip("-n", name, "link", "set", "w0", "up")
        server = inside(names[1], "--serve", host)
        time.sleep(2)
        more = ["--uvloop"] if options.uvloop else []
        client = inside(names[0], "--visit", host, f"--rounds={options.rounds}", f"--visits={options.visits}", *more)
        return client.wait()
    finally:
        for process in filter(None, (server, wire)):
            process.terminate()
            process.wait()
        for name in set(names):
            subprocess.run(["ip", "netns", "del", name])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rtt", type=float, default=0, metavar="MS")
    parser.add_argument("--lab", default=os.path.join(ROOT, "target", "release", "firstflight-lab"), metavar="PATH")
    parser.add_argument("--rounds", type=int, default=100, metavar="N")
    parser.add_argument("--visits", type=int, default=50, metavar="N")
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--visit", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    elif options.visit:
        begin = asyncio.run
        if options.uvloop:
            import uvloop

            begin = uvloop.run
        begin(measure(options.visit, options.rounds, options.visits))
    else:
        sys.exit(run(options))


if __name__ == "__main__":
    main()
