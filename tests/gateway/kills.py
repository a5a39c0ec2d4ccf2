#!/usr/bin/env python3
"""Kills backends under load, and starts them again.

    tests/gateway/kills.py [--bin PATH] [--quick] [--json]

Two backends note each request before they answer it. One after the other is killed (SIGKILL) and started again, while
clients ask without a pause: by HTTP/1.1 and HTTP/2 in mode `http`, and in mode `tcp`. No GET in mode `http` may fail. No POST
may be executed twice, and each is answered or reset. In mode `tcp` the gateway knows no requests, so a kill resets what is
under way. Needs root.
"""

from place import BACKENDS, GLOBAL, Place, Result, judge, listener, main, service

#: Requests that are answered between a kill and the next step.
BETWEEN = 200


def kill(at, backends, number, visitors):
    """Kills a backend and starts it again, with load before, between and after."""
    port = BACKENDS[number % len(BACKENDS)]
    backends[port].kill()
    visitors.wait_for(BETWEEN)
    backends[port] = at.backend(port)
    with open(at.log(port)) as file:
        before = len(file.readlines())
    # The next backend dies when this one has work again.
    visitors.wait_until(lambda: len(open(at.log(port)).readlines()) > before + 20, "requests at the backend", 60)
    visitors.wait_for(BETWEEN)


def under_load(binary, mode, kills, load):
    result = Result(f"{kills} kills, mode {mode}")
    with Place(binary) as at:
        backends = {port: at.backend(port) for port in BACKENDS}
        gateway = at.gateway(GLOBAL, listener(mode), service())
        visitors = at.visitors(*load)
        visitors.wait_for(BETWEEN)
        for number in range(kills):
            kill(at, backends, number, visitors)
        counted = visitors.end()
        # A kill ends the connections at one backend, at most all.
        judge(result, counted, at.executed(), 0 if mode == "http" else kills * load[1])
        result.must(gateway.popen.poll() is None, "the gateway ended")
        result.must(gateway.terminate(60) == 0, "the gateway did not end in order")
        if mode == "http":
            result.must(not counted["goaways"], f"HTTP/2 connections ended: {counted['goaways']}")
    return result


def check(binary, quick=False):
    kills = 2 if quick else 6
    yield under_load(binary, "http", kills, ("--gets", 12, "--posts", 4, "--h2", 2))
    yield under_load(binary, "tcp", kills, ("--gets", 6, "--posts", 2, "--once"))


if __name__ == "__main__":
    main(check, __doc__)
