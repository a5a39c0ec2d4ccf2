//! Certificates: what was offered, what the reply says, and what follows (`docs/spec/asap.md`, sections 2 and 6.6).

use super::fixtures::*;
use super::note::Note;
use super::offered::Offered;
use super::tests::{Told, tell};
use super::verdict::ConnectionVerdict;
use firstflight::credential::{Outcome, Reason};
use firstflight_wire::asap::{AsapOption, Hint, Status};
use firstflight_wire::tcp::OptionBytes;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

const DATA: &[u8] = b"request";
const ALL: u32 = BLOCK + DATA.len() as u32;
const OTHER: [u8; 2] = [1, 2];
const NO_TAG: [u8; 2] = [0; 2];

fn handshake(reason: Reason) -> Outcome {
    Outcome::Handshake(reason)
}

/// The payload of a first flight: block and data.
fn flight() -> Vec<u8> {
    [&credential(63_250), DATA].concat()
}

/// The verdict for a first flight whose SYN-ACK acknowledges `acked` bytes and has this option.
fn answered(acked: u32, option: &[u8]) -> ConnectionVerdict {
    Scene::default()
        .client(0, syn(&asap_option(), &flight()))
        .server(9, syn_ack(acked, option, &[]))
        .verdict()
}

/// The verdict for a probe whose SYN-ACK has this option.
fn probed(option: &[u8]) -> ConnectionVerdict {
    Scene::default().client(0, syn(&probe(), &[])).server(9, syn_ack(0, option, &[])).verdict()
}

fn has(verdict: &ConnectionVerdict, note: Note) -> bool {
    verdict.notes.contains(&note)
}

#[test]
fn the_table_of_answers_row_by_row() {
    let reply = |status, tag| replied(status, tag, Hint::None);
    let misbehaved = handshake(Reason::PeerMisbehaved);
    for (acked, option, outcome) in [
        (ALL, reply(Status::Accepted, TAG), Outcome::Accepted),
        (ALL, vec![], Outcome::AcceptedReplyStripped),
        (ALL, reply(Status::Expired, TAG), misbehaved),
        (ALL, reply(Status::Accepted, OTHER), misbehaved),
        (ALL, reply(Status::Accepted, NO_TAG), misbehaved),
        (0, reply(Status::Expired, TAG), handshake(Reason::Expired)),
        (0, reply(Status::Malformed, NO_TAG), handshake(Reason::Malformed)),
        (0, reply(Status::Capable, NO_TAG), handshake(Reason::OptionStripped)),
        (0, vec![], handshake(Reason::OptionStripped)),
        (0, reply(Status::Accepted, TAG), misbehaved),
        (BLOCK, reply(Status::Accepted, TAG), handshake(Reason::AckInside)),
        (1, vec![], handshake(Reason::AckInside)),
    ] {
        let verdict = answered(acked, &option);
        assert_eq!(verdict.outcome, outcome, "{acked} acknowledged, {option:02x?}");
        assert_eq!(verdict.syn_bytes, Some(7));
        assert!(verdict.certified() && !verdict.asked());
    }
}

#[test]
fn every_refusal_has_the_word_of_the_engine() {
    for status in Status::ALL.iter().copied().filter(|status| *status > Status::Accepted) {
        let verdict = answered(0, &replied(status, TAG, Hint::None));
        let reason = firstflight::credential::asap::reason(status);
        assert_eq!(verdict.outcome, handshake(reason), "{status:?}");
        assert!(has(&verdict, Note::Reply(status)));
    }
}

#[test]
fn a_reply_for_another_request_is_told() {
    for (status, tag, matches) in [
        (Status::Accepted, TAG, true),
        (Status::Accepted, OTHER, false),
        (Status::Accepted, NO_TAG, false),
        (Status::Capable, NO_TAG, false),
        (Status::Expired, TAG, true),
        (Status::Expired, OTHER, false),
        // The server did not look at the block.
        (Status::Overloaded, NO_TAG, true),
    ] {
        let verdict = answered(0, &replied(status, tag, Hint::None));
        assert_eq!(verdict.tag_matches(), Some(matches), "{status:?} {tag:02x?}");
        assert_eq!(has(&verdict, Note::ReplyForAnother(tag)), !matches, "{status:?} {tag:02x?}");
    }
    let text = Note::ReplyForAnother(OTHER).to_string();
    assert_eq!(text, "a reply for another request: its tag 0102 is not that of the SYN");
    assert_eq!(probed(&replied(Status::Capable, NO_TAG, Hint::None)).tag_matches(), Some(true));
    assert!(has(&probed(&replied(Status::Capable, TAG, Hint::None)), Note::ReplyForAnother(TAG)));
    assert_eq!(answered(ALL, &[]).tag_matches(), None);
}

#[test]
fn a_request_that_cannot_be_read_has_no_tag_to_compare() {
    for captured in [0, 2, 40, 110, 130, 160] {
        // The part that was cut off in the capture reads as zeros.
        let mut cut = flight();
        cut[captured..].fill(0);
        let option = replied(Status::Accepted, TAG, Hint::None);
        let scene =
            Scene::default().client(0, syn(&asap_option(), &cut)).server(9, syn_ack(ALL, &option, &[]));
        let verdict = scene.verdict();
        assert_eq!((verdict.outcome, verdict.tag_matches()), (Outcome::Accepted, None), "{captured}");
        assert_eq!(verdict.notes, [Note::UnreadableBlock, Note::Reply(Status::Accepted)]);
    }
}

#[test]
fn hints_in_plain_words() {
    let at = VALID_FROM + 5;
    let seen = Ipv4Addr::new(198, 51, 100, 7);
    let clock = "the server's clock: 2026-01-01T00:00:05Z";
    for (status, hint, words) in [
        (Status::Accepted, Hint::None, vec![]),
        (Status::Expired, Hint::Time(at), vec![clock]),
        (
            Status::UnknownVerifier,
            Hint::Trusts(at, VERIFIER),
            vec!["the server trusts verifier 2bec5519", clock],
        ),
        (
            Status::AddressMismatch,
            Hint::Sees(at, seen),
            vec!["the server sees the client at 198.51.100.7", clock],
        ),
        (
            Status::Accepted,
            Hint::Proof([3; 8]),
            vec!["the reply has a proof, as for a first flight that travelled by DNS"],
        ),
    ] {
        let verdict = answered(0, &replied(status, TAG, hint));
        let told: Vec<_> = verdict.notes.iter().skip(2).map(ToString::to_string).collect();
        assert_eq!(told, words, "{hint:?}");
    }
}

#[test]
fn a_probe_and_what_becomes_of_it() {
    let unknown = handshake(Reason::CapabilityUnknown);
    let capable = probed(&replied(Status::Capable, NO_TAG, Hint::None));
    assert_eq!(
        (capable.outcome, &capable.notes[..]),
        (unknown, &[Note::Probe, Note::Reply(Status::Capable)][..])
    );
    let ignored = probed(&[]);
    assert_eq!((ignored.outcome, &ignored.notes[..]), (unknown, &[Note::Probe, Note::ProbeIgnored][..]));
    // A plain SYN got the answer.
    let scene = Scene::default()
        .client(0, syn(&probe(), &[]))
        .client(1000, syn(&[], &[]))
        .server(1009, syn_ack(0, &[], &[]));
    let verdict = scene.verdict();
    assert_eq!((verdict.outcome, &verdict.notes[..]), (unknown, &[Note::Probe, Note::ProbeLost][..]));
    assert!(verdict.probed() && !verdict.asked() && !verdict.certified());
}

#[test]
fn a_probe_that_got_no_answer_at_all_is_not_decided() {
    let silent = Scene::default().client(0, syn(&probe(), &[]));
    let verdict = silent.verdict();
    assert_eq!(
        (verdict.outcome, &verdict.notes[..]),
        (Outcome::Undecided, &[Note::Probe, Note::NoAnswer][..])
    );
    let verdict = silent.server(9, rst(CLIENT.other())).verdict();
    assert_eq!(
        (verdict.outcome, &verdict.notes[..]),
        (Outcome::Undecided, &[Note::Probe, Note::Refused][..])
    );
}

#[test]
fn a_probe_beside_a_cookie_says_nothing_of_the_cookies_data() {
    let both = [probe(), cookie(&COOKIE)].concat();
    let scene =
        |acked| Scene::default().client(0, syn(&both, DATA)).server(9, syn_ack(acked, &[], &[])).verdict();
    assert_eq!(scene(7).outcome, Outcome::Accepted);
    assert_eq!(scene(0).outcome, handshake(Reason::DataNotAcknowledged));
    assert!(has(&scene(7), Note::ProbeIgnored));
    // The request asks for a cookie. It stays open whether a first flight with a certificate was possible.
    let both = [probe(), request()].concat();
    let scene = Scene::default().client(0, syn(&both, &[])).server(9, syn_ack(0, &cookie(&FRESH), &[]));
    assert_eq!(scene.verdict().outcome, handshake(Reason::CapabilityUnknown));
}

#[test]
fn a_first_flight_that_timed_out() {
    let scene = Scene::default()
        .client(0, syn(&asap_option(), &flight()))
        .client(1000, syn(&[], &[]))
        .server(1009, syn_ack(0, &[], &[]));
    assert_eq!(scene.verdict().outcome, handshake(Reason::SynTimedOut));
}

#[test]
fn an_option_of_another_version() {
    let mut option = probe();
    option[4] = 0x20;
    let scene = |option: &[u8], data, reply: &[u8]| {
        Scene::default().client(0, syn(option, data)).server(9, syn_ack(0, reply, &[])).verdict()
    };
    let verdict = scene(&option, &[], &[]);
    assert_eq!(
        (verdict.outcome, &verdict.notes[..]),
        (handshake(Reason::NotRequested), &[Note::UnreadableOption][..])
    );
    let verdict = scene(&option, DATA, &replied(Status::Malformed, NO_TAG, Hint::None));
    assert_eq!(verdict.outcome, handshake(Reason::Malformed));
    assert_eq!(verdict.notes, [Note::UnreadableOption, Note::Reply(Status::Malformed)]);
    assert_eq!((verdict.offered, verdict.tag_matches()), (Some(Offered::Unreadable), None));
}

#[test]
fn a_reply_that_cannot_be_read_counts_as_none() {
    let mut option = replied(Status::Accepted, TAG, Hint::None);
    option[5] = 0xff;
    let verdict = answered(ALL, &option);
    assert_eq!(verdict.outcome, Outcome::AcceptedReplyStripped);
    assert_eq!(verdict.notes[1..], [Note::UnreadableReply]);
    let verdict = probed(&option);
    assert_eq!(verdict.outcome, handshake(Reason::CapabilityUnknown));
    assert_eq!(verdict.notes, [Note::Probe, Note::UnreadableReply]);
}

#[test]
fn a_reply_nobody_asked_for() {
    let option = replied(Status::Capable, NO_TAG, Hint::None);
    let verdict = Scene::default().client(0, syn(&[], &[])).server(9, syn_ack(0, &option, &[])).verdict();
    assert_eq!(verdict.outcome, handshake(Reason::NotRequested));
    assert_eq!(verdict.notes, [Note::Reply(Status::Capable), Note::UnaskedReply]);
}

#[test]
fn a_certificates_age_is_that_of_the_request() {
    for (age_ms, words) in [
        (0, "a certificate by verifier 2bec5519, 0s old, good for 30m, until 2026-01-01T00:30:00Z"),
        (63_250, "a certificate by verifier 2bec5519, 1m 3s old, good for 30m, until 2026-01-01T00:30:00Z"),
        (
            -1,
            "a certificate by verifier 2bec5519, in a request from before it began, good for 30m, until \
             2026-01-01T00:30:00Z",
        ),
    ] {
        let flight = credential(age_ms);
        let verdict = Scene::default().client(0, syn(&asap_option(), &flight)).verdict();
        assert_eq!(verdict.offered.unwrap().shown().unwrap().age_ms(), age_ms);
        assert_eq!(verdict.notes[0].to_string(), words);
    }
}

fn capture(option: &[u8], data: &[u8], acked: u32, reply: &[u8]) -> Told {
    tell(&pcapng(&visit_in_udp(50_000, 2, 6000, syn(option, data), syn_ack(acked, reply, &[]))), 100)
}

#[test]
fn a_first_flight_as_programs_read_it() {
    let reply = replied(Status::Accepted, TAG, Hint::Time(VALID_FROM + 64));
    let told = capture(&asap_option(), &flight(), ALL, &reply);
    let expected = json!({
        "start_unix_ms": 6000.0, "client": "10.9.0.1:2", "server": "10.9.0.2:80",
        "udp": {"client_port": 50_000, "server_port": 4433},
        "outcome": "accepted", "reason": null, "option": "none", "form": null,
        "cookie": null, "granted": null, "syn_bytes": 7, "acked_bytes": 7, "syn_retransmits": 0,
        "asap": {
            "offered": "block", "block_bytes": 196,
            "certificate": {
                "verifier": "2bec5519", "valid_from": VALID_FROM, "duration": 1800, "age_ms": 63_250,
                "vantage_points": 3, "challenged": true, "renewed": false,
            },
            "tag": "aabb",
            "reply": {"status": 1, "status_name": "accepted", "tag": "aabb", "server_time": VALID_FROM + 64},
            "tag_matches": true,
        },
        "seal": null, "rtt_ms": 50.0, "first_byte_ms": 100.0, "first_byte_rtts": 2.0,
        "notes": [
            {
                "note": "certificate",
                "text": "a certificate by verifier 2bec5519, 1m 3s old, good for 30m, until 2026-01-01T00:30:00Z",
            },
            {"note": "asap-reply", "text": "reply accepted: the first flight was delivered"},
            {"note": "server-time", "text": "the server's clock: 2026-01-01T00:01:04Z"},
        ],
    });
    assert_eq!(told.records, [expected]);
    assert_eq!(told.summary()["certified"], 1);
    let words =
        "in the SYN: a credential block of 196 bytes, 7 bytes of data; all acknowledged; a certificate";
    assert!(told.lines[0].contains(words), "{}", told.lines[0]);
}

#[test]
fn probes_and_odd_options_as_programs_read_them() {
    let told = capture(&probe(), &[], 0, &[]);
    let expected = json!({
        "offered": "probe", "block_bytes": null, "certificate": null, "tag": null, "reply": null,
        "tag_matches": null,
    });
    assert_eq!(told.column("asap"), [&expected]);
    let refusal = replied(Status::UnknownVerifier, OTHER, Hint::Trusts(VALID_FROM, VERIFIER));
    let told = capture(&asap_option(), &flight(), 0, &refusal);
    let asap = &told.records[0]["asap"];
    assert_eq!((&asap["tag_matches"], &asap["reply"]["tag"]), (&json!(false), &json!("0102")));
    assert_eq!(asap["reply"]["trusts"], "2bec5519");
    // The announced block is longer than the payload.
    let long = OptionBytes::from(AsapOption::Block { long_reply: false, len: 300 });
    let told = capture(long.as_slice(), &flight(), 0, &[]);
    let asap = &told.records[0]["asap"];
    assert_eq!((&asap["block_bytes"], &asap["certificate"]), (&json!(300), &Value::Null));
}

#[test]
fn who_only_asks_for_certificates_gets_no_hint_about_cookies() {
    let told = capture(&probe(), &[], 0, &replied(Status::Capable, NO_TAG, Hint::None));
    assert_eq!((told.hint().as_str(), &told.summary()["probed"]), ("", &json!(1)));
    let summary = told.rest.summary.to_string();
    let first =
        "1 connection, 0 asked for Fast Open, 1 asked whether the server takes certificates, 0 accepted";
    assert_eq!(summary.lines().next(), Some(first));
}
