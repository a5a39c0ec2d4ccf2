use super::*;
use crate::fixtures::{V4, V6, ci, dns_path, key, rng};
use crate::fragment::{Attempt, Fragment, Fragments, LABEL};
use crate::relay::{Boot, RelayKey, RelayReceiver, RelaySender};
use crate::{ConnectionInfo, Echo, FragmentQuery, OpenBuffer, ReassemblyLimits, seal};
use core::net::Ipv4Addr;
use core::time::Duration;
use firstflight_wire::asap::Zone;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Record, RecordType};
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;

const PARENT: &str = "\
$TTL 300
@     IN SOA ns1 hostmaster 7 3600 900 604800 60
@     IN NS  ns1
ns1   IN A   192.0.2.53
www   IN A   192.0.2.80
f     IN NS  ns.f
ns.f  IN A   192.0.2.54
long  IN TXT \"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"
";
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 80), Ipv4Addr::new(192, 0, 2, 81)];
const RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const NOW: Instant = Instant::from_secs(1000);
const UNIX_MS: u64 = 1_767_225_660_000;

fn clock(mono: Instant) -> Clock {
    Clock { mono, unix_ms: UNIX_MS, uncertainty: Duration::from_secs(1) }
}

fn server(n: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 1], n))
}

fn relay_key(n: u16) -> RelayKey {
    RelayKey::from_bytes(&[n as u8; 32])
}

fn name(text: &str) -> Name {
    // This keeps the case, which the parser of text does not.
    Name::from_ascii(text).unwrap()
}

fn parent() -> ZoneData {
    let lines: String = (0..20).map(|n| format!("many IN A 10.0.0.{n}\n")).collect();
    let more: String = (0..40).map(|n| format!("most IN A 10.0.1.{n}\n")).collect();
    ZoneData::parse(&format!("{PARENT}{lines}{more}"), None, &name("xyz.com.")).unwrap()
}

fn config() -> DnsPathConfig {
    let servers = [1, 2]
        .map(|n| RelayServer { address: server(n), sender: RelaySender::new(&relay_key(n), 9, 1, Boot(7)) });
    DnsPathConfig {
        zone: name("f.xyz.com."),
        addresses: ADDRESSES.to_vec(),
        keys: DnsPathKeys::new(3.try_into().unwrap(), key()),
        to: Destination::Relay { servers: servers.into(), policy: Box::new(RoundRobin::default()) },
        limits: ReassemblyLimits::default(),
        opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
    }
}

struct FrontSite {
    front: Front,
    rng: ChaCha20Rng,
}

impl FrontSite {
    fn with(rate: RateLimit, config: DnsPathConfig) -> Self {
        let mut rng = rng(1);
        let mut front = Front::new(vec![parent()], rate).unwrap();
        front.carry(config, &mut rng).unwrap();
        Self { front, rng }
    }

    fn new() -> Self {
        Self::with(RateLimit::default(), config())
    }

    fn send(&mut self, transport: Transport, message: &[u8]) -> Option<Vec<u8>> {
        self.front.handle_query(NOW, RESOLVER, transport, message, &mut self.rng)
    }

    fn ask(&mut self, asked: &str, kind: RecordType) -> Message {
        let answer = self.send(Transport::Udp, &query(asked, kind).to_vec().unwrap()).unwrap();
        Message::from_vec(&answer).unwrap()
    }

    /// Asks for these labels, over UDP and TCP in turn. Checks that each is answered as a fragment must be.
    fn ask_fragments<'a>(&mut self, labels: impl IntoIterator<Item = &'a [u8; LABEL]>) {
        for (n, label) in labels.into_iter().enumerate() {
            let query = FragmentQuery::new(n as u16, label, zone()).unwrap();
            let transport = if n % 2 == 0 { Transport::Udp } else { Transport::Tcp };
            let answer = self.send(transport, query.as_bytes()).unwrap();
            assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
            assert!(answer[12..].starts_with(&query.as_bytes()[12..]));
            let answer = Message::from_vec(&answer).unwrap();
            assert!(answer.metadata.authoritative && !answer.metadata.truncation);
            assert_eq!(addresses(&answer), ADDRESSES);
            assert!(answer.answers.iter().all(|record| record.ttl == 0));
        }
    }

    fn relays(&mut self) -> Vec<Relay> {
        core::iter::from_fn(|| self.front.poll_relay(&clock(NOW))).collect()
    }
}

fn zone() -> Zone<'static> {
    crate::fixtures::zone()
}

fn query(asked: &str, kind: RecordType) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name(asked), kind));
    message
}

fn addresses(answer: &Message) -> Vec<Ipv4Addr> {
    let address = |record: &Record| match &record.data {
        hickory_proto::rr::RData::A(address) => Some(address.0),
        _ => None,
    };
    answer.answers.iter().filter_map(address).collect()
}

fn kinds(records: &[Record]) -> Vec<RecordType> {
    records.iter().map(Record::record_type).collect()
}

/// The labels of a first flight from `address` with this request.
fn labels(address: IpAddr, data: &[u8], seed: u64) -> Vec<[u8; LABEL]> {
    let mut rng = rng(seed);
    let (sealed, _) = seal(&ci(address, data, &mut rng), &dns_path(), &mut rng).unwrap();
    Fragments::split(&sealed, Attempt::default(), true).labels().collect()
}

#[test]
fn a_first_flight_in_fragments_reaches_a_server() {
    let mut site = FrontSite::new();
    for (n, address) in [(1, V4), (2, V6)] {
        let labels = labels(address, b"GET / HTTP/1.0\r\n\r\n", u64::from(n));
        // The last fragments come first, and one is lost.
        site.ask_fragments(labels.iter().rev().take(labels.len() - 1));
        let [relay] = &site.relays()[..] else { panic!() };
        assert_eq!(relay.to, server(n));
        let (mut receiver, mut buffer) = (RelayReceiver::new(), OpenBuffer::new());
        receiver.set_key(9, &relay_key(n));
        let relayed = receiver.handle_datagram(&relay.datagram, UNIX_MS, &mut buffer).unwrap();
        let expected: ConnectionInfo<'_> = ci(address, b"GET / HTTP/1.0\r\n\r\n", &mut rng(u64::from(n)));
        assert_eq!((relayed.ci, relayed.resolver), (expected, RESOLVER));
        // Further fragments and copies are answered, but not handed over.
        site.ask_fragments(&labels);
        assert!(site.relays().is_empty());
    }
}

#[test]
fn a_server_takes_first_flights_from_its_own_front() {
    let mut site = FrontSite::with(RateLimit::default(), DnsPathConfig { to: Destination::Here, ..config() });
    let mut buffer = OpenBuffer::new();
    for (n, address) in [(1, V4), (2, V6)] {
        let labels = labels(address, b"GET / HTTP/1.0\r\n\r\n", n);
        site.ask_fragments(&labels[1..]);
        assert!(site.relays().is_empty());
        let relayed = site.front.poll_opened(&clock(NOW), &mut buffer).unwrap().unwrap();
        let mut rng = rng(n);
        let expected = ci(address, b"GET / HTTP/1.0\r\n\r\n", &mut rng);
        let (_, reply) = seal(&expected, &dns_path(), &mut rng).unwrap();
        assert_eq!((&relayed.ci, relayed.resolver), (&expected, RESOLVER));
        assert_eq!(*relayed.reply.to_bytes(), *reply.to_bytes());
        assert!(site.front.poll_opened(&clock(NOW), &mut buffer).is_none());
    }
    site.ask_fragments(&labels(V4, b"x", 3));
    assert!(site.front.set_keys(DnsPathKeys::new(4.try_into().unwrap(), key())));
    let refused = site.front.poll_opened(&clock(NOW), &mut buffer).unwrap().unwrap_err();
    assert_eq!(refused, NotOpened::Seal(crate::OpenError::UnknownKey));
    assert_eq!((site.front.counters().relayed, site.front.counters().unknown_key), (2, 1));
    let server = RelayServer { address: server(1), sender: RelaySender::new(&relay_key(1), 9, 1, Boot(7)) };
    assert!(!site.front.set_servers(vec![server]));
}

#[test]
fn servers_take_turns() {
    let mut site = FrontSite::new();
    for n in 0..6 {
        site.ask_fragments(&labels(V4, b"x", n));
        let [relay] = &site.relays()[..] else { panic!() };
        assert_eq!(relay.to, server(1 + (n % 2) as u16));
    }
    assert_eq!((site.front.counters().relayed, site.front.reassembly().completed), (6, 6));
    assert_eq!(site.front.counters().answers(Kind::Fragment), site.front.counters().answers_in_all());
}

#[test]
fn bad_fragments_are_answered_as_good_ones() {
    let mut site = FrontSite::new();
    let mut bad = labels(V4, b"x", 1)[0];
    bad[3..].fill(0xff);
    site.ask_fragments([&bad]);
    assert_eq!(site.front.counters().malformed_fragments, 1);
    // Parts of two first flights under one id are forgotten. Nothing is relayed, and all queries are
    // answered.
    let mut mixed = labels(V4, b"x", 1);
    let other = Fragment::parse(&labels(V4, b"x", 2)[0]).unwrap();
    let mut forged = Fragment::parse(&mixed[0]).unwrap();
    forged.body = other.body;
    mixed[0] = forged.to_label();
    mixed.truncate(usize::from(other.count()));
    site.ask_fragments(&mixed);
    assert!(site.relays().is_empty());
    assert_eq!(site.front.reassembly().mismatches, 1);
}

#[test]
fn nothing_fails_below_the_dns_path_zone() {
    let label = String::from("ff0") + &"a".repeat(60);
    let mut site = FrontSite::new();
    let below =
        [format!("{label}.f.xyz.com."), "x.f.xyz.com.".into(), "a.b.f.xyz.com.".into(), "f.xyz.com.".into()];
    for asked in &below {
        for kind in [
            RecordType::A,
            RecordType::AAAA,
            RecordType::TXT,
            RecordType::HTTPS,
            RecordType::ANY,
            RecordType::AXFR,
            RecordType::IXFR,
            RecordType::DS,
            RecordType::Unknown(999),
        ] {
            for class in [DNSClass::IN, DNSClass::CH, DNSClass::ANY] {
                let mut message = query(asked, kind);
                message.queries[0].set_query_class(class);
                for transport in [Transport::Udp, Transport::Tcp] {
                    let answer = site.send(transport, &message.to_vec().unwrap()).unwrap();
                    let answer = Message::from_vec(&answer).unwrap();
                    let (code, said) = (answer.metadata.response_code, format!("{asked} {kind} {class}"));
                    assert_eq!(
                        (code, answer.metadata.authoritative),
                        (ResponseCode::NoError, true),
                        "{said}"
                    );
                    if kind == RecordType::A && class == DNSClass::IN && asked.starts_with("ff0") {
                        assert_eq!(addresses(&answer), ADDRESSES);
                    } else if kind != RecordType::ANY {
                        assert!(answer.answers.is_empty(), "{said}");
                        assert_eq!(kinds(&answer.authorities), [RecordType::SOA], "{said}");
                    }
                }
            }
        }
    }
    assert!(site.front.reassembly().fragments == 0 && site.front.counters().malformed_fragments > 0);
}

#[test]
fn the_dns_path_zone_has_the_servers_that_its_parent_names() {
    let mut site = FrontSite::new();
    let answer = site.ask("f.xyz.com.", RecordType::NS);
    assert_eq!(kinds(&answer.answers), [RecordType::NS]);
    assert_eq!(kinds(&answer.additionals), [RecordType::A]);
    assert!(answer.metadata.authoritative);
    assert_eq!(kinds(&site.ask("f.xyz.com.", RecordType::SOA).answers), [RecordType::SOA]);
    assert_eq!(addresses(&site.ask("ns.f.xyz.com.", RecordType::A)), [Ipv4Addr::new(192, 0, 2, 54)]);
    // The parent answers for the type DS.
    let answer = site.ask("f.xyz.com.", RecordType::DS);
    assert_eq!(answer.authorities[0].name, name("xyz.com."));
}

#[test]
fn zones_change_while_first_flights_are_under_way() {
    let mut site = FrontSite::new();
    let labels = labels(V4, b"x", 1);
    let half = labels.len() / 2;
    site.ask_fragments(&labels[..half]);
    let changed = PARENT
        .replace("192.0.2.80", "192.0.2.99")
        .replace("ns.f", "ns2.f")
        .replace("192.0.2.54", "192.0.2.55");
    let changed = ZoneData::parse(&changed, None, &name("xyz.com.")).unwrap();
    let before = site.front.set_zones(vec![changed.clone()]).unwrap();
    assert_eq!(before.len(), 2);
    assert_eq!(addresses(&site.ask("www.xyz.com.", RecordType::A)), [Ipv4Addr::new(192, 0, 2, 99)]);
    // The DNS-path zone follows its delegation. Its fragments, keys and servers stay.
    let servers = site.ask("f.xyz.com.", RecordType::NS);
    assert_eq!(servers.answers[0].data.to_string(), "ns2.f.xyz.com.");
    assert_eq!(addresses(&site.ask("ns2.f.xyz.com.", RecordType::A)), [Ipv4Addr::new(192, 0, 2, 55)]);
    assert_eq!((site.front.sets(), site.front.counters().answers(Kind::Fragment)), (1, half as u64));
    site.ask_fragments(&labels[half..]);
    assert_eq!(site.relays().len(), 1);
    // Two zones at one name change nothing. Without the parent the DNS-path zone has no servers.
    let twice = site.front.set_zones(vec![parent(), parent()]);
    assert_eq!(twice.unwrap_err(), FrontError::Twice(name("xyz.com.")));
    assert_eq!(addresses(&site.ask("www.xyz.com.", RecordType::A)), [Ipv4Addr::new(192, 0, 2, 99)]);
    site.front.set_zones(vec![]).unwrap();
    assert_eq!(site.ask("www.xyz.com.", RecordType::A).metadata.response_code, ResponseCode::Refused);
    assert!(site.ask("f.xyz.com.", RecordType::NS).answers.is_empty());
    // A zone with a file replaces the bare one.
    let own = PARENT.replace("7 3600", "8 3600");
    let own = ZoneData::parse(&own, None, &name("f.xyz.com.")).unwrap();
    site.front.set_zones(vec![changed, own]).unwrap();
    assert_eq!(addresses(&site.ask("www.f.xyz.com.", RecordType::A)), [Ipv4Addr::new(192, 0, 2, 80)]);
}

#[test]
fn ordinary_names_are_answered_as_by_any_server() {
    let mut site = FrontSite::new();
    let answer = site.ask("WWW.xyz.com.", RecordType::A);
    assert_eq!(addresses(&answer), [Ipv4Addr::new(192, 0, 2, 80)]);
    assert!(answer.metadata.authoritative && !answer.metadata.recursion_available);
    assert!(answer.edns.is_none());
    assert_eq!(site.ask("none.xyz.com.", RecordType::A).metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(site.ask("www.xyz.com.", RecordType::MX).metadata.response_code, ResponseCode::NoError);
    let refused = site.ask("www.example.org.", RecordType::A);
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
    assert!(!refused.metadata.authoritative);
    for kind in [RecordType::AXFR, RecordType::IXFR] {
        assert_eq!(site.ask("xyz.com.", kind).metadata.response_code, ResponseCode::Refused);
    }
    let counters = site.front.counters();
    let counted = Kind::ALL.map(|kind| counters.answers(kind));
    assert_eq!((counted, counters.udp), ([0, 1, 0, 1, 1, 3], 6));
}

#[test]
fn edns_is_answered_with_edns() {
    let mut site = FrontSite::new();
    let mut message = query("www.xyz.com.", RecordType::A);
    message.set_edns(Edns::new());
    let answer = site.send(Transport::Udp, &message.to_vec().unwrap()).unwrap();
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(answer.edns.as_ref().map(|edns| (edns.version(), edns.max_payload())), Some((0, 1232)));
    for asked in ["www.xyz.com.", "x.f.xyz.com."] {
        let mut message = query(asked, RecordType::A);
        let mut edns = Edns::new();
        edns.set_version(1);
        message.set_edns(edns);
        let answer = site.send(Transport::Udp, &message.to_vec().unwrap()).unwrap();
        let answer = Message::from_vec(&answer).unwrap();
        // The library reads 16 as BADSIG, whatever its position.
        assert_eq!(u16::from(answer.metadata.response_code), u16::from(ResponseCode::BADVERS));
        assert!(answer.answers.is_empty());
    }
}

#[test]
fn answers_are_cut_at_the_clients_size() {
    let mut site = FrontSite::new();
    let mut ask = |asked, payload: Option<u16>, transport| {
        let mut message = query(asked, RecordType::A);
        if let Some(payload) = payload {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            message.set_edns(edns);
        }
        let bytes = site.send(transport, &message.to_vec().unwrap()).unwrap();
        let answer = Message::from_vec(&bytes).unwrap();
        (answer.metadata.truncation, answer.answers.len(), bytes.len())
    };
    // 20 records are 350 octets, 40 are 670.
    assert_eq!(ask("many.xyz.com.", None, Transport::Udp), (false, 20, 30 + 20 * 16));
    assert_eq!(ask("most.xyz.com.", None, Transport::Udp), (true, 0, 30));
    assert_eq!(ask("most.xyz.com.", Some(600), Transport::Udp), (true, 0, 41));
    assert_eq!(ask("most.xyz.com.", Some(700), Transport::Udp), (false, 40, 41 + 40 * 16));
    assert!(ask("most.xyz.com.", Some(100), Transport::Udp).0);
    assert_eq!(ask("most.xyz.com.", None, Transport::Tcp), (false, 40, 30 + 40 * 16));
    assert_eq!(site.front.counters().truncated, 3);
}

#[test]
fn what_cannot_be_read_is_said_to_be_malformed() {
    let mut site = FrontSite::new();
    let whole = query("www.xyz.com.", RecordType::A).to_vec().unwrap();
    let mut code = |message: &[u8]| {
        site.send(Transport::Udp, message)
            .map(|answer| (answer[..2].to_vec(), answer[2], answer[3], answer.len()))
    };
    let id = vec![0x12, 0x34];
    let formerr = Some((id.clone(), 0x80, 1, 12));
    assert_eq!(code(&whole[..whole.len() - 1]), formerr);
    assert_eq!(code(&whole[..12]), formerr);
    let mut two = whole.clone();
    two[5] = 2;
    assert_eq!(code(&two), formerr);
    let mut update = whole.clone();
    update[2] = 0x28 | 1;
    assert_eq!(code(&update), Some((id, 0xa9, 4, 12)));
    // Not queries.
    let mut answer = whole.clone();
    answer[2] |= 0x80;
    assert_eq!((code(&answer), code(&whole[..11]), code(&[])), (None, None, None));
    assert_eq!(site.front.counters().ignored, 3);
}

/// RFC 6891 §6.1.1 and §7: every answer has an OPT record exactly if the query had one.
#[test]
fn every_kind_of_answer_has_an_opt_record_if_the_query_had_one() {
    let query = |asked: &str, kind, version, edns: bool| {
        let mut message = query(asked, kind);
        if edns {
            let mut edns = Edns::new();
            edns.set_version(version).set_max_payload(512).set_dnssec_ok(true);
            message.set_edns(edns);
        }
        message.to_vec().unwrap()
    };
    // Two questions, no question, another operation, two OPT records, an invalid answer.
    let count = |at: usize, count| move |mut message: Vec<u8>| (message[at] = count, message).1;
    let twice = |mut message: Vec<u8>| {
        let question = message[12..29].to_vec();
        message.splice(12..12, question);
        message[5] = 2;
        message
    };
    let none = |mut message: Vec<u8>| {
        message.drain(12..29);
        message[5] = 0;
        message
    };
    let plain = |edns| query("www.xyz.com.", RecordType::A, 0, edns);
    let mut site =
        FrontSite::with(RateLimit { per_second: 1000.try_into().unwrap(), ..RateLimit::default() }, config());
    for (code, message) in [
        (0, &plain as &dyn Fn(bool) -> Vec<u8>),
        (0, &|edns| [plain(edns), b"garbage".to_vec()].concat()),
        (0, &|edns| query("f.xyz.com.", RecordType::AXFR, 0, edns)),
        (0, &|edns| query("most.xyz.com.", RecordType::A, 0, edns)),
        (0, &|edns| query("x.f.xyz.com.", RecordType::A, 0, edns)),
        (0, &|edns| query("f.xyz.com.", RecordType::TXT, 0, edns)),
        (3, &|edns| query("none.xyz.com.", RecordType::A, 0, edns)),
        (5, &|edns| query("www.example.org.", RecordType::A, 0, edns)),
        (5, &|edns| query("xyz.com.", RecordType::AXFR, 0, edns)),
        (1, &|edns| twice(plain(edns))),
        (1, &|edns| none(plain(edns))),
        (4, &|edns| count(2, 0x20)(plain(edns))),
        (4, &|edns| count(2, 0x28)(plain(edns))),
    ] {
        for edns in [false, true] {
            for transport in [Transport::Udp, Transport::Tcp] {
                let asked = message(edns);
                let answer = site.send(transport, &asked).unwrap();
                assert_eq!(answer[3] & 0xf, code, "{asked:?}");
                let said = Message::from_vec(&answer).unwrap().edns;
                let told = said.map(|edns| (edns.version(), edns.max_payload(), edns.flags().dnssec_ok));
                assert_eq!(told, edns.then_some((0, 1232, true)), "{asked:?} {answer:?}");
            }
        }
    }
    // Of another version: BADVERS, whose higher bits are in the OPT record.
    let answer = site.send(Transport::Udp, &query("www.xyz.com.", RecordType::A, 1, true)).unwrap();
    assert_eq!(
        (answer[3] & 0xf, &answer[answer.len() - 11..]),
        (0, &[0, 0, 41, 4, 0xd0, 1, 0, 0x80, 0, 0, 0][..])
    );
    // Two OPT records (RFC 6891 §6.1.1).
    let mut two = plain(true);
    two.extend_from_slice(&two.clone()[29..]);
    two[11] = 2;
    let answer = site.send(Transport::Udp, &two).unwrap();
    assert_eq!((answer[3], answer[11], answer.len()), (1, 1, 23));
}

#[test]
fn what_is_cut_by_the_limit_has_an_opt_record_too() {
    let rate = RateLimit { per_second: 1.try_into().unwrap(), ..RateLimit::default() };
    let mut site = FrontSite::with(rate, config());
    let mut message = query("www.xyz.com.", RecordType::A);
    message.set_edns(Edns::new());
    let answers: Vec<Message> = (0..3)
        .filter_map(|_| site.send(Transport::Udp, &message.to_vec().unwrap()))
        .map(|answer| Message::from_vec(&answer).unwrap())
        .collect();
    assert!(answers.iter().any(|answer| answer.metadata.truncation));
    assert!(answers.iter().all(|answer| answer.edns.is_some()));
}

#[test]
fn what_is_answered_over_udp_is_limited_and_over_tcp_is_not() {
    let rate = RateLimit { per_second: 10.try_into().unwrap(), ..RateLimit::default() };
    let mut site = FrontSite::with(rate, config());
    let label = labels(V4, b"x", 1)[0];
    let query = FragmentQuery::new(7, &label, zone()).unwrap();
    let mut counts = [0; 3];
    for _ in 0..30 {
        let at = match site.send(Transport::Udp, query.as_bytes()) {
            Some(answer) => match query.read_answer(&answer) {
                Some(Echo::Answered) => 0,
                Some(Echo::Truncated) => {
                    // The answer is not longer than the query, so it is useless for reflection attacks.
                    assert_eq!(answer.len(), query.as_bytes().len());
                    1
                }
                echo => panic!("{echo:?}"),
            },
            None => 2,
        };
        counts[at] += 1;
    }
    assert_eq!(counts, [10, 10, 10]);
    assert_eq!((site.front.counters().slipped, site.front.counters().limited), (10, 10));
    for _ in 0..30 {
        let answer = site.send(Transport::Tcp, query.as_bytes()).unwrap();
        assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
    }
    // Queries that were not answered were counted.
    assert_eq!(site.front.reassembly().fragments, 60);
}

#[test]
fn first_flights_are_opened_within_a_budget() {
    let mut site = FrontSite::with(
        RateLimit::default(),
        DnsPathConfig { opens_per_second: 20.try_into().unwrap(), ..config() },
    );
    for n in 0..10 {
        site.ask_fragments(&labels(V4, b"x", n));
    }
    // A burst of a tenth of a second.
    assert_eq!(site.relays().len(), 2);
    assert_eq!((site.front.counters().relayed, site.front.counters().over_budget), (2, 8));
    // Without polling, only this number waits.
    let (answers, opens) = (5000.try_into().unwrap(), 5000.try_into().unwrap());
    let mut site = FrontSite::with(
        RateLimit { per_second: answers, ..RateLimit::default() },
        DnsPathConfig { opens_per_second: opens, ..config() },
    );
    for n in 0..80 {
        site.ask_fragments(&labels(V4, b"x", n));
    }
    assert_eq!(site.front.counters().over_budget, 80 - 64);
    assert_eq!(site.relays().len(), 64);
}

#[test]
fn what_does_not_open_goes_nowhere() {
    let mut site = FrontSite::new();
    site.ask_fragments(&labels(V4, b"x", 1));
    assert!(site.front.set_keys(DnsPathKeys::new(4.try_into().unwrap(), key())));
    assert!(site.relays().is_empty());
    let other = crate::DnsPathKey::from_bytes(&[6; 32]).unwrap();
    assert!(site.front.set_keys(DnsPathKeys::new(3.try_into().unwrap(), other)));
    site.ask_fragments(&labels(V4, b"x", 2));
    assert!(site.relays().is_empty());
    assert_eq!((site.front.counters().unknown_key, site.front.counters().not_opened), (1, 1));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let error = |config| {
        let mut front = Front::new(vec![parent()], RateLimit::default()).unwrap();
        front.carry(config, &mut rng(1)).unwrap_err()
    };
    assert_eq!(error(DnsPathConfig { addresses: vec![], ..config() }), FrontError::Addresses);
    assert_eq!(error(DnsPathConfig { addresses: vec![ADDRESSES[0]; 9], ..config() }), FrontError::Addresses);
    let none = Destination::Relay { servers: vec![], policy: Box::new(RoundRobin::default()) };
    assert_eq!(error(DnsPathConfig { to: none, ..config() }), FrontError::NoServer);
    assert_eq!(error(DnsPathConfig { zone: Name::root(), ..config() }), FrontError::DnsPathZone);
    let long = format!("{0}.{0}.{0}.", "a".repeat(63));
    assert_eq!(error(DnsPathConfig { zone: name(&long), ..config() }), FrontError::DnsPathZone);
    let twice = Front::new(vec![parent(), parent()], RateLimit::default());
    assert_eq!(twice.unwrap_err(), FrontError::Twice(name("xyz.com.")));
    let mut plain = Front::new(vec![parent()], RateLimit::default()).unwrap();
    assert!(!plain.set_keys(DnsPathKeys::new(4.try_into().unwrap(), key())));
    let Destination::Relay { servers, .. } = config().to else { panic!() };
    assert!(!plain.set_servers(servers) && plain.poll_relay(&clock(NOW)).is_none());
}

#[test]
fn nothing_is_printed_that_is_secret() {
    let text = format!("{:?} {:?}", FrontSite::new().front, config());
    assert!(text.contains("DnsPathKeys") && !text.contains("5, 5"), "{text}");
}

proptest! {
    #[test]
    fn no_bytes_panic_and_answers_are_answers(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        counts: bool,
        tcp: bool,
    ) {
        let mut bytes = bytes;
        // Without this, most messages have absurd counts.
        if counts && bytes.len() > 12 {
            bytes[2] = 0;
            bytes[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
        }
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        if let Some(answer) = FrontSite::new().send(transport, &bytes) {
            prop_assert!(answer[2] & 0x80 != 0 && answer[..2] == bytes[..2]);
            prop_assert!(tcp || answer.len() <= 1232);
        }
    }
}
