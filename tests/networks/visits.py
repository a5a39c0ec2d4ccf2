"""Visits with `firstflight get`, timed."""

import dataclasses
import json
import os
import shutil
import subprocess
import threading
import time

import firstflight
from firstflight import at
from net import Pair, url
from process import _die_with_parent
from world import ENGINE, FAR, ONCE, ONCE_PORT, PORT, SERVICE, VERIFIER_PORTS

#: Number of visits in a sample. The first, the second and the last are reported.
VISITS = 10
SHOWN = (1, 2, VISITS)
#: Seconds after which a running command has failed. A fetch gives up earlier.
PATIENCE = 120


@dataclasses.dataclass
class Visit:
    """The result of one fetch."""

    word: str
    ok: bool
    #: Milliseconds from the beginning of the fetch to the first byte of the response, or to what else the line
    #: measures.
    first: float | None
    #: Why it failed.
    error: str | None = None

    @classmethod
    def of(cls, record, measure):
        ok = record["error"] is None and record["status"] == 200
        word = "accepted" if record["outcome"] == "accepted" else record["reason"] or record["outcome"]
        return cls(word, ok, record[measure] if ok else None, record["error"])

    @classmethod
    def missing(cls, text):
        """A fetch that did not start, because the command ended before."""
        lines = text.splitlines()
        return cls(f"ended: {lines[-1][:80]}" if lines else "ended", False, None)


@dataclasses.dataclass
class Run:
    """One run of the command: a visit for each fetch, and the time before the first one began, ms."""

    visits: list
    before: float | None


@dataclasses.dataclass(frozen=True)
class Way:
    """How a client connects to a server."""

    #: "ip" or "udp".
    encapsulation: str
    #: "cookie", "certificate" or "both".
    credential: str = "cookie"
    #: Whether the server is known to accept certificates.
    known: bool = False

    def __str__(self):
        words = {"cookie": "Fast Open", "certificate": "ASAP", "both": "Fast Open and ASAP"}[self.credential]
        known = ", known" if self.known else ""
        return f"{words}{known}, {'in UDP' if self.encapsulation == 'udp' else 'on IP'}"

    def link(self, device="ff1", pair=ENGINE, number=2):
        """`number` selects the client's address in the pair's network."""
        if self.encapsulation == "udp":
            return ("--udp",)
        arguments = ("--tun", device)
        for family in (4, 6):
            arguments += ("--host-ip", Pair.cidr(pair.host[family]), "--ip", f"{pair.peer[family][:-1]}{number}")
        return arguments

    def options(self, world, verifier=None):
        """`verifier`: options for the source of certificates. The default is the world's verifiers in turn."""
        options = () if self.credential != "certificate" else ("--no-fast-open",)
        if self.credential == "cookie":
            return options
        if verifier is None:
            world.numbers += 1
            port = VERIFIER_PORTS[world.numbers % len(VERIFIER_PORTS)]
            verifier = ("--verifier", at(FAR.peer[4], port), "--verifier-key", world.key)
        return (*options, *verifier, *(("--asap-known",) if self.known else ()))

    def server(self, once=False):
        if self.encapsulation == "udp":
            return FAR.peer[4], ONCE_PORT if once else PORT
        return (ONCE if once else SERVICE).peer[4], ONCE_PORT if once else PORT

    def url(self, path, once=False):
        address, port = self.server(once)
        return url(address, port, path)


def get(world, *arguments, count=1, measure="first_byte_ms"):
    """Runs the command for `count` fetches."""
    return Running(world, *arguments).end(count, measure)


class Running:
    """A running command."""

    def __init__(self, world, *arguments):
        command = ["ip", "netns", "exec", world.client.name, firstflight.BINARY, "get", "--json"]
        self.began = time.monotonic()
        self.child = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self.watchdog = threading.Timer(PATIENCE, self.child.kill)
        self.watchdog.start()
        self.found = []
        streams = (self.child.stdout, self.child.stderr)
        self.readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
        for reader in self.readers:
            reader.start()

    def _read(self, stream):
        with stream:
            for line in stream:
                self.found.append((time.monotonic(), line.rstrip("\n")))

    def fetched(self, count):
        """Waits until `count` fetches are complete, or the command has ended."""
        while sum(line.startswith("{") for _, line in list(self.found)) < count and self.child.poll() is None:
            time.sleep(0.005)

    def end(self, count, measure):
        self.child.wait()
        for reader in self.readers:
            reader.join(10)
        self.watchdog.cancel()
        return told(self.found, self.began, count, measure)


def told(found, began, count, measure):
    text = "\n".join(line for _, line in found if not line.startswith("{"))
    if "panicked at" in text:
        raise AssertionError(f"get panicked: {text}")
    records = [(at_time, json.loads(line)) for at_time, line in found if line.startswith("{")]
    records = [(at_time, record) for at_time, record in records if "outcome" in record]
    visits = [Visit.of(record, measure) for _, record in records[:count]]
    before = None
    if records:
        printed, record = records[0]
        before = (printed - began) * 1000 - record["total_ms"]
    visits += [Visit.missing(text)] * (count - len(visits))
    return Run(visits, before)



def sample(world, line):
    """Makes a client with an empty cache, or with the line's cache, and its visits."""
    memory = world.fresh("memory")
    if world.warm is not None:
        shutil.copy(world.warm, memory)
    common = line.common(world, memory)
    try:
        if not line.separate:
            return get(world, *common, "--repeat", VISITS, count=VISITS, measure=line.measure)
        runs = []
        for _ in range(VISITS):
            line.before_visit(world)
            runs.append(get(world, *common, measure=line.measure))
        return Run([visit for run in runs for visit in run.visits], runs[0].before)
    finally:
        if os.path.exists(memory):
            os.unlink(memory)


def plain(world, line):
    """A visit with an ordinary handshake, in the same network."""
    line.before_visit(world)
    return get(world, *line.plain_options(world), measure=line.measure)
