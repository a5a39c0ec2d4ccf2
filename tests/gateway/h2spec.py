#!/usr/bin/env python3
"""Runs h2spec (RFC 9113, RFC 7541) against the gateway, with TLS and with prior knowledge.

    tests/gateway/h2spec.py [--bin PATH] [--json]

`go install github.com/summerwind/h2spec/cmd/h2spec@latest` brings h2spec; it is looked for in PATH and in Go's directory.
Without it nothing runs, and a line says so. Needs root and openssl.
"""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree

from place import BACKENDS, GLOBAL, PORT, Place, Result, listener, main, service

#: What fails on purpose. A port without TLS speaks HTTP/1.1, too, so other bytes than the preface of HTTP/2 are a request of
#: HTTP/1.1 that is wrong, and get its 400.
RIGHT = {"prior knowledge": ["Sends invalid connection preface"]}
#: Seconds that h2spec waits for an answer. A busy machine needs some.
PATIENCE = 5
TLS_PORT = PORT + 1


def find():
    """The path of h2spec, or None."""
    places = [os.environ.get("GOBIN"), *(os.path.join(p, "bin") for p in (os.environ.get("GOPATH"),) if p)]
    places.append(os.path.expanduser("~/go/bin"))
    return shutil.which("h2spec", path=os.pathsep.join([os.environ["PATH"], *filter(None, places)]))


def run(at, command, port, *options):
    """Returns the numbers (tests, passed, skipped, failed), and a line for each failure."""
    report = at.path(f"h2spec-{port}.xml")
    # The backend answers with the path. Some tests need an answer of some length.
    where = ("-h", "127.0.0.1", "-p", str(port), "-P", "/" + "x" * 200)
    full = ["ip", "netns", "exec", at.ns.name, command, *where, "-o", str(PATIENCE)]
    done = subprocess.run([*full, "-j", report, *options], capture_output=True, text=True, timeout=900)
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", done.stdout)
    if not found:
        raise AssertionError(f"h2spec gave {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}")
    failures = []
    for suite in xml.etree.ElementTree.parse(report).iter("testsuite"):
        for case in suite.iter("testcase"):
            for kind in ("failure", "error"):
                for failure in case.iter(kind):
                    what = " ".join((failure.text or "").split())
                    failures.append(f"{case.get('package')}: {case.get('classname')}: {what}")
    return tuple(map(int, found.groups())), failures


def certificate(at):
    key, chain = at.path("key.pem"), at.path("chain.pem")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9")
    subprocess.run([*new, "-keyout", key, "-out", chain, *subject], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return f'[listener.tls]\ncertificate = [{{ chain = "{chain}", key = "{key}" }}]\n'


def check(binary, quick=False):
    result = Result("h2spec")
    command = find()
    if command is None:
        result.numbers["skipped"] = "no h2spec: go install github.com/summerwind/h2spec/cmd/h2spec@latest"
        yield result
        return
    with Place(binary) as at:
        at.backend(BACKENDS[0])
        tls = listener(port=TLS_PORT, name="tls", more=certificate(at))
        gateway = at.gateway(GLOBAL, listener(), tls, service(BACKENDS[:1]))
        ways = [("TLS", TLS_PORT, ("-t", "-k")), ("prior knowledge", PORT, ())]
        for way, port, options in ways[: 1 if quick else 2]:
            (tests, passed, skipped, failed), failures = run(at, command, port, *options)
            result.numbers[way] = f"{passed} of {tests} passed, {skipped} skipped"
            on_purpose = [line for line in failures if any(name in line for name in RIGHT.get(way, []))]
            result.numbers[f"{way}, different on purpose"] = len(on_purpose)
            for failure in failures:
                result.must(failure in on_purpose, f"{way}: {failure}")
            result.must(failed == len(failures), f"{way}: {failed} failed")
        result.must(gateway.popen.poll() is None, "the gateway ended")
    yield result


if __name__ == "__main__":
    main(check, __doc__)
