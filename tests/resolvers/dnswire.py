"""The part of the DNS format (RFC 1035) that a test-bed needs. Names are lists of labels, which are bytes."""

import random
import struct

A, SOA, AAAA = 1, 6, 28
NOERROR, SERVFAIL = 0, 2


def labels(text):
    return [label.encode() for label in text.rstrip(".").split(".") if label]


def pack_name(name):
    return b"".join(bytes([len(label)]) + label for label in name) + b"\0"


def query(identity, name, kind=A, validated=False):
    """A question. With `validated` the answer says whether it was validated (the bit AD, RFC 6840 section 5.7)."""
    flags = 0x0120 if validated else 0x0100
    return struct.pack("!6H", identity, flags, 1, 0, 0, 0) + pack_name(name) + struct.pack("!2H", kind, 1)


def question(message):
    """Name in lower case, type and end of the question; None if there is no question."""
    try:
        if struct.unpack_from("!H", message, 4)[0] != 1:
            return None
        name, at = [], 12
        while message[at]:
            if message[at] > 63:
                return None
            name.append(message[at + 1 : at + 1 + message[at]].lower())
            at += 1 + message[at]
        return name, struct.unpack_from("!H", message, at + 1)[0], at + 5
    except (IndexError, struct.error):
        return None


def code(message):
    return message[3] & 15


def answers(message):
    return struct.unpack_from("!H", message, 6)[0]


def record(kind, ttl, data, name=b"\xc0\x0c"):
    return name + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


def answer(message, end, records=(), authority=(), status=NOERROR):
    """An authoritative answer to a query whose question ends at `end`."""
    header = message[:2] + struct.pack("!5H", 0x8400 | status, 1, len(records), len(authority), 0)
    return header + message[12:end] + b"".join(records) + b"".join(authority)


def letters(number):
    """A string of `number` random letters and digits."""
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=number)).encode()
