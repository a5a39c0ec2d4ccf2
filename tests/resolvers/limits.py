"""Fetches through a rate limiter: dnsdist, which accepts a limited number of questions per second from each client,
in front of unbound.

Each fetch must succeed whatever the limiter does with questions above the limit, and each request is executed once.
"""

import contextlib
import shutil
import time

import report
from checks import executed_once, settled, succeeded
from dnswire import letters
from firstflight import at
from measure import AT_ONCE, DNS_PATH, SITE, UDP_TODAY, Fetch, summary
from process import Process, run
from resolvers import LocalUnbound, Unbound

COMMAND = PACKAGE = "dnsdist"
NEEDS = {COMMAND: PACKAGE}
#: What the limiter does with questions above the limit.
ACTIONS = {"refuses": "RCodeAction(DNSRCode.REFUSED)", "drops": "DropAction()"}
#: Questions per second, and fetches at the same time. A first flight in eight names and its lookup are nine
#: questions. The limit cuts the first flight, or passes the whole flight and stops only the lookup, or stops one of
#: four at the same time. Ordinary lookups are always within the limit.
LIMITS = ((5, 1), (8, 1), (20, AT_ONCE))
#: The combinations of --check.
CHECKED = (("refuses", 8), ("drops", 5))
#: Seconds until each of these limits has recovered completely.
REST = 1.5
#: Number of first flights after which a client can know the limiter's behaviour.
LESSONS = 4
#: Maximum number of fetches of each kind.
MOST = 8


class Limiter(Process):
    """A limiter at the resolver's address, with unbound behind it."""

    def __init__(self, world, action, limit):
        self.world = world
        address, port = LocalUnbound.listen
        config = world.file(
            f"dnsdist-{action}-{limit}.conf",
            f"setLocal('{at(world.resolver_address, 53)}')\nsetACL({{'10.0.0.0/8', 'fd00::/8'}})\n"
            f"setSecurityPollSuffix('')\nnewServer('{address}:{port}')\n"
            # Otherwise it would query a name that does not exist in a small Internet.
            "getServer(0):setUp()\n"
            f"addAction(MaxQPSIPRule({limit}), {ACTIONS[action]})\n",
        )
        super().__init__([COMMAND, "--supervised", "--disable-syslog", "-C", config], ns=world.resolver)

    def __enter__(self):
        with self.world.asker() as asker:
            self.wait_until(asker.alive, "an answer of dnsdist")
        time.sleep(REST)
        return self


def version():
    return run("dpkg-query", "-W", "-f", "${Version}", PACKAGE, check=False).stdout.strip() or "?"


def learnt(world):
    """The path of a memory that knows what the hosts publish. It was learnt without a limiter."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(Unbound(world))
        fetch = Fetch.entered(stack, world)
        fetch.learn()
    return fetch.memory


def measured(world, options):
    """Yields a line for each action and limit."""
    memory = learnt(world)
    for action in ACTIONS:
        for limit, together in LIMITS:
            if options.check and (action, limit) not in CHECKED:
                continue
            with contextlib.ExitStack() as stack:
                stack.enter_context(LocalUnbound(world))
                # Ask unbound directly, past the limiter.
                with world.asker(LocalUnbound.listen) as asker:
                    for zone in (DNS_PATH, SITE):
                        for _ in range(5):
                            asker.ask([letters(12), *zone])
                stack.enter_context(Limiter(world, action, limit))
                fetch = Fetch.entered(stack, world)
                fetch.memory = f"{memory}.{action}-{limit}"
                line = one(fetch, memory, together, options)
            what = f"{action} above {limit} a second"
            line = {
                "part": "limits", "resolver": "dnsdist, unbound behind it", "version": version(), "what": what,
                "family": world.family, "action": action, "limit": limit, "together": together, **line,
            }  # fmt: skip
            report.progress(line)
            yield line


def one(fetch, memory, together, options):
    """Ordinary fetches, fetches in the lookup by a client that does not know the limiter, and by one that does."""
    rounds = min(MOST, options.count)
    before = fetch.world.executed()
    hosts = iter(range(rounds * AT_ONCE * 3 + LESSONS * AT_ONCE))

    def fetched(way):
        time.sleep(REST)
        names = [next(hosts) for _ in range(together)]
        if way == "today":
            names, arguments = [f"{letters(12).decode()}.xyz.com" for _ in names], UDP_TODAY
        else:
            names, arguments = [f"h{number}.xyz.com" for number in names], fetch.by_lookup()
        if together == 1:
            ((took, record),) = fetch.tried(names, *arguments)
            return took, [record]
        # The command looks up ordinary names one after the other, so use a run for each name.
        return fetch.at_once([[name] for name in names] if way == "today" else [names], *arguments)

    found = {"today": [fetched("today") for _ in range(rounds)], "first": []}
    for _ in range(rounds):
        shutil.copy(memory, fetch.memory)
        found["first"].append(fetched("first"))
    for _ in range(min(LESSONS, rounds)):
        fetched("learnt")
    found["learnt"] = [fetched("learnt") for _ in range(rounds)]
    records = {way: [record for _, some in what for record in some] for way, what in found.items()}
    executed = settled(fetch, before)
    return {
        "ms": {way: summary([took for took, _ in what]) for way, what in found.items()},
        "succeeded": {way: [sum(r["status"] == 200 for r in some), len(some)] for way, some in records.items()},
        "ways": {way: report.ways(some) for way, some in records.items()},
        "executed": executed,
        "failures": [*succeeded(records), *executed_once(executed)],
    }
