"""What the wire does to packets, and how much data crosses it."""

import dataclasses

SMALL = 11_000
LARGE = 10_000_000


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One wire. Units: milliseconds, Mbit/s, shares of 1, bytes. `large` is the size of the long transfer: 10 MB
    where that takes seconds, less where the rate or the losses would make it take minutes."""

    name: str
    rtt: float
    rate: float
    large: int = LARGE
    loss: float = 0
    burst: float = 1
    reorder: float = 0
    reorder_delay: float = 0
    dup: float = 0
    corrupt: float = 0
    jitter: float = 0
    mtu: int = 1500
    #: Queue before the bottleneck. The default is what the bottleneck carries in a round trip, at least 30 packets.
    queue: int = 0

    @property
    def waits(self):
        """Whether a short transfer mostly waits for the wire."""
        return self.rtt >= 5

    def options(self, seed):
        """Options of `firstflight-lab wire`. Both directions have the same."""
        found = ["--rtt", f"{self.rtt}ms", "--rate-up", f"{self.rate}M", "--rate-down", f"{self.rate}M"]
        found += ["--queue", self.queue or max(int(self.rate * self.rtt * 125), 30 * self.mtu)]
        found += ["--mtu", self.mtu, "--seed", seed]
        if self.loss:
            found += ["--loss", self.loss, "--loss-burst", self.burst] if self.burst > 1 else ["--loss", self.loss]
        if self.reorder:
            found += ["--reorder", self.reorder, "--reorder-delay", f"{self.reorder_delay}ms"]
        if self.dup:
            found += ["--dup", self.dup]
        if self.corrupt:
            # TCP's checksum does not detect every pair of flipped bits, so no TCP would transfer the file correctly.
            found += ["--corrupt", self.corrupt, "--corrupt-bits", 1]
        if self.jitter:
            found += ["--jitter", f"{self.jitter}ms"]
        return found

    def words(self):
        """A short description of the wire."""
        found = [f"{self.rate:g} Mbit/s", f"{self.rtt:g} ms"]
        if self.loss:
            found.append(f"{self.loss:.1%} lost" + (f" in bursts of {self.burst:g}" if self.burst > 1 else ""))
        if self.reorder:
            found.append(f"{self.reorder:.0%} late by {self.reorder_delay:g} ms")
        if self.dup:
            found.append(f"{self.dup:.0%} twice")
        if self.corrupt:
            found.append(f"{self.corrupt:.1%} corrupt")
        if self.jitter:
            found.append(f"jitter {self.jitter:g} ms")
        if self.mtu != 1500:
            found.append(f"MTU {self.mtu}")
        return ", ".join(found)


SCENARIOS = (
    Scenario("clean", 50, 20),
    Scenario("loss-0.1", 50, 20, loss=0.001),
    Scenario("loss-0.5", 50, 20, 5_000_000, loss=0.005),
    Scenario("loss-2", 50, 10, 1_000_000, loss=0.02),
    Scenario("loss-10", 20, 10, 500_000, loss=0.1),
    Scenario("burst-0.5", 50, 20, 5_000_000, loss=0.005, burst=5),
    Scenario("burst-2", 20, 10, 2_000_000, loss=0.02, burst=8),
    Scenario("burst-5", 20, 10, 1_000_000, loss=0.05, burst=3),
    Scenario("reorder", 50, 20, reorder=0.05, reorder_delay=4),
    Scenario("reorder-far", 20, 20, reorder=0.02, reorder_delay=30),
    Scenario("twice", 50, 20, dup=0.05),
    Scenario("corrupt", 20, 20, 5_000_000, corrupt=0.005),
    Scenario("slow", 100, 1, 500_000, loss=0.005),
    Scenario("fast", 20, 100),
    Scenario("fast-far", 300, 100),
    Scenario("far-loss", 300, 10, 1_000_000, loss=0.001),
    Scenario("near", 1, 100, loss=0.001),
    Scenario("mtu-576", 20, 20, 5_000_000, loss=0.001, mtu=576),
    Scenario("mtu-1280", 50, 20, loss=0.001, mtu=1280),
    Scenario(
        "everything", 80, 10, 1_000_000, loss=0.005, burst=2, reorder=0.02, reorder_delay=5, dup=0.01,
        corrupt=0.002, jitter=3,
    ),
)  # fmt: skip

#: Sizes that are enough to show recovery from every kind of fault, in two minutes.
QUICK = {
    "clean": 2_000_000,
    "loss-2": 300_000,
    "loss-10": 100_000,
    "burst-5": 200_000,
    "reorder-far": 2_000_000,
    "mtu-576": 500_000,
    "everything": 300_000,
}


def quick():
    """The scenarios of the short run."""
    return tuple(dataclasses.replace(s, large=QUICK[s.name]) for s in SCENARIOS if s.name in QUICK)
