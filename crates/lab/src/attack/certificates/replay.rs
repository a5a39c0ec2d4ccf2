//! A recorded first flight with a certificate, replayed (thesis §4.2.4).

use super::super::replay::changed;
use super::super::world::{DELAY, SharedStore, World, address, clock_at};
use super::{OPEN, certificate, guard};
use crate::certified::{connect, key, policy};
use crate::table::Table;
use firstflight_credential::replay::ReplayId;
use firstflight_credential::{
    FirstFlight, GuardKey, Guarded, PendingLimit, RemoteGuard, ReplayGuard, ReplayTable, Window,
};
use firstflight_wire::Clock;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What a server remembers, and which servers share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Nothing. Shows the effect of the attacks without a defence.
    Nothing,
    /// The requests that it accepted. Each member of a farm has its own memory.
    Own,
    /// The requests that any member accepted, in a shared store.
    Shared,
}

/// What happens between the first flight and its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// Nothing: the connection is open.
    Nothing,
    /// The connection is closed.
    Close,
    /// The copies have another port and sequence number.
    Changed,
    /// The server restarts.
    Restart,
    /// Its clock goes back an hour.
    Back,
    /// Its clock goes forward an hour.
    Forward,
    /// Its clock goes forward an hour, and then back.
    ForwardAndBack,
    /// It restarts with its clock set back an hour, and the copies arrive an hour later.
    RestartInThePast,
    /// The balancer chooses another member of the farm.
    Member,
    /// The copies go to another member, whose clock is behind by this number of milliseconds, at the latest time at
    /// which it accepts them.
    Behind(u64),
    /// The store loses its memory, and the copies arrive when it accepts first flights again.
    StoreLost,
}

impl Between {
    const ALL: [Self; 13] = [
        Self::Nothing,
        Self::Close,
        Self::Changed,
        Self::Restart,
        Self::Back,
        Self::Forward,
        Self::ForwardAndBack,
        Self::RestartInThePast,
        Self::Member,
        Self::Behind(1),
        Self::Behind(500),
        Self::Behind(2000),
        Self::StoreLost,
    ];
}

const NAME: u128 = 42;
const HOUR_MS: u64 = 3_600_000;
/// Time between two copies, enough for a connection opened by the first one to end.
const LATER: Duration = Duration::from_millis(200);
const CLIENT: u32 = 0x20_0000;

/// A guard that remembers nothing.
pub(super) struct Forgetful(pub ReplayTable);

impl ReplayGuard for Forgetful {
    fn test_and_set(&self, _: ReplayId, _: u64, _: u64) -> Guarded {
        Guarded::New
    }

    fn observe(&self, clock: &Clock) -> u64 {
        clock.unix_ms
    }

    fn raise_floor(&self, _: u64) {}

    fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId {
        self.0.id_of(client, key)
    }

    fn id(&self, first: &FirstFlight<'_>) -> ReplayId {
        self.0.id(first)
    }
}

struct Scene {
    world: World,
    memory: Memory,
    server: IpAddr,
    /// When the recorded request was made, Unix milliseconds.
    stamp_ms: u64,
}

impl Scene {
    /// Starts or restarts the server. Its clock shows `clock`, and its own guard began at `since`. The content of its
    /// memory is lost.
    fn start(&mut self, clock: Clock, since: Clock) {
        let key = GuardKey::from_bytes([3; 16]);
        let guard: Arc<dyn ReplayGuard> = match self.memory {
            Memory::Nothing => Arc::new(Forgetful(ReplayTable::new(key, Window::REQUESTS, 1 << 16, 0))),
            Memory::Own => guard(&since),
            Memory::Shared => Arc::new(RemoteGuard::new(key, Window::REQUESTS)),
        };
        let asap = policy(true, guard, &Arc::new(PendingLimit::with_clients(256, 256)));
        self.world.serve(self.server, 300, |config| config.asap = asap);
        self.set_clock(clock);
    }

    fn set_clock(&mut self, clock: Clock) {
        self.world.servers.values_mut().for_each(|server| server.stack.handle_clock(clock));
    }

    /// The server's clock if it is wrong by `wrong_ms`.
    fn clock(&self, wrong_ms: i64) -> Clock {
        let clock = clock_at(self.world.now);
        Clock { unix_ms: clock.unix_ms.saturating_add_signed(wrong_ms), ..clock }
    }

    /// Sends the request that is recorded. It is accepted, and the client has not acknowledged yet.
    fn record(&mut self) -> Vec<u8> {
        let client = self.world.client(address(CLIENT));
        self.world.run(self.world.now + OPEN);
        let certificate = certificate(key(&mut self.world.random), address(CLIENT), self.world.now);
        let Some(certificate) = certificate else { return Vec::new() };
        let config = connect(&Arc::new(certificate), self.world.now);
        self.stamp_ms = self.clock(0).unix_ms;
        self.world.visit_with(client, self.server, NAME, &config);
        self.pass(Duration::from_millis(55));
        self.world.overheard.get(&address(CLIENT)).cloned().unwrap_or_default()
    }

    fn pass(&mut self, time: Duration) {
        self.world.run(self.world.now + time);
    }

    fn send(&mut self, packet: &[u8], every: Duration) {
        for _ in 0..3 {
            self.world.inject(packet.to_vec());
            self.pass(every);
        }
    }

    /// Sends copies that arrive around the last moment at which a clock that is `behind_ms` behind accepts their stamp.
    fn send_late(&mut self, syn: &[u8], behind_ms: u64) {
        let last = self.stamp_ms + Window::REQUESTS.past.as_millis() as u64 + behind_ms;
        let first = last.saturating_sub(DELAY.as_millis() as u64 + 5);
        self.pass(Duration::from_millis(first.saturating_sub(self.clock(0).unix_ms)));
        for n in 1..=8 {
            self.world.inject(changed(syn, |p| (p[20], p[24]) = (n, p[24] ^ n)));
            self.pass(Duration::from_millis(1));
        }
        self.pass(LATER);
    }

    fn attack(&mut self, between: Between, syn: &[u8]) {
        const HOUR: i64 = HOUR_MS as i64;
        const MINUTE: i64 = 60_000;
        if between == Between::Nothing {
            return self.send(syn, Duration::from_millis(10));
        }
        self.pass(Duration::from_secs(2));
        match between {
            Between::Nothing | Between::Close => {}
            Between::Changed => {
                for n in 1..=3 {
                    self.send(&changed(syn, |p| (p[20], p[24]) = (n, p[24] ^ n)), LATER);
                }
            }
            Between::Restart => self.start(self.clock(0), self.clock(0)),
            // The other member has run as long as the first one.
            Between::Member => self.start(self.clock(0), self.clock(-MINUTE)),
            Between::Behind(ms) => {
                let ms = ms as i64;
                self.start(self.clock(-ms), self.clock(-ms - MINUTE));
                return self.send_late(syn, ms as u64);
            }
            Between::StoreLost => {
                self.world.store = SharedStore::empty(self.world.now);
                self.pass(Duration::from_secs(15));
            }
            Between::Back => self.set_clock(self.clock(-HOUR)),
            Between::Forward => self.set_clock(self.clock(HOUR)),
            Between::ForwardAndBack => {
                self.set_clock(self.clock(HOUR));
                self.send(syn, LATER);
                self.set_clock(self.clock(0));
            }
            Between::RestartInThePast => {
                self.start(self.clock(-HOUR), self.clock(-HOUR));
                self.pass(Duration::from_millis(HOUR_MS));
            }
        }
        self.send(syn, LATER);
        // A guard that was closed is open again.
        self.pass(Duration::from_secs(20));
        self.send(syn, LATER);
    }
}

/// How often the recorded request is executed.
pub fn executed(memory: Memory, between: Between, seed: u64) -> u32 {
    let mut scene = Scene { world: World::seeded(seed), memory, server: address(1), stamp_ms: 0 };
    let clock = clock_at(scene.world.now);
    scene.start(clock, clock);
    let syn = scene.record();
    scene.attack(between, &syn);
    scene.pass(Duration::from_secs(5));
    scene.world.servers.values().filter_map(|s| s.executed.get(&NAME.to_be_bytes())).sum()
}

pub(super) const ROWS: [(&str, Memory); 3] =
    [("no guard", Memory::Nothing), ("guard of each member", Memory::Own), ("shared guard", Memory::Shared)];

/// The rows of the second table.
pub fn table(seed: u64) -> Table {
    let mut table = Table::new(
        format!("how often one request with a certificate runs when its SYN is sent again, seed {seed}"),
        &[
            "policy",
            "while it lives",
            "after its close",
            "other port, ISN",
            "restart",
            "clock back 1 h",
            "forward 1 h",
            "forward, back",
            "restart 1 h back",
            "other member",
            "1 ms behind",
            "0.5 s behind",
            "2 s behind",
            "store lost",
        ],
    );
    for (name, memory) in ROWS {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m] =
            Between::ALL.map(|between| executed(memory, between, seed).into());
        table.row([name.into(), a, b, c, d, e, f, g, h, i, j, k, l, m]);
    }
    table
}

#[cfg(test)]
mod tests;
