//! The actions of clients, the eavesdropper and operators.

use super::client::{Way, request};
use super::fronts::front_of;
use super::packets::{Change, Flow, Sight, syn};
use super::server::{Guards, HEAD, OUTER};
use super::world::{Arrival, Looked, World, keep};
use super::{Action, Altered, PORT, Visit};
use firstflight_wire::SeqNum;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN};
use firstflight_wire::tcp::{OptionBytes, OptionsBuf};
use rand_chacha::rand_core::Rng;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

fn of<T>(all: &[T], which: u8) -> Option<&T> {
    // Small numbers select the latest entries, which are most likely still valid.
    all.len().checked_sub(1).and_then(|last| all.get(last - usize::from(which) % all.len()))
}

impl World {
    fn server(&self, second: bool) -> usize {
        usize::from(second && self.servers.len() > 1)
    }

    pub fn act(&mut self, action: Action) {
        match action {
            Action::Visit(Visit { second, way, once, long, wait_ms }) => {
                self.visit(usize::from(second), way, once, long);
                self.run(self.now + Duration::from_millis(wait_ms.into()));
            }
            Action::AlsoOnIp { which, server, port } => self.also_on_ip(which, server, port),
            Action::Copy { which, change, times } => {
                let Some(packet) = of(&self.syns, which).cloned() else { return };
                let change = change.map(|altered| self.change(altered, &packet)).unwrap_or_default();
                // This is not a field, because a new field would change the meaning of the inputs in the corpus.
                let change = Change { data: times >= 192, ..change };
                let Some(copy) = Sight::of(&packet).and_then(|sight| sight.altered(change)) else { return };
                (0..=times % 3).for_each(|_| self.send(copy.clone()));
            }
            Action::Plain { which, change } => self.plain(which, change),
            Action::Query { which, front, resolver } => {
                let Some(query) = of(&self.queries, which).cloned() else { return };
                self.later(
                    Duration::from_millis(1),
                    Arrival::Query(front.into(), resolver_of(resolver), query),
                );
            }
            Action::AllQueries { front } => {
                for (n, query) in self.queries.clone().into_iter().enumerate() {
                    let after = Duration::from_micros(n as u64);
                    self.later(after, Arrival::Query(front.into(), resolver_of(9), query));
                }
            }
            Action::Relay { which, other } => {
                let Some((server, datagram)) = of(&self.relays, which).cloned() else { return };
                let server = if other { (server + 1) % self.servers.len() } else { server };
                self.later(Duration::from_millis(1), Arrival::Relay(server, datagram));
            }
            Action::Flood { server, count } => self.flood(server, count),
            Action::Advance { ms } => self.run(self.now + Duration::from_millis(u64::from(ms) % 4096)),
            Action::AdvanceSeconds { seconds } => self.run(self.now + Duration::from_secs(seconds.into())),
            Action::SetClock { second, front, step } => self.set_clock(second, front, step),
            Action::Restart { second, down_ms } => {
                let all = self.setup.guards == Guards::Table;
                for n in 0..self.servers.len() {
                    if all || n == self.server(second) {
                        let until = self.now + Duration::from_millis(u64::from(down_ms) % 8192);
                        self.servers[n].down_until.get_or_insert(until);
                    }
                }
            }
            Action::RestartFront { second } => self.fronts[usize::from(second)].restart(),
            Action::Trust { second, good } => {
                for n in self.configured(second) {
                    self.servers[n].set_trust(good, self.now);
                }
            }
            Action::Accepting { second, yes } => {
                let server = self.server(second);
                self.servers[server].accepting = yes;
            }
            Action::StoreRestarts => self.store.restart(),
            Action::StoreIsDown { ms } => {
                self.store.down_until = Some(self.now + Duration::from_millis(u64::from(ms) % 8192));
            }
            Action::Loss { loss } => self.setup.loss = loss,
            Action::GiveUp { second } => self.clients[usize::from(second)].give_up(self.now),
        }
        self.settle();
    }

    fn visit(&mut self, client: usize, way: Way, once: bool, long: bool) {
        // Only a request that may run twice may travel inside a lookup.
        let once = once && way != Way::Lookup;
        self.requests += 1;
        let number = self.requests;
        let len = HEAD + if long && way != Way::Lookup { 2500 } else { number as usize % 90 };
        let data = request(number, len);
        self.ledger.begin(number, once);
        let server = self.servers[self.random.next_u32() as usize % self.servers.len()].address;
        if way != Way::Lookup {
            return self.clients[client].connect(server, &data, (way, once), self.now);
        }
        let Some(looked) = self.clients[client].look_up(&data, self.now) else { return };
        let request_id = looked.block.request.request_id;
        self.ledger.signed(number, request_id, looked.block.request.requested_ms);
        keep(&mut self.looked, Looked { client, data, request_id, at: self.now });
        let resolver = resolver_of(self.random.next_u32() as u8);
        let front = front_of(self.random.next_u32());
        for query in looked.queries {
            keep(&mut self.queries, query.clone());
            for after in self.fates() {
                // Sometimes ask another server of the zone.
                let front = if self.chance(24) { front_of(self.random.next_u32()) } else { front };
                self.later(after, Arrival::Query(front, resolver, query.clone()));
            }
        }
        for after in self.fates().into_iter().take(1) {
            let after = after * 2 + Duration::from_millis(10);
            self.later(after, Arrival::Address(client, looked.id, server));
        }
    }

    fn also_on_ip(&mut self, which: u8, server: bool, port: u8) {
        let server = self.servers[self.server(server)].address;
        let Some(looked) = of(&self.looked, which) else { return };
        let client = &self.clients[looked.client];
        let block = client.on_ip(&looked.data, looked.request_id, looked.at).to_bytes();
        let flow =
            Flow { server, client: SocketAddr::new(client.address, 20_000 + u16::from(port)), outer: None };
        let mut options = OptionsBuf::new();
        let option = AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 };
        options.raw(OptionBytes::from(option).as_slice());
        let payload = [&block[..], &looked.data].concat();
        let isn = SeqNum::new(self.random.next_u32());
        let packet = syn(&flow, PORT, OUTER, isn, &mut options, &payload).expect("a SYN");
        self.overhear(&packet);
        self.send(packet);
    }

    fn change(&self, altered: Altered, packet: &[u8]) -> Change {
        let dst = Sight::of(packet).map(|sight| sight.dst.ip());
        let other = self.servers.iter().map(|server| server.address).find(|address| Some(*address) != dst);
        Change {
            src: altered.elsewhere.then_some(IpAddr::from([10, 77, 0, 9])),
            dst: other.filter(|_| altered.other_server),
            port: altered.port.map(|port| 30_000 + u16::from(port)),
            isn: altered.isn.map(|isn| u32::from(isn) << 20),
            data: false,
        }
    }

    fn plain(&mut self, which: u8, change: Option<Altered>) {
        let Some(packet) = of(&self.syns, which).cloned() else { return };
        let change = change.map(|altered| self.change(altered, &packet)).unwrap_or_default();
        let Some(copy) = Sight::of(&packet).and_then(|sight| sight.altered(change)) else { return };
        let Some(sight) = Sight::of(&copy) else { return };
        let plain = syn(&sight.flow(), PORT, OUTER, sight.segment.seq, &mut OptionsBuf::new(), &[]);
        self.send(plain.expect("a SYN"));
    }

    fn flood(&mut self, server: bool, count: u8) {
        let server = self.servers[self.server(server)].address;
        for _ in 0..=count % 20 {
            let chance = self.random.next_u32();
            let from = SocketAddr::new(
                IpAddr::from([10, 200, chance as u8, 1]),
                1024 + (chance >> 16) as u16 % 60_000,
            );
            let flow = Flow { server, client: from, outer: None };
            let packet = syn(&flow, PORT, OUTER, SeqNum::new(chance), &mut OptionsBuf::new(), &[]);
            self.later(Duration::from_millis(1), Arrival::Packet(packet.expect("a SYN")));
        }
    }

    fn set_clock(&mut self, second: bool, front: bool, step: u8) {
        const STEPS: [i64; 12] =
            [-3_600_000, -90_000, -20_000, -3000, -1000, -200, 200, 1000, 3000, 20_000, 90_000, 3_600_000];
        // Every third time the clock is set right again.
        let offset = if step.is_multiple_of(3) { 0 } else { STEPS[usize::from(step / 3) % STEPS.len()] };
        if front {
            self.fronts[usize::from(second)].offset_ms = offset;
            return;
        }
        for n in self.configured(second) {
            // The clocks of a farm's members differ from the store's clock by less than a second.
            let apart = if self.setup.guards == Guards::Store { [-450, 450][n] } else { 0 };
            self.servers[n].offset_ms = offset + apart;
            self.servers[n].tell_time(self.now);
        }
    }

    /// The servers whose clock or trust is set. Servers that share a guard have the same settings
    /// (`docs/farm-store.md`).
    fn configured(&self, second: bool) -> std::ops::Range<usize> {
        let one = self.server(second);
        if self.setup.guards == Guards::Sites { one..one + 1 } else { 0..self.servers.len() }
    }
}

fn resolver_of(chance: u8) -> IpAddr {
    IpAddr::from([172, 16, chance % 4, 53])
}
