#!/usr/bin/env python3
"""Reloads the gateway under load, and replaces it by another one.

    tests/gateway/reloads.py [--bin PATH] [--quick] [--json]

SIGHUP with another order of backends, another route, or a mistake: then nothing changes, and a line names the place. SIGTERM,
while another gateway takes over: it has the same listening socket (`LISTEN_FDS`), or one of its own at the same port
(`reuse_port`). Clients ask without a pause meanwhile, on connections that are kept and on new ones, by HTTP/1.1 and HTTP/2. No
GET may fail, no POST may be executed twice, nothing hangs, and each HTTP/2 connection that ends gets two GOAWAYs. Needs root.
"""

import re
import signal
import socket

from place import BACKENDS, GLOBAL, PORT, Gateway, Place, Result, judge, listener, main, service

#: Connections of HTTP/2 at one time.
H2 = 2
LOAD = ("--gets", 10, "--posts", 4, "--h2", H2)
#: Requests that are answered between two steps.
BETWEEN = 100
OTHER = f'[[listener.route]]\npath = "/get/"\nservice = "app"\n'


def reloads(binary, count):
    result = Result(f"{count} reloads")
    with Place(binary) as at:
        backends = [at.backend(port) for port in BACKENDS]
        good = [(listener(), service()), (listener(more=OTHER), service(BACKENDS[::-1])), (listener(), service(BACKENDS[:1]))]
        gateway = at.gateway(GLOBAL, *good[0])
        visitors, single = at.visitors(*LOAD), at.visitors("--gets", 2, "--once")
        refused = 0
        for number in range(count):
            if number % 3 == 2:
                at.write(GLOBAL, listener(), service().replace("name =", "nmae ="))
                gateway.reload("stays as it is")
                refused += 1
            else:
                at.write(GLOBAL, *good[number % len(good)])
                gateway.reload("was read again")
            visitors.wait_for(BETWEEN)
        counted, alone = visitors.end(), single.end()
        said = re.findall(r"stays as it is: .*gateway\.toml, line (\d+)", gateway.text("out"))
        result.numbers["of these refused, with the line named"] = len(said)
        result.must(len(said) == refused, f"{refused} mistakes, {len(said)} named")
        finish(result, at, counted, alone)
        result.must(not counted["goaways"], f"HTTP/2 connections ended: {counted['goaways']}")
        result.must(gateway.terminate(60) == 0, "the gateway did not end in order")
        del backends
    return result


def finish(result, at, counted, alone):
    """Judges both kinds of visitors. Their names of requests are in one log, so POSTs are only those of `counted`."""
    judge(result, counted, at.executed())
    gets = alone["GET"]
    lost = {name: n for name, n in gets.items() if name != "answered"}
    result.numbers["GETs on connections of their own"] = gets.get("answered", 0)
    result.must(not lost, f"lost on connections of their own: {lost}, as {alone['failures']}")
    result.must(gets.get("answered", 0) > 10, "no connections of their own")


class Passed(Gateway):
    """A gateway that gets its listening socket as from a service manager."""

    def __init__(self, at, listening, path):
        # LISTEN_PID has to be its own pid, which only a shell that becomes it knows.
        number = listening.fileno()
        script = f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" gateway "$1" 3<&{number} {number}<&-'
        super().__init__(["bash", "-c", script, at.binary, path], ns=at.ns, pass_fds=(number,))


def passed(at):
    """A socket that outlives its gateways."""
    with at.ns.entered():
        listening = socket.create_server(("127.0.0.1", PORT), backlog=512)
    at.callback(listening.close)
    path = at.write(GLOBAL, listener(), service())
    return lambda: at.start(Passed(at, listening, path))


def shared(at):
    """Each gateway has a socket of its own."""
    # What waits in the queue of a listener that closes goes to the other one.
    at.ns.sysctl("net.ipv4.tcp_migrate_req", 1)
    path = at.write(GLOBAL, listener(more="reuse_port = true"), service())
    return lambda: at.start(Gateway([at.binary, "gateway", path], ns=at.ns))


def replacements(binary, how, count):
    result = Result(f"{count} replacements, {how.__doc__.splitlines()[0]}")
    with Place(binary) as at:
        backends = [at.backend(port) for port in BACKENDS]
        begin = how(at)
        gateway = begin()
        visitors, single = at.visitors(*LOAD), at.visitors("--gets", 2, "--once")
        visitors.wait_for(BETWEEN)
        for number in range(count):
            # Each visitor of HTTP/2 has come to this gateway. A SYN that the former one dropped at its end goes again after a
            # second, which is longer than a gateway lives here.
            visitors.wait_until_counted("h2", H2 * (number + 1))
            former, gateway = gateway, begin()
            former.popen.send_signal(signal.SIGTERM)
            result.must(former.wait(90) == 0, "a gateway did not end in order")
            visitors.wait_for(BETWEEN)
        counted, alone = visitors.end(), single.end()
        finish(result, at, counted, alone)
        goaways = counted["goaways"]
        result.numbers["HTTP/2 connections that ended with two GOAWAYs"] = goaways.get("2", 0)
        result.must(set(goaways) <= {"2"}, f"GOAWAYs: {goaways}")
        result.must(goaways.get("2", 0) == H2 * count, f"{goaways} of {H2 * count} connections")
        gateway.terminate(60)
        del backends
    return result


def check(binary, quick=False):
    yield reloads(binary, 6 if quick else 30)
    for how in (passed, shared):
        yield replacements(binary, how, 2 if quick else 6)


if __name__ == "__main__":
    main(check, __doc__)
