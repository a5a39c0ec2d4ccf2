#!/usr/bin/env python3
"""What open_connection costs beside asyncio.open_connection: CPU time of the client's process, and the time until the answer.

    unshare --net benches/connects.py [--rtt MS] [--rounds N] [--visits N] [--uvloop]

In turn, on loopback, as root in a namespace of its own. Each visit sends a request, reads the answer and closes. Prints medians over the
rounds of the CPU time of a visit, and the median and 99th percentile of all visits. With --rtt, packets are delayed by half of it.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import time

import firstflight

REQUEST = b"GET / HTTP/1.0\r\n\r\n"


def serve():
    async def main():
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"answer")
            writer.close()

        server = await firstflight.start_server(answer, "127.0.0.1", 8080, backlog=1024)
        await server.serve_forever()

    asyncio.run(main())


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def plain():
    reader, writer = await asyncio.open_connection("127.0.0.1", 8080)
    writer.write(REQUEST)
    return reader, writer


async def ours():
    return await firstflight.open_connection("127.0.0.1", 8080, first=REQUEST, replayable=True)


async def visit(connect):
    began = time.perf_counter()
    reader, writer = await connect()
    assert await reader.read() == b"answer"
    took = time.perf_counter() - began
    writer.close()
    await writer.wait_closed()
    return took


async def measure(rounds, visits):
    times, costs = {plain: [], ours: []}, {plain: [], ours: []}
    for _ in range(20):
        await visit(plain)
        await visit(ours)
    for number in range(rounds):
        for connect in (plain, ours) if number % 2 else (ours, plain):
            before = cpu()
            times[connect] += [await visit(connect) for _ in range(visits)]
            costs[connect].append((cpu() - before) / visits)
    for connect in (plain, ours):
        found = sorted(times[connect])
        print(
            f"{connect.__name__}: CPU {statistics.median(costs[connect]) * 1e6:.1f} µs a visit, "
            f"answer after {statistics.median(found) * 1e3:.2f} ms, p99 {found[len(found) * 99 // 100] * 1e3:.2f} ms"
        )
    more = [a - b for a, b in zip(costs[ours], costs[plain])]
    print(f"difference: CPU {statistics.median(more) * 1e6:+.1f} µs (median of {rounds} pairs of {visits} visits)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rtt", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--visits", type=int, default=50)
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if options.rtt:
        delay = f"{options.rtt / 2}ms"
        subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", delay], check=True)
    with open("/proc/sys/net/ipv4/tcp_fastopen", "w") as file:
        file.write("3")
    child = os.fork()
    if child == 0:
        serve()
    try:
        time.sleep(2)
        run = asyncio.run
        if options.uvloop:
            import uvloop

            run = uvloop.run
        run(measure(options.rounds, options.visits))
    finally:
        os.kill(child, 15)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
