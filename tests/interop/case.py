"""Test cases: a registry, and the context of a test."""

import contextlib
import hashlib
import os
import random

from firstflight import Get, Serve
from kernel import KernelServer
from net import FAMILIES, Namespace, cable, workdir
from process import run

CASES = []


class Case:
    def __init__(self, function, variant, needs):
        self.function, self.variant, self.needs = function, variant, needs
        tags = [f"v{value}" if value in FAMILIES else str(value) for value in variant.values()]
        self.name = function.__name__ + (f"[{','.join(tags)}]" if tags else "")

    def run(self, context):
        self.function(context, **self.variant)


def case(needs=(), **variants):
    """Registers a test, once per combination: `@case(family=FAMILIES, needs=("curl",))`.

    `needs` names commands without which the test is skipped.
    """

    def register(function):
        combinations = [{}]
        for name, values in variants.items():
            combinations = [{**done, name: value} for done in combinations for value in values]
        CASES.extend(Case(function, variant, needs) for variant in combinations)
        return function

    return register


class Context(contextlib.ExitStack):
    """The resources of a test. All of them end with the test, in reverse order."""

    def __init__(self):
        super().__init__()
        self.processes = []

    def _begin(self, thing):
        # Register its end first, so that a failed start leaves nothing behind.
        self.push(thing)
        return thing.__enter__()

    def namespace(self, label):
        return self._begin(Namespace(label))

    def cable(self, *arguments):
        return self.enter_context(cable(*arguments))

    def root(self, **files):
        """Makes a directory with files of the given sizes. body(root, name) is a file's content."""
        path = self.enter_context(workdir())
        for name, size in files.items():
            with open(os.path.join(path, name), "wb") as file:
                file.write(random.Random(name).randbytes(size))
        return path

    def start(self, process):
        """Starts a process. Its output is shown if the test fails."""
        self.processes.append(process)
        return self._begin(process)

    def serve(self, ns, pair, root, *options):
        return self.start(Serve(ns, pair, root, *options))

    def kernel_server(self, ns, family, port, root):
        return self.start(KernelServer(ns, family, port, root))

    def client(self, ns, pair, *arguments):
        """Starts `get`."""
        return self.start(Get(ns, pair, *arguments))

    def get(self, ns, pair, *arguments, expect=0, timeout=60):
        """Runs `get` to its end and checks its exit status. Returns its fetch records."""
        client = self.client(ns, pair, *arguments)
        status = client.finish(timeout)
        equal(status, expect, "exit status of get")
        return client.fetches()

    def sockets(self, ns):
        """The namespace's listening sockets, as `ss` shows them."""
        return run("ss", "-Hltn", ns=ns).stdout

    def tails(self, lines=15):
        """The last output lines of every process of the test."""
        for process in self.processes:
            yield f"$ {' '.join(process.command)}  → {process.popen.returncode}"
            for stream, text in process.lines[-lines:]:
                yield f"  {stream}: {text[:400]}"


def body(root, name):
    with open(os.path.join(root, name), "rb") as file:
        return file.read()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: {short(found)}, not {short(wanted)}")


def short(value):
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:150]}… ({len(text)} characters)"


__all__ = ["CASES", "FAMILIES", "Context", "body", "case", "check", "equal", "sha256"]
