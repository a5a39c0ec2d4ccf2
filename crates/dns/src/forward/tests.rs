mod datagrams;

use super::*;
use crate::fixtures::{V4, ci, dns_path, key, rng, zone};
use crate::fragment::{Attempt, Fragments, LABEL};
use crate::front::{RateLimit, RoundRobin};
use crate::keys::DnsPathKeys;
use crate::{
    Destination, DnsPathConfig, FragmentQuery, Front, OpenBuffer, ReassemblyLimits, RelayServer, Transport,
    seal,
};
use core::net::Ipv4Addr;
use hickory_proto::rr::Name;
use rand_chacha::ChaCha20Rng;
use std::collections::{BTreeSet, HashMap};

const START: Instant = Instant::from_secs(1000);
const UNIX_MS: u64 = 1_767_225_660_000;
const RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 53));
const KEY_ID: u8 = 4;

fn shared() -> RelayKey {
    RelayKey::from_bytes(&[6; 32])
}

fn address(front: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 1 + front as u8], 4455))
}

fn config(front: u16, others: impl Iterator<Item = u16>) -> ForwardConfig {
    ForwardConfig {
        others: others.filter(|other| *other != front).map(address).collect(),
        sender: ForwardSender::new(&shared(), KEY_ID, front, Boot(1)),
        keys: vec![(KEY_ID, shared())],
        per_second: ForwardConfig::PER_SECOND,
    }
}

/// A front that accepts first flights below [`zone`] and hands them to a server.
fn front(number: u16, rng: &mut ChaCha20Rng) -> Front {
    let rate = RateLimit { per_second: NonZeroU32::MAX, ..RateLimit::default() };
    let mut front = Front::new(Vec::new(), rate).unwrap();
    let sender = RelaySender::new(&RelayKey::from_bytes(&[8; 32]), 1, number, Boot(1));
    let config = DnsPathConfig {
        zone: Name::from_ascii("f.xyz.com.").unwrap(),
        addresses: vec![Ipv4Addr::new(192, 0, 2, 80)],
        keys: DnsPathKeys::new(3.try_into().unwrap(), key()),
        to: Destination::Relay {
            servers: vec![RelayServer { address: SocketAddr::from(([192, 0, 2, 80], 4454)), sender }],
            policy: Box::new(RoundRobin::default()),
        },
        limits: ReassemblyLimits::default(),
        opens_per_second: NonZeroU32::new(1_000_000).unwrap(),
    };
    front.carry(config, rng).unwrap();
    front
}

/// The fronts of a zone, and a network between them that loses nothing.
struct Zone {
    fronts: Vec<Front>,
    rng: ChaCha20Rng,
    now: Instant,
    /// Fronts that neither send nor receive.
    dead: BTreeSet<u16>,
    /// The first flights that the server got.
    relayed: Vec<IpAddr>,
}

impl Zone {
    /// `forwarding`: the fronts know each other, and have heard each other.
    fn new(count: u16, forwarding: bool) -> Self {
        let mut rng = rng(1);
        let mut fronts: Vec<Front> = (0..count).map(|number| front(number, &mut rng)).collect();
        if forwarding {
            for (number, front) in (0..).zip(&mut fronts) {
                assert!(front.forward(Forwarder::new(config(number, 0..count)).unwrap()));
            }
        }
        let mut zone = Self { fronts, rng, now: START, dead: BTreeSet::new(), relayed: Vec::new() };
        zone.settle();
        zone
    }

    fn clock(&self) -> Clock {
        let unix_ms = UNIX_MS + (self.now - START).as_millis() as u64;
        Clock { mono: self.now, unix_ms, uncertainty: Duration::ZERO }
    }

    /// Delivers the fronts' datagrams for each other until there are no more, and counts them.
    fn settle(&mut self) -> usize {
        let (clock, mut count) = (self.clock(), 0);
        loop {
            let mut sent = Vec::new();
            for (number, front) in (0_u16..).zip(&mut self.fronts) {
                let alive = !self.dead.contains(&number);
                let due = core::iter::from_fn(|| front.poll_forward(&clock));
                sent.extend(due.filter(|_| alive).map(|relay| (number, relay)));
                while let Some(relay) = front.poll_relay(&clock) {
                    self.relayed.push(resolver_of(&relay.datagram, clock.unix_ms));
                }
            }
            if sent.is_empty() {
                return count;
            }
            count += sent.len();
            for (from, Relay { to, datagram }) in sent {
                let to = (0..self.fronts.len() as u16).find(|number| address(*number) == to).unwrap();
                if !self.dead.contains(&to) {
                    let front = &mut self.fronts[usize::from(to)];
                    front.handle_forward(&clock, address(from), &datagram, &mut self.rng).unwrap();
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = (self.now + Duration::from_millis(250)).min(end);
            self.settle();
        }
    }

    /// The resolver asks the fronts for these labels. Each query is answered at once.
    fn ask(&mut self, labels: &[[u8; LABEL]], at: impl Fn(usize) -> usize) {
        for (n, label) in labels.iter().enumerate() {
            let query = FragmentQuery::new(n as u16, label, zone()).unwrap();
            let front = &mut self.fronts[at(n)];
            let answer =
                front.handle_query(self.now, RESOLVER, Transport::Udp, query.as_bytes(), &mut self.rng);
            assert_eq!(query.read_answer(&answer.unwrap()), Some(crate::Echo::Answered));
            self.settle();
        }
    }

    fn forwarding(&self, front: usize) -> (ForwardCounters, usize) {
        self.fronts[front].forwarding(self.now).unwrap()
    }
}

/// The resolver that a relay datagram names.
fn resolver_of(datagram: &[u8], unix_ms: u64) -> IpAddr {
    let mut receiver = RelayReceiver::new();
    receiver.set_key(1, &RelayKey::from_bytes(&[8; 32]));
    receiver.handle_datagram(datagram, unix_ms, &mut OpenBuffer::new()).unwrap().resolver
}

fn labels(seed: u64) -> Vec<[u8; LABEL]> {
    let mut rng = rng(seed);
    let (sealed, _) = seal(&ci(V4, b"GET", &mut rng), &dns_path(), &mut rng).unwrap();
    Fragments::split(&sealed, Attempt::default(), false).labels().collect()
}

fn fragment(seed: u64) -> Fragment {
    Fragment::parse(&labels(seed)[0]).unwrap()
}

fn id(n: u32) -> FragmentId {
    let [a, b, c, d] = n.wrapping_mul(2_654_435_761).to_be_bytes();
    FragmentId([a, b, c, d, 1, 2])
}

/// For how many splits of one first flight over these fronts it is handed over. Checks that it is never
/// handed over twice.
fn splits_that_arrive(fronts: usize, forwarding: bool) -> (usize, usize) {
    let mut zone = Zone::new(fronts as u16, forwarding);
    let count = labels(0).len();
    let splits = fronts.pow(count as u32);
    let mut arrived = 0;
    for split in 0..splits {
        zone.ask(&labels(split as u64), |n| split / fronts.pow(n as u32) % fronts);
        let relayed = core::mem::take(&mut zone.relayed);
        assert!(relayed.len() <= 1, "split {split}: handed over {} times", relayed.len());
        assert!(relayed.iter().all(|resolver| *resolver == RESOLVER));
        arrived += relayed.len();
        zone.pass(Duration::from_millis(20));
    }
    (arrived, splits)
}

#[test]
fn a_first_flight_spread_over_two_fronts_is_handed_over_once() {
    assert_eq!(splits_that_arrive(2, true), (64, 64));
    // Without forwarding only the splits work in which one front gets all fragments.
    assert_eq!(splits_that_arrive(2, false), (2, 64));
}

#[test]
fn a_first_flight_spread_over_three_fronts_is_handed_over_once() {
    assert_eq!(splits_that_arrive(3, true), (729, 729));
    assert_eq!(splits_that_arrive(3, false), (3, 729));
}

#[test]
fn copies_through_another_front_are_known_by_the_owner() {
    let mut zone = Zone::new(2, true);
    let labels = labels(1);
    zone.ask(&labels, |_| 0);
    assert_eq!(zone.relayed.len(), 1);
    zone.ask(&labels, |_| 1);
    zone.pass(Duration::from_secs(10));
    // Their set is forgotten, but their id is still known.
    zone.ask(&labels, |n| n % 2);
    assert_eq!(zone.relayed.len(), 1);
    assert_eq!(zone.fronts.iter().map(|front| front.counters().repeated).sum::<u64>(), 1);
}

#[test]
fn ownership_is_balanced_and_moves_only_with_the_front_that_goes() {
    for count in [2_u16, 3, 16] {
        let owner = |n, fronts: &mut dyn Iterator<Item = u16>| {
            fronts.max_by_key(|front| owner::weight(id(n), *front)).unwrap()
        };
        let mut owned: HashMap<u16, u32> = HashMap::new();
        let ids = 4000 * u32::from(count);
        for n in 0..ids {
            let all = owner(n, &mut (0..count));
            *owned.entry(all).or_default() += 1;
            let without_last = owner(n, &mut (0..count - 1));
            assert!(all == without_last || all == count - 1);
        }
        assert!(owned.values().all(|owned| (3700..=4300).contains(owned)), "{owned:?}");
        assert_eq!(owned.len(), usize::from(count));
    }
}

#[test]
fn all_fronts_agree_on_the_owner() {
    let zone = Zone::new(5, true);
    for n in 0..1000 {
        let owner = |front: &Front, number: u16| {
            let forwarder = front.forwarder().unwrap();
            forwarder
                .owner(id(n), START)
                .map_or(address(number), |place| forwarder.peers.address(place).unwrap())
        };
        let owners: BTreeSet<_> =
            (0..).zip(&zone.fronts).map(|(number, front)| owner(front, number)).collect();
        assert_eq!(owners.len(), 1, "{owners:?}");
    }
}

#[test]
fn a_front_that_is_not_heard_owns_nothing() {
    let mut zone = Zone::new(3, true);
    assert_eq!((zone.forwarding(0).1, zone.forwarding(1).1), (3, 3));
    zone.dead.insert(2);
    zone.pass(Duration::from_millis(3_400));
    assert_eq!(zone.forwarding(0).1, 3);
    zone.pass(Duration::from_millis(100));
    assert_eq!((zone.forwarding(0).1, zone.forwarding(1).1), (2, 2));
    // Resolvers ask the two other fronts.
    for seed in 0..50 {
        zone.ask(&labels(seed), |n| n % 2);
    }
    assert_eq!(zone.relayed.len(), 50);
    // It comes back, and owns its share again.
    zone.dead.clear();
    zone.pass(Duration::from_secs(1));
    assert_eq!((zone.forwarding(0).1, zone.forwarding(2).1), (3, 3));
    let before = zone.forwarding(2).0.taken;
    for seed in 100..150 {
        zone.ask(&labels(seed), |n| n % 2);
    }
    assert_eq!(zone.relayed.len(), 100);
    assert!(zone.forwarding(2).0.taken > before);
}

#[test]
fn a_front_that_hears_no_other_keeps_everything() {
    let mut zone = Zone::new(1, false);
    zone.fronts[0].forward(Forwarder::new(config(0, 0..2)).unwrap());
    for seed in 0..20 {
        let labels = labels(seed);
        for label in &labels {
            let query = FragmentQuery::new(1, label, crate::fixtures::zone()).unwrap();
            let front = &mut zone.fronts[0];
            front.handle_query(START, RESOLVER, Transport::Tcp, query.as_bytes(), &mut zone.rng).unwrap();
        }
        let clock = zone.clock();
        assert!(zone.fronts[0].poll_relay(&clock).is_some());
    }
    assert_eq!(zone.forwarding(0), (ForwardCounters::default(), 1));
}

#[test]
fn fronts_that_come_or_go_are_reported_once() {
    let mut zone = Zone::new(3, true);
    let changes = |zone: &mut Zone| -> Vec<(SocketAddr, u16, Presence)> {
        let now = zone.now;
        core::iter::from_fn(|| zone.fronts[0].poll_front_change(now))
            .map(|change| (change.address, change.front, change.presence))
            .collect()
    };
    let all = [(address(1), 1, Presence::Came), (address(2), 2, Presence::Came)];
    assert_eq!(changes(&mut zone), all);
    assert!(changes(&mut zone).is_empty());
    zone.dead.insert(1);
    zone.pass(Duration::from_secs(4));
    assert_eq!(changes(&mut zone), [(address(1), 1, Presence::Went)]);
    zone.dead.clear();
    zone.pass(Duration::from_secs(1));
    assert_eq!(changes(&mut zone), all[..1]);
}

#[test]
fn each_front_tells_the_others_every_second_that_it_is_alive() {
    let mut zone = Zone::new(3, true);
    assert_eq!(zone.settle(), 0);
    for _ in 0..5 {
        zone.now += Duration::from_millis(999);
        assert_eq!(zone.settle(), 0);
        assert_eq!(zone.fronts[0].next_forward_timeout(), Some(zone.now + Duration::from_millis(1)));
        zone.now += Duration::from_millis(1);
        assert_eq!(zone.settle(), 6);
    }
    assert_eq!(zone.forwarding(0).0.datagrams.accepted, 12);
}

#[test]
fn what_was_forwarded_is_not_forwarded_again() {
    // Front 1 has heard front 2, which owns the fragment. Front 0 has not, and sends the fragment to front 1.
    let mut rng = rng(7);
    let mut second = front(1, &mut rng);
    second.forward(Forwarder::new(config(1, 0..3)).unwrap());
    let clock = Clock { mono: START, unix_ms: UNIX_MS, uncertainty: Duration::ZERO };
    let mut third = Forwarder::new(config(2, 0..3)).unwrap();
    while let Some(Relay { to, datagram }) = third.poll_datagram(&clock) {
        if to == address(1) {
            second.handle_forward(&clock, address(2), &datagram, &mut rng).unwrap();
        }
    }
    while second.poll_forward(&clock).is_some() {}
    let of_third = |seed: &u64| second.forwarder().unwrap().owner(fragment(*seed).id(), START) == Some(1);
    let seed = (0..100).find(of_third).unwrap();
    let mut first = ForwardSender::new(&shared(), KEY_ID, 0, Boot(1));
    let forwarded = Forwarded { resolver: RESOLVER, fragment: fragment(seed) };
    let datagram = datagram::seal(&mut first.inner, &[forwarded], UNIX_MS).unwrap();
    second.handle_forward(&clock, address(0), &datagram, &mut rng).unwrap();
    assert_eq!(second.poll_forward(&clock), None);
    assert_eq!((second.reassembly().sets, second.forwarding(START).unwrap().0.forwarded), (1, 0));
}

#[test]
fn what_is_forwarded_and_taken_is_bounded() {
    let per_second = NonZeroU32::new(1000).unwrap();
    let with = |front| ForwardConfig { per_second, ..config(front, 0..2) };
    let (mut one, mut two) = (Forwarder::new(with(0)).unwrap(), Forwarder::new(with(1)).unwrap());
    let clock = Clock { mono: START, unix_ms: UNIX_MS, uncertainty: Duration::ZERO };
    let deliver = |from: &mut Forwarder, to: &mut Forwarder, at: SocketAddr| {
        let mut taken = 0;
        while let Some(relay) = from.poll_datagram(&clock) {
            assert!(relay.datagram.len() <= MAX_FORWARD);
            taken += to.handle_datagram(at, &relay.datagram, &clock).unwrap().len();
        }
        taken
    };
    deliver(&mut two, &mut one, address(1));
    deliver(&mut one, &mut two, address(0));
    let of_two = |seed: &u64| one.owner(fragment(*seed).id(), START).is_some();
    let fragment = fragment((0..100).find(of_two).unwrap());
    // One network gets half of a burst of a tenth of a second, one more, and its share of the rest.
    let mut taken = 0;
    for _ in 0..1000 {
        assert!(one.route(&fragment, RESOLVER, START));
        taken += deliver(&mut one, &mut two, address(0));
    }
    assert_eq!((one.counters().forwarded, one.counters().over_budget_out), (57, 943));
    assert_eq!((taken, two.counters().taken), (57, 57));
    // Other networks still get some, which is the purpose of the share.
    let other = "192.0.2.1".parse().unwrap();
    assert!(one.route(&fragment, other, START));
    assert_eq!(deliver(&mut one, &mut two, address(0)), 1);
    // At most as many fragments wait as there is room for.
    let mut one = Forwarder::new(config(0, 0..2)).unwrap();
    let _ = one.peers.note(address(1), 1, START);
    for _ in 0..WAITING + 10 {
        assert!(one.route(&fragment, RESOLVER, START));
    }
    assert_eq!(one.counters().not_sent, 10);
    let sent = core::iter::from_fn(|| one.poll_datagram(&clock)).count();
    assert_eq!((sent, one.counters().forwarded), (WAITING.div_ceil(MAX_FORWARDED) + 1, WAITING as u64));
    // The fragments accepted from others are bounded, however many they send.
    let mut flood = ForwardSender::new(&shared(), KEY_ID, 0, Boot(9));
    let entries = [Forwarded { resolver: RESOLVER, fragment }; MAX_FORWARDED];
    let mut two = Forwarder::new(with(1)).unwrap();
    for _ in 0..100 {
        let datagram = datagram::seal(&mut flood.inner, &entries, UNIX_MS).unwrap();
        assert_eq!(datagram.len(), MAX_FORWARD);
        two.handle_datagram(address(0), &datagram, &clock).unwrap();
    }
    assert_eq!((two.counters().taken, two.counters().over_budget_in), (57, 1543));
}
