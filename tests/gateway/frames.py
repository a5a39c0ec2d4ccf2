"""A small HTTP/2 client: it writes any frames, right or wrong, and reads what comes back."""

import asyncio
import struct

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
#: A GOAWAY that announces another one (RFC 9113 §6.8).
ALL_STREAMS = 2**31 - 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: No dynamic table, so that a header block can be read alone. A large window, which no test fills.
SETTINGS_OF_CLIENT = struct.pack(">HIHI", 1, 0, 4, 2**30)
#: The indexes of HPACK's static table for `:status`.
STATIC_STATUS = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
#: Huffman codes of digits (RFC 7541, appendix B).
DIGITS = {"00000": "0", "00001": "1", "00010": "2", **{f"{25 + n:06b}": str(n + 3) for n in range(7)}}


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def integer(value, prefix, pattern=0):
    """An integer of HPACK (RFC 7541 §5.1)."""
    most = (1 << prefix) - 1
    if value < most:
        return bytes([pattern | value])
    out, value = [pattern | most], value - most
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    return bytes([*out, value])


def header_block(fields):
    """Fields as literals without indexing and without Huffman codes."""
    text = lambda value: integer(len(value), 7) + value  # noqa: E731
    encoded = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)
    return b"".join(b"\0" + text(name) + text(value) for name, value in encoded)


def request(method, path, authority="a", *extra, scheme="http"):
    return [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path), *extra]


def status(block):
    """The status in a header block. It is the first field."""
    # Changes of the size of the dynamic table may come first.
    while block and block[0] & 0xE0 == 0x20:
        block = block[1:]
    first = block[0]
    if first & 0x80:
        return STATIC_STATUS[first & 0x7F]
    huffman, length = block[1] & 0x80, block[1] & 0x7F
    value = block[2 : 2 + length]
    if not huffman:
        return int(value)
    bits, text = "".join(f"{byte:08b}" for byte in value), ""
    while len(text) < 3:
        size = next(size for size in (5, 6) if bits[:size] in DIGITS)
        text, bits = text + DIGITS[bits[:size]], bits[size:]
    return int(text)


class Closed(Exception):
    """The connection ended."""


class Connection:
    """A connection. `answers` has what is known of each stream."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.next = 1
        #: Streams under way: a future for (status, body), or for the code of a reset.
        self.streams = {}
        self.heads, self.bodies = {}, {}
        #: The last streams that GOAWAYs named.
        self.goaways = []
        self.settings = asyncio.Event()
        #: Set by who asks.
        self.has_answered = False

    @classmethod
    async def open(cls, host, port, tls=None):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        writer.write(PREFACE + frame(SETTINGS, 0, 0, SETTINGS_OF_CLIENT))
        writer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30)))
        made = cls(reader, writer)
        made.reading = asyncio.create_task(made.read())
        return made

    def usable(self):
        return not self.goaways and not self.reading.done()

    def ask(self, fields, body=None, trailers=None):
        """Begins a request. The result is awaited for (status, body). Trailers need a body."""
        stream, self.next = self.next, self.next + 2
        answer = self.streams[stream] = asyncio.get_running_loop().create_future()
        self.writer.write(frame(HEADERS, END_HEADERS | (body is None), stream, header_block(fields)))
        if body is not None:
            self.writer.write(frame(DATA, END_STREAM if trailers is None else 0, stream, body))
        if trailers is not None:
            self.writer.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, header_block(trailers)))
        return stream, answer

    async def read(self):
        try:
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                self.take(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            for answer in self.streams.values():
                if not answer.done():
                    answer.set_exception(Closed(str(error)))
        finally:
            self.writer.close()

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            self.writer.write(frame(SETTINGS, ACK, 0))
            self.settings.set()
        elif kind == PING and not flags & ACK:
            self.writer.write(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goaways.append(int.from_bytes(payload[:4], "big") & ALL_STREAMS)
            for number, answer in self.streams.items():
                # It says that these were not and will not be executed.
                if number > self.goaways[-1] and not answer.done():
                    answer.set_result(("refused", b""))
        elif kind == RST_STREAM:
            self.finish(stream, ("refused" if int.from_bytes(payload, "big") == 7 else "reset", b""))
        elif kind == HEADERS:
            # Only the first block has the status; a second one has trailers.
            self.heads.setdefault(stream, status(payload))
        elif kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + payload
            if payload:
                self.writer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.finish(stream, (self.heads.pop(stream, 0), self.bodies.pop(stream, b"")))

    def finish(self, stream, result):
        answer = self.streams.pop(stream, None)
        if answer and not answer.done():
            answer.set_result(result)
