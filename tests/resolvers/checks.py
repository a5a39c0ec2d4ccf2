"""What must hold at any speed. The checks return a line for each thing that does not hold."""

import time

import report
from measure import AT_ONCE

#: How long a server may take to log what it has executed, s.
LOGGED_WITHIN = 2


def succeeded(records):
    """All fetches succeeded; `records` are the command's reports by what was tried."""
    for what, some in records.items():
        failed = [record for record in some if record["status"] != 200]
        if failed:
            yield f"{what}: {len(failed)} of {len(some)} fetches failed, the first: {failed[0].get('error')}"


def settled(fetch, before):
    """How many requests the server has executed since `before`, once it has logged all that succeeded or the time is up;
    also how many were asked for, and how many succeeded."""
    deadline = time.monotonic() + LOGGED_WITHIN
    while fetch.world.executed() - before < fetch.asked and time.monotonic() < deadline:
        time.sleep(0.05)
    return {"executed": fetch.world.executed() - before, "asked": fetch.asked, "succeeded": fetch.succeeded}


def executed_once(counted):
    """The server executed each successful request once, and no failed one."""
    executed, asked, succeeded = (counted[what] for what in ("executed", "asked", "succeeded"))
    if executed > asked:
        yield f"{asked} requests were executed {executed} times"
    elif executed > succeeded:
        yield f"{executed - succeeded} requests were executed and reported as failed"
    elif executed < succeeded:
        yield f"{succeeded} requests succeeded, and the server logged {executed}"


def fetched_once(fetch):
    """As many requests in the lookup as a client sends in a minute: their ways, and what the server made of them."""
    before = fetch.world.executed()
    fetch.learn()
    found = fetch.tried([f"h{number}.xyz.com" for number in range(AT_ONCE)], *fetch.by_lookup())
    executed = settled(fetch, before)
    records = {"in the lookup": [record for _, record in found]}
    ways = report.ways(records["in the lookup"])
    return {"ways": ways, "executed": executed, "failures": [*succeeded(records), *executed_once(executed)]}
