//! Reads the vectors of `docs/spec/asap.md`, which `tools/asap-vectors` generates, and writes them again
//! unchanged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use data_encoding::HEXLOWER;
use firstflight_wire::ParseError;
use firstflight_wire::asap::message::{Challenge, Message, Request, Token, VantageId};
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, Block, CertificateBody, CertificateFlags, Encapsulation, Hint, Reply,
    RequestInput, ServiceParam, VerifiersParam, certificate_input, identity_input,
};
use firstflight_wire::encapsulation::{self, Carried, Control};
use firstflight_wire::tcp::{OptionBytes, Options};
use serde_json::{Value, json};
use std::net::SocketAddr;

fn file(name: &str) -> Value {
    let path = format!("{}/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

/// Runs `check` on each vector, and reports the vector on which it failed.
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

fn number(vector: &Value, key: &str) -> u64 {
    vector[key].as_u64().unwrap_or_else(|| panic!("{key} of {vector}"))
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    HEXLOWER.decode(text(vector, key).as_bytes()).unwrap()
}

fn array<const N: usize>(vector: &Value, key: &str) -> [u8; N] {
    bytes(vector, key).try_into().unwrap()
}

const fn word(error: ParseError) -> &'static str {
    match error {
        ParseError::Truncated => "truncated",
        ParseError::Malformed(_) => "malformed",
        _ => "another",
    }
}

#[test]
fn first_flights() {
    each(&file("first-flight"), |vector| {
        let (block, address) = (bytes(vector, "block"), text(vector, "address").parse().unwrap());
        let read = Block::parse(&block).unwrap();
        let body = read.certificate;
        let flags = CertificateFlags::from_u8(number(vector, "flags") as u8).unwrap();
        assert_eq!(body.client_key, array(vector, "client_key"));
        assert_eq!(u64::from(body.valid_from), number(vector, "valid_from"));
        assert_eq!((u64::from(body.duration()), body.flags), (number(vector, "duration"), flags));
        assert_eq!(body.signature, array(vector, "certificate_signature"));
        assert_eq!(read.request.requested_ms, number(vector, "requested_ms"));
        assert_eq!(read.request.request_id, array(vector, "request_id"));
        assert_eq!(read.request.signature, array(vector, "request_signature"));
        assert_eq!(read.request.identity_tag, array::<32>(&vector["identity"], "digest")[..4]);
        assert_eq!(read.to_bytes(), block[..BLOCK_LEN]);

        let sent = array(vector, "certificate_body");
        assert_eq!(CertificateBody::parse(&sent), Ok(body));
        assert_eq!(body.to_bytes(), sent);
        let signed = certificate_input(&body, &array(vector, "verifier_key"), address);
        assert_eq!(HEXLOWER.encode(&signed), text(vector, "certificate_input"));

        // The expected input contains the digest of the data. The tests of `credential` check the hashes.
        let expected = bytes(vector, "request_input");
        let input = RequestInput {
            encapsulation: if vector["encapsulation"] == "ip" {
                Encapsulation::Ip
            } else {
                Encapsulation::Udp
            },
            relayed: vector["relayed"].as_bool().unwrap(),
            address,
            identity: array(&vector["identity"], "digest"),
            block_len: block.len() as u32,
            data_len: bytes(vector, "data").len() as u32,
            data_digest: expected[92..124].try_into().unwrap(),
            requested_ms: read.request.requested_ms,
            request_id: read.request.request_id,
            certificate: array(vector, "certificate_digest"),
        };
        assert_eq!(HEXLOWER.encode(&input.to_bytes()), HEXLOWER.encode(&expected));

        let option = AsapOption::Block { long_reply: false, len: block.len() as u16 };
        assert_eq!(HEXLOWER.encode(OptionBytes::from(option).as_slice()), text(vector, "option"));
    });
}

#[test]
fn blocks_that_are_none() {
    let file = file("block");
    let good = bytes(&file, "block");
    assert!(Block::parse(&good).is_ok() && good.len() > BLOCK_LEN);
    each(&file, |vector| {
        let mut bad = good.clone();
        match vector["length"].as_u64() {
            Some(length) => bad.truncate(length as usize),
            None => bad[number(vector, "at") as usize] = bytes(vector, "to")[0],
        }
        assert_eq!(Block::parse(&bad).map_err(word), Err(text(vector, "error")));
    });
}

#[test]
fn options() {
    each(&file("option"), |vector| {
        let whole = bytes(vector, "option");
        let data = Options::parse(&whole, true).asap().expect("the option was not found");
        let (read, again) = if vector["on"] == "syn" {
            let option = AsapOption::parse(data);
            (option.map(|option| offer_fields(&option)), option.map(OptionBytes::from))
        } else {
            let reply = Reply::parse(data);
            (reply.map(|reply| reply_fields(&reply)), reply.map(OptionBytes::from))
        };
        let mut expected = vector.as_object().unwrap().clone();
        expected.retain(|key, _| !["name", "on", "option"].contains(&key.as_str()));
        assert_eq!(read.unwrap_or(json!({ "error": "malformed" })), Value::Object(expected));
        assert!(again.is_none_or(|again| again.as_slice() == whole));
    });
}

fn offer_fields(option: &AsapOption) -> Value {
    let (form, len) = match option {
        AsapOption::Probe { .. } => ("probe", 0),
        AsapOption::Block { len, .. } => ("block", *len),
    };
    json!({ "form": form, "long_reply": option.long_reply(), "block_len": len })
}

fn reply_fields(reply: &Reply) -> Value {
    let mut fields =
        json!({ "form": "long", "status": reply.status as u8, "tag": HEXLOWER.encode(&reply.tag) });
    let (Hint::Time(time) | Hint::Trusts(time, _) | Hint::Sees(time, _)) = reply.hint else {
        if let Hint::Proof(proof) = reply.hint {
            fields["proof"] = HEXLOWER.encode(&proof).into();
        }
        fields["form"] = if reply.hint == Hint::None { "short" } else { "proof" }.into();
        return fields;
    };
    fields["time"] = time.into();
    match reply.hint {
        Hint::Trusts(_, id) => fields["verifier"] = id.to_string().into(),
        Hint::Sees(_, address) => fields["address"] = address.to_string().into(),
        _ => {}
    }
    fields
}

/// The hashed input begins with the identity's kind and port. The tests of `credential` check the digests.
#[test]
fn identities() {
    each(&file("identity"), |vector| {
        let (kind, port) = (number(vector, "kind") as u8, number(vector, "port") as u16);
        let input = identity_input(kind, port);
        assert_eq!(input[..22], *b"firstflight ASAP v1 ID");
        assert_eq!(input[22..32], [0; 10]);
        assert_eq!((input[32], u16::from_be_bytes([input[33], input[34]])), (kind, port));
    });
}

#[test]
fn service_parameters() {
    each(&file("service"), |vector| {
        let param = bytes(vector, "param");
        let read = match ServiceParam::parse(&param) {
            Ok(read) => read,
            Err(error) => return assert_eq!(vector["error"], word(error)),
        };
        let udp = read.udp();
        let dns_path = udp.and_then(|udp| udp.dns_path).map(|dns_path| {
            let zone = dns_path.zone.to_string();
            json!({ "key_id": dns_path.key_id, "key": HEXLOWER.encode(&dns_path.key), "zone": zone })
        });
        let verifiers: Vec<_> = read.verifiers.iter().map(|id| id.to_string()).collect();
        let fields = json!({
            "ip": read.takes_ip(), "udp_port": udp.map(|udp| udp.port), "mss": read.mss(),
            "verifiers": verifiers, "shared_guard": read.shared_guard, "dns_path": dns_path,
        });
        assert_eq!(fields, vector["result"]);
        let mut out = [0; ServiceParam::MAX_LEN];
        let len = read.emit(&mut out).unwrap();
        assert_eq!(HEXLOWER.encode(&out[..len]), HEXLOWER.encode(&param));
    });
}

#[test]
fn verifiers_of_a_site() {
    each(&file("verifiers"), |vector| {
        let param = bytes(vector, "param");
        let read = match VerifiersParam::parse(&param) {
            Ok(read) => read,
            Err(error) => return assert_eq!(vector["error"], word(error)),
        };
        let points: Vec<Vec<_>> = read.iter().map(|one| one.points.iter().collect()).collect();
        let fields: Vec<_> = read
            .iter()
            .zip(&points)
            .map(|(one, points)| {
                let points: Vec<_> = points
                    .iter()
                    .map(
                        |one| json!({ "id": one.id, "udp_port": one.udp_port, "name": one.name.to_string() }),
                    )
                    .collect();
                json!({
                    "key": HEXLOWER.encode(&one.key), "udp_port": one.udp_port, "tcp_port": one.tcp_port,
                    "name": one.name.to_string(), "below": one.below, "points": points,
                })
            })
            .collect();
        assert_eq!(json!(fields), vector["result"]);
        let all: Vec<_> = read.iter().zip(&points).map(|(one, points)| (one, points.as_slice())).collect();
        let mut out = [0; VerifiersParam::MAX_LEN];
        let len = VerifiersParam::emit(all.into_iter(), &mut out).unwrap();
        assert_eq!(HEXLOWER.encode(&out[..len]), HEXLOWER.encode(&param));
    });
    // A client that knows nothing of them reads what it knew, and takes the one for nothing else.
    each(&file("service"), |vector| assert!(VerifiersParam::parse(&bytes(vector, "param")).is_err()));
    each(&file("verifiers"), |vector| assert!(ServiceParam::parse(&bytes(vector, "param")).is_err()));
}

#[test]
fn carried_datagrams() {
    each(&file("encapsulation"), |vector| {
        let datagram = bytes(vector, "datagram");
        let mut out = datagram.clone();
        let (kind, written) = match Carried::parse(&datagram) {
            Ok(Carried::Segment(_)) => ("segment", encapsulation::emit_segment_header(&mut out)),
            Ok(Carried::Control(control)) => match control {
                Control::KeepAlive => ("keep-alive", control.emit(&mut out)),
                Control::Reset => ("reset", control.emit(&mut out)),
                Control::PathChallenge(_) => ("path-challenge", control.emit(&mut out)),
                Control::PathResponse(_) => ("path-response", control.emit(&mut out)),
            },
            Err(error) => return assert_eq!(vector["error"], word(error)),
        };
        assert_eq!(vector["type"], kind);
        // The encapsulation does not write what follows a segment's header.
        let len = if kind == "segment" { encapsulation::HEADER } else { datagram.len() };
        assert_eq!((written, out), (Ok(len), datagram));
    });
}

#[test]
fn verifier_messages() {
    let file = file("message");
    let key = array(&file, "verifier_key");
    each(&file, |vector| {
        let whole = bytes(vector, "message");
        let message = Message::parse(&whole).unwrap();
        assert_eq!(number(vector, "type"), u64::from(whole[3]));
        assert_eq!(HEXLOWER.encode(&message.to_bytes()), HEXLOWER.encode(&whole));
        assert_eq!(message.transaction().0, array(&file, "transaction"));
        if let (Message::Request(request), Some(signed)) = (message, vector["signed"].as_str()) {
            assert_eq!(HEXLOWER.encode(request.signing_input(&key).as_slice()), signed);
        }
    });
    let (challenge, token) = (&file["challenge"], &file["token"]);
    let client = file["address"].as_str().unwrap().parse().unwrap();
    let port = number(&file, "port") as u16;
    let request = bytes(&file["vectors"][1], "message");
    let Ok(Message::Request(request)) = Message::parse(&request) else { panic!("the second is a request") };
    let shown = request.challenge.unwrap();
    let input = Challenge::input(
        Request::TYPE,
        shown.time,
        SocketAddr::new(client, port),
        &request.client_key,
        request.transaction,
    );
    assert_eq!(HEXLOWER.encode(&input), text(challenge, "input"));
    let shown = bytes(token, "token");
    let vantage = VantageId::new(u16::from_be_bytes([shown[0], shown[1]])).unwrap();
    let time = u32::from_be_bytes(shown[4..8].try_into().unwrap());
    assert_eq!(
        HEXLOWER.encode(&Token::input(vantage, time, client, &request.client_key)),
        text(token, "input")
    );
}

#[test]
fn malformed_verifier_messages() {
    let file = file("message");
    let good = |name: &str| {
        let all = file["vectors"].as_array().unwrap();
        bytes(all.iter().find(|vector| vector["name"] == name).unwrap(), "message")
    };
    let malformed = file["malformed"].as_array().unwrap();
    assert!(malformed.len() > 40);
    for vector in malformed {
        let bad = match vector["of"].as_str() {
            None => bytes(vector, "message"),
            Some(name) => {
                let mut bad = good(name);
                match vector["cut"].as_u64() {
                    Some(cut) => bad.truncate(bad.len() - cut as usize),
                    None => bad[number(vector, "at") as usize] = bytes(vector, "to")[0],
                }
                bad
            }
        };
        assert!(Message::parse(&bad).is_err(), "{}", vector["name"]);
    }
}
