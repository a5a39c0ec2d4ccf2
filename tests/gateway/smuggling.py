#!/usr/bin/env python3
"""Sends requests that two servers may read in two ways (ambiguous.py).

    tests/gateway/smuggling.py [--bin PATH] [--json]

The backend reads as strictly as possible, and closes on what is not clear. For each case: the backend sees the requests that
the case allows and no other ones, in one framing, with one Host; the client gets the answers that belong to them; after a
refusal the connection ends, so that nothing behind it is a request; and the next client gets its own answer. Needs root.
"""

import asyncio
import os
import re
import sys

import ambiguous
import frames
from place import BACKENDS, GLOBAL, HERE, PORT, Place, Result, listener, main, service
from process import Process

#: Seconds for an answer that should come.
PATIENCE = 20
#: Seconds without a byte after which nothing more is expected on a connection that stays open.
QUIET = 0.2


class Recorder(Process):
    def __init__(self, ns):
        super().__init__([sys.executable, os.path.join(HERE, "recorder.py"), f"127.0.0.1:{BACKENDS[0]}"], ns=ns)

    def __enter__(self):
        self.wait_until(lambda: "listening" in self.text(), "`listening`", 60)
        return self

    def since(self, count):
        return [record for record in self.records() if "event" in record][count:]


class Dialogue:
    """What came back on a connection, and whether the gateway ended it."""

    def __init__(self, text, ended):
        self.text, self.ended = text, ended
        self.statuses = [int(code) for code in re.findall(r"HTTP/1\.[01] (\d{3}) ", text)]
        # 100 (Continue) is no answer.
        self.statuses = [code for code in self.statuses if code >= 200]


async def talk(sent, answers):
    """Sends bytes, and reads until the end or until so many answers have come and nothing more does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    got = b""
    try:
        writer.write(sent)
        while True:
            enough = len(Dialogue(got.decode("latin-1"), False).statuses) >= answers
            try:
                piece = await asyncio.wait_for(reader.read(65536), QUIET if enough else PATIENCE)
            except TimeoutError:
                return Dialogue(got.decode("latin-1"), False)
            if not piece:
                return Dialogue(got.decode("latin-1"), True)
            got += piece
    except ConnectionError:
        return Dialogue(got.decode("latin-1"), True)
    finally:
        writer.close()


async def talk_h2(fields, body, trailers):
    """Sends one request. Returns its status, or how it was refused."""
    connection = await frames.Connection.open("127.0.0.1", PORT)
    await asyncio.wait_for(connection.settings.wait(), PATIENCE)
    _, answer = connection.ask(fields, body and body.encode("latin-1"), trailers)
    try:
        result, _ = await asyncio.wait_for(answer, PATIENCE)
    except frames.Closed:
        result = "closed"
    except TimeoutError:
        result = "nothing"
    connection.writer.close()
    await asyncio.gather(connection.reading, return_exceptions=True)
    return result


def in_namespace(at, work):
    with at.ns.entered():
        return asyncio.run(work)


def check_request(result, name, record):
    """What a backend gets is clear, and says nothing that the client may not say."""
    fields = record["fields"]
    count = lambda field: sum(key == field for key, _ in fields)  # noqa: E731
    result.must(count("host") == 1, f"{name}: {count('host')} Hosts at the backend")
    hops = {"connection", "keep-alive", "upgrade", "http2-settings", "expect", "te"} & {key for key, _ in fields}
    if "does not take" in name:
        hops -= {"connection", "upgrade"}
    result.must(not hops, f"{name}: {sorted(hops)} reached the backend")
    said = [(key, value) for key, value in fields if "203.0.113" in value]
    result.must(not said, f"{name}: {said} reached the backend")
    framing = [line for line in record["trailers"] if line.lower().startswith(("content-length", "transfer-encoding"))]
    result.must(not framing, f"{name}: trailers {framing} reached the backend")
    if "Early-Data" in name:
        result.must(("early-data", "1") in map(tuple, fields), f"{name}: the mark is gone")


def next_client(at, result, name, recorder):
    """Somebody else asks, and gets its own answer. Returns how much the backend has said."""
    target = f"/next-{abs(hash(name))}"
    dialogue = in_namespace(at, talk(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode(), 1))
    own = dialogue.statuses == [200] and dialogue.text.endswith(target)
    result.must(own, f"{name}: the next client got {dialogue.text[:200]!r}")


def judge(at, result, case, recorder, answer):
    before = len(recorder.since(0))
    dialogue = in_namespace(at, answer)
    next_client(at, result, case.name, recorder)
    # The last one is the next client's.
    recorder.wait_until(lambda: any(r.get("target", "").startswith("/next-") for r in recorder.since(before)), "it", 30)
    said = [r for r in recorder.since(before) if not r.get("target", "").startswith("/next-")]
    unclear = [record for record in said if record["event"] != "request"]
    # A body that turned out to be wrong was cut in the middle. That is no request.
    wrong = [record for record in unclear if record["event"] == "unclear"]
    result.must(not wrong, f"{case.name}: the backend got {wrong}")
    seen = [record["target"] for record in said if record["event"] == "request"]
    result.must(seen == case.seen, f"{case.name}: the backend saw {seen}, not {case.seen}")
    for record in said:
        if record["event"] == "request":
            check_request(result, case.name, record)
    return dialogue


def http1(at, recorder):
    result = Result(f"ambiguous requests, HTTP/1.1: {len(ambiguous.HTTP1)}")
    for case in ambiguous.HTTP1:
        work = talk(case.sent.encode("latin-1"), len(case.statuses))
        dialogue = judge(at, result, case, recorder, work)
        got = dialogue.statuses
        if case.seen:
            result.must(got == case.statuses, f"{case.name}: {got}, not {case.statuses}")
        else:
            # A refusal may be the end alone, but no answer to anything behind it.
            result.must(got in ([], case.statuses), f"{case.name}: {got}, not {case.statuses}")
            result.must(dialogue.ended, f"{case.name}: the connection goes on")
            result.numbers[f"  {case.name}"] = got[0] if got else "closed"
    return result


def http2(at, recorder):
    result = Result(f"ambiguous requests, HTTP/2: {len(ambiguous.HTTP2)}")
    for case in ambiguous.HTTP2:
        got = judge(at, result, case, recorder, talk_h2(*case.sent))
        # A GOAWAY says that the stream was not run.
        refused = got in ("reset", "refused", "closed") or isinstance(got, int) and 400 <= got < 500
        result.must(refused, f"{case.name}: {got}")
        result.numbers[f"  {case.name}"] = got
    return result


def check(binary, quick=False):
    with Place(binary) as at:
        recorder = at.start(Recorder(at.ns))
        gateway = at.gateway(GLOBAL, listener(), service(BACKENDS[:1]))
        yield http1(at, recorder)
        yield http2(at, recorder)
        if gateway.popen.poll() is not None:
            raise AssertionError("the gateway ended")


if __name__ == "__main__":
    main(check, __doc__)
