"""A gateway with counting backends and visitors, in a network namespace of its own."""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
INTEROP = os.path.join(os.path.dirname(HERE), "interop")
for path in (INTEROP, HERE):
    if path not in sys.path:
        sys.path.insert(0, path)
sys.dont_write_bytecode = True

import firstflight  # noqa: E402
from process import Process  # noqa: E402
from testbed import Testbed  # noqa: E402

PORT, BACKENDS = 8443, (8001, 8002)


class Result:
    """What a check found: numbers to print, and what is wrong."""

    def __init__(self, name):
        self.name, self.numbers, self.failures = name, {}, []

    def must(self, holds, what):
        if not holds:
            self.failures.append(what)

    def __str__(self):
        lines = [self.name]
        lines += [f"  {name}: {value}" for name, value in self.numbers.items()]
        lines += [f"  FAILED: {failure}" for failure in self.failures]
        return "\n".join(lines)


class Backend(Process):
    """A counting backend. Its log outlives it."""

    def __init__(self, place, port):
        script, self.log = os.path.join(HERE, "counting.py"), place.log(port)
        super().__init__([sys.executable, script, f"127.0.0.1:{port}", self.log], ns=place.ns)

    def __enter__(self):
        self.wait_until(lambda: "listening" in self.text(), "`listening`", 60)
        return self


class Gateway(Process):
    """A gateway. It is ready when it says that it listens."""

    def __enter__(self):
        self.wait_until(lambda: "listening on" in self.text(), "`listening on`", 60)
        return self

    def says(self, text):
        return self.text("out").count(text)

    def reload(self, says):
        """Sends SIGHUP, and waits for the line."""
        before = self.says(says)
        self.popen.send_signal(signal.SIGHUP)
        self.wait_until(lambda: self.says(says) > before, says, 60)


class Visitors(Process):
    def __init__(self, place, *options, port=PORT):
        script = os.path.join(HERE, "visitors.py")
        command = [sys.executable, script, f"127.0.0.1:{port}", *options]
        super().__init__(command, ns=place.ns, stdin=subprocess.PIPE)

    def counted(self, what):
        return max((record.get(what, 0) for record in self.records()[-1:]), default=0)

    def wait_for(self, more):
        """Waits until so many more requests have been answered."""
        self.wait_until_counted("answered", self.counted("answered") + more)

    def wait_until_counted(self, what, until):
        running = lambda: self.popen.poll() is None
        self.wait_until(lambda: self.counted(what) >= until or not running(), f"{until} {what}", 120)
        if not running():
            raise AssertionError(f"the visitors ended: {self.text('err')}")

    def end(self):
        """Lets them finish. Returns what they counted."""
        self.popen.stdin.close()
        if self.wait(150) != 0:
            raise AssertionError(f"the visitors failed: {self.text('err')}")
        return self.records()[-1]


class Place(Testbed):
    """The namespace, the directory, and what runs in them."""

    def __init__(self, binary):
        super().__init__()
        self.binary = os.path.abspath(binary)

    def __enter__(self):
        super().__enter__()
        self.ns, self.directory = self.namespace("robust"), self.root()
        return self

    def log(self, port):
        return os.path.join(self.directory, f"requests-{port}")

    def path(self, name):
        return os.path.join(self.directory, name)

    def backend(self, port):
        return self.start(Backend(self, port))

    def write(self, *parts, name="gateway.toml"):
        with open(self.path(name), "w") as file:
            file.write("\n".join(parts))
        return self.path(name)

    def gateway(self, *parts):
        return self.start(Gateway([self.binary, "gateway", self.write(*parts)], ns=self.ns))

    def visitors(self, *options, port=PORT):
        return self.start(Visitors(self, *options, port=port))

    def executed(self):
        """How often each request was executed, by its method and target."""
        counts = collections.Counter()
        for port in BACKENDS:
            if os.path.exists(self.log(port)):
                with open(self.log(port)) as file:
                    counts.update(line.rstrip("\n") for line in file)
        return counts


GLOBAL = '[gateway]\nlog = "off"\ndrain = "60s"\n'
SERVICE = """
[[service]]
name = "app"
backend = [{backends}]
[service.passive]
pause = "200ms"
"""


def listener(mode="http", port=PORT, name="web", more=""):
    return (
        f'[[listener]]\nname = "{name}"\naddress = ["127.0.0.1:{port}"]\nudp_port = 0\nmode = "{mode}"\n'
        f'service = "app"\n{more}\n'
    )


def service(ports=BACKENDS):
    return SERVICE.format(backends=", ".join(f'"127.0.0.1:{port}"' for port in ports))


def judge(result, counted, executed, resets_of_get=0, least=100):
    """What must hold whatever happened: GETs answered, POSTs executed at most once, nothing hangs."""
    gets, posts = counted["GET"], counted["POST"]
    lost = {name: n for name, n in gets.items() if name not in ("answered", "again", "refused")}
    twice = [name for name, n in executed.items() if name.startswith("POST") and n > 1]
    failed = sum(n for name, n in posts.items() if name not in ("answered", "refused"))
    result.numbers["GETs answered"] = gets.get("answered", 0)
    result.numbers["GETs lost"] = sum(lost.values())
    result.numbers["GETs sent again by the client"] = gets.get("again", 0) + gets.get("refused", 0)
    result.numbers["POSTs answered"] = posts.get("answered", 0)
    result.numbers["POSTs failed or reset"] = failed
    result.numbers["POSTs executed twice"] = len(twice)
    result.must(sum(lost.values()) <= resets_of_get, f"GETs were lost: {lost}, as {counted['failures']}")
    result.must(not twice, f"POSTs were executed twice: {twice[:5]}")
    for method, counts in (("GET", gets), ("POST", posts)):
        for name in ("hung", "wrong"):
            result.must(not counts.get(name), f"{method}: {counts.get(name)} {name}, as {counted['failures']}")
    result.must(gets.get("answered", 0) > least, "there was no load")
    done = sum(name.startswith("POST") for name in executed)
    result.must(done >= posts.get("answered", 0), "a POST was answered that no backend has seen")


def main(check, text, numbers=()):
    """The command line of a check that runs alone. `numbers` are options of its own: name, default, help."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=firstflight.default_binary(), metavar="PATH", help="the command `firstflight`")
    parser.add_argument("--quick", action="store_true", help="what ./check runs")
    parser.add_argument("--json", action="store_true", help="one JSON object for each check")
    for name, default, about in numbers:
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"{about} [{default}]")
    options = parser.parse_args()
    of_its_own = {name.strip("-"): getattr(options, name.strip("-")) for name, _, _ in numbers}
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    failed = False
    for result in check(options.bin, options.quick, **of_its_own):
        failed |= bool(result.failures)
        print(json.dumps(vars(result)) if options.json else result, flush=True)
    sys.exit(failed)
