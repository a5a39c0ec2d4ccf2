//! A Redis Cluster for one test: masters, each with one replica.

use super::process::{Redis, free_port};
use std::time::Duration;

pub(crate) struct Cluster {
    pub ports: Vec<u16>,
    /// The masters, then their replicas in the same order.
    pub all: Vec<Redis>,
    masters: usize,
}

/// How often a state is looked at.
const LOOK: Duration = Duration::from_millis(50);

impl Cluster {
    /// `masters` masters with equal shares of the slots.
    pub(crate) fn start(masters: usize) -> Option<Self> {
        let ports: Vec<u16> = (0..2 * masters).map(|_| free_port()).collect();
        let mut all = Vec::new();
        for port in &ports {
            let port = port.to_string();
            let bus = free_port().to_string();
            let mut options = vec!["--port", &port, "--bind", "127.0.0.1", "--cluster-enabled", "yes"];
            options.extend(["--cluster-port", &bus, "--cluster-node-timeout", "2000"]);
            options.extend(["--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0"]);
            options.extend(["--cluster-require-full-coverage", "no"]);
            options.extend(["--min-replicas-to-write", "1", "--min-replicas-max-lag", "10"]);
            all.push(Redis::start(&options)?);
        }
        let cluster = Self { ports, all, masters };
        cluster.join();
        Some(cluster)
    }

    fn join(&self) {
        let count = self.all.len();
        for (n, redis) in self.all.iter().enumerate() {
            redis.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
        }
        for (n, redis) in self.all.iter().enumerate() {
            let bus = redis.list(&["CONFIG", "GET", "cluster-port"]).remove(1);
            for other in &self.all {
                other.cli(&["CLUSTER", "MEET", "127.0.0.1", &self.ports[n].to_string(), &bus]);
            }
        }
        self.until(|redis| {
            redis.text(&["CLUSTER", "INFO"]).contains(&format!("cluster_known_nodes:{count}\r"))
        });
        for n in 0..self.masters {
            let first = n * 16_384 / self.masters;
            let last = (n + 1) * 16_384 / self.masters - 1;
            self.all[n].cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            let replica = &self.all[self.masters + n];
            let id = self.id(n);
            while !replica.text(&["CLUSTER", "NODES"]).contains(&id) {
                std::thread::sleep(LOOK);
            }
            replica.cli(&["CLUSTER", "REPLICATE", &id]);
        }
        self.agreed();
        for master in &self.all[..self.masters] {
            super::sentinel::followed(master, 1);
        }
        let replicas = self.masters;
        self.until(|redis| {
            redis.text(&["CLUSTER", "NODES"]).matches(" slave ").count()
                + redis.text(&["CLUSTER", "NODES"]).matches("myself,slave").count()
                == replicas
        });
    }

    fn until(&self, condition: impl Fn(&Redis) -> bool) {
        for redis in &self.all {
            while !condition(redis) {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Waits until every node says that the cluster is complete.
    pub(crate) fn agreed(&self) {
        self.until(|redis| {
            let info = redis.text(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        });
    }

    pub(crate) fn id(&self, node: usize) -> String {
        self.all[node].text(&["CLUSTER", "MYID"])
    }

    /// An address with the first two nodes.
    pub(crate) fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.ports[0], self.ports[1])
    }

    /// Moves a slot with its keys, as `redis-cli --cluster reshard` does.
    pub(crate) fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let (slot, source, target) = (slot.to_string(), self.id(from), self.id(to));
        self.all[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        self.all[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
        loop {
            let keys = self.all[from].list(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let port = self.ports[to].to_string();
            let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            command.extend(keys.iter().map(String::as_str));
            self.all[from].cli(&command);
        }
        for node in [to, from] {
            self.all[node].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }
}
