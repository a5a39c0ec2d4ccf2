#!/usr/bin/env python3
"""Clients that ask without a pause, and know of each request what became of it.

    visitors.py ADDRESS:PORT [--gets N] [--posts N] [--h2 N] [--streams N] [--once] [--resets]

So many connections at one time of HTTP/1.1 with GETs, with POSTs, and of HTTP/2 with both. They end when standard input
does, and all requests under way have their time. Lines of JSON say how many were answered; the last one has everything.

| what | means |
|---|---|
| `answered` | status 200, and the body that belongs to the request |
| `status` | another status |
| `again` | a GET that the client sent again, as RFC 9110 §9.2.2 allows: its connection had answered before, and ended without a byte |
| `refused` | HTTP/2: a request that the server says it did not run, and that the client sent again |
| `reset` | the connection ended without an answer; in parentheses after how many answers |
| `wrong` | the body of another request, or half of one |
| `cut` | with `--resets`: half of an answer, because the connection ended |
| `hung` | neither within the time of PATIENCE |
"""

import argparse
import asyncio
import collections
import json
import sys

import frames

#: Seconds after which a request hangs.
PATIENCE = 60
#: How often a client sends a request again.
ATTEMPTS = 5


class Visitors:
    def __init__(self, options):
        host, port = options.at.rsplit(":", 1)
        self.at, self.options = (host, int(port)), options
        self.cut = "cut" if options.resets else "wrong"
        self.stopped = asyncio.Event()
        self.counts = {"GET": collections.Counter(), "POST": collections.Counter()}
        self.goaways = collections.Counter()
        #: Connections of HTTP/2 that have answered.
        self.answering_h2 = 0
        self.failures = []
        self.number = 0

    def name(self, method):
        self.number += 1
        return f"/{method.lower()}/{self.number}"

    def note(self, method, result, body, target):
        expected = target.encode()
        if result == 200:
            result = "answered" if body == expected else "wrong"
        elif isinstance(result, int):
            result = f"status {result}"
        self.counts[method][result] += 1
        if result != "answered":
            self.failures.append(f"{method} {target}: {result}")

    async def patiently(self, work):
        try:
            return await asyncio.wait_for(work, PATIENCE)
        except TimeoutError:
            return "hung", b""

    # HTTP/1.1

    async def visit(self, method):
        connection, used = None, 0
        while not self.stopped.is_set():
            target = self.name(method)
            for attempt in range(ATTEMPTS):
                if connection is None:
                    try:
                        connection, used = await asyncio.open_connection(*self.at), 0
                    except OSError:
                        self.note(method, "refused connect", b"", target)
                        break
                result, body, keep = await self.exchange(connection, method, target)
                if not keep:
                    connection[1].close()
                    connection = None
                if result == "reset" and used and method == "GET" and attempt + 1 < ATTEMPTS:
                    self.counts[method]["again"] += 1
                    continue
                self.note(method, f"reset (after {used})" if result == "reset" else result, body, target)
                break
            used += 1
            if self.options.once and connection:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def exchange(self, connection, method, target):
        """Returns the result, the body, and whether the connection can have more requests."""
        reader, writer = connection
        body = target.encode() if method == "POST" else b""
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        try:
            writer.write(f"{method} {target} HTTP/1.1\r\nHost: a\r\n{length}\r\n".encode() + body)
            await writer.drain()
            head = await self.patiently(reader.readuntil(b"\r\n\r\n"))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            return "reset" if not getattr(error, "partial", b"") else self.cut, b"", False
        if head[0] == "hung":
            return "hung", b"", False
        text = head.decode("latin-1").lower()
        fields = dict(line.split(": ", 1) for line in text.split("\r\n")[1:] if line)
        try:
            body = await self.patiently(reader.readexactly(int(fields.get("content-length", 0))))
        except (asyncio.IncompleteReadError, ConnectionError):
            return self.cut, b"", False
        if body and body[0] == "hung":
            return "hung", b"", False
        return int(text.split(" ")[1]), body, fields.get("connection") != "close"

    # HTTP/2

    async def visit_h2(self):
        """One connection at a time, with several requests on it."""
        state = {"connection": None, "opening": asyncio.Lock()}
        methods = [("POST" if n % 4 == 3 else "GET") for n in range(self.options.streams)]
        await asyncio.gather(*(self.stream(state, method) for method in methods))
        if state["connection"]:
            state["connection"].writer.close()

    async def usable(self, state):
        async with state["opening"]:
            connection = state["connection"]
            if connection is None or not connection.usable():
                connection = state["connection"] = await frames.Connection.open(*self.at)
                connection.reading.add_done_callback(lambda _: self.ended(connection))
            return connection

    def ended(self, connection):
        if not self.stopped.is_set():
            self.goaways[len(connection.goaways)] += 1

    async def stream(self, state, method):
        while not self.stopped.is_set():
            target = self.name(method)
            for _ in range(ATTEMPTS):
                try:
                    connection = await self.usable(state)
                except OSError:
                    self.note(method, "refused connect", b"", target)
                    break
                body = target.encode() if method == "POST" else None
                _, answer = connection.ask(frames.request(method, target), body)
                try:
                    result, got = await self.patiently(answer)
                except frames.Closed:
                    result, got = "reset (HTTP/2 closed)", b""
                if result == "refused":
                    self.counts[method]["refused"] += 1
                    continue
                self.note(method, result, got, target)
                if result == 200 and not connection.has_answered:
                    connection.has_answered = True
                    self.answering_h2 += 1
                break

    async def run(self):
        work = [self.visit("GET") for _ in range(self.options.gets)]
        work += [self.visit("POST") for _ in range(self.options.posts)]
        work += [self.visit_h2() for _ in range(self.options.h2)]
        tasks = [asyncio.create_task(one) for one in work]
        asyncio.get_running_loop().add_reader(sys.stdin, self.stopped.set)
        while not self.stopped.is_set():
            answered = sum(counts["answered"] for counts in self.counts.values())
            print(json.dumps({"answered": answered, "h2": self.answering_h2}), flush=True)
            try:
                await asyncio.wait_for(self.stopped.wait(), 0.1)
            except TimeoutError:
                pass
        asyncio.get_running_loop().remove_reader(sys.stdin)
        await asyncio.gather(*tasks)
        print(json.dumps({**self.counts, "goaways": self.goaways, "failures": self.failures[:20]}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("at")
    for name in ("gets", "posts", "h2"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--resets", action="store_true", help="the path resets connections: an answer may be `cut`")
    parser.add_argument("--once", action="store_true", help="a connection for each request of HTTP/1.1")
    options = parser.parse_args()

    async def run():
        await Visitors(options).run()

    asyncio.run(run())


if __name__ == "__main__":
    main()
