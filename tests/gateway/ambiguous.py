"""Requests that two servers may read in two ways. Each is one that smuggling tools send, with what the gateway may do.

`Case(name, bytes, statuses, seen)`: the statuses of the answers, in order, and the targets that the backend may see. The
connection ends after a refusal. HTTP/2 has fields in place of bytes.
"""

import collections

import frames

Case = collections.namedtuple("Case", "name sent statuses seen")

REFUSED, PASSES = [400], [200]
#: What an attacker wants to be a request of its own.
SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
#: A body that ends after five bytes for who reads chunks, and after all for who reads the length.
CHUNKS = "0\r\n\r\n" + SMUGGLED
LENGTH = f"Content-Length: {len(CHUNKS)}\r\n"


def post(*fields, body=CHUNKS, version="1.1", line=None):
    line = line or f"POST /outer HTTP/{version}"
    return f"{line}\r\nHost: a\r\n" + "".join(f"{field}\r\n" for field in fields) + "\r\n" + body


def get(*fields, line="GET /outer HTTP/1.1", host="Host: a"):
    return f"{line}\r\n" + "".join(f"{field}\r\n" for field in (host, *fields) if field) + "\r\n"


def refused(name, sent, status=400):
    """It is refused, and nothing behind it is a request."""
    return Case(name, sent if sent.endswith(SMUGGLED) else sent + SMUGGLED, [status], [])


def passes(name, sent, seen=("/outer",)):
    return Case(name, sent, PASSES * len(seen), list(seen))


LENGTHS = [
    refused("CL.TE", post(LENGTH.strip(), "Transfer-Encoding: chunked")),
    refused("TE.CL", post("Transfer-Encoding: chunked", "Content-Length: 5")),
    refused("TE.TE, identity second", post("Transfer-Encoding: chunked", "Transfer-Encoding: identity")),
    refused("TE.TE, unknown first", post("Transfer-Encoding: x", "Transfer-Encoding: chunked", LENGTH.strip())),
    refused("TE xchunked", post("Transfer-Encoding: xchunked", LENGTH.strip())),
    refused("TE space before the colon", post("Transfer-Encoding : chunked", LENGTH.strip())),
    refused("TE tab before the colon", post("Transfer-Encoding\t: chunked", LENGTH.strip())),
    refused("TE behind a space", post("X: y", " Transfer-Encoding: chunked", LENGTH.strip())),
    refused("TE with a vertical tab", post("Transfer-Encoding: \x0bchunked", LENGTH.strip())),
    refused("TE with a NUL", post("Transfer-Encoding: chunked\0", LENGTH.strip())),
    refused("TE behind a bare CR", post("X: y\rTransfer-Encoding: chunked", LENGTH.strip())),
    refused("TE in a folded field", post("Transfer-Encoding:\r\n chunked", LENGTH.strip())),
    refused("TE twice in one field", post("Transfer-Encoding: chunked, chunked", LENGTH.strip())),
    refused("TE quoted", post('Transfer-Encoding: "chunked"', LENGTH.strip())),
    refused("TE with a parameter", post("Transfer-Encoding: chunked;q=1", LENGTH.strip())),
    refused("TE empty, with CL", post("Transfer-Encoding:", LENGTH.strip())),
    refused("TE gzip alone", post("Transfer-Encoding: gzip")),
    refused("TE chunked and then gzip", post("Transfer-Encoding: chunked, gzip")),
    refused("TE in HTTP/1.0", post("Transfer-Encoding: chunked", version="1.0")),
    refused("CL twice, different", post("Content-Length: 5", LENGTH.strip())),
    refused("CL list, different", post("Content-Length: 5, 6")),
    refused("CL with a plus", post("Content-Length: +5")),
    refused("CL negative", post("Content-Length: -1")),
    refused("CL hexadecimal", post("Content-Length: 0x5")),
    refused("CL too large for 64 bits", post("Content-Length: 18446744073709551621")),
    refused("CL with an underscore in it", post("Content-Length: 5_0")),
    refused("CL with a space in it", post("Content-Length: 5 0")),
    refused("CL empty", post("Content-Length:")),
    refused("CL space before the colon", post("Content-Length : 5")),
    refused("CL with a NUL", post("Content-Length: 5\0")),
]
CHUNKED = [
    refused("chunk size 0x5", post("Transfer-Encoding: chunked", body="0x5\r\nhello\r\n0\r\n\r\n")),
    refused("chunk size with a plus", post("Transfer-Encoding: chunked", body="+5\r\nhello\r\n0\r\n\r\n")),
    refused("chunk size negative", post("Transfer-Encoding: chunked", body="-1\r\nhello\r\n0\r\n\r\n")),
    refused("chunk size empty", post("Transfer-Encoding: chunked", body="\r\nhello\r\n0\r\n\r\n")),
    refused("chunk size beyond 64 bits", post("Transfer-Encoding: chunked", body="10000000000000005\r\nhello\r\n0\r\n\r\n")),
    refused("chunk size ends with a bare LF", post("Transfer-Encoding: chunked", body="5\nhello\r\n0\r\n\r\n")),
    refused("chunk size ends with a bare CR", post("Transfer-Encoding: chunked", body="5\rhello\r\n0\r\n\r\n")),
    refused("LF in a chunk extension", post("Transfer-Encoding: chunked", body="5;a\nb\r\nhello\r\n0\r\n\r\n")),
    refused("chunk without an end", post("Transfer-Encoding: chunked", body="5\r\nhello0\r\n\r\n")),
    refused("chunk longer than its size", post("Transfer-Encoding: chunked", body="5\r\nhelloX\r\n0\r\n\r\n")),
    refused("chunk extensions of 64 KiB", post("Transfer-Encoding: chunked", body=f"5;{'x' * 65536}\r\nhello\r\n0\r\n\r\n")),
    refused("trailers of 64 KiB", post("Transfer-Encoding: chunked", body=f"0\r\nX: {'x' * 65536}\r\n\r\n")),
]
HEADS = [
    refused("field without a colon", get("nothing")),
    refused("space before a colon", get("X : y")),
    refused("folded field", get("X: y\r\n z")),
    refused("first field behind a space", get(host=" Host: a")),
    refused("NUL in a field", get("X: a\0b")),
    refused("bare CR in a field", get("X: a\rb")),
    refused("two spaces in the request line", get(line="GET  /outer HTTP/1.1")),
    refused("space in the target", get(line="GET /outer x HTTP/1.1")),
    refused("tabs in the request line", get(line="GET\t/outer\tHTTP/1.1")),
    refused("NUL in the target", get(line="GET /out\0er HTTP/1.1")),
    refused("HTTP/0.9", "GET /outer\r\n"),
    refused("HTTP/1.2", get(line="GET /outer HTTP/1.2")),
    refused("http/1.1", get(line="GET /outer http/1.1")),
    refused("HTTP/1.1 with more behind it", get(line="GET /outer HTTP/1.1 x")),
    refused("no Host", get(host=None)),
    refused("two Hosts", get("Host: b")),
    refused("two equal Hosts", get("Host: a")),
    refused("Host with a user", get(host="Host: b@a")),
    refused("Host with a path", get(host="Host: a/b")),
    refused("Host with a list", get(host="Host: a, b")),
    refused("target with a user", get(line="GET http://b@a/outer HTTP/1.1")),
    refused("target that is a host and a port", get(line="GET a:80 HTTP/1.1")),
    refused("target without a slash", get(line="GET outer HTTP/1.1")),
    refused("asterisk for another method than OPTIONS", get(line="GET * HTTP/1.1")),
    refused("CONNECT", get(line="CONNECT a:80 HTTP/1.1"), 405),
]
#: Fields that only a proxy may set, so the gateway removes those of clients.
SPOOFED = """X-Forwarded X-Forwarded-Host X-Forwarded-Server X-Forwarded-Ssl X-Forwarded-Prefix X-Forwarded-Else X-Real-IP X-Client-IP
Client-IP True-Client-IP X-Cluster-Client-IP X-Original-Forwarded-For Front-End-Https X-Original-URL X-Rewrite-URL
CF-Connecting-IP Client-Cert X_Real_IP""".split()
#: What is right, if seldom, goes on in the gateway's own framing.
RIGHT = [
    passes("TE in capitals", post("TRANSFER-ENCODING: CHUNKED", body="0\r\n\r\n")),
    passes("TE behind a tab", post("Transfer-Encoding:\tchunked", body="0\r\n\r\n")),
    passes("CL twice, equal", post("Content-Length: 5", "Content-Length: 5", body="hello")),
    passes("CL with spaces around", post("Content-Length:  5 ", body="hello")),
    passes("CL with zeros in front", post("Content-Length: 005", body="hello")),
    passes("body that looks like a request", post(f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED)),
    passes("Content_Length is another field", post(LENGTH.strip(), "Transfer_Encoding: chunked")),
    passes("GET with a body", get(f"Content-Length: {len(SMUGGLED)}") + SMUGGLED),
    passes("chunk size in capitals, with zeros", post("Transfer-Encoding: chunked", body="00000A\r\n0123456789\r\n0\r\n\r\n")),
    passes("chunk extension", post("Transfer-Encoding: chunked", body='5;a="b"\r\nhello\r\n0;c\r\n\r\n')),
    passes(
        "trailers that frame",
        post("Transfer-Encoding: chunked", body="5\r\nhello\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: x\r\n\r\n"),
    ),
    passes("lines that end with a bare LF", "GET /outer HTTP/1.1\nHost: a\nX: y\n\n"),
    passes("empty lines in front", "\r\n\r\n" + get()),
    passes("absolute target, another Host", get(line="GET http://b/outer HTTP/1.1")),
    passes("Connection names Host and framing", post("Connection: host, content-length", "Content-Length: 5", body="hello")),
    passes("Connection names Early-Data", get("Connection: early-data", "Early-Data: 1")),
    passes("Early-Data by the client", get("Early-Data: 1")),
    passes("Upgrade to h2c", get("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk") + get(line="GET /next HTTP/1.1"), ("/outer", "/next")),
    Case(
        "CL.TE behind an upgrade that the backend does not take",
        get("Connection: Upgrade", "Upgrade: websocket") + post(LENGTH.strip(), "Transfer-Encoding: chunked"),
        [200, 400],
        ["/outer"],
    ),
    passes("Upgrade that the backend does not take", get("Connection: Upgrade", "Upgrade: websocket")),
    passes("Expect", post("Expect: 100-continue", "Content-Length: 5", body="hello")),
    passes("two requests at once", get() + get(line="GET /next HTTP/1.1"), ("/outer", "/next")),
    passes("X-Forwarded-For by the client", get("X-Forwarded-For: 203.0.113.9", "Forwarded: for=203.0.113.9")),
    passes("other names of the client's address", get(*(f"{name}: 203.0.113.9" for name in SPOOFED))),
]
HTTP1 = LENGTHS + CHUNKED + HEADS + RIGHT


def h2(name, fields, body=None, seen=(), trailers=None):
    return Case(name, (fields, body, trailers), [], list(seen))


GET, POST = frames.request("GET", "/outer"), frames.request("POST", "/outer")
#: None of these reaches the backend.
HTTP2 = [
    h2("content-length below the body", [*POST, ("content-length", "5")], CHUNKS),
    h2("content-length above the body", [*POST, ("content-length", "500")], CHUNKS),
    h2("content-length without a body", [*POST, ("content-length", "5")]),
    h2("content-length twice", [*POST, ("content-length", "5"), ("content-length", "6")], "hello"),
    h2("transfer-encoding", [*POST, ("transfer-encoding", "chunked")], CHUNKS),
    h2("connection", [*GET, ("connection", "x")]),
    h2("upgrade", [*GET, ("upgrade", "websocket")]),
    h2("te gzip", [*GET, ("te", "gzip")]),
    h2("name in capitals", [*GET, ("X-A", "b")]),
    h2("name with a colon", [*GET, ("a:b", "c")]),
    h2("name with a line", [*GET, ("a: b\r\ntransfer-encoding", "chunked")]),
    h2("value with a line", [*GET, ("a", "b\r\nHost: c")]),
    h2("value with a bare LF", [*GET, ("a", "b\nHost: c")]),
    h2("value with a NUL", [*GET, ("a", "b\0c")]),
    h2("method with a request", frames.request(SMUGGLED.strip() + "\r\nX: GET", "/outer")),
    h2("method with a space", frames.request("GET /smuggled", "/outer")),
    h2("path with a request", frames.request("GET", "/outer HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled")),
    h2("path with a space", frames.request("GET", "/outer HTTP/1.1")),
    h2("path that is empty", frames.request("GET", "")),
    h2("path without a slash", frames.request("GET", "outer")),
    h2("path that is a fragment", frames.request("GET", "#outer")),
    h2("path that is a number sign", frames.request("GET", "#")),
    h2("path with a fragment", frames.request("GET", "/outer#/smuggled")),
    h2("query with a fragment", frames.request("GET", "/outer?a#/smuggled")),
    h2("path that is a query", frames.request("GET", "?/smuggled")),
    h2("path that is a query and a fragment", frames.request("GET", "?#/smuggled")),
    h2("asterisk with a fragment", frames.request("OPTIONS", "*#/smuggled")),
    h2("path beyond ASCII", frames.request("GET", "/outer\xc3\xbc")),
    h2("a fragment in front of a request", frames.request("POST", "#outer"), SMUGGLED),
    h2("value that begins with a space", [*GET, ("a", " b")]),
    h2("value that ends with a space", [*GET, ("a", "b ")]),
    h2("value that begins with a tab", [*GET, ("a", "\tb")]),
    h2("value that ends with a tab", [*GET, ("a", "b\t")]),
    h2("scheme of another protocol", frames.request("GET", "/outer", scheme="ftp")),
    h2("another scheme without an authority", [(":method", "GET"), (":scheme", "ftp"), (":path", "/outer"), ("host", "a")]),
    h2("trailers with a path", [*POST, ("content-length", "5")], "hello", trailers=[(":path", "/smuggled")]),
    h2("trailers with a status", POST, "hello", trailers=[(":status", "200"), ("x-sum", "1")]),
    h2("trailers with a space", POST, "hello", trailers=[("x-sum", "1 ")]),
    h2("path that is a URI", frames.request("GET", "http://b/outer")),
    h2("path twice", [*GET, (":path", "/smuggled")]),
    h2("authority with a line", frames.request("GET", "/outer", "a\r\nX: y")),
    h2("authority with a user", frames.request("GET", "/outer", "b@a")),
    h2("authority with a path", frames.request("GET", "/outer", "a/b")),
    h2("authority and another host", [*GET, ("host", "b")]),
    h2("host twice", [*GET, ("host", "a"), ("host", "a")]),
    h2("scheme with a path", frames.request("GET", "/outer", scheme="http://b/x?")),
    h2("no path", [field for field in GET if field[0] != ":path"]),
    h2("no method", GET[1:]),
    h2("a pseudo-header behind a field", [*GET[:3], ("x", "y"), GET[3]]),
    h2("an unknown pseudo-header", [*GET, (":x", "y")]),
    h2("a pseudo-header of responses", [*GET, (":status", "200")]),
    h2("CONNECT with a path", frames.request("CONNECT", "/outer")),
]
