#!/usr/bin/env python3
"""Questions a second with 1, 3 and 6 masters of a cluster, and the CPU time of a question at the member and at the store.

    python3 crates/redis/benches/masters.py [MASTERS ...]

The member is the example `latency` (build it before: `cargo build --profile dist -p firstflight-redis --example latency`), with
50 questions open. Each master has one replica, which the lease needs. CPU times are those that the kernel has counted for the
processes (getrusage), of 20,000 questions; they say more than the rates where all processes share few cores. Needs redis-server
and redis-cli 7 or later.
"""

import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
MEMBER = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "dist" / "examples" / "latency"
FEW, MANY, OPEN, ROUNDS = 1_000, 21_000, 50, 3
TICK = os.sysconf("SC_CLK_TCK")


def free_ports(count):
    """Ports below 55536, so that the port of the cluster's bus, 10,000 higher, exists."""
    ports = []
    for port in range(20_000 + os.getpid() % 10_000, 55_536):
        with socket.socket() as one, socket.socket() as bus:
            if one.connect_ex(("127.0.0.1", port)) and bus.connect_ex(("127.0.0.1", port + 10_000)):
                ports.append(port)
        if len(ports) == count:
            return ports
    raise SystemExit("no ports are free")


def cli(port, *words):
    return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, check=True).stdout


def until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise SystemExit("the cluster does not come up")


class Cluster:
    def __init__(self, masters, directory):
        self.masters = masters
        self.ports = free_ports(2 * masters)
        options = ["--cluster-enabled", "yes", "--cluster-allow-replica-migration", "no", "--save", "", "--appendonly", "no"]
        options += ["--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1"]
        self.servers = []
        for port in self.ports:
            place = pathlib.Path(directory, str(port))
            place.mkdir()
            command = ["redis-server", "--port", str(port), "--dir", str(place), *options]
            self.servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def join(self):
        first = self.ports[0]
        for port in self.ports:
            until(lambda: subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).returncode == 0)
        for n, port in enumerate(self.ports):
            cli(port, "cluster", "set-config-epoch", str(n + 1))
            cli(port, "cluster", "meet", "127.0.0.1", str(first))
        until(lambda: all(f"cluster_known_nodes:{len(self.ports)}" in cli(port, "cluster", "info") for port in self.ports))
        for n in range(self.masters):
            slots = n * 16384 // self.masters, (n + 1) * 16384 // self.masters - 1
            cli(self.ports[n], "cluster", "addslotsrange", *map(str, slots))
            master = cli(self.ports[n], "cluster", "myid").strip()
            replica = self.ports[self.masters + n]
            until(lambda: master in cli(replica, "cluster", "nodes"))
            cli(replica, "cluster", "replicate", master)
        until(lambda: all("cluster_slots_ok:16384" in cli(port, "cluster", "info") for port in self.ports))
        until(lambda: all("state=online" in cli(port, "info", "replication") for port in self.ports[: self.masters]))

    def cpu(self):
        """Seconds of all masters, and of all replicas."""
        times = []
        for server in self.servers:
            fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
            times.append((int(fields[11]) + int(fields[12])) / TICK)
        return sum(times[: self.masters]), sum(times[self.masters :])

    def end(self):
        for server in self.servers:
            server.kill()
            server.wait()


def member(url, count):
    """Asks `count` questions. Returns questions a second and seconds of CPU."""
    process = subprocess.Popen([MEMBER, url, str(OPEN), str(count)], stdout=subprocess.PIPE, text=True)
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{MEMBER} failed")
    rate, accepted = re.search(r"\| \d+ \| (\d+) \| (\d+) of", printed).groups()
    if int(accepted) < count * 0.9:
        print(f"only {accepted} of {count} were accepted", file=sys.stderr)
    return int(rate), usage.ru_utime + usage.ru_stime


def measure(masters):
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(masters, directory)
        try:
            cluster.join()
            url = "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in cluster.ports[:2])
            rows = []
            for _ in range(ROUNDS):
                before, (_, few) = cluster.cpu(), member(url, FEW)
                between, (rate, many) = cluster.cpu(), member(url, MANY)
                after = cluster.cpu()
                # What connecting costs is in both runs.
                of = [(c - b) - (b - a) for a, b, c in zip(before, between, after)]
                rows.append([rate, *(1e6 * seconds / (MANY - FEW) for seconds in (many - few, *of))])
            return [statistics.median(column) for column in zip(*rows)]
        finally:
            cluster.end()


def main():
    print("| masters | questions/s | µs of CPU at the member | at the masters | at the replicas |\n|---|---|---|---|---|")
    for masters in map(int, sys.argv[1:] or (1, 3, 6)):
        rate, *costs = measure(masters)
        print(f"| {masters} | {rate:,.0f} | " + " | ".join(f"{cost:.1f}" for cost in costs) + " |", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
