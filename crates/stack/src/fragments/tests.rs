use super::datagram::Datagram;
use super::*;
use alloc::collections::BTreeMap;
use alloc::vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use firstflight_wire::ip::{Ecn, Packet};
use proptest::prelude::*;

const DST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const START: Instant = Instant::from_secs(1000);

/// A fragment of the packet with this identification.
fn part(identification: u32, offset: u16, more: bool, payload: &[u8]) -> Fragment<'_> {
    Fragment {
        src: Ipv4Addr::new(10, 0, 0, 2).into(),
        dst: DST,
        identification,
        next: Protocol::Tcp,
        transport: Some(Protocol::Tcp),
        offset,
        more,
        hop_limit: 60,
        ecn: Ecn::NotEct,
        payload,
    }
}

fn from(n: u32, fragment: Fragment<'_>) -> Fragment<'_> {
    Fragment { src: Ipv4Addr::from_bits(0x0b00_0000 + n).into(), ..fragment }
}

struct Bench {
    table: Table,
    limits: FragmentLimits,
    now: Instant,
}

impl Bench {
    fn new(limits: FragmentLimits) -> Self {
        Self { table: Table::new(7), limits, now: START }
    }

    fn take(&mut self, fragment: &Fragment<'_>) -> Result<Option<Vec<u8>>, PacketDrop> {
        let result = self.table.handle(fragment, &self.limits, self.now);
        self.table.check();
        assert!(self.table.bytes() <= self.limits.bytes);
        result
    }

    /// The payload of the packet that this fragment completes.
    #[track_caller]
    fn completes(&mut self, fragment: &Fragment<'_>) -> Vec<u8> {
        let whole = self.take(fragment).unwrap().unwrap();
        let packet = Packet::parse(&whole).unwrap();
        assert_eq!((packet.src, packet.dst), (fragment.src, fragment.dst));
        packet.payload.to_vec()
    }

    #[track_caller]
    fn waits(&mut self, fragment: &Fragment<'_>) {
        assert_eq!(self.take(fragment), Ok(None));
    }

    #[track_caller]
    fn refuses(&mut self, fragment: &Fragment<'_>, reason: PacketDrop) {
        assert_eq!(self.take(fragment), Err(reason));
    }
}

fn bench() -> Bench {
    Bench::new(FragmentLimits::default())
}

#[test]
fn fragments_in_any_order_make_the_packet() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut bench = bench();
        let parts = [part(1, 0, true, &[1; 16]), part(1, 16, true, &[2; 8]), part(1, 24, false, &[3; 5])];
        bench.waits(&parts[order[0]]);
        bench.waits(&parts[order[1]]);
        let whole = bench.completes(&parts[order[2]]);
        assert_eq!(whole, [vec![1; 16], vec![2; 8], vec![3; 5]].concat());
        assert_eq!((bench.table.len(), bench.table.bytes()), (0, 0));
    }
}

#[test]
fn packets_do_not_mix() {
    let mut bench = bench();
    let last = |fragment| Fragment { offset: 8, more: false, ..fragment };
    let first = part(1, 0, true, &[1; 8]);
    bench.waits(&first);
    bench.waits(&last(Fragment { identification: 2, ..first }));
    bench.waits(&last(from(1, first)));
    bench.waits(&last(Fragment { dst: Ipv4Addr::LOCALHOST.into(), ..first }));
    // In IPv4 the protocol tells packets apart too (RFC 791 §3.2), in IPv6 it does not.
    bench.waits(&last(Fragment { next: Protocol::Udp, ..first }));
    assert_eq!(bench.completes(&last(first)), [1; 16]);
    let v6 =
        |fragment| Fragment { src: Ipv6Addr::LOCALHOST.into(), dst: Ipv6Addr::from(2).into(), ..fragment };
    bench.waits(&v6(first));
    let other = v6(Fragment { next: Protocol::Other(60), transport: None, ..last(first) });
    assert_eq!(bench.completes(&other), [1; 16]);
}

/// RFC 8200 §4.5 lets a host ignore exact copies. A packet with overlapping fragments is discarded (RFC 5722 §4; Linux
/// does so for IPv4 too).
#[test]
fn copies_are_dropped_and_overlaps_end_the_packet() {
    let first = part(1, 8, true, &[1; 16]);
    let overlaps = [
        part(1, 0, true, &[1; 16]),
        part(1, 16, true, &[1; 16]),
        part(1, 8, true, &[1; 8]),
        part(1, 0, true, &[1; 32]),
        // The same bytes as the end of the packet; other bytes at the same place.
        part(1, 8, false, &[1; 16]),
        part(1, 8, true, &[9; 16]),
    ];
    for overlap in overlaps {
        let mut bench = bench();
        bench.waits(&first);
        bench.refuses(&first, PacketDrop::FragmentDuplicate);
        bench.refuses(&overlap, PacketDrop::FragmentOverlap);
        // Later fragments are dropped too, until the lifetime of the packet is over.
        for late in [part(1, 0, true, &[1; 8]), first, part(1, 24, false, &[1; 8])] {
            bench.refuses(&late, PacketDrop::FragmentOverlap);
        }
        bench.now = START + bench.limits.lifetime;
        assert_eq!(bench.table.expire(bench.now), 1);
        bench.waits(&first);
    }
}

#[test]
fn two_ends_contradict_each_other() {
    let mut bench = bench();
    let last = part(1, 16, false, &[1; 8]);
    bench.waits(&last);
    bench.refuses(&last, PacketDrop::FragmentDuplicate);
    bench.refuses(&part(1, 8, false, &[1; 8]), PacketDrop::FragmentOverlap);
    bench.waits(&part(2, 16, false, &[1; 8]));
    bench.refuses(&part(2, 24, true, &[1; 8]), PacketDrop::FragmentOverlap);
    bench.waits(&part(3, 16, true, &[1; 8]));
    bench.refuses(&part(3, 8, false, &[1; 8]), PacketDrop::FragmentOverlap);
}

/// RFC 3168 §5.3.
#[test]
fn one_mark_marks_the_packet() {
    let with = |fragment, ecn| Fragment { ecn, ..fragment };
    let (first, last) = (part(1, 0, true, &[1; 8]), part(1, 8, false, &[1; 8]));
    let check = |a, b, whole: Result<Ecn, PacketDrop>| {
        let mut bench = bench();
        bench.waits(&with(first, a));
        let got = bench.take(&with(last, b));
        assert_eq!(got.map(|packet| Packet::parse(&packet.unwrap()).unwrap().ecn), whole, "{a:?} {b:?}");
    };
    let all = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce];
    for a in all {
        check(a, a, Ok(a));
        for b in all.into_iter().filter(|b| *b != a) {
            let whole = match (a, b) {
                (Ecn::NotEct, _) | (_, Ecn::NotEct) => Err(PacketDrop::FragmentEcn),
                (Ecn::Ce, _) | (_, Ecn::Ce) => Ok(Ecn::Ce),
                _ => Ok(a),
            };
            check(a, b, whole);
        }
    }
}

#[test]
fn a_packet_has_a_bounded_number_of_fragments() {
    let mut bench = bench();
    for n in 0..64 {
        bench.waits(&part(1, n * 8, true, &[1; 8]));
    }
    bench.refuses(&part(1, 64 * 8, false, &[1; 8]), PacketDrop::TooManyFragments);
    bench.refuses(&part(1, 0, true, &[1; 8]), PacketDrop::FragmentOverlap);
    // The smallest MTU that is legal, 68 bytes: 1,480 bytes in pieces of 48.
    for n in 0..30 {
        bench.waits(&part(2, n * 48, true, &[1; 48]));
    }
    assert_eq!(bench.completes(&part(2, 1440, false, &[1; 40])).len(), 1480);
}

#[test]
fn time_is_bounded_from_the_first_fragment_on() {
    let mut bench = bench();
    bench.waits(&part(1, 0, true, &[1; 8]));
    assert_eq!(bench.table.next_deadline(), Some(START + Duration::from_secs(15)));
    bench.now = START + Duration::from_secs(14);
    bench.waits(&part(1, 16, true, &[1; 8]));
    bench.waits(&part(2, 0, true, &[2; 8]));
    assert_eq!(bench.table.next_deadline(), Some(START + Duration::from_secs(15)));
    assert_eq!(bench.table.expire(START + Duration::from_secs(15)), 1);
    assert_eq!(bench.table.len(), 1);
    // Old fragments do not become part of a new packet, even if the driver did not call `expire`.
    bench.now = START + Duration::from_secs(29);
    bench.waits(&part(2, 8, false, &[2; 8]));
    assert_eq!((bench.table.len(), bench.table.next_deadline()), (1, Some(START + Duration::from_secs(44))));
}

/// One source evicts its own packets, the oldest first, and no packets of others.
#[test]
fn a_source_has_its_share() {
    let mut bench = bench();
    bench.waits(&from(1, part(1, 0, true, &[1; 8])));
    for n in 0..10_000 {
        bench.waits(&part(n, 0, true, &[1; 1400]));
        assert!(bench.table.bytes() <= bench.limits.bytes_per_source + 1000);
    }
    assert!(bench.table.len() > 100);
    assert_eq!(bench.table.take_evicted(), 10_001 - bench.table.len() as u64);
    assert_eq!(bench.completes(&from(1, part(1, 8, false, &[1; 8]))), [1; 16]);
    assert_eq!(bench.completes(&part(9_999, 1400, false, &[1; 8])).len(), 1408);
    bench.waits(&part(0, 1400, false, &[1; 8]));
    // An IPv6 /64 is one source.
    let v6 = |n: u32| Fragment {
        src: Ipv6Addr::from(u128::from(n)).into(),
        dst: Ipv6Addr::LOCALHOST.into(),
        ..part(0, 0, true, &[1; 1400])
    };
    let before = bench.table.bytes();
    for n in 0..10_000 {
        bench.waits(&v6(n));
    }
    assert!(bench.table.bytes() <= before + bench.limits.bytes_per_source);
}

/// On a link with a large MTU 36 bytes must not take the room of 60,000: a few forged ones with a client's address
/// would push out what the client sends.
#[test]
fn a_short_fragment_far_behind_costs_little() {
    let mut bench = bench();
    bench.waits(&part(0, 0, true, &[1; 1400]));
    for n in 1..=500 {
        bench.waits(&part(n, 60_000, false, &[0; 8]));
    }
    assert_eq!(bench.table.take_evicted(), 0);
    bench.completes(&part(0, 1400, false, &[2; 100]));
}

#[test]
fn the_oldest_makes_way_when_all_is_full() {
    let mut bench = bench();
    for n in 0..20_000 {
        bench.waits(&from(n, part(n, 0, true, &[1; 800])));
    }
    assert!(bench.table.len() > 3000, "{}", bench.table.len());
    assert_eq!(bench.completes(&from(19_000, part(19_000, 800, false, &[1; 1]))).len(), 801);
    bench.waits(&from(1, part(1, 800, false, &[1; 1])));
    assert!(!bench.table.is_spent());
    bench.table.expire(START + Duration::from_secs(15));
    assert_eq!((bench.table.len(), bench.table.bytes()), (0, 0));
    assert!(bench.table.is_spent(), "its memory is given back");
}

#[test]
fn limits_below_one_packet_take_none() {
    let mut bench = Bench::new(FragmentLimits { bytes: 100, ..FragmentLimits::default() });
    bench.waits(&part(1, 0, true, &[1; 8]));
    assert_eq!((bench.table.len(), bench.table.bytes(), bench.table.take_evicted()), (0, 0, 1));
}

/// A simple model of reassembly: each byte of the payload belongs to one fragment.
#[derive(Debug, Default, Clone)]
struct Model {
    bytes: BTreeMap<u16, (u8, u16)>,
    parts: Vec<(u16, bool, Vec<u8>)>,
    end: Option<u16>,
    dead: bool,
}

impl Model {
    fn take(&mut self, offset: u16, more: bool, payload: &[u8]) -> Result<Option<Vec<u8>>, PacketDrop> {
        let part = (offset, more, payload.to_vec());
        if self.dead {
            return Err(PacketDrop::FragmentOverlap);
        }
        if self.parts.contains(&part) {
            return Err(PacketDrop::FragmentDuplicate);
        }
        let end = offset + payload.len() as u16;
        let farthest = self.bytes.last_key_value().map_or(0, |(at, _)| at + 1);
        let covered = (offset..end).any(|at| self.bytes.contains_key(&at));
        let beyond = self.end.is_some_and(|known| end > known || (!more && end != known));
        if covered || beyond || (!more && end < farthest) {
            self.dead = true;
            return Err(PacketDrop::FragmentOverlap);
        }
        self.bytes.extend((offset..end).zip(payload.iter().map(|byte| (*byte, offset))));
        self.parts.push(part);
        if !more {
            self.end = Some(end);
        }
        let whole = self.end == Some(self.bytes.len() as u16);
        Ok(whole.then(|| core::mem::take(self).bytes.into_values().map(|(byte, _)| byte).collect()))
    }
}

/// Pieces of short packets, cut at random places, in a random order, some twice, some moved or altered.
fn pieces() -> impl Strategy<Value = Vec<(u32, u16, bool, Vec<u8>)>> {
    let honest = (0u32..3, 0u16..12, 1u16..12, any::<bool>(), 0u16..8, 0u8..4).prop_map(
        |(id, unit, units, last, short, stain)| {
            let len = units * 8 - if last { short } else { 0 };
            // Most pieces agree with each other: each byte is its own offset.
            let payload =
                (unit * 8..unit * 8 + len).map(|at| at as u8 ^ u8::from(stain == 3 && at % 16 == 9));
            (id, unit * 8, !last, payload.collect())
        },
    );
    let cut = (0u32..3, proptest::collection::vec(1u16..6, 1..6), 0u16..8).prop_map(|(id, cuts, short)| {
        let total: u16 = cuts.iter().sum::<u16>() * 8 - short;
        let mut at = 0;
        let pieces = cuts.iter().map(|units| {
            let (start, end) = (at, (at + units * 8).min(total));
            at = end;
            (id, start, end < total, (start..end).map(|at| at as u8).collect())
        });
        pieces.collect::<Vec<_>>()
    });
    (cut, proptest::collection::vec(honest, 0..3), any::<bool>())
        .prop_map(|(mut cut, strays, twice)| {
            let first = cut.first().cloned();
            cut.extend(first.filter(|_| twice));
            cut.extend(strays);
            cut
        })
        .prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Random fragments in any order, duplicated or overlapping, give the results of the model.
    #[test]
    fn as_the_model(pieces in proptest::collection::vec(pieces(), 1..4)) {
        let mut bench = bench();
        let mut models: BTreeMap<u32, Model> = BTreeMap::new();
        for (id, offset, more, payload) in pieces.into_iter().flatten() {
            let expected = models.entry(id).or_default().take(offset, more, &payload);
            let got = bench.take(&part(id, offset, more, &payload));
            let got = got.map(|whole| whole.map(|whole| Packet::parse(&whole).unwrap().payload.to_vec()));
            prop_assert_eq!(got, expected);
        }
    }

    /// The limits and sums hold for random fragments from many sources, and nothing is left at the end.
    #[test]
    fn limits_hold(
        fragments in proptest::collection::vec(
            (0u32..40, 0u32..4, 0u16..20, any::<bool>(), 1usize..150, 0u64..40),
            1..300,
        ),
    ) {
        let limits = FragmentLimits { bytes: 8000, bytes_per_source: 2000, per_packet: 5, ..FragmentLimits::default() };
        let mut bench = Bench::new(limits);
        for (source, id, unit, more, units, pause) in fragments {
            bench.now += Duration::from_millis(pause * pause * 5);
            bench.table.expire(bench.now);
            let payload = vec![source as u8; units * 8];
            let _ = bench.take(&from(source, part(id, unit * 8, more, &payload)));
        }
        bench.table.expire(bench.now + limits.lifetime);
        prop_assert_eq!((bench.table.len(), bench.table.bytes()), (0, 0));
        bench.table.check();
    }
}

#[test]
fn the_reach_of_a_fragment_counts_the_header() {
    assert_eq!(Datagram::reach(&part(1, 1480, false, &[1; 8])), 1508);
}
