#!/usr/bin/env python3
"""Lookups by TCP: c-ares against unbound over a wire of 100 ms, with three kinds of connects, on a path that does nothing to SYNs with
data and on one that drops them.

    tests/cares/run.py [--bin PATH] [--library DIR] [--captures DIR]

It counts the round trips of each lookup: the time, in round-trip times, rounded. The first lookup of a kind finds the kernel
without a cookie. What must hold is judged; times are not.

Needs root, nftables, iproute2, unbound, a compiler of C, c-ares 1.34 or later as pkg-config finds it (PKG_CONFIG_PATH), and `cargo build
-p firstflight-cli -p firstflight-lab -p firstflight-capi`. Without one of them the exit status is 77. It creates only
namespaces and processes, which end with it.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "client"), os.path.join(os.path.dirname(HERE), "interop")]
sys.dont_write_bytecode = True

import experiment  # noqa: E402
from packets import Capture, segment  # noqa: E402
from paths import PAIR, SYN_ARRIVES  # noqa: E402
from process import Process  # noqa: E402
from testbed import Testbed  # noqa: E402
from wire import DEVICE, Wire  # noqa: E402

RTT = 100
LOOKUPS = 5
KINDS = {"off": "no Fast Open", "own": "Fast Open of c-ares", "ours": "libfirstflight"}
PATHS = {"nothing": (), "SYNs with data are dropped": (f"{SYN_ARRIVES} ip length > 80 drop",)}


def compiled(library, directory):
    """The program, or what it lacks."""
    # Cargo puts it beside the tests, or beside the commands.
    built = [os.path.join(library, *part, "libfirstflight_capi.so") for part in (("deps",), ())]
    built = [path for path in built if os.path.exists(path)]
    if not built:
        return None, f"libfirstflight_capi.so in {library}"
    newest = max(built, key=os.path.getmtime)
    told = subprocess.run(["pkg-config", "--cflags", "--libs", "libcares >= 1.34"], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        return None, "c-ares 1.34 or later (pkg-config libcares): LOOKUPS BY C-ARES WERE NOT TRIED"
    # Under the name of its soname.
    os.symlink(newest, os.path.join(directory, "libfirstflight.so.0"))
    os.symlink("libfirstflight.so.0", os.path.join(directory, "libfirstflight.so"))
    flags = told.stdout.split()
    paths = [flag[2:] for flag in flags if flag.startswith("-L")] + [directory]
    program = os.path.join(directory, "lookups")
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I", os.path.join(ROOT, "crates/capi/include")]
        + [os.path.join(HERE, "lookups.c"), "-o", program, f"-L{directory}", "-lfirstflight", *flags]
        + [f"-Wl,-rpath,{path}" for path in paths],
        check=True,
    )
    return program, None


def unbound(context, ns, directory):
    config = os.path.join(directory, "unbound.conf")
    with open(config, "w", encoding="utf-8") as file:
        file.write(
            f'server:\n interface: {PAIR.peer[4]}\n access-control: 10.0.0.0/8 allow\n username: ""\n chroot: ""\n pidfile: ""\n'
            f' directory: "{directory}"\n use-syslog: no\n do-ip6: no\n module-config: "iterator"\n'
            ' local-zone: "example.com." static\n local-data: "www.example.com. A 192.0.2.1"\n'
            "remote-control:\n control-enable: no\n"
        )
    process = context.start(Process(["unbound", "-d", "-v", "-c", config], ns=ns))
    process.wait_until(lambda: "start of service" in process.text(), "unbound", timeout=30)


def measure(program, kind, rules, directory, captures):
    """The lines of the lookups of one kind on one path, and the bytes of data in each SYN that left."""
    with Testbed() as context:
        client, far = context.namespace("cares-client"), context.namespace("cares-far")
        client.sysctl("net.ipv4.tcp_fastopen", 1)
        far.sysctl("net.ipv4.tcp_fastopen", 3)
        context.start(Wire(client, far, PAIR, "--rtt", f"{RTT}ms", prefix=("chrt", "-f", "10")))
        unbound(context, far, directory)
        capture = context.enter_context(Capture(client, DEVICE))
        asker = Process([program, kind, PAIR.peer[4], 1], ns=client)
        with asker:
            # The first one is on a path that does nothing: it fetches the cookie.
            asker.wait(120)
        if rules:
            far.nft(f"type filter hook prerouting priority -300; {'; '.join(rules)}", chain="meddle")
        process = Process([program, kind, PAIR.peer[4], LOOKUPS], ns=client)
        with process:
            if process.wait(200) != 0:
                raise AssertionError(f"lookups: {process.text()}")
        if captures:
            os.makedirs(captures, exist_ok=True)
            capture.save(os.path.join(captures, f"{kind}-{'dropped' if rules else 'nothing'}.pcap"))
        seen = [segment(left, packet) for _, left, packet in capture.packets]
        in_syns = [one.data for one in seen if one and one.is_opening]
        return [line.split(" ", 3) for line in (asker.text("out") + "\n" + process.text("out")).splitlines()], in_syns


def main():
    parser = experiment.parser(__doc__)
    parser.add_argument("--library", metavar="DIR", help="where libfirstflight_capi.so is; default: beside --bin")
    parser.add_argument("--captures", metavar="DIR", help="write a pcap of each kind on each path")
    options = experiment.parse(parser)
    if reason := experiment.missing("ip", "nft", "unbound", "cc", "pkg-config"):
        return experiment.refuse(reason)
    experiment.when_stopped(experiment.unwind)
    with tempfile.TemporaryDirectory() as directory:
        library = options.library or experiment.beside("")
        program, reason = compiled(os.path.abspath(library), directory)
        return judge(program, directory, options.captures) if program else experiment.refuse(f"missing: {reason}")


def judge(program, directory, captures):
    failed = False
    print("| path | connects | round trips of the lookups | times, ms | bytes in each SYN |\n|---|---|---|---|---|")
    for path, rules in PATHS.items():
        trips = {}
        for kind, name in KINDS.items():
            told, in_syns = measure(program, kind, rules, directory, captures)
            times = [float(time) for time, *_ in told]
            trips[kind] = [round(time / RTT) for time in times]
            shown = ", ".join(map(str, trips[kind]))
            spent, data = ", ".join(f"{time:.0f}" for time in times), ", ".join(map(str, in_syns))
            print(f"| {path} | {name} | {shown} | {spent} | {data} |", flush=True)
            answered = all(rest[-1] == "answered" for rest in told)
            if not answered:
                print(f"{path}, {name}: no answer: {told}")
            # What holds however busy the machine is: a lookup with a cookie can take one round trip, one without cannot.
            fast = kind != "off" and not rules
            best = min(trips[kind][1:])
            # The query rides where it may, and only there.
            failed |= any(in_syns) if kind == "off" else not any(in_syns[1:])
            failed |= not answered or (fast and best != 1) or (kind == "off" and best < 2)
            if kind == "ours" and not rules:
                failed |= "accepted" not in {outcome for _, outcome, *_ in told[1:]}
        if rules:
            # A client that remembers does not pay each time.
            failed |= min(trips["ours"][-3:]) >= min(trips["own"][-3:])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
