"""The module for Go, with its own listeners, nginx, `serve`, and a path that drops SYNs with data."""

import os
import re

import nginx
import pytest
from firstflight import Command, at
from process import run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULE = os.path.join(ROOT, "go")
HOST = "127.0.0.1"
NGINX, SERVE, HOLE = 8101, 8102, 8103
#: More than the headers of a SYN: IP, TCP with its options.
DROP = f"tcp dport {HOLE} tcp flags & (syn|ack) == syn ip length > 80 counter drop"
#: For others than this machine's system the module has to compile.
ELSEWHERE = ("linux/arm64", "linux/arm", "linux/386", "darwin/arm64", "windows/amd64")

# Debian's packages put Go elsewhere than its own archive does. The module needs the standard library only.
os.environ["PATH"] += ":/usr/local/go/bin"
LOCAL = ("env", "GOTOOLCHAIN=local", "GOPROXY=off", "GOFLAGS=")
pytestmark = pytest.mark.needs("go", "nginx", "nft")


def version():
    found = re.match(r"go1\.(\d+)", run(*LOCAL, "go", "env", "GOVERSION").stdout)
    return int(found[1]) if found else 0


@pytest.fixture(autouse=True)
def recent():
    if version() < 22:
        pytest.skip(f"needs Go 1.22, and 1.{version()} is installed")


def test_go_first_flights(testbed):
    ns = testbed.namespace("go")
    root = testbed.root(small=5000)
    fast = "listen {}:{} fastopen=16;"
    server = " ".join(fast.format(HOST, port) for port in (NGINX, HOLE))
    nginx.start(testbed, ns, root, at(HOST, NGINX), server)
    testbed.start(Command(ns, "serve", "--root", root, "--listen", at(HOST, SERVE)))
    ns.nft(f"type filter hook input priority 0; {DROP}")
    given = " ".join(f"{name}={at(HOST, port)}" for name, port in (("nginx", NGINX), ("serve", SERVE), ("hole", HOLE)))
    tests = ("env", f"FIRSTFLIGHT_SERVERS={given}", "go", "test", "-C", MODULE, "-count=1", "-v", "./...")
    done = run(*LOCAL, *tests, ns=ns, timeout=300, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for name in ("nginx", "serve", "hole"):
        assert f"--- PASS: TestOtherServers/{name}" in said, said
    assert said.count("--- SKIP") == 1, said
    assert ns.nft_matched(), "the path dropped nothing"


@pytest.mark.parametrize("setting", (0, 2))
def test_go_where_the_system_switches_it_off(testbed, setting):
    ns = testbed.namespace("go")
    ns.sysctl("net.ipv4.tcp_fastopen", setting)
    tests = ("go", "test", "-C", MODULE, "-count=1", "-v", "-run", "SwitchesItOff", "./...")
    done = run(*LOCAL, *tests, ns=ns, timeout=300, check=False)
    assert done.returncode == 0 and "--- PASS: TestWhereTheSystemSwitchesItOff" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("target", ELSEWHERE)
def test_go_compiles_elsewhere(target):
    system, processor = target.split("/")
    run(*LOCAL, f"GOOS={system}", f"GOARCH={processor}", "go", "vet", "-C", MODULE, "./...", timeout=300)
