"""The resources of a test: namespaces, cables, directories, processes."""

import contextlib
import hashlib
import os
import random

from firstflight import Get, Serve
from kernel import KernelServer
from net import Namespace, cable, workdir
from process import run


class Testbed(contextlib.ExitStack):
    """The namespaces, cables, directories and processes of a test. At its end they are removed, in reverse order."""

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
        if status != expect:
            raise AssertionError(f"exit status of get: {status}, not {expect}")
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
