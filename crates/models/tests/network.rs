//! `Replays::NoDuplicates`: the network delivers a SYN with a cookie and data several times within 2 MSL, to either shard of a
//! server, which reaches limits and is killed. Its data runs early at most once, and not after a copy was refused.

use super::asap::permits;
use super::{holds, needs};
use firstflight_credential::asap::{AsapShard, BudgetConfig};
use firstflight_credential::{
    Admission, Claim, CookieKey, FastOpenPolicy, FirstFlight, Flow, GuardKey, KeyRing, Offered, Policies,
    Presented, ReplayGuard, ReplayTable, Replays, Scheme, Window, admit, invalidate,
};
use firstflight_models::{Digest, World};
use firstflight_wire::tcp::{FastOpen, FastOpenForm};
use firstflight_wire::{Clock, Instant, SeqNum};
use std::sync::Arc;
use std::time::Duration;

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defence {
    /// The listener refuses copies.
    Guard,
    /// The shards share a guard.
    OneGuard,
    /// It begins with a floor.
    FloorAtStart,
    /// A SYN that is dropped before it is looked at is used up.
    UsedUpWhenDropped,
}

const FLOW: Flow = Flow {
    client: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    server: std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)),
};
/// 2 MSL: how long the network keeps copies, seconds.
const KEEPS: u64 = 120;
/// The SYNs of one client, from different ports.
const SYNS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Arrives {
        syn: usize,
        shard: usize,
    },
    /// The listener answers with SYN cookies, or as many first flights wait for their ACK as may.
    ArrivesAtLimit {
        syn: usize,
        pressure: bool,
    },
    /// The stack has no room for it.
    Dropped {
        syn: usize,
    },
    Seconds(u64),
    Restart,
}

#[derive(Debug, Clone, Copy, Default)]
struct Syn {
    /// When the client sent it.
    sent: Option<u64>,
    ran: bool,
    is_used_up: bool,
}

struct Server {
    off: Option<Defence>,
    policies: Vec<FastOpenPolicy>,
    tables: Vec<Arc<ReplayTable>>,
    option: FastOpen,
    second: u64,
    syns: [Syn; SYNS],
}

impl Server {
    fn new(off: Option<Defence>) -> Self {
        let keys = keys();
        let option = FastOpen::Cookie(FastOpenForm::Standard, keys.grant(&FLOW));
        let mut server = Self {
            off,
            policies: Vec::new(),
            tables: Vec::new(),
            option,
            second: 10_000,
            syns: [Syn::default(); SYNS],
        };
        // It began long ago.
        server.start(1000);
        server
    }

    fn start(&mut self, second: u64) {
        let began = if self.off == Some(Defence::FloorAtStart) { 0 } else { second * 1000 };
        let key = GuardKey::from_bytes([3; 16]);
        let table = || Arc::new(ReplayTable::new(key.clone(), Window::NETWORK, 0, began));
        let one = table();
        let other = if self.off == Some(Defence::OneGuard) { table() } else { Arc::clone(&one) };
        self.tables = vec![one, other];
        let policy = |table: &Arc<ReplayTable>| {
            let mut policy = FastOpenPolicy::new(keys(), permits());
            if self.off != Some(Defence::Guard) {
                policy.replays = Replays::NoDuplicates(Arc::clone(table) as Arc<dyn ReplayGuard>);
            }
            policy
        };
        self.policies = self.tables.iter().map(policy).collect();
    }

    fn clock(&self) -> Clock {
        Clock { mono: Instant::from_secs(self.second), unix_ms: 0, uncertainty: Duration::ZERO }
    }

    fn first(&self, syn: usize) -> FirstFlight<'_> {
        FirstFlight {
            flow: FLOW,
            ports: (40_000 + syn as u16, 80),
            isn: SeqNum::new(7),
            presented: Presented::FastOpen(&self.option),
            claim: Claim::None,
            offered: Offered::Nothing,
            payload: b"POST /order HTTP/1.1\r\n\r\n",
            relayed: false,
            syn_cookie_pressure: false,
        }
    }

    /// Whether it ran early.
    fn arrives(&self, syn: usize, shard: usize, limit: Option<bool>) -> bool {
        let first = FirstFlight { syn_cookie_pressure: limit == Some(true), ..self.first(syn) };
        let pending = &self.policies[shard].pending;
        let usual = pending.limit();
        pending.set_limit(if limit == Some(false) { 0 } else { usual });
        let mut budget = AsapShard::new(BudgetConfig::default());
        let admission = admit((&self.policies[shard]).into(), &first, &mut budget, &self.clock());
        pending.set_limit(usual);
        matches!(admission, Admission::Accept(_))
    }
}

fn keys() -> Arc<KeyRing> {
    Arc::new(KeyRing::new(Scheme::Linux, CookieKey::from_bytes([1; 16])))
}

impl World for Server {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (n, syn) in self.syns.iter().enumerate() {
            // The second one is sent after the first one: their order makes no difference.
            let sent =
                syn.sent.map_or(n == 0 || self.syns[n - 1].sent.is_some(), |at| self.second <= at + KEEPS);
            if sent {
                events.extend((0..2).map(|shard| Event::Arrives { syn: n, shard }));
                events.extend([false, true].map(|pressure| Event::ArrivesAtLimit { syn: n, pressure }));
                events.push(Event::Dropped { syn: n });
            }
        }
        events.extend([1, 60, 119].map(Event::Seconds));
        events.push(Event::Restart);
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        let (syn, ran) = match event {
            Event::Arrives { syn, shard } => (syn, self.arrives(syn, shard, None)),
            Event::ArrivesAtLimit { syn, pressure } => (syn, self.arrives(syn, 0, Some(pressure))),
            Event::Dropped { syn } => {
                if self.off != Some(Defence::UsedUpWhenDropped) {
                    let policies = Policies::from(&self.policies[0]);
                    assert_eq!(invalidate(policies, &self.first(syn), &self.clock(), false), Ok(None));
                }
                (syn, false)
            }
            Event::Seconds(seconds) => {
                self.second += seconds;
                return Ok(());
            }
            Event::Restart => {
                self.start(self.second);
                return Ok(());
            }
        };
        let second = self.second;
        let syn = &mut self.syns[syn];
        syn.sent.get_or_insert(second);
        if ran && syn.ran {
            return Err("the data runs early twice".to_owned());
        }
        if ran && syn.is_used_up {
            return Err(
                "the data runs twice: by the handshake after a copy of the SYN was refused, and early"
                    .to_owned(),
            );
        }
        (syn.ran, syn.is_used_up) = (syn.ran || ran, syn.is_used_up || !ran);
        Ok(())
    }

    fn state(&self, to: &mut Digest) {
        to.add(&(self.second, self.syns));
        for table in &self.tables {
            to.add(table);
            for syn in 0..SYNS {
                to.add(&table.look_up(table.id(&self.first(syn)), self.second * 1000, self.second * 1000));
            }
        }
    }
}

#[test]
fn no_copy_that_the_network_makes_runs() {
    holds("copies of the network", 1, 5, |_| Server::new(None));
}

#[test]
fn each_defence_is_needed() {
    use Defence::*;
    for defence in [Guard, OneGuard, FloorAtStart, UsedUpWhenDropped] {
        needs(defence, 1, 5, |_| Server::new(Some(defence)));
    }
}
