//! A client of sealed first flights: records, sizes, the server's first bytes, and any sequence of events after a flight.

use firstflight_seal::{
    Bind, DIGEST_PREFIX, Draft, Event, Failures, Flags, FlightRoom, HostName, NamePolicy, PROTOCOL_PREFIX,
    Record, Rid, Sent, SentAgain, ServerAnswer, Target, Then,
};
use firstflight_wire::Instant;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::HashMap;
use std::time::Duration;

const NOW: u64 = 1_767_225_660;

/// Runs all parts on the same bytes.
pub fn run(data: &[u8]) {
    record(data);
    record(&repaired(data));
    let _ = HostName::new(data);
    if ServerAnswer::read(data) == ServerAnswer::Reject {
        assert_eq!(data[..4], firstflight_seal::REJECT);
    }
    sizes(data);
    events(data);
    failures(data);
}

/// A record that is read is the same when it is written, and what it says is within the limits.
fn record(data: &[u8]) {
    let Ok(record) = Record::parse(data) else { return };
    assert_eq!(record.to_bytes(), data);
    assert!(record.entries().len() <= Record::MAX_ENTRIES);
    let Some(entry) = record.usable(NOW) else { return };
    let end = u64::from(entry.not_after());
    assert!((NOW..=NOW + Record::LONGEST).contains(&end) && entry.key().is_some());
    let to = Target { entry, public_name: record.name(), port: 443 };
    let flags = Flags { replayable: true, complete: true };
    let draft =
        Draft::new(to, Rid::from_bytes([1; 16]), Bind::NONE, NOW * 1000, flags, b"GET", b"h2").unwrap();
    let [ours, digest] = draft.alpn().clone();
    assert!(ours.starts_with(&PROTOCOL_PREFIX) && digest.starts_with(&DIGEST_PREFIX) && digest.len() == 35);
    let plan = FlightRoom::on_connection().plan(data.len(), 3);
    if let Some(plan) = plan {
        // It is not a ClientHello.
        assert!(draft.seal(data, record.name(), &plan, &mut ChaCha8Rng::seed_from_u64(1)).is_err());
    }
}

/// The fields corrected that random bytes never get right.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if let Some(head) = bytes.get_mut(..3) {
        head[0] = 1;
        head[1] = 0;
        head[2] = head[2] % 4 + 1;
    }
    if let Some(suite) = bytes.get_mut(4..10) {
        suite.copy_from_slice(&[0, 0x20, 0, 1, 0, 1]);
    }
    if let Some(len) = bytes.get_mut(14..16) {
        len.copy_from_slice(&[0, 32]);
    }
    bytes
}

fn sizes(data: &[u8]) {
    for &[a, b, c, d, e, f] in data.as_chunks::<6>().0 {
        let [mss, hello, request] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
        for room in [
            FlightRoom::in_syn(mss, 20, usize::from(a)),
            FlightRoom::in_udp(mss, 20, usize::from(b)),
            FlightRoom::on_connection(),
        ] {
            if let Some(plan) = room.plan(hello.into(), request.into()) {
                assert!(plan.in_syn <= plan.total && plan.total <= 16_390);
                assert!(plan.total >= FlightRoom::OVERHEAD + usize::from(hello) + usize::from(request));
            }
            if let Some(longest) = room.longest_request(hello.into()) {
                assert!(room.plan(hello.into(), longest).is_some());
            }
        }
    }
}

/// The first byte says what the request is, each other one is an event.
fn events(data: &[u8]) {
    let Some((&what, rest)) = data.split_first() else { return };
    let flags = Flags { replayable: what & 1 != 0, complete: true };
    let bind = if what & 2 != 0 {
        Bind::new(&[1; 32], &[1; 8], &firstflight_credential::asap::Identity::name("a.example", 443))
    } else {
        Bind::NONE
    };
    let hidden = if what & 4 != 0 { NamePolicy::Hidden } else { NamePolicy::Visible };
    let start = Instant::from_secs(1);
    let mut sent = Sent::new(flags, bind, b"h2", hidden, start);
    let (mut now, mut over, mut taken) = (start, false, false);
    for &byte in rest {
        now += Duration::from_secs(u64::from(byte >> 4) * 2);
        let event = match byte & 15 {
            0 => Event::Reject,
            1 => Event::Alert,
            2 => Event::Close,
            3 => Event::HelloRetryRequest,
            4 => Event::Timeout,
            5 => Event::Reset,
            6 | 7 => Event::FinishedVerified(Some(b"\xffS\x01h2")),
            8 => Event::FinishedVerified(None),
            9 => Event::FinishedVerified(Some(b"h2")),
            _ => Event::Answered,
        };
        let then = sent.handle(event, now);
        assert!(!over || then == Then::Done);
        match then {
            Then::Again(again) => {
                assert!(flags.replayable || !bind.is_bound() && !taken);
                assert!(now < sent.deadline());
                assert_eq!(again == SentAgain::NewConnectionSealed, hidden == NamePolicy::Hidden);
                assert!(again != SentAgain::SameConnection || event == Event::Reject && !taken);
            }
            Then::Continue => assert!(matches!(event, Event::FinishedVerified(_))),
            Then::Failed => assert!(!sent.could_run_early()),
            Then::Done => assert!(over || taken),
            Then::Unknown => {}
        }
        taken |= then == Then::Continue;
        over |= then != Then::Continue;
    }
}

fn failures(data: &[u8]) {
    let (mut memory, mut now) = (Failures::new(), Instant::from_secs(1));
    let mut carried = HashMap::new();
    for &[what, who, wait] in data.as_chunks::<3>().0 {
        now += Duration::from_secs(u64::from(wait) * 60);
        let (network, server) = (who % 4, who / 4);
        let open = memory.allows(&network, &server, now);
        match what % 8 {
            0 => memory.worked(&network, &server, now),
            1 => memory.misbehaved(&network, &server, now),
            2 | 3 => memory.ordinary_worked(&network, &server, now),
            4 => memory.ordinary_failed(&network, &server, now),
            _ => memory.failed(&network, &server, now),
        }
        let allowed = memory.allows(&network, &server, now);
        match what % 8 {
            0 => assert!(allowed),
            1 => assert!(!allowed),
            2 | 3 => assert!(open || !allowed, "it stops, or nothing"),
            4 => assert!(allowed || !open, "it lifts a stop, or nothing"),
            _ => {}
        }
        // What a server does on a network that has carried a flight within a day stops no other one there.
        if what % 8 == 0 {
            carried.insert(network, now + Failures::<u8, u8>::CARRIES);
        }
        if carried.get(&network).is_some_and(|until| now < *until) {
            assert!(memory.allows(&network, &u8::MAX, now));
        }
        assert!(memory.allows(&network, &server, now + Failures::<u8, u8>::STOP));
    }
}
