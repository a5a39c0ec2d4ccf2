//! `firstflight asap inspect` as a person or a script uses it, on the vectors of `docs/spec/asap.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::TempFile;
use crate::program;
use data_encoding::HEXLOWER;
use serde_json::Value;
use std::io::Write;
use std::process::{Output, Stdio};

fn vectors(name: &str) -> Value {
    let path = format!("{}/../wire/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The vector named `name` of a file.
fn vector(file: &str, name: &str) -> Value {
    let all = vectors(file);
    all["vectors"].as_array().unwrap().iter().find(|vector| vector["name"] == name).unwrap().clone()
}

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap_or_else(|| panic!("{key} of {vector}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    HEXLOWER.decode(hex.as_bytes()).unwrap()
}

fn run(args: &[&str]) -> Output {
    program::run(&[&["asap", "inspect"], args].concat())
}

/// Runs the command, checks that the exit code is `code`, and returns the output.
fn prints(args: &[&str], code: i32) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str], code: i32) -> Value {
    serde_json::from_str(&prints(&[args, &["--json"]].concat(), code)).unwrap()
}

/// The result of each check.
fn results(inspected: &Value) -> Vec<(String, String)> {
    let checks = inspected["checks"].as_array().unwrap().iter();
    checks.map(|check| (text(check, "check").to_owned(), text(check, "result").to_owned())).collect()
}

fn refused(args: &[&str], says: &str) {
    program::fails(&[&["asap", "inspect"], args].concat(), 2, says);
}

/// Arguments with which everything of a first flight can be checked.
struct Whole {
    flight: Value,
    identity: String,
    data: TempFile,
}

impl Whole {
    fn new(name: &str, test: &str) -> Self {
        let flight = vector("first-flight", name);
        let (value, port) = (text(&flight["identity"], "value"), &flight["identity"]["port"]);
        let brackets = flight["identity"]["kind"] == 3;
        let identity = if brackets { format!("[{value}]:{port}") } else { format!("{value}:{port}") };
        let data = TempFile::new(&format!("{test}-{name}"), bytes(text(&flight, "data")));
        Self { flight, identity, data }
    }

    fn args(&self) -> Vec<&str> {
        let of = |key| text(&self.flight, key);
        [
            &[of("block")][..],
            &["--verifier-key", of("verifier_key")],
            &["--address", of("address")],
            &["--identity", &self.identity],
            &["--encapsulation", of("encapsulation")],
            &["--data", self.data.as_str()],
        ]
        .concat()
    }
}

#[test]
fn every_first_flight_is_right() {
    let all = vectors("first-flight");
    let names = all["vectors"].as_array().unwrap().iter().map(|flight| text(flight, "name"));
    // Relayed first flights are signed for DNS; `inspect` does not support them.
    for name in names.filter(|name| *name != "ipv4-relayed") {
        let whole = Whole::new(name, "right");
        let inspected = json(&whole.args(), 0);
        assert_eq!(inspected["object"], "credential-block");
        assert_eq!(inspected["fields"]["certificate"]["client_key"], whole.flight["client_key"]);
        assert_eq!(inspected["fields"]["requested_ms"], whole.flight["requested_ms"]);
        assert_eq!(inspected["fields"]["padding"], whole.flight["padding"]);
        let results = results(&inspected);
        assert!(results.iter().all(|(_, result)| result == "right"), "{name}: {results:?}");
        for check in ["verifier's signature", "client's signature", "address tag", "identity tag"] {
            assert!(results.iter().any(|(name, _)| name == check), "{name}: {results:?}");
        }
    }
}

/// Each wrong argument is found by the check that uses it.
#[test]
fn what_is_wrong_is_named() {
    let whole = Whole::new("ipv4-raw", "wrong");
    let other = text(&vector("first-flight", "ipv6-udp"), "verifier_key").to_owned();
    let found = |at: usize, value: &str| {
        let mut args = whole.args();
        args[at] = value;
        let results = results(&json(&args, 1)).into_iter();
        let wrong = results.filter(|(_, result)| result == "wrong").map(|(check, _)| check);
        wrong.collect::<Vec<_>>()
    };
    assert_eq!(found(2, &other), ["verifier", "verifier's signature", "client's signature"]);
    assert_eq!(found(4, "192.0.2.2"), ["verifier's signature", "address tag", "client's signature"]);
    assert_eq!(found(6, "www.example.com:80"), ["identity tag", "client's signature"]);
    assert_eq!(found(8, "udp"), ["client's signature"]);
    assert_eq!(found(10, "/dev/null"), ["client's signature"]);
    let padded = format!("{}00", text(&whole.flight, "block"));
    assert_eq!(found(0, &padded), ["client's signature"]);
    let said = prints(&[text(&whole.flight, "block"), "--address", "192.0.2.2"], 1);
    assert!(said.contains("address tag: WRONG, it is not that of 192.0.2.2"), "{said}");
    assert!(said.contains("verifier's signature: not checked, needs --verifier-key\n"), "{said}");
}

#[test]
fn a_certificates_time_is_checked_when_asked() {
    let body = vector("first-flight", "ipv4-raw");
    let body = text(&body, "certificate_body");
    let time = |at: &str, code| {
        let inspected = json(&[body, "--at", at], code);
        let check =
            inspected["checks"].as_array().unwrap().iter().find(|c| c["check"] == "certificate's time");
        check.unwrap().clone()
    };
    for at in ["1767225600", "2026-01-01T00:30:00Z"] {
        assert_eq!(time(at, 0)["result"], "right", "{at}");
    }
    assert_eq!(time("1767225599", 1)["why"], "it begins later");
    assert_eq!(time("1767227401", 1)["why"], "it has expired");
}

#[test]
fn words_are_for_people() {
    let whole = Whole::new("ipv4-raw", "words");
    let said = prints(&whole.args(), 0);
    for line in [
        "credential block, 196 bytes, 0 of them padding",
        "  verifier        34750f98",
        "  valid           1800 s, from 2026-01-01T00:00:00Z to 2026-01-01T00:30:00Z",
        "  seen from       1 vantage point, address challenged",
        "  requested       2026-01-01T00:01:00Z, 60.000 s after the certificate's beginning",
        "client's signature: right",
    ] {
        assert!(said.lines().any(|said| said == line), "{line} is missing in {said}");
    }
}

#[test]
fn options_and_parameters_are_told() {
    for (file, key) in [("option", "option"), ("service", "param")] {
        for vector in vectors(file)["vectors"].as_array().unwrap() {
            let (name, given) = (text(vector, "name"), text(vector, key));
            if given.is_empty() {
                continue;
            }
            match (&vector["error"], text(vector, "name")) {
                // This vector parses in the form of another object, which `inspect` cannot know.
                (Value::String(_), name) if name.starts_with("form ") => {}
                (Value::String(_), _) => assert_eq!(run(&[given]).status.code(), Some(2), "{name}"),
                (_, _) => {
                    let inspected = json(&[given], 0);
                    let fields = &inspected["fields"];
                    if file == "service" {
                        assert_eq!(
                            (text(&inspected, "object"), fields),
                            ("service-parameter", &vector["result"])
                        );
                    } else {
                        assert_eq!(fields["status"], vector["status"], "{name}");
                        assert_eq!(fields["long_reply"], vector["long_reply"], "{name}");
                        assert_eq!(fields["server_time"], vector["time"], "{name}");
                        assert_eq!(fields["sees"], vector["address"], "{name}");
                        assert_eq!(fields["trusts"], vector["verifier"], "{name}");
                    }
                    assert!(prints(&[given], 0).lines().count() > 1);
                }
            }
        }
    }
    let said = prints(&["fd08fa57 110000c4"], 0);
    assert!(said.contains("block           196 bytes, 0 of them padding"), "{said}");
}

#[test]
fn verifier_messages_are_told_and_their_signatures_checked() {
    let file = vectors("message");
    let (key, address) = (text(&file, "verifier_key"), text(&file, "address"));
    let wrong_key = "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394";
    for vector in file["vectors"].as_array().unwrap() {
        let (name, message) = (text(vector, "name"), text(vector, "message"));
        let inspected = json(&[message, "--verifier-key", key, "--address", address], 0);
        assert_eq!(inspected["fields"]["transaction"], file["transaction"], "{name}");
        let signed = results(&inspected).iter().any(|(check, _)| check.contains("signature"));
        assert_eq!(signed, matches!(vector["type"].as_u64(), Some(1 | 3)), "{name}");
        if signed {
            json(&[message, "--verifier-key", wrong_key], 1);
        }
    }
    let renewal = vector("message", "refresh under a new key");
    let args = [text(&renewal, "message"), "--verifier-key", key, "--address", "192.0.2.9"];
    let wrong = results(&json(&args, 1));
    assert!(wrong.contains(&("old certificate".to_owned(), "wrong".to_owned())), "{wrong:?}");
    let certificate = vector("message", "certificate");
    let args = [text(&certificate, "message"), "--address", "192.0.2.9"];
    assert!(prints(&args, 1).contains("address: WRONG, the message certifies 192.0.2.1, not 192.0.2.9"));
    // The code of a challenge or a token would let a client pass.
    for (name, code) in [("challenge", "challenge"), ("token", "token")] {
        let message = vector("message", name);
        let code = text(&file[code], code)[16..].to_owned();
        let said =
            prints(&[text(&message, "message")], 0) + &prints(&[text(&message, "message"), "--json"], 0);
        assert!(!said.contains(&code), "{said}");
    }
}

#[test]
fn files_and_standard_input_are_read_as_bytes_or_digits() {
    let flight = vector("first-flight", "ipv4-raw");
    let body = text(&flight, "certificate_body");
    let expected = prints(&[body], 0);
    let raw = TempFile::new("raw", bytes(body));
    let digits = TempFile::new("digits", format!("{}\n{}\n", &body[..60], body[60..].to_uppercase()));
    assert_eq!(prints(&[raw.as_str()], 0), expected);
    assert_eq!(prints(&[digits.as_str()], 0), expected);
    for content in [bytes(body), body.as_bytes().to_vec()] {
        let mut child = program::command(&["asap", "inspect", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&content).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}

#[test]
fn what_is_no_object_is_refused_in_one_line() {
    let flight = vector("first-flight", "ipv4-raw");
    let block = text(&flight, "block");
    refused(&["no-such-file"], "neither a file nor hexadecimal");
    refused(&["00000000"], "no option, credential block");
    refused(&[&format!("{block}474554")], "--data");
    refused(&[&block[..390]], "begins as a credential block does, but is not one: truncated");
    refused(&[&block.replacen("ff4611", "ff4612", 1)], "version or algorithm");
    refused(&["fd08fa57210000c4"], "malformed or of another version");
    refused(&["ff561101001000000000000000000000"], "verifier message");
    refused(&["0101"], "service parameter does, but is not one: truncated");
    refused(&["1100"], "certificate does, but is not one");
    refused(&["/"], "cannot read /");
    let empty = TempFile::new("empty", b"");
    refused(&[empty.as_str()], "there are no bytes");
    let long = TempFile::new("long", [0xff; 300_000]);
    refused(&[long.as_str()], "longer than 65535 bytes");
    refused(&[block, "--verifier-key", "00"], "64 hexadecimal digits");
    refused(&[block, "--verifier-key", &"00".repeat(32)], "can be trusted");
    refused(&[block, "--identity", "www.example.com"], "write the port");
    refused(&[block, "--encapsulation", "tcp"], "ip or udp");
    refused(&[block, "--address", "localhost"], "--address");
}
