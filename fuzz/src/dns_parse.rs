//! All parsers of the DNS path by DNS: a parsed object gives the same bytes when it is encoded again, and a table of
//! fragments stays within its bounds.

use firstflight_dns::forward::{Forwarded, MAX_FORWARD};
use firstflight_dns::relay::MAX_RELAY;
use firstflight_dns::{
    Boot, ConnectionInfo, DnsPathKey, DnsPathKeys, ForwardConfig, ForwardSender, Forwarder, Fragment,
    FragmentQuery, LABEL, OpenBuffer, Position, Question, Reassembled, Reassembly, ReassemblyLimits,
    RelayKey, RelayReceiver, Sealed, position,
};
use firstflight_wire::asap::Zone;
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32};
use std::time::Duration;

const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
const OTHER_FRONT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4455);
const NOW_MS: u64 = 1_767_225_660_000;

/// Parses `data` as every possible object: unchanged, and with the fields corrected that random bytes never get
/// right.
pub fn run(data: &[u8]) {
    connection_info(data);
    connection_info(&repaired_info(data));
    label(data);
    sealed(data);
    relay(data);
    relay(&repaired_relay(data));
    forward(data);
    forward(&repaired_forward(data));
    forwarded(data);
    message(data);
    message(&repaired_query(data));
    fragments(data);
}

fn zone() -> Zone<'static> {
    Zone::new(ZONE).unwrap()
}

fn connection_info(data: &[u8]) {
    if let Ok(ci) = ConnectionInfo::parse(data) {
        let mut out = [0; ConnectionInfo::MAX_LEN];
        let len = ci.emit(&mut out).unwrap();
        assert_eq!(out[..len], *data);
        assert_eq!(len, ci.wire_len());
    }
}

fn label(data: &[u8]) {
    if let Ok(fragment) = Fragment::parse(data) {
        assert_eq!(fragment.to_label()[..], data.to_ascii_lowercase());
        assert!(Fragment::is_marked(data));
    }
}

/// This key differs from that of the vectors in the corpus, so nothing can be opened.
fn sealed(data: &[u8]) {
    let key = DnsPathKey::from_bytes(&[0x77; 32]).unwrap();
    if let Some(sealed) = Sealed::new(data) {
        let keys = DnsPathKeys::new(NonZeroU8::new(sealed.key_id()).unwrap_or(NonZeroU8::MIN), key);
        assert!(keys.open(zone(), &sealed, 0, &mut OpenBuffer::new()).is_err());
    }
}

fn relay(data: &[u8]) {
    let mut receiver = RelayReceiver::new();
    receiver.set_key(2, &RelayKey::from_bytes(&[9; 32]));
    assert!(receiver.handle_datagram(data, NOW_MS, &mut OpenBuffer::new()).is_err());
    assert!(receiver.fronts() == 0 && data.len() < 1 << 20);
    const { assert!(MAX_RELAY < 512) };
}

/// The front with number 1. It shares key 9 with front 2.
fn forwarder() -> Forwarder {
    let key = RelayKey::from_bytes(&[9; 32]);
    let sender = ForwardSender::new(&key, 2, 1, Boot(1));
    let (others, keys) = (vec![OTHER_FRONT], vec![(2, key)]);
    Forwarder::new(ForwardConfig { others, sender, keys, per_second: NonZeroU32::MAX }).unwrap()
}

fn clock() -> Clock {
    Clock { mono: Instant::from_secs(1), unix_ms: NOW_MS, uncertainty: Duration::ZERO }
}

/// The port for other fronts accepts only data that is sealed with the key.
fn forward(data: &[u8]) {
    let mut forwarder = forwarder();
    assert!(forwarder.handle_datagram(OTHER_FRONT, data, &clock()).is_err());
    assert_eq!((forwarder.alive(clock().mono), forwarder.counters().taken), (1, 0));
    const { assert!(MAX_FORWARD <= 1232) };
}

/// Sealed content is also parsed carefully: it is accepted as it was sent, or dropped.
fn forwarded(data: &[u8]) {
    let mut other = ForwardSender::new(&RelayKey::from_bytes(&[9; 32]), 2, 0, Boot(1));
    let Some(datagram) = other.seal(data, NOW_MS) else { return };
    let mut forwarder = forwarder();
    if let Ok(fragments) = forwarder.handle_datagram(OTHER_FRONT, &datagram, &clock()) {
        assert_eq!(fragments.len() * 74, data.len());
        for (Forwarded { resolver: _, fragment }, bytes) in fragments.iter().zip(data.as_chunks::<74>().0) {
            assert_eq!(Fragment::parse(&fragment.to_label()).as_ref(), Ok(fragment));
            assert!(format!("{:?}", fragment.id()).starts_with(&format!("{:02x}", bytes[16])));
        }
    }
}

fn message(data: &[u8]) {
    let _ = position(data, zone());
    if let Ok(question) = Question::parse(data) {
        let end = 12 + question.name().len() + 4;
        for bytes in [question.answer(&[Ipv4Addr::LOCALHOST]).unwrap(), question.slip().unwrap()] {
            assert_eq!(bytes[12..end], data[12..end]);
            assert!(bytes.len() <= 512);
        }
        if let Position::Child(child) = question.position(zone()) {
            label(child);
        }
    }
    let query = FragmentQuery::new(0x1234, &[b'a'; LABEL], zone()).unwrap();
    let mut answer = data.to_vec();
    if let [a, b, flags, ..] = answer.as_mut_slice() {
        (*a, *b, *flags) = (0x12, 0x34, *flags | 0x80);
    }
    let _ = query.read_answer(&answer);
}

/// Groups of five bytes: one of a few ids, the part, the resolver, the delay, and a byte of the body.
fn fragments(data: &[u8]) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let limits = ReassemblyLimits::default().sets(NonZeroU16::MIN.saturating_add(7));
    let (mut table, mut now) = (Reassembly::new(limits, &mut rng), Instant::ZERO);
    for step in data.as_chunks::<5>().0 {
        let &[id, part, resolver, wait, byte] = step;
        let Some(fragment) = fragment(id % 32, part, byte) else { continue };
        now += Duration::from_millis(u64::from(wait) * 4);
        let from = IpAddr::V4(Ipv4Addr::new(10, 0, resolver % 8, 53));
        let result = table.handle_fragment(&fragment, from, now, &mut rng);
        // A complete set would need a valid hash.
        assert!(!matches!(result, Reassembled::Complete(_)));
        assert!(table.len() <= 8 && table.resolvers() <= table.len());
        assert_eq!(table.is_empty(), table.next_timeout().is_none());
    }
    table.handle_time(now + Duration::from_secs(3));
    assert!(table.is_empty() && table.resolvers() == 0);
}

/// Encodes a label by hand. This is a second implementation of the number in base 230.
fn fragment(id: u8, part: u8, byte: u8) -> Option<Fragment> {
    let count = 6 + (part >> 4) % 3;
    let mut number = [byte; 58];
    number[..8].copy_from_slice(&[id, 0, 0, 0, 0, 0, (part & 0xf) << 4 | (count - 1), 1]);
    let mut label = [0; LABEL];
    label[..3].copy_from_slice(b"ff0");
    for place in label[3..].iter_mut().rev() {
        let rest = number.iter_mut().fold(0_u32, |rest, byte| {
            let value = rest << 8 | u32::from(*byte);
            *byte = (value / 230) as u8;
            value % 230
        });
        *place = if rest < 65 { rest } else { rest + 26 } as u8;
    }
    let fragment = Fragment::parse(&label);
    assert_eq!(fragment.is_ok(), part & 0xf <= count);
    fragment.ok()
}

fn repaired_info(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    if data.len() > 80 {
        data[0] = 0x11;
        data[1] = data[1] & 0b101 | 0b10;
        data[16] %= 15;
        data[17] = 0;
        let block = if data[1] & 1 == 0 { 22 } else { 34 };
        data[block] = 0x11;
        data[block + 1] = 0;
        data[block + 42] &= 0x1f;
    }
    data
}

fn repaired_relay(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    if data.len() >= 22 {
        data[..4].copy_from_slice(&[0xff, 0x52, 0x11, 2]);
        data[16..22].copy_from_slice(&NOW_MS.to_be_bytes()[2..]);
    }
    data
}

fn repaired_forward(data: &[u8]) -> Vec<u8> {
    let mut data = repaired_relay(data);
    if let Some(kind) = data.get_mut(2).filter(|kind| **kind == 0x11) {
        *kind = 0x12;
    }
    data
}

/// Uses `data` as the label of a question.
fn repaired_query(data: &[u8]) -> Vec<u8> {
    let label = &data[..data.len().min(63)];
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], &[label.len() as u8], label, ZONE, &[0, 1, 0, 1]].concat()
}
