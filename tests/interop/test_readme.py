"""The commands of README.md and docs/guide/first-steps.md, in order, in one shell in an empty directory. Each of them must work
and print what is shown there. `firstflight` is the command under test, however the pages call it; `sudo` changes
nothing. With FIRSTFLIGHT_GUIDE=1 in the environment, as in `./check --full`, also the other pages of the guide, each in a shell of
its own."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter

import pytest

import firstflight
import name_server
from net import Pair
from process import Process, run
from wire import Wire
from wire import command as wire_command

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGES = ("README.md", "docs/guide/first-steps.md")
GUIDE = ("web-server", "proxy", "doctor", "kubernetes")

#: Commands that are not run, with the reason.
NOT_RUN = {
    "./check": "runs this very test, and half an hour of others",
}
#: Commands whose output is always the same, except in these places.
EXACT = {
    "cargo run -- demo": r"(?<=\(seed )\d+",
    "firstflight asap inspect": r"(?!)",
}
#: In other outputs these places differ from run to run: keys and cookies, the ports of clients, times, the age of a certificate, whether a
#: round-trip time was measured, whether a lookup took a millisecond, whether a gateway had to wait for the handshake, which copy reached the server first. The length of curl's requests, which contain
#: curl's version, differs between machines.
DIFFERS = re.compile(
    r"\b\d{4}-\d\d-\d\dT[\d:.]+Z|\b[0-9a-f]{8,}\b|(?<=:)\d{5}\b|, rtt \d+\.\d ms| \(\d+\.\d ms before connecting\)|(?<=B early) forwarded|\b\d+\.\d+(?= (ms|s|RTT)\b)"
    r"|(?<=in UDP )\d+|\b\d+(?=s old)|(?<=way )(lookup|direct)|\b[1-9]\d*(?= B early)|\b\d+(?= bytes, cookie)|\b\d+(?= B (sent|received))"
)
#: Lines that depend on the machine and its user, and are not shown.
NOT_SHOWN = re.compile(r"limit of open files: |runs as root: ")
#: A site with this name and address is behind a cable, because the pages visit it.
SITE, SITE_AT, NEAR = "www.example.com", "203.0.113.80", Pair(86)
#: Ends the background processes. README.md omits the counters that servers then print.
END = "kill $(jobs -p); wait"

SHELL = """
exec 3<&0 </dev/null
while IFS= read -r -d '' command <&3; do
    eval "$command"
    printf '\\nstatus %s of command\\n' $?
done
"""
STATUS = re.compile(r"status (\d+) of command")

#: Replacements of the programs that README.md calls.
PROGRAMS = {
    "firstflight": 'exec "$FIRSTFLIGHT" "$@"',
    "sudo": 'exec "$@"',
    "cargo": '[ "$1 $2" = "run --" ] || exit 99; shift 2; exec "$FIRSTFLIGHT" "$@"',
}


def hidden(match):
    return "" if any(word in match[0] for word in ("rtt", "before connecting", "forwarded")) else "#"


class Block:
    """A console block: its commands, and the output lines shown after each of them."""

    def __init__(self, text):
        self.commands, self.shown = [], []
        ends = None
        for line in text.splitlines():
            if ends is not None:
                self.commands[-1] += "\n" + line
                ends = None if ends(line) else ends
            elif line.startswith("$ "):
                self.commands.append(line[2:])
            else:
                self.shown.append(line)
                continue
            if ends is None and (here := re.search(r"<<(\w+)$", line)):
                ends = here[1].__eq__
            elif ends is None and line.endswith("\\"):
                ends = lambda last: not last.endswith("\\")  # noqa: E731

    def masked(self, lines):
        """Counts the lines, with the parts masked that differ from run to run."""
        exact = [differs for command, differs in EXACT.items() if self.commands[0].startswith(command)]
        differs = re.compile(exact[0]) if exact else DIFFERS
        return Counter(re.sub(r" +", " ", differs.sub(hidden, line)) for line in lines if line.strip())


def blocks(pages):
    for page in pages:
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            yield from map(Block, re.findall(r"(?ms)^```console\n(.*?)^```", file.read()))


class Shell(Process):
    """A shell that runs one command after the other."""

    def __init__(self, ns, directory, programs):
        env = {**os.environ, "FIRSTFLIGHT": firstflight.BINARY, "PATH": f"{programs}:{os.environ['PATH']}"}
        command = ["bash", "--norc", "--noprofile", "-c", SHELL]
        super().__init__(command, ns=ns, cwd=directory, stdin=subprocess.PIPE, env=env)
        self.ns = ns
        self.seen = 0

    def printed(self):
        """The lines that were printed since `seen`."""
        return [text for _, text in self.lines[self.seen :] if text and not STATUS.fullmatch(text) and not NOT_SHOWN.match(text)]

    def execute(self, command):
        """Runs a command, which must succeed. Waits until a background command is ready."""
        began = len(self.lines)
        statuses = lambda: [s for _, text in list(self.lines)[began:] if (s := STATUS.fullmatch(text))]  # noqa: E731
        self.popen.stdin.write(command.replace("target/debug/firstflight", "firstflight") + "\0")
        self.popen.stdin.flush()
        self.wait_until(statuses, f"end of `{command}`", 60)
        said = [text for _, text in self.lines[began:]]
        assert statuses()[0][1] == "0", f"exit status of `{command}`, which said {said}"
        if command.endswith("&"):
            self.wait_ready(command, began)

    def wait_ready(self, command, began):
        if port := re.search(r"http\.server (\d+)", command):
            until = time.monotonic() + 20
            while f":{port[1]} " not in run("ss", "-Hltn", ns=self.ns).stdout:
                assert time.monotonic() < until, f"nobody listens on port {port[1]}"
                time.sleep(0.05)
        else:
            said = lambda: [text for _, text in list(self.lines)[began:]]  # noqa: E731
            # A command that fails prints an error instead.
            self.wait_until(
                lambda: any(line.startswith(("listening on", "firstflight: ")) for line in said()),
                f"`listening on` of `{command}`",
            )
            assert any(line.startswith("listening on") for line in said()), f"`{command}` said {said()}"

    def __exit__(self, *failure):
        # Its background processes are in its process group.
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        super().__exit__(*failure)


def compare(shell, block):
    """Compares the lines printed since the block began with those that it shows."""
    shown = block.masked(block.shown)
    # The order of the servers' lines may vary, so only count them. The last lines may take a moment.
    try:
        shell.wait_until(lambda: not shown - block.masked(shell.printed()), "what the page shows", 10)
    except AssertionError:
        pass
    printed = block.masked(shell.printed())
    where = f"the block that begins with `{block.commands[0]}`"
    assert sorted((shown - printed).elements()) == [], f"shown but not printed, in {where}"
    assert sorted((printed - shown).elements()) == [], f"printed but not shown, in {where}"


@contextlib.contextmanager
def resolving(ns):
    """Programs in the namespace ask the name server at 127.0.0.1."""
    directory = f"/etc/netns/{ns.name}"
    os.makedirs(directory)
    try:
        with open(f"{directory}/resolv.conf", "w") as file:
            file.write("nameserver 127.0.0.1\n")
        yield
    finally:
        shutil.rmtree(directory)
        # Other tests may have theirs there.
        with contextlib.suppress(OSError):
            os.rmdir("/etc/netns")


def visited_site(testbed, ns):
    """The site that the pages visit, on another host, at an address that is not private."""
    host = testbed.namespace("site")
    testbed.start(Wire(ns, host, NEAR, "--rtt", "100ms"))
    host.ip("addr", "add", f"{SITE_AT}/32", "dev", "lo")
    ns.ip("route", "add", f"{SITE_AT}/32", "via", NEAR.peer[4])
    labels = b"".join(bytes([len(part)]) + part.encode() for part in SITE.split(".")) + b"\0"
    testbed.enter_context(resolving(ns))
    testbed.enter_context(name_server.answering(ns, "127.0.0.1", {(labels, 1): socket.inet_aton(SITE_AT)}))
    root = testbed.root(**{"index.html": 100})
    testbed.start(firstflight.Command(host, "serve", "--root", root, "--listen", f"{SITE_AT}:80"))


@pytest.mark.needs("bash", "curl", "ss", wire_command())
def test_readme_commands_work_in_order(testbed):
    commands = follow(testbed, PAGES)
    assert commands >= 25, f"only {commands} commands in {PAGES}"


@pytest.mark.skipif(not os.environ.get("FIRSTFLIGHT_GUIDE"), reason="only with FIRSTFLIGHT_GUIDE=1, as in ./check --full")
@pytest.mark.needs("bash", "curl", "ss", wire_command())
@pytest.mark.parametrize("page", GUIDE)
def test_guide_commands_work(testbed, page):
    assert follow(testbed, [f"docs/guide/{page}.md"]) > 0


def test_no_page_of_the_guide_is_forgotten():
    with_commands = set()
    for name in os.listdir(os.path.join(ROOT, "docs", "guide")):
        if any(True for _ in blocks([f"docs/guide/{name}"])):
            with_commands.add(name.removesuffix(".md"))
    assert with_commands == {*GUIDE, "first-steps"}


def follow(testbed, pages):
    """Runs the commands of the pages in their order, and says how many there were."""
    ns = testbed.namespace("readme")
    visited_site(testbed, ns)
    programs, directory = testbed.root(), testbed.root()
    for name, text in PROGRAMS.items():
        path = os.path.join(programs, name)
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)
    if pages is not PAGES:
        # README.md does it in its first block.
        run("sysctl", "-qw", "net.ipv4.tcp_fastopen=3", ns=ns)
    shell = testbed.start(Shell(ns, directory, programs))
    commands = 0
    for block in blocks(pages):
        shell.seen = len(shell.lines)
        for command in block.commands:
            if command.endswith(END):
                compare(shell, block)
            if command not in NOT_RUN:
                shell.execute(command)
                commands += 1
        last = block.commands[-1]
        if last not in NOT_RUN and not last.endswith(END):
            compare(shell, block)
    return commands
