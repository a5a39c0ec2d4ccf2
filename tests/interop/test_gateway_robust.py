"""`gateway` while backends die, while it is reloaded and replaced, and with requests that smuggle. tests/gateway has the
long forms."""

import os
import sys

import firstflight
import pytest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gateway"))

import kills  # noqa: E402
import reloads  # noqa: E402
import smuggling  # noqa: E402

QUICK = {"kills": kills.check, "reloads": reloads.check, "smuggling": smuggling.check}


@pytest.mark.parametrize("name", QUICK)
def test_the_gateway_is_robust(name):
    results = list(QUICK[name](firstflight.BINARY, quick=True))
    assert results
    failures = [f"{result.name}: {failure}" for result in results for failure in result.failures]
    assert not failures, "\n".join(failures)
    for result in results:
        print(result)
