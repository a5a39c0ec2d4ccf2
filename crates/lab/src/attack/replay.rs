//! Replays: an attacker on the path records a first flight and sends it again (the Fast Open paper §§3.5, 7.1).

use super::world::{Server, World, address};
use super::{Cookies, policy};
use crate::table::Table;
use firstflight_credential::{GuardKey, PendingLimit, RemoteGuard, ReplayTable, Replays, Window};
use firstflight_stack::ListenConfig;
use firstflight_wire::Clock;
use firstflight_wire::tcp::fill_checksum;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What the members of a farm promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Nothing. They grant plain cookies.
    Nothing,
    /// LAST-ACK is held for 2 MSL.
    HeldLastAck,
    /// No execution of copies that the network makes; each member has its own guard.
    NoDuplicates,
    /// Like `NoDuplicates`, with a guard that the farm shares.
    NoDuplicatesShared,
    /// At most one execution; each member has its own memory.
    AtMostOnce,
    /// At most one execution, with a store that the farm shares.
    AtMostOnceShared,
}

/// How often the recorded request was executed, for each event before the copies arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Executed {
    /// While the connection is open.
    pub living: u32,
    /// After it was closed.
    pub closed: u32,
    /// From another port with another sequence number.
    pub changed: u32,
    /// After the server was restarted.
    pub restarted: u32,
    /// After the wall clock was set back by an hour.
    pub stepped: u32,
    /// At another member of the farm.
    pub member: u32,
    /// If the copy reaches another member of the farm before the SYN reaches its own.
    pub overtaken: u32,
}

const NAME: u128 = 42;
/// Time between two copies, enough for a connection opened by the first one to end.
const LATER: Duration = Duration::from_millis(200);
const CLIENT: u32 = 0x20_0000;

struct Scene {
    world: World,
    promise: Promise,
    server: IpAddr,
    /// Another member of the farm, which the load balancer may choose for the same address.
    other: Option<Server>,
    /// The mark of one-time cookies on disk.
    mark: u64,
}

impl Scene {
    fn new(promise: Promise) -> Self {
        let mut scene = Self { world: World::new(), promise, server: address(1), other: None, mark: 1 };
        scene.start(2);
        scene.other = scene.world.servers.remove(&scene.server);
        scene.start(1);
        scene
    }

    /// Makes the load balancer choose the other member from now on.
    fn switch(&mut self) {
        let here = self.world.servers.remove(&self.server);
        if let (Some(mut there), Some(mut here)) = (self.other.take(), here) {
            there.executed = std::mem::take(&mut here.executed);
            self.world.servers.insert(self.server, there);
            self.other = Some(here);
        }
    }

    /// Starts or restarts a member. The content of its memory is lost.
    fn start(&mut self, issuer: u16) {
        let cookies = match self.promise {
            Promise::AtMostOnce => Cookies::Once { issuer, mark: self.mark },
            Promise::AtMostOnceShared => Cookies::Shared { issuer },
            _ => Cookies::Plain,
        };
        self.mark += 10_000;
        let pending = Arc::new(PendingLimit::with_clients(256, 256));
        let mut policy = policy(cookies, &pending);
        let key = GuardKey::from_bytes([3; 16]);
        let now = self.world.now.as_millis();
        match self.promise {
            Promise::NoDuplicates => {
                let guard = ReplayTable::new(key, Window::NETWORK, 1 << 16, now);
                policy.replays = Replays::NoDuplicates(Arc::new(guard));
            }
            Promise::NoDuplicatesShared => {
                policy.replays = Replays::NoDuplicates(Arc::new(RemoteGuard::new(key, Window::NETWORK)));
            }
            _ => {}
        }
        let hold = self.promise == Promise::HeldLastAck;
        self.world.serve(self.server, 300, |config: &mut ListenConfig| {
            config.fast_open = Some(policy);
            config.hold_last_ack = hold;
        });
    }

    /// A client gets a cookie.
    fn client(&mut self) -> usize {
        let client = self.world.client(address(CLIENT));
        self.world.visit(client, self.server, 1);
        self.world.run(self.world.now + Duration::from_secs(300));
        client
    }

    /// Like [`Self::record`], but a copy reaches another member first, and its answer is lost. Then the SYN arrives.
    fn overtake(&mut self, change: impl FnOnce(&[u8]) -> Vec<u8>) {
        let client = self.client();
        self.world.visit(client, self.server, NAME);
        self.world.run(self.world.now);
        let syn = self.world.overheard.get(&address(CLIENT)).cloned().unwrap_or_default();
        self.world.lose();
        self.switch();
        self.world.inject(change(&syn));
        self.world.run(self.world.now + Duration::from_millis(52));
        self.world.lose();
        self.switch();
        self.send(&syn, 1, LATER);
    }

    /// A client gets a cookie. Later, when a guard is open, it sends the request that is recorded.
    fn record(&mut self) -> Vec<u8> {
        let client = self.client();
        self.world.visit(client, self.server, NAME);
        // The request is accepted, and the client has not acknowledged yet.
        self.world.run(self.world.now + Duration::from_millis(51));
        self.world.overheard.get(&address(CLIENT)).cloned().unwrap_or_default()
    }

    fn send(&mut self, packet: &[u8], times: usize, every: Duration) {
        for _ in 0..times {
            self.world.inject(packet.to_vec());
            self.world.run(self.world.now + every);
        }
    }

    fn executed(&self) -> u32 {
        self.world.servers.values().filter_map(|s| s.executed.get(&NAME.to_be_bytes())).sum()
    }
}

/// Rewrites an IPv4 TCP packet and its checksums.
pub fn changed(packet: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut packet = packet.to_vec();
    change(&mut packet);
    if packet.len() < 40 {
        return packet;
    }
    packet[10..12].fill(0);
    let sum =
        packet[..20].chunks_exact(2).fold(0u32, |sum, w| sum + u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let ip = |at: usize| IpAddr::from([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let (src, dst) = (ip(12), ip(16));
    packet[36..38].fill(0);
    fill_checksum(&mut packet[20..], src, dst);
    packet
}

impl Promise {
    /// Replays in seven ways, each on a separate farm.
    pub fn run(self) -> Executed {
        let living = |scene: &mut Scene, syn: &[u8]| scene.send(syn, 3, Duration::from_millis(10));
        let closed = |scene: &mut Scene, syn: &[u8]| {
            scene.world.run(scene.world.now + Duration::from_secs(2));
            scene.send(syn, 3, LATER);
        };
        let other_port = |scene: &mut Scene, syn: &[u8]| {
            for n in 1..=3 {
                scene.send(&changed(syn, |p| (p[20], p[24]) = (n, p[24] ^ n)), 1, LATER);
            }
        };
        let restarted = |scene: &mut Scene, syn: &[u8]| {
            scene.world.run(scene.world.now + Duration::from_secs(2));
            scene.start(1);
            scene.send(syn, 3, LATER);
        };
        let stepped = |scene: &mut Scene, syn: &[u8]| {
            let now = scene.world.now + Duration::from_secs(2);
            scene.world.run(now);
            let clock = super::world::clock_at(now);
            let back = Clock { unix_ms: clock.unix_ms - 3_600_000, ..clock };
            scene.world.servers.values_mut().for_each(|server| server.stack.handle_clock(back));
            scene.send(syn, 3, LATER);
        };
        let member = |scene: &mut Scene, syn: &[u8]| {
            scene.switch();
            scene.send(syn, 3, LATER);
        };
        Executed {
            living: self.act(living),
            closed: self.act(closed),
            changed: self.act(other_port),
            restarted: self.act(restarted),
            stepped: self.act(stepped),
            member: self.act(member),
            overtaken: self.overtaken(<[u8]>::to_vec),
        }
    }

    fn act(self, attack: impl FnOnce(&mut Scene, &[u8])) -> u32 {
        let mut scene = Scene::new(self);
        let syn = scene.record();
        attack(&mut scene, &syn);
        scene.world.run(scene.world.now + Duration::from_secs(5));
        scene.executed()
    }

    /// How often a request runs, of whose SYN a copy with this change comes first at another member.
    fn overtaken(self, change: impl FnOnce(&[u8]) -> Vec<u8>) -> u32 {
        let mut scene = Scene::new(self);
        scene.overtake(change);
        scene.world.run(scene.world.now + Duration::from_secs(5));
        scene.executed()
    }
}

const ALL: [(&str, Promise); 6] = [
    ("allow", Promise::Nothing),
    ("LAST-ACK held", Promise::HeldLastAck),
    ("no-duplicates, guard of each member", Promise::NoDuplicates),
    ("no-duplicates, shared guard", Promise::NoDuplicatesShared),
    ("at-most-once, each member alone", Promise::AtMostOnce),
    ("at-most-once, shared store", Promise::AtMostOnceShared),
];

/// The rows of `attack replay`.
pub fn table() -> Table {
    let mut table = Table::new(
        "how often one request runs when its SYN is sent three times again".into(),
        &[
            "policy",
            "while it lives",
            "after its close",
            "other port, ISN",
            "after a restart",
            "clock set back",
            "other member",
            "other member first",
        ],
    );
    for (name, promise) in ALL {
        let e = promise.run();
        table.row([
            name.into(),
            e.living.into(),
            e.closed.into(),
            e.changed.into(),
            e.restarted.into(),
            e.stepped.into(),
            e.member.into(),
            e.overtaken.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
