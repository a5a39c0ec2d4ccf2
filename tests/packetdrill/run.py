#!/usr/bin/env python3
"""Runs packetdrill's scripts against the stack, in virtual time.

    tests/packetdrill/run.py --packetdrill PATH --scripts DIR [--filter TEXT] [--verbose]
        [--json FILE] [--twice] [--write-docs NAME=DIR ...] [--ipv6] [--mtu N]
        [--jobs N] [--library PATH]

Builds `firstflight-packetdrill` unless --library names it. Needs root, for a network namespace for each script and
the kernel settings in it; no packet leaves the machine. Each script runs with the engine's defaults, and with
settings that imitate Linux where a default differs. Prints one line per script (`linux`: it passes only with those
settings), then a table by folder. With --twice everything runs twice, and differences are reported. The exit status
is 1 if a script fails that is not in reasons.toml.
docs/conformance.md says where packetdrill and the scripts come from.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import report  # noqa: E402

#: Seconds of real time after which a script has failed. In virtual time each script takes less than one.
LIMIT = 30

#: The addresses for which the scripts' cookies are valid, and the other options of packetdrill's own runner.
IPV4 = [
    "--ip_version=ipv4", "--local_ip=192.168.0.1", "--gateway_ip=192.168.0.1",
    "--netmask_ip=255.255.0.0", "--remote_ip=192.0.2.1",
    "-D", "TFO_COOKIE=3021b9d889017eeb", "-D", "TFO_COOKIE_ZERO=b7c12350a90dc8f5",
    "-D", "CODE=host_unreachable",
    "-D", "CMSG_LEVEL_IP=SOL_IP", "-D", "CMSG_TYPE_RECVERR=IP_RECVERR",
]
IPV6 = [
    "--ip_version=ipv6", "--local_ip=fd3d:0a0b:17d6::1",
    "--gateway_ip=fd3d:0a0b:17d6:8888::1", "--remote_ip=fd3d:fa7b:d17d::1",
    "-D", "TFO_COOKIE=c1d1e9742a47a9bc", "-D", "TFO_COOKIE_ZERO=82af1a8f9a205c34",
    "-D", "CMSG_LEVEL_IP=SOL_IPV6", "-D", "CMSG_TYPE_RECVERR=IPV6_RECVERR",
]

#: Makes the adapter behave like Linux (`Flags` in crates/packetdrill/src/settings.rs).
AS_LINUX = ",settings=linux"

#: A separate namespace, with the device that the scripts' settings name. The scripts' commands are written for
#: bash.
NAMESPACE = (
    'mount --bind "$(command -v bash)" /bin/sh && '
    "ip link set lo up && ip tuntap add dev tun0 mode tun && ip link set tun0 up && "
    'export LD_PRELOAD="$LIBRARY" && exec "$@"'
)


def option(text, name, otherwise):
    """The value of an option in the script."""
    found = re.search(rf"^\s*--{name}=(\S+)", text, re.MULTILINE)
    return found.group(1) if found else otherwise


def read(script):
    with open(script, encoding="utf-8", errors="replace") as file:
        return file.read()


def is_ipv6(name, text):
    """Whether a script is for IPv6 only."""
    return "ipv6" in name or "-v6" in name or option(text, "ip_version", "") == "ipv6"


def command(packetdrill, library, script, options, more=""):
    text = read(script)
    given = dict(o[2:].split("=", 1) for o in options if o.startswith("--"))
    # The script's own options count, although packetdrill would prefer the command line.
    own = {name: value for name in given if (value := option(text, name, None))}
    options = [o for o in options if o[2:].split("=", 1)[0] not in own]
    local = own.get("local_ip", given["local_ip"])
    mtu = option(text, "mtu", given.get("mtu", "1500"))
    flags = f"local={local},mtu={mtu}{more}"
    return [
        "unshare", "--net", "--mount", "bash", "-c", NAMESPACE, "bash", packetdrill, f"--so_filename={library}",
        f"--so_flags={flags}", *options, "--send_omit_free", os.path.basename(script),
    ]


def first_error(output):
    """The line in which packetdrill reports the error, without the script's name."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    asserted = [line.strip() for line in lines if line.startswith("AssertionError")]
    if asserted:
        at = re.search(r"\.pkt:\d+|line \d+", output)
        return f"{at.group(0) if at else ''}: {asserted[0]}"
    told = [line for line in lines if re.search(r"\.pkt:\d*:?|error|Assert|assert", line)]
    return (told or lines or ["no output"])[0]


def run(packetdrill, library, script, options, more=""):
    """Runs one script. Returns (passed, first error)."""
    with tempfile.TemporaryDirectory(prefix="packetdrill-") as state:
        path = os.path.join(HERE, "bin") + ":" + os.environ.get("PATH", "")
        environment = dict(os.environ, LIBRARY=library, PATH=path, PACKETDRILL_STATE=state)
        try:
            ran = subprocess.run(
                command(packetdrill, library, script, options, more), cwd=os.path.dirname(script), env=environment,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired:
            return False, f"no end within {LIMIT} s"
    if ran.returncode == 0:
        return True, ""
    output = (ran.stderr + b"\n" + ran.stdout).decode(errors="replace")
    if ran.returncode < 0:
        return False, f"ended by signal {-ran.returncode}: {first_error(output)}"
    return False, first_error(output)


def run_all(arguments, scripts, more=""):
    ipv6 = [*IPV6, f"--mtu={arguments.mtu}"]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        def one(name):
            path = os.path.join(arguments.scripts, name)
            options = ipv6 if arguments.ipv6 or is_ipv6(name, read(path)) else IPV4
            return run(arguments.packetdrill, arguments.library, path, options, more)

        results = pool.map(one, scripts)
        return dict(zip(scripts, results))


def build():
    subprocess.run(["cargo", "build", "--quiet", "-p", "firstflight-packetdrill"], cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "debug", "libfirstflight_packetdrill.so")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packetdrill", required=True, help="the binary")
    parser.add_argument("--scripts", required=True, help="a directory with .pkt files below it")
    parser.add_argument("--filter", default="", help="only scripts with this in their path")
    parser.add_argument("--library", help="the adapter, if it is built already")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--twice", action="store_true", help="run everything twice and compare")
    parser.add_argument("--ipv6", action="store_true", help="over IPv6")
    parser.add_argument("--mtu", default="1500", help="over IPv6; the kernel's scripts are for 1520 there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--write-docs", metavar="NAME", help="write the table NAME of docs/conformance.md")
    arguments = parser.parse_args()
    arguments.packetdrill = os.path.abspath(arguments.packetdrill)
    arguments.scripts = os.path.abspath(arguments.scripts)
    arguments.library = os.path.abspath(arguments.library) if arguments.library else build()
    return arguments


def main():
    arguments = parse()
    if os.geteuid() != 0:
        sys.exit("root is needed, for a network namespace a script")
    pattern = os.path.join(arguments.scripts, "**", "*.pkt")
    found = sorted(os.path.relpath(path, arguments.scripts) for path in glob.glob(pattern, recursive=True))
    scripts = [name for name in found if arguments.filter in name]
    if not scripts:
        sys.exit(f"no script below {arguments.scripts} has {arguments.filter!r} in its path")
    results = run_all(arguments, scripts)
    as_linux = run_all(arguments, scripts, AS_LINUX)
    for name, (passed, error) in results.items():
        outcome = "ok   " if passed else "linux" if as_linux[name][0] else "FAIL "
        print(f"{outcome} {name}{'' if passed else '  ' + error}")
    reasons = report.read_reasons(os.path.join(HERE, "reasons.toml"))
    print("\n" + report.table(results, as_linux, reasons))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            written = {n: {"passed": p, "error": e, "as_linux": as_linux[n][0]} for n, (p, e) in results.items()}
            json.dump(written, file, indent=1)
    same = True
    if arguments.twice:
        again, as_linux_again = run_all(arguments, scripts), run_all(arguments, scripts, AS_LINUX)
        different = [
            name for name in scripts if again[name] != results[name] or as_linux_again[name] != as_linux[name]
        ]
        same = not different
        print("\nthe second run is identical" if same else "\nthe second run differs: " + ", ".join(different))
    if arguments.write_docs:
        report.write(os.path.join(ROOT, "docs", "data"), arguments.write_docs, results, as_linux,
                     reasons)
    unexplained = report.unexplained(results, as_linux, reasons)
    for name in unexplained:
        print(f"no reason in reasons.toml: {name}")
    return 1 if unexplained or not same else 0


if __name__ == "__main__":
    sys.exit(main())
