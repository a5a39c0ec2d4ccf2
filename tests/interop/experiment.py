"""What the experiments (tests/*/run.py) share: their command line, what they need, how they are stopped, and where
their figures go.

An experiment ends with 0 if everything held, with 1 if not, with 2 after a wrong command line, and with MISSING.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile

import firstflight
from process import run

#: Exit status if the user, a program or a device is missing, so that nothing was tried.
MISSING = 77
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
#: Debian's package of each program.
PACKAGES = {
    "cc": "gcc",
    "chrt": "util-linux",
    "chromium-headless-shell": "chromium-headless-shell",
    "curl": "curl",
    "ip": "iproute2",
    "nft": "nftables",
    "nginx": "nginx-light",
    "openssl": "openssl",
    "pkg-config": "pkg-config",
    "redis-server": "redis-server",
    "tcpdump": "tcpdump",
    "unbound": "unbound",
}


def parser(text):
    """A parser of an experiment's options, whose module says `text` about it."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawTextHelpFormatter)


def parse(options_of):
    """Reads the command line. `firstflight.BINARY` is right from then on."""
    options_of.add_argument("--bin", default=firstflight.default_binary(), metavar="PATH", help="the command")
    options = options_of.parse_args()
    firstflight.BINARY = os.path.abspath(options.bin)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    return options


def beside(name):
    """The path of a program that was built with the command under test."""
    return os.path.join(os.path.dirname(firstflight.BINARY), name)


def missing(*programs, built=("firstflight-lab",), tun=True, packages=()):
    """What has to be done before the experiment can run, or None. It needs these programs and packages of Debian, and what was
    built beside the command."""
    if os.geteuid() != 0:
        return "run it as root: it makes network namespaces"
    for path in (firstflight.BINARY, *map(beside, built)):
        if not os.access(path, os.X_OK):
            return f"no command at {path}: cargo build --release -p firstflight-cli -p firstflight-lab"
    if tun and not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun here"
    lacking = [*packages, *(PACKAGES[name] for name in programs if shutil.which(name) is None)]
    return f"apt-get install --no-install-recommends {' '.join(lacking)}" if lacking else None


def refuse(reason):
    """Says what is missing. Returns the exit status."""
    print(f"{os.path.relpath(sys.argv[0])}: {reason}", file=sys.stderr)
    return MISSING


def when_stopped(act):
    """A signal that would end the experiment makes it `act`, so that what runs ends in order, with its namespaces."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: act(number))


def unwind(number):
    """Leaves all `with` blocks. A second signal does not interrupt them."""
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    raise SystemExit(128 + number)


def write_table(name, text):
    """Writes a table that a page includes: docs/data/NAME."""
    with open(os.path.join(DOCS, "data", name), "w", encoding="utf-8") as file:
        file.write(f"{text}\n")


def write_json(path, results):
    """Writes what was measured."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file, ensure_ascii=False, indent=1)


def figure(name):
    """The path of a drawing in docs/figures."""
    return os.path.join(DOCS, "figures", name)


def draw(results, path, *subcommand):
    """Draws what was measured, with a subcommand of the laboratory."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        measured = os.path.join(directory, "results.json")
        write_json(measured, results)
        run(beside("firstflight-lab"), *subcommand, measured, path)
