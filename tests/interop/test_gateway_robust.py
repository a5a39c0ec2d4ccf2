"""`gateway` while backends die, while it is reloaded and replaced, and with requests that smuggle. tests/gateway and tests/soak
have the long forms."""

import os
import random
import signal
import sys

import firstflight
import pytest

for name in ("gateway", "soak"):
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", name))

import kills  # noqa: E402
import reloads  # noqa: E402
import smuggling  # noqa: E402
import soak  # noqa: E402

QUICK = {"kills": kills.check, "reloads": reloads.check, "smuggling": smuggling.check}


@pytest.mark.parametrize("name", QUICK)
def test_the_gateway_is_robust(name):
    results = list(QUICK[name](firstflight.BINARY, quick=True))
    assert results
    failures = [f"{result.name}: {failure}" for result in results for failure in result.failures]
    assert not failures, "\n".join(failures)
    for result in results:
        print(result)


@pytest.mark.needs("cc", "nft", "redis-server")
def test_a_farm_while_everything_happens_to_it_once():
    """In the kernel, on devices and in UDP, on a bad wire."""
    # Members that start take no certificates for half a minute, and connections behind the wire may end by their timeouts.
    signal.alarm(300)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    (result,) = soak.periods(firstflight.BINARY, minutes=0.4, seed=seed, between=(0, 3))
    assert not result.failures, "\n".join(result.failures)
    print(result.ways)
    assert len(result.happened) > 4, result.happened
