"""Conditions that must hold at any speed. Each check returns a line for each violation."""

import time

import report
from measure import AT_ONCE

#: Seconds within which a server must log what it has executed.
LOGGED_WITHIN = 2


def succeeded(records):
    """Checks that all fetches succeeded. `records` are the command's reports, by what was tried."""
    for what, some in records.items():
        failed = [record for record in some if record["status"] != 200]
        if failed:
            yield f"{what}: {len(failed)} of {len(some)} fetches failed, the first: {failed[0].get('error')}"


def settled(fetch, before):
    """Waits until the server has logged all successful requests or the time is up. Returns how many requests it has
    executed since `before`, how many were sent, and how many succeeded."""
    deadline = time.monotonic() + LOGGED_WITHIN
    while fetch.world.executed() - before < fetch.asked and time.monotonic() < deadline:
        time.sleep(0.05)
    return {"executed": fetch.world.executed() - before, "asked": fetch.asked, "succeeded": fetch.succeeded}


def executed_once(counted):
    """Checks that the server executed each successful request once, and no failed one."""
    executed, asked, succeeded = (counted[what] for what in ("executed", "asked", "succeeded"))
    if executed > asked:
        yield f"{asked} requests were executed {executed} times"
    elif executed > succeeded:
        yield f"{executed - succeeded} requests were executed and reported as failed"
    elif executed < succeeded:
        yield f"{succeeded} requests succeeded, and the server logged {executed}"


def fetched_once(fetch):
    """Sends as many requests in lookups as a client may send in a minute. Returns their ways, and the server's
    counts."""
    before = fetch.world.executed()
    fetch.learn()
    found = fetch.tried([f"h{number}.xyz.com" for number in range(AT_ONCE)], *fetch.by_lookup())
    executed = settled(fetch, before)
    records = {"in the lookup": [record for _, record in found]}
    ways = report.ways(records["in the lookup"])
    return {"ways": ways, "executed": executed, "failures": [*succeeded(records), *executed_once(executed)]}
