"""SipHash-2-4 and the Linux kernel's Fast Open cookie, implemented from their definitions as an independent
reference."""

import ipaddress
import struct

MASK = (1 << 64) - 1


def _rotate(value, bits):
    return ((value << bits) | (value >> (64 - bits))) & MASK


def siphash24(key, data):
    k0, k1 = struct.unpack("<QQ", key)
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = _rotate(v[1], 13) ^ v[0]
            v[0] = _rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = _rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = _rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = _rotate(v[1], 17) ^ v[2]
            v[2] = _rotate(v[2], 32)

    whole = len(data) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    v[3] ^= last
    rounds(2)
    v[0] ^= last
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def cookie(key_text, client, server):
    """The cookie in hexadecimal, for a key in the form of net.ipv4.tcp_fastopen_key."""
    key = b"".join(struct.pack("<I", int(word, 16)) for word in key_text.split("-"))
    addresses = ipaddress.ip_address(client).packed + ipaddress.ip_address(server).packed
    return struct.pack("<Q", siphash24(key, addresses)).hex()
