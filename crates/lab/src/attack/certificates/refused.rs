//! Replays a recorded first flight that was refused, or accepted and then forgotten, after the server's trust or clock
//! has changed (the specification, 7.5, 7.10 and 10.14).

use super::super::world::{World, address, clock_at};
use super::replay::{Forgetful, Memory};
use super::{OPEN, certificate, guard_key};
use crate::certified::{connect, key, policy, verifier};
use crate::table::Table;
use firstflight_credential::asap::{PrivateKey, TrustStore, Trusted};
use firstflight_credential::{PendingLimit, RemoteGuard, ReplayGuard, ReplayTable, Window};
use firstflight_wire::Clock;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The change between the first flight and its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The trust file was empty, and then names the verifier.
    Filled,
    /// The certificate's verifier is added.
    Added,
    /// Certificates of its age are accepted.
    Older,
    /// The guard's entry has expired; then the clock is set back by this number of milliseconds.
    Back(u64),
}

impl Change {
    const ALL: [Self; 7] = [
        Self::Filled,
        Self::Added,
        Self::Older,
        Self::Back(200),
        Self::Back(500),
        Self::Back(900),
        Self::Back(1000),
    ];

    /// The verifiers that the server trusts at first.
    fn before(self) -> Option<TrustStore> {
        let entry = Trusted::new(verifier().public());
        let entries = match self {
            Self::Filled => Vec::new(),
            Self::Added => vec![Trusted::new(PrivateKey::from_seed(&[2; 32]).public())],
            Self::Older => vec![Trusted { oldest: Duration::from_secs(1), ..entry }],
            Self::Back(_) => vec![entry],
        };
        TrustStore::new(entries).ok()
    }
}

const NAME: u128 = 42;
const CLIENT: u32 = 0x20_0000;
/// The age of the certificate.
const AGE: Duration = Duration::from_secs(3);
/// Time between two copies.
const LATER: Duration = Duration::from_millis(200);

/// A guard with the smallest table, so that one request clears the expired entry of another.
fn guard(memory: Memory, since: &Clock) -> Arc<dyn ReplayGuard> {
    let table = |since_ms| ReplayTable::new(guard_key(), Window::REQUESTS, 0, since_ms);
    match memory {
        Memory::Nothing => Arc::new(Forgetful(table(0))),
        Memory::Own => Arc::new(table(since.unix_ms)),
        Memory::Shared => Arc::new(RemoteGuard::new(guard_key(), Window::REQUESTS)),
    }
}

fn pass(world: &mut World, time: Duration) {
    world.run(world.now + time);
}

fn copies(world: &mut World, syn: &[u8]) {
    for _ in 0..3 {
        world.inject(syn.to_vec());
        pass(world, LATER);
    }
}

fn set_trust(world: &mut World, server: IpAddr) -> Option<()> {
    let trust = Arc::new(TrustStore::new([Trusted::new(verifier().public())]).ok()?);
    let now = world.now;
    let server = world.servers.get_mut(&server)?;
    server.stack.set_trust(server.listener, trust, now).then_some(())
}

/// How often the recorded request is executed.
pub fn executed(memory: Memory, change: Change, seed: u64) -> Option<u32> {
    let mut world = World::seeded(seed);
    let server = address(1);
    let mut asap =
        policy(true, guard(memory, &clock_at(world.now)), &Arc::new(PendingLimit::with_clients(256, 256)))?;
    asap.trust = Arc::new(change.before()?);
    world.serve(server, 300, |config| config.asap = Some(asap));
    let client = world.client(address(CLIENT));
    pass(&mut world, OPEN);
    let certificate = Arc::new(certificate(key(&mut world.random), address(CLIENT), world.now)?);
    pass(&mut world, AGE);
    let config = connect(&certificate, world.now);
    world.visit_with(client, server, NAME, &config);
    pass(&mut world, Duration::from_millis(55));
    let syn = world.overheard.get(&address(CLIENT)).cloned()?;
    if let Change::Back(ms) = change {
        // The same client visits again after the first request's entry has expired.
        pass(&mut world, Window::REQUESTS.past - Duration::from_millis(55));
        let config = connect(&certificate, world.now);
        world.visit_with(client, server, NAME + 1, &config);
        pass(&mut world, Duration::from_millis(100));
        let clock = clock_at(world.now);
        let back = Clock { unix_ms: clock.unix_ms - ms, ..clock };
        world.servers.get_mut(&server)?.stack.handle_clock(back);
    } else {
        pass(&mut world, Duration::from_secs(2));
        set_trust(&mut world, server)?;
    }
    copies(&mut world, &syn);
    // A guard that was closed is open again.
    pass(&mut world, Duration::from_secs(20));
    copies(&mut world, &syn);
    pass(&mut world, Duration::from_secs(5));
    world.servers.get(&server)?.executed.get(&NAME.to_be_bytes()).copied()
}

/// The rows of the third table.
pub fn table(seed: u64) -> Table {
    let mut table = Table::new(
        format!("how often a request runs that was refused, or accepted a minute ago, seed {seed}"),
        &[
            "policy",
            "trust filled",
            "verifier added",
            "older taken",
            "back 200 ms",
            "back 500 ms",
            "back 900 ms",
            "back 1 s",
        ],
    );
    for (name, memory) in super::replay::ROWS {
        let [a, b, c, d, e, f, g] =
            Change::ALL.map(|change| executed(memory, change, seed).unwrap_or_default().into());
        table.row([name.into(), a, b, c, d, e, f, g]);
    }
    table
}

#[cfg(test)]
mod tests;
