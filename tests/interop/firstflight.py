"""The command under test, as server and as client."""

import json
import os

import serve_config
from net import FAMILIES, Pair
from process import Process, run

#: Set from `--bin`.
BINARY = None

TUN = "ff0"
PORT = 8080


def at(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _device(pair, families):
    arguments = ["--tun", TUN]
    for family in families:
        arguments += ["--host-ip", Pair.cidr(pair.host[family]), "--ip", pair.peer[family]]
    return arguments


class Logging(Process):
    """A process whose log has a record for each request."""

    def records(self):
        return [serve_config.record(record) for record in super().records()]

    def requests(self, count):
        """Waits for the log records of the first `count` requests, and returns them."""
        return self.wait_records(count, f"log of {count} requests", lambda r: r.get("event") == "request")

    def executed(self):
        """Number of requests in the log."""
        return sum(record.get("event") == "request" for record in self.records())


class Serve(Logging):
    """A server of `root` on the peer addresses of a pair. It is ready when the `with` block begins."""

    def __init__(self, ns, pair, root, *options, families=FAMILIES):
        self.families = families
        device = _device(pair, families)
        arguments = serve_config.arguments(*device, "--port", PORT, "--root", root, "--json-log", *options)
        super().__init__([BINARY, *arguments], ns=ns)

    def __enter__(self):
        count = len(self.families)
        self.wait_until(lambda: self.text().count("listening on") >= count, "the `listening on` lines")
        return self

    def __exit__(self, *failure):
        was_running = self.popen.poll() is None
        super().__exit__(*failure)
        check_no_panic(self)
        if was_running and failure[0] is None and self.popen.returncode != 0:
            raise AssertionError(f"the server ended with {self.popen.returncode} on SIGTERM")

    def counters(self):
        """The counters that it prints when it ends."""
        return [record for record in self.records() if record.get("event") == "counters"]


class Command(Logging):
    """A command that serves; `serve` with options is a gateway with a file. It is ready when it says that it listens."""

    def __init__(self, ns, *arguments):
        if arguments[0] == "serve":
            arguments = serve_config.arguments(*arguments[1:])
        super().__init__([BINARY, *arguments], ns=ns)

    def __enter__(self):
        self.wait_until(lambda: "listening on" in self.text(), "`listening on`")
        return self

    def __exit__(self, *failure):
        super().__exit__(*failure)
        check_no_panic(self)


class Get(Process):
    """A running `firstflight get`, with its engine on the peer addresses of a pair."""

    def __init__(self, ns, pair, *arguments, families=FAMILIES):
        super().__init__([BINARY, "get", *_device(pair, families), "--json", *arguments], ns=ns)

    def fetches(self):
        """The record of each fetch that was printed so far."""
        return [record for record in self.records() if "outcome" in record]

    def finish(self, timeout=60):
        """Waits for its end. Returns the exit status."""
        status = self.wait(timeout)
        check_no_panic(self)
        return status


def explain(path):
    """The output of `explain` for a capture: a record for each connection, and the summary."""
    lines = run(BINARY, "explain", "--json", path).stdout.splitlines()
    *connections, summary = [json.loads(line) for line in lines]
    return connections, summary


def check_no_panic(process):
    if "panicked at" in process.text():
        raise AssertionError(f"{process.command[1]} panicked")


def is_accepted(record):
    return record["outcome"] == "accepted"


def early_bytes(record):
    """Bytes of a request that arrived before its handshake was complete."""
    return record["early_bytes"]


def show(record):
    return json.dumps(record, sort_keys=True)


def default_binary():
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.normpath(os.path.join(here, "..", "..", "target", "release", "firstflight"))
