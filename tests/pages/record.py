#!/usr/bin/env python3
"""Loads a page with Chromium and an empty profile, and prints what it requested as HAR 1.2, for `firstflight-lab record`.

    tests/pages/record.py URL

The fields that begin with `_` are those of Chromium's own export: what made a resource known, its kind and its priority.
"""

import datetime
import json
import os
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
sys.dont_write_bytecode = True

import browser  # noqa: E402

#: Seconds that a load may take.
PATIENCE = 120


class Recorder:
    """The events of one load."""

    def __init__(self):
        self.requests, self.order, self.loaded = {}, [], None

    def handle(self, method, event):
        handler = {
            "Network.requestWillBeSent": self.sent,
            "Network.responseReceived": self.answered,
            "Network.requestServedFromCache": lambda event: self.requests[event["requestId"]].update(cached=True),
            "Network.loadingFinished": self.finished,
        }.get(method)
        if handler:
            handler(event)
        elif method == "Page.loadEventFired":
            self.loaded = event["timestamp"]

    def sent(self, event):
        name = event["requestId"]
        if "redirectResponse" in event and name in self.requests:
            before = self.requests.pop(name)
            before |= {"response": event["redirectResponse"], "end": event["timestamp"], "target": event["request"]["url"]}
            before["length"] = event["redirectResponse"].get("encodedDataLength", 0)
        self.requests[name] = {
            "id": name, "url": event["request"]["url"], "method": event["request"]["method"], "began": event["timestamp"],
            "wall": event["wallTime"], "initiator": event["initiator"], "kind": event.get("type", "Other").lower(),
            "priority": event["request"].get("initialPriority"),
        }  # fmt: skip
        self.order.append(self.requests[name])

    def answered(self, event):
        self.requests[event["requestId"]]["response"] = event["response"]
        self.requests[event["requestId"]]["fields"] = event["response"].get("encodedDataLength", 0)

    def finished(self, event):
        self.requests[event["requestId"]] |= {"end": event["timestamp"], "length": event["encodedDataLength"]}

    def har(self):
        first = self.order[0]
        page = {
            "id": "page_1", "title": first["url"], "startedDateTime": iso(first["wall"]),
            "pageTimings": {"onLoad": (self.loaded - first["began"]) * 1000},
        }  # fmt: skip
        creator = {"name": "firstflight", "version": "1"}
        entries = [entry(request) for request in self.order]
        return {"log": {"version": "1.2", "creator": creator, "pages": [page], "entries": entries}}


def iso(wall):
    return datetime.datetime.fromtimestamp(wall, datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def entry(request):
    response, end = request.get("response", {}), request.get("end")
    timing = response.get("timing", {})

    def between(a, b):
        return timing[b] - timing[a] if timing.get(a, -1) >= 0 and timing.get(b, -1) >= 0 else -1

    # A request without an end failed, or was not complete at the load event.
    status = response.get("status", 0) if end is not None else 0
    all_of_it, fields = request.get("length", 0), request.get("fields", 0)
    return {
        "pageref": "page_1", "startedDateTime": iso(request["wall"]),
        "time": (end - request["began"]) * 1000 if end is not None else -1,
        "request": {"method": request["method"], "url": request["url"]},
        "response": {
            "status": status, "redirectURL": request.get("target", ""), "headersSize": fields,
            "bodySize": max(all_of_it - fields, 0), "_transferSize": all_of_it,
            "content": {
                "size": max(all_of_it - fields, 0), "mimeType": response.get("mimeType", ""), "text": request.get("text", ""),
            },
        },
        "cache": {},
        "timings": {
            "dns": between("dnsStart", "dnsEnd"), "connect": between("connectStart", "connectEnd"),
            "ssl": between("sslStart", "sslEnd"), "send": between("sendStart", "sendEnd"),
            "wait": between("sendEnd", "receiveHeadersEnd"), "receive": 0,
        },
        "_initiator": request["initiator"], "_resourceType": request["kind"], "_priority": request["priority"],
        "_connectionId": str(response.get("connectionId", "")),
        **({"_fromCache": "memory"} if request.get("cached") or response.get("fromDiskCache") else {}),
    }  # fmt: skip


def record(chromium, url):
    """The HAR of one load."""
    target = chromium.ask("Target.createTarget", url="about:blank")["targetId"]
    session = chromium.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in "Page", "Network":
        chromium.ask(f"{domain}.enable", session)
    recorder, until = Recorder(), time.monotonic() + PATIENCE
    navigation = chromium.send("Page.navigate", session, url=url)
    # What was requested in time may end a little later.
    while recorder.loaded is None:
        message = chromium.receive(until)
        if message.get("id") == navigation and message.get("result", {}).get("errorText"):
            raise RuntimeError(message["result"]["errorText"])
        if "method" in message:
            recorder.handle(message["method"], message["params"])
    # Where the document names its resources.
    document = next((request for request in recorder.order if request["kind"] == "document" and "target" not in request), None)
    if document:
        answer = chromium.ask("Network.getResponseBody", session, requestId=document["id"])
        document["text"] = "" if answer["base64Encoded"] else answer["body"]
    return recorder.har()


def main():
    if len(sys.argv) != 2 or not sys.argv[1].startswith(("http://", "https://")):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with browser.Browser() as chromium:
            print(json.dumps(record(chromium, sys.argv[1])))
    except (OSError, RuntimeError, TimeoutError) as error:
        print(f"tests/pages/record.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
