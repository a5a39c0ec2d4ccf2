//! Servers that accept first flights in every way at once: directly on IP and in UDP, in datagrams from fronts, and
//! from their own front. There are two fronts, resolvers that repeat, delay and reorder queries, honest clients, and
//! an eavesdropper that replays everything. The replay guard is a table, or a store that is late, lost or restarted.
//! Clocks are set, servers restart, and limits are reached.
//!
//! Checks that no request is executed twice, as far as the specification promises (see [`ledger`]), that nothing
//! panics, that memory is bounded, and that every connection ends.

mod client;
mod deeds;
mod fronts;
mod ledger;
mod packets;
mod server;
mod store;
mod world;

use arbitrary::{Arbitrary, Unstructured};
use client::Way;
use firstflight_credential::asap::{Identity, PrivateKey};
use server::Guards;
use world::World;

const PORT: u16 = 80;
/// The wall clock at time zero of the world, Unix milliseconds.
const UNIX_MS: u64 = 1_800_000_000_000;
const FRONTS: usize = 2;
const CLIENTS: usize = 2;
const MAX_ACTIONS: usize = 96;

/// The initial world.
#[derive(Debug, Clone, Arbitrary)]
pub struct Setup {
    /// Seed of the random fate of packets.
    seed: u64,
    guards: Guards,
    two_servers: bool,
    /// Whether the first front is a part of the first server.
    here: bool,
    /// Probability that a packet is lost, in 1/512.
    loss: u8,
    few_permits: Rare,
    few_relayed: Rare,
    few_deferred: Rare,
    few_connections: Rare,
    small_budget: Rare,
    short_backlog: Rare,
    short_queue: Rare,
    /// Verdicts come late, in another order, or never.
    late_verdicts: Rare,
}

/// True in a quarter of all worlds, because with too many limits at once little is accepted.
#[derive(Debug, Clone, Copy)]
struct Rare(bool);

impl<'a> Arbitrary<'a> for Rare {
    fn arbitrary(left: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(u8::arbitrary(left)?.is_multiple_of(4)))
    }
}

#[derive(Debug, Clone, Arbitrary)]
struct Visit {
    second: bool,
    way: Way,
    once: bool,
    long: bool,
    wait_ms: u8,
}

#[derive(Debug, Clone, Arbitrary)]
enum Action {
    /// An honest client visits.
    Visit(Visit),
    /// The client of a visit inside a lookup sends the request on IP as well, under the same request id.
    AlsoOnIp {
        which: u8,
        server: bool,
        port: u8,
    },
    /// The eavesdropper sends a SYN with a block again.
    Copy {
        which: u8,
        change: Option<Altered>,
        /// From 192 on, with other data.
        times: u8,
    },
    /// The eavesdropper sends such a SYN without block and data, like the client's retransmission.
    Plain {
        which: u8,
        change: Option<Altered>,
    },
    /// A query is sent again, by another resolver, to a front.
    Query {
        which: u8,
        front: bool,
        resolver: u8,
    },
    /// All queries so far are sent again, to this front.
    AllQueries {
        front: bool,
    },
    /// A relay datagram is sent again, perhaps to the other server.
    Relay {
        which: u8,
        other: bool,
    },
    /// SYNs from forged addresses.
    Flood {
        server: bool,
        count: u8,
    },
    Advance {
        ms: u16,
    },
    AdvanceSeconds {
        seconds: u8,
    },
    /// An operator sets the wall clock of a server, or of a front.
    SetClock {
        second: bool,
        front: bool,
        step: u8,
    },
    Restart {
        second: bool,
        down_ms: u16,
    },
    RestartFront {
        second: bool,
    },
    Trust {
        second: bool,
        good: bool,
    },
    /// The application starts or stops accepting connections.
    Accepting {
        second: bool,
        yes: bool,
    },
    StoreRestarts,
    StoreIsDown {
        ms: u16,
    },
    Loss {
        loss: u8,
    },
    GiveUp {
        second: bool,
    },
}

/// How the eavesdropper alters a copy.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Altered {
    port: Option<u8>,
    isn: Option<u8>,
    other_server: bool,
    /// It comes from another address.
    elsewhere: bool,
}

/// The number of executions: early, and by a handshake.
pub type Executed = (u32, u32);

/// Runs what `data` describes: the initial world, then actions.
pub fn run(data: &[u8]) -> Executed {
    let mut left = Unstructured::new(data);
    let Ok(setup) = Setup::arbitrary(&mut left) else { return (0, 0) };
    let mut world = World::new(setup);
    for _ in 0..MAX_ACTIONS {
        // Use all bytes for actions: an arbitrary vector would end at the first odd byte.
        let Ok(action) = next(&mut left) else { break };
        world.act(action);
        if left.is_empty() {
            break;
        }
    }
    world.end()
}

/// The next action: a visit in a quarter of the cases, otherwise any action.
fn next(left: &mut Unstructured<'_>) -> arbitrary::Result<Action> {
    match u8::arbitrary(left)? % 4 {
        0 => Visit::arbitrary(left).map(Action::Visit),
        _ => Action::arbitrary(left),
    }
}

fn identity() -> Identity {
    Identity::name("www.example.com", PORT)
}

/// The verifier of the clients if `good`, otherwise another one.
fn verifier(good: bool) -> PrivateKey {
    PrivateKey::from_seed(&[if good { 1 } else { 2 }; 32])
}
