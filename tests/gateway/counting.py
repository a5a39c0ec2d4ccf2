#!/usr/bin/env python3
"""A backend on HTTP/1.1 that notes each request before it answers it.

    counting.py ADDRESS:PORT LOG

A line of LOG is the method and the target. It is written at once, so a backend that is killed has noted everything that it
executed. The answer is the target again. One request of eight is answered after some milliseconds, so that a kill finds
requests that were executed and not answered.
"""

import asyncio
import os
import sys
import zlib

#: Seconds for which some requests wait for their answer.
PAUSES = (0.002, 0.01, 0.03)


async def read_request(reader):
    """The request's method, target and body. None at the end of the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    line, *fields = head.split("\r\n")
    method, target, _ = line.split(" ")
    fields = dict(field.lower().split(": ", 1) for field in fields if field)
    if "chunked" in fields.get("transfer-encoding", ""):
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    else:
        body = await reader.readexactly(int(fields.get("content-length", 0)))
    return method, target, body


async def serve(reader, writer, log):
    try:
        while request := await read_request(reader):
            method, target, _ = request
            os.write(log, f"{method} {target}\n".encode())
            chosen = zlib.crc32(target.encode())
            if chosen % 8 == 0:
                await asyncio.sleep(PAUSES[chosen // 8 % len(PAUSES)])
            body = b"" if method == "HEAD" else target.encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(target), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main(at, path):
    address, port = at.rsplit(":", 1)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    server = await asyncio.start_server(lambda r, w: serve(r, w, log), address, int(port), backlog=512)
    print("listening", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
