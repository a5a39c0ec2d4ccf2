//! Tests with the vectors of `docs/spec/dns-path.md`, which `tools/dns-vectors` made: they are parsed as
//! stated, and written identically.

use crate::base230;
use crate::forward::{Forwarded, datagram, owner};
use crate::relay::MAX_RELAY;
use crate::{
    Attempt, Boot, ConnectionInfo, DnsPathKey, DnsPathKeys, Echo, Fragment, FragmentId, FragmentPart,
    FragmentQuery, Fragments, OpenBuffer, Position, Question, RelayKey, RelayReceiver, RelaySender, ReplyKey,
    Sealed, WindowScale, seal,
};
use core::convert::Infallible;
use core::net::{IpAddr, SocketAddr};
use data_encoding::HEXLOWER;
use firstflight_wire::asap::{Block, DnsPathParam, Status, Zone};
use firstflight_wire::{ParseError, SeqNum};
use rand_core::{TryCryptoRng, TryRng};
use serde_json::Value;

fn file(name: &str) -> Value {
    let path = format!("{}/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

/// Runs `check` on each vector, and says on which one it failed.
fn each(file: &Value, check: impl Fn(&Value)) {
    let vectors = file["vectors"].as_array().unwrap();
    assert!(vectors.len() > 2);
    for vector in vectors {
        eprintln!("{}", text(vector, "name"));
        check(vector);
    }
}

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap_or_else(|| panic!("{key} of {vector}"))
}

fn number<T: TryFrom<u64>>(vector: &Value, key: &str) -> T {
    let number = vector[key].as_u64().and_then(|number| number.try_into().ok());
    number.unwrap_or_else(|| panic!("{key} of {vector}"))
}

fn unhex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.as_bytes()).unwrap()
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    unhex(text(vector, key))
}

fn array<const N: usize>(vector: &Value, key: &str) -> [u8; N] {
    bytes(vector, key).try_into().unwrap()
}

fn address(vector: &Value, key: &str) -> IpAddr {
    text(vector, key).parse().unwrap()
}

fn port<T: TryFrom<u16, Error: core::fmt::Debug>>(vector: &Value, key: &str) -> T {
    number::<u16>(vector, key).try_into().unwrap()
}

fn ci<'a>(vector: &Value, data: &'a [u8]) -> ConnectionInfo<'a> {
    ConnectionInfo {
        address: address(vector, "address"),
        outer_port: port(vector, "outer_port"),
        source_port: port(vector, "source_port"),
        destination_port: port(vector, "destination_port"),
        isn: SeqNum::new(number(vector, "isn")),
        window: number(vector, "window"),
        mss: number(vector, "mss"),
        window_scale: vector["window_scale"].as_u64().map(|scale| WindowScale::new(scale as u8).unwrap()),
        sack_permitted: vector["sack_permitted"].as_bool().unwrap(),
        block: Block::parse(&bytes(vector, "block")).unwrap(),
        data,
    }
}

/// A generator that returns these bytes once.
struct Once(Option<[u8; 32]>);

impl TryRng for Once {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        panic!("not asked for")
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        panic!("not asked for")
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        out.copy_from_slice(&self.0.take().unwrap());
        Ok(())
    }
}

impl TryCryptoRng for Once {}

#[test]
fn connection_information() {
    each(&file("dns-path"), |vector| {
        let (data, written) = (bytes(vector, "data"), bytes(vector, "connection_info"));
        let ci = ci(vector, &data);
        assert_eq!(ConnectionInfo::parse(&written), Ok(ci));
        let mut out = [0; ConnectionInfo::MAX_LEN];
        let len = ci.emit(&mut out).unwrap();
        assert_eq!(out[..len], written);
    });
}

#[test]
fn seals() {
    let file = file("dns-path");
    let key = DnsPathKey::from_bytes(&array(&file, "private_key")).unwrap();
    assert_eq!(key.public(), array(&file, "public_key"));
    let key_id = number::<u8>(&file, "key_id").try_into().unwrap();
    let keys = DnsPathKeys::new(key_id, key);
    each(&file, |vector| {
        let (data, zone) = (bytes(vector, "data"), bytes(vector, "zone"));
        let zone = Zone::new(&zone).unwrap();
        let to = DnsPathParam { key_id, key: array(&file, "public_key"), zone };
        let mut rng = Once(Some(array(vector, "ephemeral_ikm")));
        let (sealed, reply) = seal(&ci(vector, &data), &to, &mut rng).unwrap();
        assert_eq!(sealed.as_slice(), bytes(vector, "sealed"));
        assert_eq!(*reply.to_bytes(), array(vector, "reply_key"));
        let mut buffer = OpenBuffer::new();
        let (opened, opened_reply) = keys.open(zone, &sealed, 0, &mut buffer).unwrap();
        assert_eq!(opened, ci(vector, &data));
        assert_eq!(*opened_reply.to_bytes(), *reply.to_bytes());
    });
}

#[test]
fn proofs() {
    each(&file("dns-path"), |vector| {
        let key = ReplyKey::from_bytes(&array(vector, "reply_key"));
        let server = SocketAddr::new(address(vector, "server"), number(vector, "server_port"));
        let isn = SeqNum::new(number(vector, "server_isn"));
        let status = Status::from_u8(number(vector, "status")).unwrap();
        assert_eq!(key.proof(server, isn, status), array(vector, "proof"));
        assert!(key.verifies(server, isn, status, &array(vector, "proof")));
    });
}

#[test]
fn labels() {
    each(&file("dns-path"), |vector| {
        let sealed = Sealed::new(&bytes(vector, "sealed")).unwrap();
        let attempt = Attempt::new(number(vector, "attempt")).unwrap();
        let fragments = Fragments::split(&sealed, attempt, true);
        let expected = vector["labels"].as_array().unwrap();
        assert_eq!(expected.len(), fragments.as_slice().len());
        for (at, (label, expected)) in fragments.labels().zip(expected).enumerate() {
            assert_eq!(label.to_vec(), unhex(expected.as_str().unwrap()), "{at}");
            assert_eq!(Fragment::parse(&label).unwrap(), fragments.as_slice()[at]);
        }
    });
}

#[test]
fn messages() {
    let file = file("dns-path");
    let IpAddr::V4(front) = address(&file, "front_address") else { panic!() };
    each(&file, |vector| {
        let zone = bytes(vector, "zone");
        let zone = Zone::new(&zone).unwrap();
        let label: [u8; 63] = unhex(vector["labels"][0].as_str().unwrap()).try_into().unwrap();
        let query = FragmentQuery::new(number(vector, "query_id"), &label, zone).unwrap();
        assert_eq!(query.as_bytes(), bytes(vector, "query"));
        let question = Question::parse(query.as_bytes()).unwrap();
        assert_eq!(question.position(zone), Position::Child(&label));
        let answer = question.answer(&[front]).unwrap();
        assert_eq!(answer, bytes(vector, "answer"));
        assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
    });
}

#[test]
fn relay_datagrams() {
    let file = file("dns-path");
    let key = RelayKey::from_bytes(&array(&file, "relay_key"));
    let (key_id, resolver) = (number(&file, "relay_key_id"), address(&file, "resolver"));
    each(&file, |vector| {
        let (data, time) = (bytes(vector, "data"), number(vector, "time_ms"));
        let (ci, reply) = (ci(vector, &data), ReplyKey::from_bytes(&array(vector, "reply_key")));
        let mut sender = RelaySender::new(&key, key_id, number(vector, "front"), Boot(number(&file, "boot")));
        let mut out = [0; MAX_RELAY];
        let mut len = 0;
        for _ in 0..=number::<usize>(vector, "sequence") {
            len = sender.emit(&ci, &reply, resolver, time, &mut out).unwrap();
        }
        assert_eq!(out[..len], bytes(vector, "relay"));
        let mut receiver = RelayReceiver::new();
        receiver.set_key(key_id, &key);
        let mut buffer = OpenBuffer::new();
        let relayed = receiver.handle_datagram(&out[..len], time, &mut buffer).unwrap();
        assert_eq!((relayed.ci, relayed.resolver), (ci, resolver));
        assert_eq!(*relayed.reply.to_bytes(), *reply.to_bytes());
    });
}

#[test]
fn owners_and_datagrams_among_fronts() {
    let file = file("forward");
    let shared = RelayKey::from_bytes(&array(&file, "shared_key"));
    assert_eq!(*shared.for_fronts().to_bytes(), array(&file, "key"));
    let fronts: Vec<u16> =
        file["fronts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u16).collect();
    for set in file["owners"].as_array().unwrap() {
        let weights = fronts.iter().map(|front| owner::weight(FragmentId(array(set, "id")), *front));
        let pairs: Vec<(u64, u16)> = weights.zip(fronts.iter().copied()).collect();
        for ((weight, _), expected) in pairs.iter().zip(set["weights"].as_array().unwrap()) {
            assert_eq!(weight.to_be_bytes().to_vec(), unhex(expected.as_str().unwrap()));
        }
        assert_eq!(pairs.iter().max().unwrap().1, number::<u16>(set, "owner"));
    }
    let (key_id, boot, time) =
        (number(&file, "key_id"), Boot(number(&file, "boot")), number(&file, "time_ms"));
    let open = |bytes: &[u8]| {
        let mut receiver = RelayReceiver::new();
        receiver.set_key(key_id, &shared.for_fronts());
        datagram::open(&mut receiver, bytes, time)
    };
    each(&file, |vector| {
        let part = |part: &Value| Forwarded {
            resolver: address(part, "resolver"),
            fragment: Fragment::from_bytes(&array(part, "number")).unwrap(),
        };
        let parts: Vec<Forwarded> = vector["fragments"].as_array().unwrap().iter().map(part).collect();
        let front = number(vector, "front");
        let mut sender = RelaySender::new(&shared.for_fronts(), key_id, front, boot);
        let mut sealed = Vec::new();
        for _ in 0..=number::<usize>(vector, "sequence") {
            sealed = datagram::seal(&mut sender, &parts, time).unwrap();
        }
        assert_eq!(sealed, bytes(vector, "datagram"));
        assert_eq!(open(&sealed), Ok((front, parts)));
    });
    for vector in file["dropped"].as_array().unwrap() {
        assert!(open(&bytes(vector, "datagram")).is_err(), "{}", text(vector, "name"));
    }
}

#[test]
fn what_is_no_connection_information() {
    let file = file("connection-info");
    let good = bytes(&file, "connection_info");
    assert!(ConnectionInfo::parse(&good).is_ok());
    each(&file, |vector| {
        let mut bad = if vector["bytes"].is_string() { bytes(vector, "bytes") } else { good.clone() };
        if vector["length"].is_u64() {
            bad.truncate(number(vector, "length"));
        }
        if vector["to"].is_string() {
            let (at, to) = (number::<usize>(vector, "at"), bytes(vector, "to"));
            assert_ne!(bad[at..at + to.len()], to);
            bad[at..at + to.len()].copy_from_slice(&to);
        }
        let word = match ConnectionInfo::parse(&bad).unwrap_err() {
            ParseError::Truncated => "truncated",
            ParseError::Malformed(_) => "malformed",
            other => panic!("{other}"),
        };
        assert_eq!(word, text(vector, "error"));
    });
}

#[test]
fn fragments() {
    let file = file("fragment");
    for pair in file["numbers"].as_array().unwrap() {
        assert_eq!(base230::encode(&array(pair, "bytes")), array(pair, "symbols"));
        assert_eq!(base230::decode(&array(pair, "symbols")), Some(array(pair, "bytes")));
    }
    let good = &file["fragment"];
    for key in ["label", "upper_case"] {
        let fragment = Fragment::parse(&bytes(good, key)).unwrap();
        assert_eq!(fragment.id(), FragmentId(array(good, "id")));
        assert_eq!(fragment.part(), FragmentPart::Data(number(good, "index")));
        assert_eq!(fragment.count(), number::<u8>(good, "count"));
        assert_eq!(fragment.attempt().get(), number::<u8>(good, "attempt"));
        assert_eq!(fragment.body, array(good, "body"));
        assert_eq!(fragment.to_label(), array(good, "label"));
    }
    each(&file, |vector| assert!(Fragment::parse(&bytes(vector, "label")).is_err()));
}
