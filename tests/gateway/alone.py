"""Checks of the gateway alone, without proxy and wire: each is a module that also runs by itself."""

import firstflight
import framing
import h2spec
import harm
import kills
import reloads
import smuggling
from checks import Check, Skipped, right


def found(module, quick):
    """What the module's check found, in a line."""
    said = []
    for result in module.check(firstflight.BINARY, quick):
        if reason := result.numbers.get("skipped"):
            raise Skipped(reason)
        right(not result.failures, f"{result.name}: {'; '.join(result.failures[:3])}")
        numbers = ", ".join(f"{name} {value}" for name, value in result.numbers.items())
        said.append(f"{result.name}: {numbers}" if numbers else result.name)
    return "; ".join(said)


CHECKS = tuple(
    Check(name, lambda world, quick, module=module: found(module, quick), quick=in_quick)
    for name, module, in_quick in (
        ("backends are killed under load", kills, False),
        ("the gateway is reloaded and replaced under load", reloads, False),
        ("ambiguous requests", smuggling, False),
        ("edges of framing, as other servers read them", framing, True),
        ("clients that misbehave", harm, False),
        ("h2spec", h2spec, False),
    )
)
