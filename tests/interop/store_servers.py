"""The servers of a farm's store on hosts of their own, which nftables can cut apart: Redis, Sentinel, Redis Cluster."""

import os
import time

from process import Process, run

PORT = 6379
SENTINEL_PORT = 26379
#: The configuration of docs/farm-masters.md, without a password: nobody else reaches these hosts.
REPLICATED = (
    "--min-replicas-to-write", 1, "--min-replicas-max-lag", 10, "--maxmemory-policy", "noeviction",
    "--repl-diskless-sync-delay", 0, "--save", "", "--appendonly", "no", "--protected-mode", "no",
)  # fmt: skip
CLUSTERED = (
    "--cluster-enabled", "yes", "--cluster-node-timeout", 2000,
    "--cluster-allow-replica-migration", "no", "--cluster-require-full-coverage", "no",
)  # fmt: skip
SLOTS = 16_384


def until(condition, what, timeout=60):
    """Waits until `condition()` holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {timeout} s")
        time.sleep(0.1)


class Switch:
    """A network of hosts, each of which is a namespace."""

    def __init__(self, testbed):
        self._testbed, self._ns, self.address = testbed, testbed.namespace("switch"), {}
        self._ns.ip("link", "add", "switch", "type", "bridge")
        self._ns.ip("link", "set", "switch", "up")
        self._cut = []

    def host(self, label):
        ns = self._testbed.namespace(label)
        self.address[ns] = f"10.90.0.{len(self.address) + 1}"
        name = f"host{len(self.address)}"
        run("ip", "link", "add", name, "netns", self._ns.name, "type", "veth", "peer", "name", "eth0", "netns", ns.name)
        self._ns.ip("link", "set", name, "master", "switch", "up")
        ns.ip("addr", "add", f"{self.address[ns]}/24", "dev", "eth0")
        ns.ip("link", "set", "eth0", "up")
        return ns

    def cut(self, some, others):
        """From now on no packet passes between a host of `some` and one of `others`."""
        for here, there in ((some, others), (others, some)):
            addresses = ", ".join(self.address[host] for host in there)
            for host in here:
                host.nft(f"type filter hook input priority 0; ip saddr {{ {addresses} }} drop", chain="cut")
                self._cut.append(host)

    def heal(self):
        for host in self._cut:
            run("nft", "delete", "chain", "inet", "path", "cut", ns=host)
        self._cut = []


class Server(Process):
    """A redis-server on a TCP port of a host."""

    def __init__(self, switch, ns, directory, *options, port=PORT):
        self.ns, self.address, self.port = ns, switch.address[ns], port
        here = os.path.join(directory, f"{self.address}-{port}")
        os.mkdir(here)
        super().__init__(
            ["redis-server", "--port", port, "--bind", self.address, "127.0.0.1", "--dir", here, *options], ns=ns
        )

    def __enter__(self):
        self.wait_until(lambda: "Ready to accept connections" in self.text(), "answer of redis-server")
        return self

    def cli(self, *command):
        return run("redis-cli", "-p", self.port, *command, ns=self.ns).stdout.strip()

    def is_followed(self, replicas):
        return self.cli("INFO", "replication").count("state=online") == replicas


class Sentinel(Server):
    """Watches a master with the name `farm`. Two of three sentinels must agree that it is down."""

    def __init__(self, switch, ns, directory, master):
        self.ns, self.address, self.port = ns, switch.address[ns], SENTINEL_PORT
        path = os.path.join(directory, f"{self.address}-sentinel.conf")
        with open(path, "w") as file:
            file.write(
                f"port {self.port}\nbind {self.address} 127.0.0.1\nprotected-mode no\ndir {directory}\n"
                f"sentinel monitor farm {master.address} {master.port} 2\n"
                "sentinel down-after-milliseconds farm 1000\nsentinel failover-timeout farm 5000\n"
            )
        Process.__init__(self, ["redis-server", path, "--sentinel"], ns=ns)

    def __enter__(self):
        self.wait_until(lambda: "+monitor" in self.text(), "start of the sentinel")
        return self

    def knows(self, sentinels, replicas):
        words = self.cli("SENTINEL", "MASTER", "farm").splitlines()
        found = dict(zip(words[::2], words[1::2]))
        return (int(found["num-other-sentinels"]), int(found["num-slaves"])) == (sentinels, replicas)


class Watched:
    """A master and two replicas, each on a host of its own with a sentinel. `hosts[0]` has the master."""

    def __init__(self, testbed, switch, root):
        self.hosts = [switch.host(f"store{number}") for number in (1, 2, 3)]
        first, *others = self.hosts
        master = testbed.start(Server(switch, first, root, *REPLICATED))
        for host in others:
            testbed.start(Server(switch, host, root, *REPLICATED, "--replicaof", master.address, master.port))
        until(lambda: master.is_followed(2), "replicas")
        sentinels = [testbed.start(Sentinel(switch, host, root, master)) for host in self.hosts]
        until(lambda: all(sentinel.knows(2, 2) for sentinel in sentinels), "agreement of the sentinels")
        self.url = f"redis+sentinel://{','.join(switch.address[host] for host in self.hosts)}/farm"


class Clustered:
    """A cluster of three masters. `hosts[0]` has one of them, and `hosts[1]` the two others and all replicas."""

    def __init__(self, testbed, switch, root):
        apart, rest = self.hosts = [switch.host(f"store{number}") for number in (1, 2)]
        places = [(apart, PORT)] + [(rest, PORT + number) for number in range(6)]
        nodes = [testbed.start(Server(switch, ns, root, *REPLICATED, *CLUSTERED, port=port)) for ns, port in places]
        for number, node in enumerate(nodes):
            node.cli("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in nodes[1:]:
            nodes[0].cli("CLUSTER", "MEET", node.address, node.port)

        def all_say(text):
            return all(text in node.cli("CLUSTER", "INFO") for node in nodes)

        until(lambda: all_say(f"cluster_known_nodes:{len(nodes)}"), "cluster of all nodes")
        masters, replicas = nodes[:3], nodes[3:]
        for number, master in enumerate(masters):
            first, end = number * SLOTS // 3, (number + 1) * SLOTS // 3
            master.cli("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        # The first master has two replicas, so that the promoted one has a replica of its own.
        for replica, master in zip(replicas, (0, 0, 1, 2)):
            replica.cli("CLUSTER", "REPLICATE", masters[master].cli("CLUSTER", "MYID"))
        until(lambda: all_say("cluster_slots_ok:16384") and all_say("cluster_state:ok"), "complete cluster")
        until(lambda: all(m.is_followed(n) for m, n in zip(masters, (2, 1, 1))), "replicas")
        until(lambda: all(n.cli("CLUSTER", "NODES").count("slave ") == 4 for n in nodes), "known replicas")
        self.url = f"redis+cluster://{','.join(switch.address[host] for host in self.hosts)}"
