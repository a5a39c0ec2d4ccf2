//! Tests with the vectors of `docs/spec/sealed.md`, which `tools/sealed-vectors` made; and the vectors that this code
//! makes, which that tool opens.

use crate::bind::Bind;
use crate::client::draft::Draft;
use crate::client::size::{FlightRoom, Plan};
use crate::farm::Farm;
use crate::fixtures;
use crate::flight::{Flight, Intake, ServerAnswer, Step};
use crate::hello::Hello;
use crate::keys::{KeySet, SealKey};
use crate::name::HostName;
use crate::plain::{Flags, Inner, Rid};
use crate::record::Record;
use crate::seal::{OpenError, SealError, Target, seal};
use core::convert::Infallible;
use core::num::NonZeroU8;
use data_encoding::HEXLOWER;
use firstflight_credential::asap::Identity;
use firstflight_wire::Instant;
use rand_core::{TryCryptoRng, TryRng};
use serde_json::{Value, json};

fn path(name: &str) -> String {
    format!("{}/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

fn file(name: &str) -> Value {
    let path = path(name);
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

/// Runs `check` on each vector of a list, and says on which one it failed.
fn each(file: &Value, list: &str, check: impl Fn(&Value)) {
    let vectors = file[list].as_array().unwrap();
    assert!(vectors.len() > 2);
    for vector in vectors {
        eprintln!("{}", vector["name"]);
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

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    HEXLOWER.decode(text(vector, key).as_bytes()).unwrap()
}

fn array<const N: usize>(vector: &Value, key: &str) -> [u8; N] {
    bytes(vector, key).try_into().unwrap()
}

fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn host(vector: &Value, key: &str) -> HostName {
    fixtures::name(text(vector, key))
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

fn keys_of(file: &Value, name: &HostName) -> KeySet {
    let mut keys = KeySet::new(name.clone());
    let key = SealKey::from_bytes(&array(file, "private_key")).unwrap();
    let id: u8 = number(file, "key_id");
    keys.add(fixtures::id(id), key, number(file, "not_after"), fixtures::NOW).unwrap();
    keys
}

fn bind_of(vector: &Value) -> Bind {
    let block = &vector["block"];
    if block.is_null() {
        return Bind::NONE;
    }
    let identity = Identity::name(text(block, "name"), number(vector, "port"));
    assert_eq!(identity.digest(), &array(block, "identity"));
    Bind::new(&array(block, "client_key"), &array(block, "request_id"), &identity)
}

#[test]
fn flights_open_and_are_made_again() {
    let file = file("flight");
    each(&file, "vectors", |vector| {
        let public_name = host(vector, "public_name");
        let keys = keys_of(&file, &public_name);
        let record = keys.record(fixtures::NOW).unwrap();
        let entry = &record.entries()[0];
        let port = number(vector, "port");
        let target = Target { entry, public_name: &public_name, port };
        assert_eq!(target.info(), bytes(vector, "info"));

        let flight = Flight::parse(&bytes(vector, "flight")).unwrap();
        let opened = keys.open(&flight, port, fixtures::NOW).unwrap();
        let plain = bytes(vector, "plaintext");
        let inner = Inner::parse(&plain).unwrap();
        assert_eq!(opened.inner(), inner);
        let request = bytes(vector, "request");
        assert_eq!((inner.rid, inner.request), (Rid(array(vector, "rid")), &request[..]));
        assert_eq!((inner.t_ms, inner.bind), (number(vector, "t"), bind_of(vector)));
        assert_eq!(inner.bind.to_bytes(), array(vector, "bind"));
        let hello = opened.check(|name| name.as_str() == text(vector, "server")).unwrap();
        assert_eq!(hello.digest, &array(vector, "digest"));
        assert_eq!(hello.protocol, text(vector, "protocol").as_bytes());
        assert_eq!(opened.check(|_| false), Err(OpenError::Name));

        let protocol = text(vector, "protocol").as_bytes();
        let draft =
            Draft::new(target, inner.rid, inner.bind, inner.t_ms, inner.flags, &request, protocol).unwrap();
        let names: Vec<_> = draft.alpn().iter().map(|name| hex(name)).collect();
        assert_eq!(json!(names), vector["alpn"]);
        assert_eq!(fixtures::hello(text(vector, "server"), draft.alpn()), bytes(vector, "hello"));
        let total = flight.as_bytes().len();
        let plan = Plan { total, in_syn: 0 };
        let mut rng = Once(Some(array(vector, "ephemeral_ikm")));
        let made = draft.seal(inner.hello, &host(vector, "server"), &plan, &mut rng).unwrap();
        assert_eq!(made, flight);
        if total.is_multiple_of(256) {
            assert_eq!(
                FlightRoom::on_connection().plan(inner.hello.len(), request.len()).unwrap().total,
                total
            );
        }
    });
    each(&file, "malformed", |vector| {
        let keys = keys_of(&file, &fixtures::name(fixtures::NAME));
        let flight = Flight::parse(&bytes(vector, "flight")).unwrap();
        assert!(matches!(keys.open(&flight, 443, fixtures::NOW), Err(OpenError::Malformed(_))));
    });
}

#[test]
fn first_bytes() {
    let file = file("flight");
    each(&file, "heads", |vector| {
        let bytes = bytes(vector, "bytes");
        let (_, step) = Intake::new(Instant::ZERO).handle(&bytes, |_| false);
        let is = match step {
            Step::More(_) => "more",
            Step::Tls => "tls",
            Step::Reject => "sealed",
            Step::Close(_) => "close",
            Step::Sealed(_) => "whole",
        };
        assert_eq!(is, text(vector, "is"));
    });
    each(&file, "answers", |vector| {
        let is = match ServerAnswer::read(&bytes(vector, "bytes")) {
            ServerAnswer::More => "more",
            ServerAnswer::Tls => "tls",
            ServerAnswer::Reject => "reject",
            ServerAnswer::Close => "close",
        };
        assert_eq!(is, text(vector, "is"));
    });
}

#[test]
fn hellos_that_are_refused() {
    let file = file("hello");
    let good = bytes(&file, "hello");
    let hello = Hello::parse(&good).unwrap();
    assert_eq!(
        (hello.server_name.as_str(), hello.protocol),
        (text(&file, "server"), &bytes(&file, "protocol")[..])
    );
    assert_eq!(hello.digest, &array(&file, "digest"));
    each(&file, "vectors", |vector| assert!(Hello::parse(&bytes(vector, "hello")).is_err()));
    for len in 0..good.len() {
        assert!(Hello::parse(&good[..len]).is_err(), "{len}");
    }
}

#[test]
fn records() {
    let file = file("record");
    let now = number(&file, "now");
    each(&file, "vectors", |vector| {
        let value = bytes(vector, "record");
        let record = Record::parse(&value).unwrap();
        assert_eq!(record.to_bytes(), value);
        let used = record.usable(now).map(|entry| u64::from(entry.key_id().get()));
        assert_eq!(used, vector["uses"].as_u64());
    });
    each(&file, "malformed", |vector| assert!(Record::parse(&bytes(vector, "record")).is_err()));
}

#[test]
fn farms() {
    let file = file("farm");
    let (period, ttl): (u32, u32) = (number(&file, "period"), number(&file, "ttl"));
    let first = &file["vectors"][0];
    let start = array::<32>(first, "chain").into();
    let mut farm = Farm::new(host(&file, "public_name"), period, ttl, number(first, "index"), start).unwrap();
    for vector in file["vectors"].as_array().unwrap() {
        let index: u64 = number(vector, "index");
        let now = index * u64::from(period) + 10_000;
        farm.advance(now).unwrap();
        assert_eq!((farm.index(), **farm.chain()), (index, array(vector, "chain")));
        assert_eq!(*farm.ticket_secret(index).unwrap(), array(vector, "ticket"));
        let record = farm.keys(now).unwrap().record(now).unwrap();
        let value = record.to_bytes();
        let entry = bytes(vector, "entry");
        assert_eq!(value[3..3 + entry.len()], entry);
        let key = SealKey::from_bytes(&array(vector, "private_key")).unwrap();
        assert_eq!(record.entries()[0].key(), Some(&key.public()));
    }
    for entry in file["table"].as_array().unwrap() {
        assert_eq!(Rid(array(entry, "rid")).table_key(), array(entry, "key"));
    }
}

/// What this code seals, for `tools/sealed-vectors` to open. With `FIRSTFLIGHT_WRITE_VECTORS` the file is written.
#[test]
fn from_rust() {
    let public_name = fixtures::name("public.example");
    let key = SealKey::from_bytes(&[0x77; 32]).unwrap();
    let not_after = (fixtures::NOW + 3600) as u32;
    let mut keys = KeySet::new(public_name.clone());
    keys.add(NonZeroU8::new(200).unwrap(), key.clone(), not_after, fixtures::NOW).unwrap();
    let record = keys.record(fixtures::NOW).unwrap();
    let entry = &record.entries()[0];
    let all: Vec<u8> = (0..=255).collect();
    // Name, request, port, replayable, complete, with a block.
    #[allow(clippy::type_complexity, reason = "a table")]
    let cases: [(&str, &[u8], u16, bool, bool, bool); 4] = [
        ("replayable", b"GET / HTTP/1.1\r\n\r\n", 443, true, true, false),
        ("with a block, in a SYN", b"POST / HTTP/1.1\r\n\r\n", 8443, false, true, true),
        ("no request", b"", 443, false, false, false),
        ("any bytes", &all, 1, false, false, true),
    ];
    let vectors: Vec<_> = (1u8..)
        .zip(cases)
        .map(|(seed, (name, request, port, replayable, complete, block))| {
            let server = fixtures::name("hidden.example");
            let identity = Identity::name(public_name.as_str(), port);
            let (client_key, request_id) = ([seed; 32], [seed; 8]);
            let bind = if block { Bind::new(&client_key, &request_id, &identity) } else { Bind::NONE };
            let (flags, t_ms) = (Flags { replayable, complete }, fixtures::NOW * 1000 + u64::from(seed));
            let target = Target { entry, public_name: &public_name, port };
            let draft = Draft::new(target, Rid([seed; 16]), bind, t_ms, flags, request, b"h2").unwrap();
            let names = draft.alpn().clone();
            let hello = fixtures::hello(server.as_str(), &names);
            let room = if block { FlightRoom::in_syn(1400, 28, 196) } else { FlightRoom::on_connection() };
            let plan = room.plan(hello.len(), request.len()).unwrap();
            let flight = draft.seal(&hello, &server, &plan, &mut Once(Some([seed; 32]))).unwrap();
            let block = block.then(|| {
                json!({"client_key": hex(&client_key), "request_id": hex(&request_id), "name": public_name.as_str()})
            });
            json!({
                "name": name, "server": server.as_str(), "public_name": public_name.as_str(), "port": port,
                "protocol": "h2", "rid": hex(&[seed; 16]), "t": t_ms, "flags": u8::from(replayable) | u8::from(complete) << 1,
                "request": hex(request), "block": block, "total": plan.total, "digest": hex(&names[1][3..]),
                "flight": hex(flight.as_bytes()),
            })
        })
        .collect();
    let file = json!({
        "about": "Flights that the Rust code sealed; tools/sealed-vectors opens them.",
        "private_key": hex(&*key.to_bytes()), "key_id": 200, "not_after": not_after,
        "entry": hex(&record.to_bytes()[3..48]), "vectors": vectors,
    });
    let text = serde_json::to_string_pretty(&file).unwrap() + "\n";
    if std::env::var_os("FIRSTFLIGHT_WRITE_VECTORS").is_some() {
        std::fs::write(path("from-rust"), &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path("from-rust")).unwrap(), text);
}

/// RFC 9180 section 7.1.4: an all-zero shared secret is refused.
#[test]
fn keys_of_small_order_are_refused() {
    let inner = Inner {
        rid: Rid([1; 16]),
        bind: Bind::NONE,
        t_ms: 1,
        flags: Flags::default(),
        hello: b"x",
        request: b"",
    };
    let mut one = [0; 32];
    one[0] = 1;
    for bad in [[0; 32], one] {
        let entry = crate::Entry::x25519(NonZeroU8::MIN, &bad, u32::MAX);
        let to = Target { entry: &entry, public_name: &fixtures::name("a.example"), port: 1 };
        assert_eq!(seal(&inner, &to, 256, &mut fixtures::rng(1)).unwrap_err(), SealError::BadKey);
        let mut bytes = fixtures::flight(b"GET", &mut fixtures::rng(1)).as_bytes().to_vec();
        bytes[6..38].copy_from_slice(&bad);
        let flight = Flight::parse(&bytes).unwrap();
        assert_eq!(fixtures::keys().open(&flight, 443, fixtures::NOW).unwrap_err(), OpenError::Forged);
    }
}

#[test]
fn any_changed_bit_is_noticed() {
    let (keys, good) = (fixtures::keys(), fixtures::flight(b"GET", &mut fixtures::rng(1)));
    for at in 6..good.as_bytes().len() {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] ^= 1;
        let changed = Flight::parse(&bytes).unwrap();
        assert_eq!(keys.open(&changed, 443, fixtures::NOW).unwrap_err(), OpenError::Forged, "{at}");
    }
    // The length is authenticated as well: a byte more, or less.
    let bytes = good.as_bytes();
    for len in [bytes.len() - 1, bytes.len() + 1] {
        let mut other = bytes.to_vec();
        other.resize(len, 0);
        other[4..6].copy_from_slice(&((len - 6) as u16).to_be_bytes());
        let other = Flight::parse(&other).unwrap();
        assert_eq!(keys.open(&other, 443, fixtures::NOW).unwrap_err(), OpenError::Forged);
    }
}
