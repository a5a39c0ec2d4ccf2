"""curl's visits through the proxy, the wire and the gateway, beside visits to nginx without both."""

import collections
import concurrent.futures
import os
import re
import statistics
import threading
import time

import bounds
from paths import ARRIVES, MARGIN, SYN_ARRIVES, UNKNOWN_RTT, Path, learns, race
from process import run
from world import FILES, OBJECTS, PLAIN_PORT, PORT, Client

SIDES = ("ours", "plain")
#: Visits of a client. The first, the second and the last are shown.
VISITS = 4
SHOWN = {"first": 1, "second": 2, "later": VISITS}
MEASURES = {"first": "first byte", "page": "page"}
#: Seconds after which a visit has failed.
PATIENCE = 60
#: Seconds without a byte after which a download is broken. In UDP a silent client notices by its next keep-alive.
SILENT = {"ours": 25, "plain": 5}
#: The ports of a translator change when this share of each download has arrived, or after so many seconds.
CHANGES_AFTER, AT_LATEST = 0.05, 10
#: Clients whose ports change at the same time.
GROUP = 10
#: Share of visits that may open a second socket.
SECOND_SOCKETS = 0.01
#: Share of later visits that must be accepted where nothing is done to first flights. Otherwise the rows would show
#: nothing.
ACCEPTED = 0.8


def blocked(rtt):
    """UDP is silent: the first visits wait for a second attempt, until it is known."""
    return (UNKNOWN_RTT, race(rtt), 0)


PATHS = (
    Path("nothing"),
    Path("SYNs with data are dropped", f"{SYN_ARRIVES} ip length > 80 drop", delay=learns),
    Path("option 34 is removed", f"{SYN_ARRIVES} reset tcp option fastopen"),
    Path("nothing, with certificates", asap=True),
    Path("UDP is blocked, with certificates", f"{ARRIVES} udp dport {PORT} drop", asap=True, delay=blocked),
    Path("the client's ports change, with certificates", asap=True, nat=True),
)


class Stopped(Exception):
    """The run was asked to end."""


class Visit:
    """What curl says about a page. Times are milliseconds."""

    def __init__(self, client, side, name, objects, target="/dev/null", speed=()):
        world = client.world
        options, base = client.where(side)
        self.paths = [f"/s{client.number}/{side}{name}/{each}" for each in objects]
        command = ["curl", "-sS", "--http2", "-m", PATIENCE, "--cacert", world.files.ca, *options, *speed]
        command += ["-w", "%{http_code} %{time_connect} %{time_starttransfer} %{time_total} %{size_download}\\n"]
        command += [part for path in self.paths for part in ("-o", target, f"{base}{path}")]
        self.began = began = time.monotonic()
        done = run(*command, check=False, timeout=PATIENCE * len(objects) + 30)
        self.ended = time.monotonic()
        lines = [line.split() for line in done.stdout.splitlines()]
        self.ok = done.returncode == 0 and [line[0] for line in lines] == ["200"] * len(objects)
        self.error = None if self.ok else f"curl {done.returncode}: {done.stderr.strip()[-200:]} {done.stdout.strip()}"
        times = [[1000 * float(part) for part in line[1:4]] for line in lines] or [[0, 0, 0]]
        self.connect, self.first = times[0][:2]
        self.page = sum(total for *_, total in times)
        self.answered = began + self.first / 1000
        self.contact = None

    def record(self):
        ours = {} if self.contact is None else {"way": self.contact["way"], "outcome": word(self.contact)}
        return {"ok": self.ok, "error": self.error, "first": self.first, "page": self.page, "connect": self.connect, **ours}


def word(contact):
    if contact["outcome"] == "accepted":
        return "accepted" if contact["round_trips_saved"] else "accepted-part"
    return contact["reason"] or contact["outcome"]


class Sample:
    """A client that knows nothing, and its visits by each side in turn."""

    def __init__(self, world, path):
        self.world, self.path = world, path
        self.visits = {side: {} for side in SIDES}
        self.posts, self.downloads = {}, {}
        #: When the ports changed.
        self.changed = None
        self.client = Client(world, path.asap)
        self.number = self.client.number
        self.seen = 0

    def sides(self):
        return SIDES if self.number % 2 else SIDES[::-1]

    def visit(self, number):
        for side in self.sides():
            if self.world.stop.is_set():
                raise Stopped
            visit = Visit(self.client, side, number, OBJECTS)
            if side == "ours":
                self.contact(visit)
            self.visits[side][number] = visit

    def contact(self, visit):
        """What the proxy says about it."""
        if visit.ok:
            wanted = self.seen + 1
            self.client.proxy.wait_until(lambda: len(self.client.contacts()) >= wanted, "a line of the proxy")
        contacts = self.client.contacts()
        visit.contact = contacts[-1] if len(contacts) > self.seen else None
        self.seen = len(contacts)

    def begin(self):
        self.client.__enter__()
        for number in (1, 2):
            self.visit(number)

    def finish(self):
        for number in range(3, VISITS + 1):
            self.visit(number)
        for side in self.sides():
            self.post(side)

    def end(self):
        self.client.__exit__(None, None, None)

    def post(self, side):
        options, base = self.client.where(side)
        path = f"/post/s{self.number}/{side}"
        command = ("curl", "-sS", "-m", PATIENCE, "--cacert", self.world.files.ca, *options, "-d", "pay", f"{base}{path}")
        done = run(*command, check=False, timeout=PATIENCE + 30)
        self.posts[path] = None if done.stdout == "done\n" else f"curl {done.returncode}: {done.stderr.strip()[-200:]}"
        if side == "ours":
            self.seen = len(self.client.contacts())

    def target(self, side):
        """The file that a download makes."""
        return self.world.path(f"download-{self.number}-{side}")

    def arrived(self):
        """Bytes of the download of ours so far."""
        target = self.target("ours")
        return os.path.getsize(target) if os.path.exists(target) else 0

    def download(self, side, name):
        speed = ("--speed-limit", 1, "--speed-time", SILENT[side])
        visit = Visit(self.client, side, "big", [name], self.target(side), speed)
        if side == "ours":
            self.contact(visit)
        self.downloads[side] = visit


class Cell:
    """The visits of one path, round-trip time and loss."""

    def __init__(self, path, rtt, loss, samples, at_once):
        self.path, self.rtt, self.loss, self.wanted, self.at_once = path, rtt, loss, samples, at_once
        self.samples, self.faults, self.late = [], [], []
        self.syns = self.repeated = 0
        self.openings = collections.Counter()
        #: Downloads of ours that were under way when the ports changed.
        self.under_way = 0
        self.executed = collections.Counter()

    @property
    def name(self):
        return f"{self.path.name}, {self.rtt} ms, {self.loss} %"

    @property
    def share(self):
        """The quantile that is judged."""
        return 0.9 if self.loss else 0.99

    # --- measuring

    def measure(self, world):
        if self.path.asap:
            world.wait_for_udp()
        since, new = world.logged(), []
        with world.meddling(self.path) as openings:
            if self.path.nat:
                self.in_step(world, new)
            else:
                self.one_by_one(world, new)
            self.syns += world.syns()
            self.openings.update(openings.counts())
        self.samples += new
        asked = [("GET", path) for visit in self.all_visits(new) if visit.ok for path in visit.paths]
        asked += [("POST", path) for sample in new for path, error in sample.posts.items() if error is None]
        self.count(world.served(len(asked), since, asked), new)

    def pool(self):
        return concurrent.futures.ThreadPoolExecutor(self.at_once)

    def one_by_one(self, world, new):
        """Some samples at a time."""

        def sample(number):
            self.wait_for_turn(number)
            return self.complete(world, (Sample.begin, Sample.finish))

        with self.pool() as pool:
            new += pool.map(sample, range(self.wanted))

    def wait_for_turn(self, number):
        """The first samples shall not begin together: a dozen programs that start at once make each other's first visit
        late."""
        if number < self.at_once:
            time.sleep(number * self.rtt * VISITS * len(OBJECTS) / 1000 / self.at_once)

    def complete(self, world, steps):
        with world.client.entered():
            one = Sample(world, self.path)
            try:
                for step in steps:
                    step(one)
            finally:
                one.end()
            return one

    def in_step(self, world, new):
        """Groups of samples, whose downloads are under way when the ports change: it takes up to 20 s until they go on. With
        loss the download is smaller, because a large one takes a minute."""
        name = "medium" if self.loss else "large"
        left, slots = self.wanted, threading.Semaphore(self.at_once)
        while left > 0:
            count = min(left, max(self.at_once, GROUP))
            left -= count
            ready, changed, batch = threading.Barrier(count + 1), threading.Event(), []

            def steps(one, ready=ready, changed=changed, batch=batch):
                batch.append(one)
                try:
                    with slots:
                        one.begin()
                finally:
                    ready.wait()
                with concurrent.futures.ThreadPoolExecutor(2) as both:
                    jobs = [both.submit(self.download, world, one, side, name) for side in SIDES]
                    changed.wait()
                    for job in jobs:
                        job.result()
                with slots:
                    one.finish()

            def begin_in_turn(number, steps=steps):
                self.wait_for_turn(number)
                return self.complete(world, (steps,))

            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                jobs = [pool.submit(begin_in_turn, number) for number in range(count)]
                try:
                    ready.wait()
                    until, least = time.monotonic() + AT_LATEST, CHANGES_AFTER * FILES[name]
                    while time.monotonic() < until and any(one.arrived() < least for one in batch):
                        time.sleep(0.002)
                    world.change_ports()
                    at = time.monotonic()
                    for one in batch:
                        one.changed = at
                finally:
                    changed.set()
                for job in jobs:
                    job.result()
            self.under_way += sum(one.downloads["ours"].answered < at < one.downloads["ours"].ended for one in batch)
            new += batch

    @staticmethod
    def download(world, one, side, name):
        with world.client.entered():
            one.download(side, name)

    # --- judging

    def all_visits(self, samples):
        for sample in samples:
            for side in SIDES:
                yield from sample.visits[side].values()
            yield from sample.downloads.values()

    def count(self, served, new):
        """Each request ran once, if it was answered, and at most once if not."""
        ran = collections.Counter((method, path) for _, method, path, _ in served)
        self.executed.update(method for port, method, *_ in served if port != str(PLAIN_PORT))
        for visit in self.all_visits(new):
            for path in visit.paths:
                times = ran[("GET", path)]
                if times > 1 or (visit.ok and times != 1):
                    self.faults.append(f"GET {path} ran {times} times")
        for sample in new:
            for path, error in sample.posts.items():
                times = ran[("POST", path)]
                if times > 1 or (error is None and times != 1):
                    self.faults.append(f"POST {path} ran {times} times")
                if error:
                    self.faults.append(f"POST {path}: {error}")
            self.failed(sample)

    def failed(self, sample):
        for side in SIDES:
            for number, visit in sample.visits[side].items():
                if not visit.ok:
                    self.faults.append(f"visit {number} ({side}): {visit.error}")
        ours = sample.downloads.get("ours")
        # A connection of the kernel's TCP breaks, as plain does.
        if ours and not ours.ok and ours.contact and ours.contact["way"] == "udp":
            after = f"{sample.changed - ours.began:.2f} s after it began" if sample.changed else "never"
            ends = sample.client.ends()
            self.faults.append(f"the download in UDP did not survive another port: {ours.error}; the ports changed {after}; "
                               f"its way was {ours.contact}; the proxy's ends: {ends[-5:]}")  # fmt: skip

    def times(self, side, number, measure):
        found = (sample.visits[side].get(number) for sample in self.samples)
        return [getattr(visit, measure) for visit in found if visit and visit.ok]

    def contacts(self, number=None):
        for sample in self.samples:
            for at, visit in sample.visits["ours"].items():
                if visit.contact and number in (None, at):
                    yield visit.contact

    def accepted(self, number):
        words = [word(contact) for contact in self.contacts(number)]
        return words.count("accepted") / len(words) if words else 0.0

    def ways(self, number):
        return collections.Counter(contact["way"] for contact in self.contacts(number))

    def second_sockets(self):
        """Second sockets on the kernel's TCP, and visits. SYNs that are sent again look alike, so they are known only where
        nothing is lost."""
        if self.loss or self.path.rules or self.path.nat:
            return None
        contacts = [contact for sample in self.samples for contact in sample.client.contacts()]
        by_kernel = sum(contact["way"] == "kernel" for contact in contacts)
        return max(0, self.syns - by_kernel), len(contacts)

    def judge_what_holds_at_any_speed(self):
        accepted = sum(contact["outcome"] == "accepted" for contact in self.contacts())
        if self.openings["whole"] < accepted:
            self.faults.append(f"{accepted} first flights accepted, and {self.openings['whole']} ClientHellos in SYNs")
        if self.openings["other"]:
            self.faults.append(f"{self.openings['other']} SYNs with other data than a ClientHello")
        if not self.path.rules and not accepted:
            self.faults.append("no first flight was accepted")

    def judge_times(self):
        """Faults that a busy machine may cause, too."""
        self.late = []
        connects = [visit.connect for sample in self.samples for visit in sample.visits["plain"].values() if visit.ok]
        # What a busy machine adds to the round-trip time is a part of what clients measure.
        rtt = max([self.rtt, *([statistics.median(connects)] if connects else [])])
        delays = self.path.delay(rtt)
        if self.loss:
            # Any visit may need a second attempt.
            delays = tuple(max(delay, race(rtt)) for delay in delays)
        for (name, number), delay in zip(SHOWN.items(), delays, strict=True):
            for measure, words in MEASURES.items():
                ours, plain = (self.times(side, number, measure) for side in SIDES)
                if bounds.is_later(ours, plain, self.share, delay + MARGIN):
                    least, most = bounds.lower_end(ours, self.share), bounds.upper_end(plain, self.share)
                    self.late.append(f"{name} visit, {words}: at least {least:.0f} ms, plain at most {most:.0f} ms, allowed "
                                     f"{delay + MARGIN:.0f} ms more")  # fmt: skip
        extra = self.second_sockets()
        if extra and bounds.is_more(*extra, SECOND_SOCKETS):
            self.late.append(f"{extra[0]} second sockets in {extra[1]} visits")
        if not self.loss and not self.path.rules and self.accepted(VISITS) < ACCEPTED:
            self.late.append(f"{self.accepted(VISITS):.0%} of the later visits were accepted")
        if self.path.nat and self.under_way < len(self.samples) / 2:
            self.late.append(f"{self.under_way} of {len(self.samples)} downloads were under way when the ports changed")

    def result(self):
        share, extra = self.share, self.second_sockets()
        visits = {}
        for name, number in SHOWN.items():
            told = {"accepted": self.accepted(number), "ways": dict(self.ways(number))}
            for side in SIDES:
                told[side] = {measure: spread(self.times(side, number, measure), share) for measure in MEASURES}
            visits[name] = told
        downloads = collections.Counter(
            f"{side}, {(visit.contact or {}).get('way', '?') if side == 'ours' else 'kernel'}: {'whole' if visit.ok else 'broken'}"
            for sample in self.samples
            for side, visit in sample.downloads.items()
        )
        return {
            "path": self.path.name, "rtt_ms": self.rtt, "loss": self.loss, "samples": len(self.samples),
            "quantile": share, "visits": visits, "downloads": dict(downloads), "under_way": self.under_way, "measured_again": self.repeated,
            "second_sockets": None if extra is None else {"count": extra[0], "visits": extra[1]},
            "first_packets": dict(self.openings), "executed": dict(self.executed), "faults": self.faults + self.late,
            "outcomes": dict(collections.Counter(f"{contact['way']}, {word(contact)}" for contact in self.contacts())),
            "records": [
                {side: {number: visit.record() for number, visit in sample.visits[side].items()} for side in SIDES}
                for sample in self.samples
            ],
        }  # fmt: skip


def spread(times, share):
    if not times:
        return None
    ordered = sorted(times)
    high = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return {"median_ms": statistics.median(ordered), "high_ms": high}


def cells(options):
    """The cells of each round-trip time and loss, which share a world."""
    found = {}
    for rtt in options.rtt:
        for loss in (0,) if options.quick else (0, 2):
            wanted = [Cell(path, rtt, loss, options.samples, at_once(rtt)) for path in PATHS]
            wanted = [cell for cell in wanted if re.search(re.escape(options.k), f"curl, {cell.name}")]
            if wanted:
                found[(rtt, loss)] = wanted
    return found


def at_once(rtt):
    """Samples at one time. They mostly wait: two cores have time for this many visits."""
    return max(2, min(13, rtt // 20))
