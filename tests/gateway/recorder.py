#!/usr/bin/env python3
"""A backend that reads HTTP/1.1 as strictly as possible, and says what it got.

    recorder.py ADDRESS:PORT

It prints a line of JSON for each request: its line, its fields, its body. Whatever two servers could read in two ways it does
not answer: it prints the bytes as `unclear`, and closes.
"""

import asyncio
import json
import re
import sys

LINE = re.compile(r"([A-Z!#$%&'*+.^_`|~0-9-]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.1", re.IGNORECASE)
FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t\x20-\x7e\x80-\xff]*)")


class Unclear(Exception):
    """Another server could read these bytes otherwise."""


def read_head(head):
    line, *rest = head.decode("latin-1")[:-4].split("\r\n")
    if not (request := LINE.fullmatch(line)):
        raise Unclear(f"request line {line!r}")
    fields = []
    for text in rest:
        if not (field := FIELD.fullmatch(text)):
            raise Unclear(f"field {text!r}")
        fields.append((field[1].lower(), field[2].strip()))
    of = lambda name: [value for key, value in fields if key == name]  # noqa: E731
    lengths, codings = of("content-length"), of("transfer-encoding")
    if len(lengths) + len(codings) > 1 or any(not re.fullmatch(r"0|[1-9][0-9]{0,17}", n) for n in lengths):
        raise Unclear(f"framing {lengths} {codings}")
    if codings not in ([], ["chunked"]) or len(of("host")) > 1:
        raise Unclear(f"codings {codings} or hosts {of('host')}")
    return request, fields, int(lengths[0]) if lengths else 0, bool(codings)


async def read_chunks(reader):
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        if not re.fullmatch(rb"[0-9a-fA-F]{1,16}\r\n", line):
            raise Unclear(f"chunk {line!r}")
        if (size := int(line, 16)) == 0:
            break
        chunk = await reader.readexactly(size + 2)
        if not chunk.endswith(b"\r\n"):
            raise Unclear(f"end of chunk {chunk[-4:]!r}")
        body += chunk[:-2]
    trailers = []
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers.append(line.decode("latin-1").rstrip())
    return body, trailers


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            request, fields, length, chunked = read_head(head)
            body, trailers = await read_chunks(reader) if chunked else (await reader.readexactly(length), [])
            said = {"method": request[1], "target": request[2], "fields": fields, "body": body.decode("latin-1")}
            print(json.dumps({"event": "request", **said, "trailers": trailers}), flush=True)
            answer = b"" if request[1] == "HEAD" else request[2].encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(request[2]), answer))
    except Unclear as error:
        print(json.dumps({"event": "unclear", "why": str(error)}), flush=True)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        if partial := getattr(error, "partial", b""):
            print(json.dumps({"event": "partial", "bytes": partial.decode("latin-1")}), flush=True)
    finally:
        writer.close()


async def main(at):
    address, port = at.rsplit(":", 1)
    server = await asyncio.start_server(serve, address, int(port))
    print("listening", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
