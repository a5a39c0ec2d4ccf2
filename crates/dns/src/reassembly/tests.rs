use super::*;
use crate::fixtures::{rng, sealed};
use crate::fragment::{Attempt, Fragments};
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use std::collections::BTreeMap;

const NOW: Instant = Instant::from_secs(1000);
const RESOLVER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(198, 51, 100, 53));

fn split(data: usize, seed: u64, attempt: u8, parity: bool) -> Vec<Fragment> {
    let attempt = Attempt::new(attempt).unwrap();
    Fragments::split(&sealed(data, seed), attempt, parity).as_slice().to_vec()
}

struct Table {
    table: Reassembly,
    rng: ChaCha20Rng,
}

impl Table {
    fn new(sets: u16) -> Self {
        let mut rng = rng(77);
        let limits = ReassemblyLimits { sets: sets.try_into().unwrap(), ..ReassemblyLimits::default() };
        Self { table: Reassembly::new(limits, &mut rng), rng }
    }

    fn put(&mut self, fragment: &Fragment, from: IpAddr, now: Instant) -> Reassembled {
        let result = self.table.handle_fragment(fragment, from, now, &mut self.rng);
        assert!(self.table.len() <= usize::from(self.table.limits.sets.get()));
        result
    }

    fn check(&self) {
        self.table.holders.check();
        let live: Vec<u32> = core::iter::successors(Some(self.table.oldest), |at| {
            self.table.sets.get(*at as usize).map(|set| set.newer)
        })
        .take_while(|at| *at != NONE)
        .collect();
        assert_eq!(live.len(), self.table.len());
        assert_eq!(self.table.index.len(), self.table.len());
        for &at in &live {
            let set = &self.table.sets[at as usize];
            let Standing { holder, place } = set.standing;
            assert_eq!(self.table.holders.sets(holder)[place as usize], at);
            assert_eq!(self.table.find(set.id), Some(at));
        }
        let expire: Vec<Instant> = live.iter().map(|at| self.table.sets[*at as usize].expires).collect();
        assert!(expire.is_sorted());
    }
}

fn from(n: u32) -> IpAddr {
    IpAddr::V4((n << 8).into())
}

/// A fragment that belongs to no first flight.
fn stray(id: u64) -> Fragment {
    let bytes = id.to_be_bytes();
    let mut label_bytes = [0; 58];
    label_bytes[..6].copy_from_slice(&bytes[2..]);
    label_bytes[6] = 0x05;
    label_bytes[7] = 1;
    let mut label = [0; 63];
    label[..3].copy_from_slice(b"ff0");
    label[3..].copy_from_slice(&crate::base230::encode(&label_bytes));
    Fragment::parse(&label).unwrap()
}

/// The same fragment with another body.
fn poisoned(fragment: &Fragment) -> Fragment {
    let mut other = *fragment;
    other.body[7] ^= 1;
    other
}

#[test]
fn in_any_order() {
    for (seed, data) in [(1, 0), (2, 60), (3, 135)] {
        let mut fragments = split(data, seed, 0, false);
        let mut table = Table::new(100);
        for turn in 0..fragments.len() {
            fragments.rotate_left(1);
            fragments.swap(0, turn);
            let (last, others) = fragments.split_last().unwrap();
            table = Table::new(100);
            for fragment in others {
                assert_eq!(table.put(fragment, RESOLVER, NOW), Reassembled::Waiting);
            }
            assert_eq!(table.put(last, RESOLVER, NOW), Reassembled::Complete(Box::new(sealed(data, seed))));
            table.check();
        }
        assert_eq!(table.table.counters().completed, 1);
    }
}

#[test]
fn the_parity_stands_in_for_any_one() {
    for data in [0, 85, 135] {
        let fragments = split(data, 4, 0, true);
        for lost in 0..fragments.len() {
            let mut table = Table::new(100);
            let mut last = Reassembled::Waiting;
            for (_, fragment) in fragments.iter().enumerate().filter(|(at, _)| *at != lost) {
                assert_eq!(last, Reassembled::Waiting);
                last = table.put(fragment, RESOLVER, NOW);
            }
            assert_eq!(last, Reassembled::Complete(Box::new(sealed(data, 4))));
            assert_eq!(table.table.counters().repaired, u64::from(lost < fragments.len() - 1));
            assert_eq!(table.put(&fragments[lost], RESOLVER, NOW), Reassembled::Late);
        }
    }
}

#[test]
fn copies_and_latecomers_change_nothing() {
    let fragments = split(60, 5, 0, false);
    let mut table = Table::new(100);
    for fragment in &fragments[..6] {
        table.put(fragment, RESOLVER, NOW);
        assert_eq!(table.put(fragment, from(9), NOW), Reassembled::Duplicate);
    }
    assert!(matches!(table.put(&fragments[6], RESOLVER, NOW), Reassembled::Complete(_)));
    for fragment in &fragments {
        assert_eq!(table.put(fragment, RESOLVER, NOW), Reassembled::Late);
    }
    let counters = table.table.counters();
    assert_eq!((counters.duplicates, counters.late, counters.completed, counters.sets), (6, 7, 1, 1));
}

#[test]
fn two_attempts_make_one_first_flight() {
    let [one, two] = [0, 1].map(|attempt| split(60, 6, attempt, false));
    let mut table = Table::new(100);
    let mut complete = 0;
    for at in 0..one.len() {
        let fragment = if at % 2 == 0 { &one[at] } else { &two[at] };
        complete += usize::from(matches!(table.put(fragment, RESOLVER, NOW), Reassembled::Complete(_)));
    }
    for at in 0..one.len() {
        let fragment = if at % 2 == 1 { &one[at] } else { &two[at] };
        assert_eq!(table.put(fragment, RESOLVER, NOW), Reassembled::Late);
    }
    assert_eq!(complete, 1);
}

#[test]
fn who_knows_the_id_costs_the_shortcut_and_nothing_else() {
    let fragments = split(60, 7, 0, true);
    // If a wrong fragment comes first, the right one is ignored, and the complete set does not belong
    // together.
    let mut table = Table::new(100);
    assert_eq!(table.put(&poisoned(&fragments[3]), from(666), NOW), Reassembled::Waiting);
    assert_eq!(table.put(&fragments[3], RESOLVER, NOW), Reassembled::Conflict);
    for at in [0, 1, 2, 4, 5] {
        assert_eq!(table.put(&fragments[at], RESOLVER, NOW), Reassembled::Waiting);
    }
    assert_eq!(table.put(&fragments[6], RESOLVER, NOW), Reassembled::Mismatch);
    assert!(table.table.is_empty());
    let counters = *table.table.counters();
    assert_eq!((counters.mismatches, counters.conflicts, counters.completed), (1, 1, 0));
    // It does not affect the next attempt.
    let (last, others) = fragments[..7].split_last().unwrap();
    others.iter().for_each(|fragment| assert_eq!(table.put(fragment, RESOLVER, NOW), Reassembled::Waiting));
    assert_eq!(table.put(last, RESOLVER, NOW), Reassembled::Complete(Box::new(sealed(60, 7))));

    // Wrong fragments that come later, or have another count, are ignored.
    let mut table = Table::new(100);
    table.put(&fragments[1], RESOLVER, NOW);
    assert_eq!(table.put(&poisoned(&fragments[1]), from(666), NOW), Reassembled::Conflict);
    let id = fragments[0].id().0.iter().fold(0, |id, byte| id << 8 | u64::from(*byte));
    let six = stray(id);
    assert_eq!((six.id(), six.count(), six.part()), (fragments[0].id(), 6, FragmentPart::Data(0)));
    assert_eq!(table.put(&six, from(666), NOW), Reassembled::Conflict);
    for at in [0, 2, 3, 4, 5] {
        assert_eq!(table.put(&fragments[at], RESOLVER, NOW), Reassembled::Waiting);
    }
    assert!(matches!(table.put(&fragments[6], RESOLVER, NOW), Reassembled::Complete(_)));
}

#[test]
fn a_set_is_forgotten_after_its_time() {
    let fragments = split(0, 8, 0, false);
    let mut table = Table::new(100);
    let lifetime = Duration::from_secs(3);
    table.put(&fragments[0], RESOLVER, NOW);
    assert_eq!(table.table.next_timeout(), Some(NOW + lifetime));
    let late = NOW + lifetime - Duration::from_nanos(1);
    assert_eq!(table.put(&fragments[0], RESOLVER, late), Reassembled::Duplicate);
    assert_eq!(table.put(&fragments[0], RESOLVER, NOW + lifetime), Reassembled::Waiting);
    assert_eq!(table.table.counters().expired, 1);
    table.table.handle_time(NOW + lifetime + lifetime);
    assert!(table.table.is_empty() && table.table.next_timeout().is_none());
    assert_eq!(table.table.resolvers(), 0);
}

/// Without calls of `handle_time`, the fragments themselves make room.
#[test]
fn expired_sets_go_by_themselves() {
    let mut table = Table::new(1000);
    for n in 0..1000 {
        table.put(&stray(n), from(n as u32), NOW);
    }
    let later = NOW + Duration::from_secs(4);
    for n in 1000..1200 {
        table.put(&stray(n), from(n as u32), later);
    }
    assert_eq!(table.table.len(), 200);
    assert_eq!((table.table.counters().expired, table.table.counters().evicted_full), (1000, 0));
    table.check();
}

/// An expired set that was not removed yet takes no fragments.
#[test]
fn a_set_whose_time_is_over_takes_nothing() {
    let mut table = Table::new(1000);
    for n in 0..100 {
        table.put(&stray(n), from(1), NOW);
    }
    let later = NOW + Duration::from_secs(3);
    assert_eq!(table.put(&stray(99), from(2), later), Reassembled::Waiting);
    assert_eq!(table.put(&stray(99), from(2), later), Reassembled::Duplicate);
    assert_eq!(table.table.counters().sets, 101);
    table.check();
}

#[test]
fn a_flood_never_exceeds_the_bounds() {
    let mut table = Table::new(512);
    let honest = split(60, 9, 0, false);
    for n in 0..100_000_u64 {
        table.put(&stray(n), from((n % 300) as u32), NOW + Duration::from_micros(n));
    }
    assert_eq!(table.table.len(), 512);
    assert!(table.table.sets.len() == 512 && table.table.sets.capacity() <= 1024);
    assert!(table.table.free.capacity() <= 1024 && table.table.index.capacity() <= 2048);
    assert!(table.table.holders.room() <= 8 * 512 + 16 * 300);
    assert!(table.table.heap_bytes() <= 1024 * 520 + (64 << 10), "{}", table.table.heap_bytes());
    table.check();
    // A client with another resolver, whose fragments come at once, still succeeds, because other networks
    // have more sets.
    for fragment in &honest[..6] {
        assert_eq!(table.put(fragment, from(5000), NOW + Duration::from_secs(1)), Reassembled::Waiting);
    }
    let last = table.put(&honest[6], from(5000), NOW + Duration::from_secs(1));
    assert_eq!(last, Reassembled::Complete(Box::new(sealed(60, 9))));
}

/// In a flood from more networks than there are sets, each has one. The newest sets are forgotten no sooner
/// than others.
#[test]
fn among_equals_a_random_set_makes_way() {
    let mut table = Table::new(512);
    let mut networks = 0;
    let mut flood = |table: &mut Table, sets: u32| {
        for _ in 0..sets {
            networks += 1;
            table.put(&stray(u64::from(networks)), from(networks), NOW);
        }
    };
    flood(&mut table, 512);
    let mut whole = 0;
    for seed in 0..100 {
        // Sixty sets of others come between its fragments, so about one of nine first flights is lost.
        for fragment in &split(60, 1000 + u64::from(seed), 0, false) {
            let put = table.put(fragment, from((1 << 20) + seed), NOW);
            whole += u32::from(matches!(put, Reassembled::Complete(_)));
            flood(&mut table, 10);
        }
    }
    assert!(whole >= 75, "{whole} of 100");
    assert_eq!(table.table.len(), 512);
    table.check();
}

#[test]
fn one_network_has_its_share_of_a_full_table() {
    let mut table = Table::new(1600);
    // Alone the network may fill half of the table, but no more.
    for n in 0..10_000 {
        table.put(&stray(n), "2001:db8:1::53".parse().unwrap(), NOW);
    }
    assert!(table.table.len() <= 801, "{}", table.table.len());
    // When others come, the network goes down to a sixteenth while it sends.
    for n in 0..800 {
        table.put(&stray(1 << 40 | n), from(n as u32), NOW);
    }
    for n in 10_000..12_000 {
        table.put(&stray(n), "2001:db8:1:ffff::1".parse().unwrap(), NOW);
    }
    let holder = table.table.holders.find(Prefix::of("2001:db8:1::".parse().unwrap())).unwrap();
    assert_eq!(table.table.holders.sets(holder).len(), 100);
    assert!(table.table.counters().evicted_share > 2000);
    // The sets of others were not removed.
    assert!((0..800).all(|n| table.table.find(stray(1 << 40 | n).id()).is_some()));
    table.check();
}

#[test]
fn a_full_table_takes_from_who_has_the_most() {
    let mut table = Table::new(64);
    for n in 0..30 {
        table.put(&stray(n), from(1), NOW);
    }
    for n in 30..1000 {
        table.put(&stray(n), from(n as u32), NOW);
    }
    let large = table.table.holders.find(Prefix::of(from(1)));
    assert!(large.is_none_or(|large| table.table.holders.sets(large).len() <= 1));
    assert_eq!(table.table.len(), 64);
    table.check();
}

#[test]
fn networks_of_resolvers() {
    let prefix = |address: &str| Prefix::of(address.parse().unwrap());
    assert_eq!(prefix("192.0.2.1"), prefix("192.0.2.255"));
    assert_eq!(prefix("192.0.2.1"), prefix("::ffff:192.0.2.9"));
    assert_ne!(prefix("192.0.2.1"), prefix("192.0.3.1"));
    assert_eq!(prefix("2001:db8:1::1"), prefix("2001:db8:1:ffff::1"));
    assert_ne!(prefix("2001:db8:1::1"), prefix("2001:db8:2::1"));
    assert_ne!(prefix("::1"), prefix("0.0.0.0"));
}

/// A simple model of the table, without any bounds.
#[derive(Default)]
struct Model {
    sets: BTreeMap<FragmentId, ModelSet>,
}

struct ModelSet {
    began: Instant,
    count: u8,
    bodies: BTreeMap<u8, [u8; BODY]>,
    done: bool,
}

impl Model {
    fn put(&mut self, fragment: &Fragment, now: Instant) -> Reassembled {
        self.sets.retain(|_, set| now.saturating_since(set.began) < Duration::from_secs(3));
        let new = || ModelSet { began: now, count: fragment.count(), bodies: BTreeMap::new(), done: false };
        let set = self.sets.entry(fragment.id()).or_insert_with(new);
        if set.done {
            return Reassembled::Late;
        }
        let index = match fragment.part() {
            FragmentPart::Data(index) => index,
            FragmentPart::Parity => fragment.count(),
        };
        match set.bodies.get(&index) {
            _ if set.count != fragment.count() => return Reassembled::Conflict,
            Some(body) if *body == fragment.body => return Reassembled::Duplicate,
            Some(_) => return Reassembled::Conflict,
            None => set.bodies.insert(index, fragment.body),
        };
        if set.bodies.len() < usize::from(set.count) {
            return Reassembled::Waiting;
        }
        let sum = |set: &ModelSet, at: usize| set.bodies.values().fold(0, |sum, body| sum ^ body[at]);
        let bodies: Vec<[u8; BODY]> = (0..set.count)
            .map(|index| match set.bodies.get(&index) {
                Some(body) => *body,
                None => core::array::from_fn(|at| sum(set, at)),
            })
            .collect();
        match fragment::join(fragment.id(), &bodies) {
            Some(sealed) => {
                set.done = true;
                Reassembled::Complete(Box::new(sealed))
            }
            None => {
                self.sets.remove(&fragment.id());
                Reassembled::Mismatch
            }
        }
    }
}

proptest! {
    /// While there is room, the table behaves like the model, for right and wrong fragments in any order,
    /// late or repeated.
    #[test]
    fn it_does_what_the_model_does(
        steps in proptest::collection::vec((0_usize..4, 0_usize..9, 0_u8..2, 0_u8..12, 0_u64..400), 1..250),
    ) {
        let flights: Vec<Vec<Vec<Fragment>>> = (0..4)
            .map(|flight| (0..2).map(|attempt| split(40 * flight, flight as u64, attempt, true)).collect())
            .collect();
        let (mut table, mut model, mut now) = (Table::new(64), Model::default(), NOW);
        for (flight, at, attempt, odd, wait) in steps {
            now += Duration::from_millis(wait);
            let fragments = &flights[flight][usize::from(attempt)];
            let mut fragment = fragments[at % fragments.len()];
            if odd == 0 {
                fragment = poisoned(&fragment);
            }
            prop_assert_eq!(table.put(&fragment, from(flight as u32), now), model.put(&fragment, now));
            prop_assert!(table.table.len() >= model.sets.len());
        }
        table.check();
    }

    /// When there is no room, all lists still agree with each other.
    #[test]
    fn it_stays_whole(steps in proptest::collection::vec((0_u64..200, 0_u32..12, 0_u64..200), 1..400)) {
        let mut table = Table::new(48);
        let mut now = NOW;
        for (id, holder, wait) in steps {
            now += Duration::from_millis(wait);
            // Holders with lower numbers occur more often.
            table.put(&stray(id), from(holder * holder / 12), now);
        }
        table.check();
        let counters = *table.table.counters();
        let gone = counters.expired + counters.evicted_full + counters.evicted_share;
        prop_assert_eq!(counters.sets - gone, table.table.len() as u64);
        table.table.handle_time(now + Duration::from_secs(3));
        prop_assert!(table.table.is_empty());
        table.check();
    }
}
