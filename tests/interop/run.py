#!/usr/bin/env python3
"""Runs the interoperability tests of the `firstflight` command with the Linux kernel, curl and nginx.

    tests/interop/run.py [-k PATTERN] [--bin PATH] [--list]

Needs root (network namespaces, TUN devices). Debian packages: packages.txt. Prints one line per test; the last one
is `N passed, N failed, N skipped`. The exit status is 1 if a test failed.
"""

import argparse
import glob
import importlib
import os
import shutil
import signal
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import case  # noqa: E402
import firstflight  # noqa: E402

#: Seconds after which a hanging test fails.
LIMIT = 120


class Hanging(Exception):
    """The test did not end."""


def on_alarm(*_):
    raise Hanging(f"no end within {LIMIT} s")


def on_terminate(number, _frame):
    # Unwind the `with` blocks. A second signal must not interrupt the cleanup.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(128 + number)


def run_one(test):
    """Runs a test. Returns None if it passed, else the report of the failure."""
    context = case.Context()
    report = None
    signal.alarm(LIMIT)
    try:
        with context:
            test.run(context)
    except Exception as error:  # noqa: BLE001 - a failed test must not end the run
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(HERE)]
        report = [f"{type(error).__name__}: {error}"]
        report += [f"at {os.path.basename(f.filename)}:{f.lineno} {f.line}" for f in frames[2:]]
        report += context.tails()
    finally:
        signal.alarm(0)
    return report


def missing(test):
    """Why the test cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    lacking = [tool for tool in ("ip", *test.needs) if shutil.which(tool) is None]
    return f"needs {', '.join(lacking)}" if lacking else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-k", default="", metavar="PATTERN", help="only tests with this in their name")
    parser.add_argument("--bin", default=firstflight.default_binary(), metavar="PATH", help="the command")
    parser.add_argument("--list", action="store_true", help="list the tests")
    arguments = parser.parse_args()
    firstflight.BINARY = os.path.abspath(arguments.bin)

    for path in sorted(glob.glob(os.path.join(HERE, "test_*.py"))):
        importlib.import_module(os.path.basename(path)[:-3])
    tests = [test for test in case.CASES if arguments.k in test.name]
    if arguments.list:
        print("\n".join(test.name for test in tests))
        return 0
    if not os.access(firstflight.BINARY, os.X_OK):
        print(f"no command at {firstflight.BINARY}: cargo build --release -p firstflight-cli", file=sys.stderr)

    os.environ["PATH"] += ":/usr/sbin:/sbin"
    signal.signal(signal.SIGALRM, on_alarm)
    signal.signal(signal.SIGTERM, on_terminate)
    signal.signal(signal.SIGINT, on_terminate)
    passed = failed = skipped = 0
    for test in tests:
        if reason := missing(test):
            skipped += 1
            print(f"skip {test.name}: {reason}", flush=True)
            continue
        began = time.monotonic()
        report = run_one(test)
        word = "FAIL" if report else "ok  "
        print(f"{word} {test.name} ({time.monotonic() - began:.1f} s)", flush=True)
        if report:
            failed += 1
            print("\n".join(f"     {line}" for line in report), flush=True)
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
