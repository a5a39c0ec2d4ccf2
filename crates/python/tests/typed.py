"""What a program with types says. mypy reads it; nothing runs it."""

import asyncio
import socket

import firstflight


async def main() -> None:
    client: firstflight.Client = firstflight.Client(network=bytes(16))
    reader, writer = await firstflight.open_connection("::1", 80, first=b"x", replayable=True, client=client)
    line: bytes = await reader.readline()
    told: firstflight.Outcome = firstflight.outcome(writer)
    text: str = told.outcome + told.text + str(told.early_bytes + len(line))
    sock: socket.socket = firstflight.create_connection(("::1", 80), 1.5, first=b"x", replayable=False)
    await firstflight.confirmed(sock)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        print(text, firstflight.outcome(writer, server=True))

    server: asyncio.AbstractServer = await firstflight.start_server(answer, "::1", 80, queue=10, keys=bytes(16))
    server.close()
