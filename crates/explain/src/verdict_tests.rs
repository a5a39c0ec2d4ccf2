//! Every verdict, from packets. Each scene is also judged out of order, and with every packet captured twice.

use super::conversation::{Conversation, FoOption};
use super::fixtures::*;
use super::note::Note;
use super::verdict::judge;
use firstflight::credential::{Outcome, Reason};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::{FastOpenForm, Flags, Segment};
use firstflight_wire::{Instant, SeqNum};
use std::time::Duration;

const DATA: &[u8] = b"request";
const ALL: u32 = DATA.len() as u32;

fn handshake(reason: Reason) -> Outcome {
    Outcome::Handshake(reason)
}

#[test]
fn data_that_the_syn_ack_acknowledged_is_accepted() {
    let scene = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .server(100, syn_ack(ALL, &[], &[]))
        .client(100, ack())
        .server(102, reply());
    let verdict = scene.verdict();
    assert_eq!(verdict.outcome, Outcome::Accepted);
    assert_eq!((verdict.syn_bytes, verdict.acked_bytes), (Some(ALL), Some(ALL)));
    assert_eq!(verdict.option.unwrap().cookie(), Some(&COOKIE[..]));
    assert_eq!(verdict.rtt, Some(Duration::from_millis(100)));
    assert_eq!(verdict.first_byte, Some(Duration::from_millis(102)));
    assert_eq!(verdict.first_byte_rtts(), Some(1.02));
    assert_eq!(verdict.notes, []);
}

#[test]
fn times_are_the_clients_wherever_was_captured() {
    // The round trip takes 100 ms. The round trip from the capture to the client takes `here` ms.
    for here in [0, 30, 100] {
        let there = 100 - here;
        let first = Scene::default()
            .client(0, syn(&request(), &[]))
            .server(there, syn_ack(0, &cookie(&COOKIE), &[]))
            .client(100, ack())
            .server(100 + there, reply());
        assert_eq!(first.verdict().first_byte_rtts(), Some(2.0), "{here}");
        let next = Scene::default()
            .client(0, syn(&cookie(&COOKIE), DATA))
            .server(there, syn_ack(ALL, &[], &[]))
            .server(there, reply())
            .client(100, ack());
        assert_eq!(next.verdict().first_byte_rtts(), Some(1.0), "{here}");
        assert_eq!(next.verdict().rtt, Some(Duration::from_millis(100)), "{here}");
    }
}

#[test]
fn no_option_is_not_requested() {
    let verdict = Scene::default().client(0, syn(&[], &[])).server(9, syn_ack(0, &[], &[])).verdict();
    assert_eq!(verdict.outcome, handshake(Reason::NotRequested));
    assert!(!verdict.asked());
}

#[test]
fn a_request_that_is_granted() {
    let scene = Scene::default().client(0, syn(&request(), &[])).server(9, syn_ack(0, &cookie(&FRESH), &[]));
    let verdict = scene.verdict();
    assert_eq!(verdict.outcome, handshake(Reason::NoCredential));
    assert_eq!(verdict.answer.unwrap().cookie(), Some(&FRESH[..]));
    assert!(verdict.asked() && !verdict.carried());
}

#[test]
fn a_request_that_is_not_granted() {
    let verdict = Scene::default().client(0, syn(&request(), &[])).server(9, syn_ack(0, &[], &[])).verdict();
    assert_eq!(verdict.outcome, handshake(Reason::PeerWithoutFastOpen));
}

#[test]
fn a_cookie_that_is_not_recognised_brings_a_fresh_one() {
    let scene = |data: &[u8]| {
        let first = Scene::default().client(0, syn(&cookie(&COOKIE), data));
        first.server(9, syn_ack(0, &cookie(&FRESH), &[])).verdict()
    };
    for data in [DATA, &[]] {
        let verdict = scene(data);
        assert_eq!(verdict.outcome, handshake(Reason::StaleOrWrongCredential), "{data:?}");
        assert_eq!(verdict.acked_bytes, Some(0));
    }
}

#[test]
fn data_not_and_partly_acknowledged() {
    for (acked, reason) in [
        (0, Reason::DataNotAcknowledged),
        (1, Reason::DataPartlyAcknowledged),
        (ALL - 1, Reason::DataPartlyAcknowledged),
    ] {
        let first = Scene::default().client(0, syn(&cookie(&COOKIE), DATA));
        let verdict = first.server(9, syn_ack(acked, &[], &[])).verdict();
        assert_eq!((verdict.outcome, verdict.acked_bytes), (handshake(reason), Some(acked)));
    }
}

#[test]
fn a_cookie_without_data() {
    let first = Scene::default().client(0, syn(&cookie(&COOKIE), &[]));
    assert_eq!(first.server(9, syn_ack(0, &[], &[])).verdict().outcome, handshake(Reason::NoData));
}

#[test]
fn a_plain_syn_is_answered_instead_of_the_one_with_data_or_request() {
    for first in [syn(&cookie(&COOKIE), DATA), syn(&request(), &[])] {
        let scene = Scene::default()
            .client(0, first)
            .client(1000, syn(&[], &[]))
            .server(1040, syn_ack(0, &[], &[]))
            .client(1040, ack())
            .server(1080, reply());
        let verdict = scene.verdict();
        assert_eq!((verdict.outcome, verdict.syn_retransmits), (handshake(Reason::SynTimedOut), 1));
        // Measured from the SYN that was answered, not from the first one.
        assert_eq!(verdict.rtt, Some(Duration::from_millis(40)));
        assert_eq!(verdict.first_byte, Some(Duration::from_millis(1080)));
    }
}

#[test]
fn an_earlier_connection_answers_the_first_syn() {
    let old = segment(CLIENT.other(), Flags::ACK, SERVER_ISN, CLIENT_ISN + 500_000, &[], &[]);
    let rst = segment(CLIENT, Flags::RST, CLIENT_ISN + 500_000, SeqNum::new(0), &[], &[]);
    for first in [syn(&cookie(&COOKIE), DATA), syn(&request(), &[])] {
        let scene = Scene::default()
            .client(0, first)
            .server(40, old.clone())
            .client(40, rst.clone())
            .client(40, syn(&[], &[]))
            .server(80, syn_ack(0, &[], &[]))
            .client(80, ack());
        let verdict = scene.verdict();
        assert_eq!(verdict.outcome, handshake(Reason::OldConnection));
        assert!(!verdict.notes.contains(&Note::ResetByClient), "{:?}", verdict.notes);
    }
}

#[test]
fn data_is_accepted_even_if_a_plain_syn_follows() {
    // The SYN-ACK was lost, not the SYN.
    let scene = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .server(20, syn_ack(ALL, &[], &[]))
        .client(1000, syn(&[], &[]))
        .server(1020, syn_ack(ALL, &[], &[]));
    let verdict = scene.verdict();
    assert_eq!((verdict.outcome, verdict.syn_retransmits), (Outcome::Accepted, 1));
    assert_eq!(verdict.notes, [Note::SynAckSentAgain(1)]);
}

#[test]
fn a_refusal_stays_one_when_the_syn_ack_is_lost() {
    let scene = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .server(20, syn_ack(0, &cookie(&FRESH), &[]))
        .client(1000, syn(&[], &[]))
        .server(1020, syn_ack(0, &[], &[]));
    assert_eq!(scene.verdict().outcome, handshake(Reason::StaleOrWrongCredential));
}

#[test]
fn a_syn_sent_again_with_its_data_is_no_plain_one() {
    let scene = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .client(1000, syn(&cookie(&COOKIE), DATA))
        .server(1020, syn_ack(0, &[], &[]))
        .client(3000, syn(&[], &[]))
        .server(3020, syn_ack(0, &[], &[]));
    assert_eq!(scene.verdict().outcome, handshake(Reason::DataNotAcknowledged));
}

#[test]
fn the_experimental_form() {
    let option = cookie_in(FastOpenForm::Experimental, &COOKIE);
    let verdict = Scene::default().client(0, syn(&option, DATA)).server(9, syn_ack(ALL, &[], &[])).verdict();
    assert_eq!(verdict.outcome, Outcome::Accepted);
    assert_eq!(verdict.option.unwrap().form(), Some(FastOpenForm::Experimental));
}

#[test]
fn cookies_of_impossible_lengths_count_as_none() {
    let odd = [34, 7, 1, 2, 3, 4, 5];
    let short = [34, 4, 1, 2];
    let experimental = [254, 7, 0xf9, 0x89, 1, 2, 3];
    for (option, length) in [(&odd[..], 5), (&short[..], 2), (&experimental[..], 3)] {
        let plain = Scene::default().client(0, syn(option, &[])).server(9, syn_ack(0, &[], &[])).verdict();
        assert_eq!(plain.outcome, handshake(Reason::NotRequested));
        assert_eq!(plain.notes, [Note::IllegalCookie(length)]);
        let full = Scene::default().client(0, syn(option, DATA)).server(9, syn_ack(0, &[], &[])).verdict();
        assert_eq!(full.outcome, handshake(Reason::DataNotAcknowledged));
        let grant =
            Scene::default().client(0, syn(&request(), &[])).server(9, syn_ack(0, option, &[])).verdict();
        assert_eq!(grant.outcome, handshake(Reason::PeerWithoutFastOpen));
        assert_eq!(grant.notes, [Note::IllegalGrant(length)]);
    }
}

#[test]
fn data_without_option() {
    for (acked, outcome) in [(ALL, Outcome::Accepted), (0, handshake(Reason::DataNotAcknowledged))] {
        let verdict =
            Scene::default().client(0, syn(&[], DATA)).server(9, syn_ack(acked, &[], &[])).verdict();
        assert_eq!((verdict.outcome, &verdict.notes[..]), (outcome, &[Note::DataWithoutOption][..]));
        assert!(verdict.asked());
    }
}

#[test]
fn a_server_that_needs_no_cookie_takes_data_beside_a_request() {
    let verdict =
        Scene::default().client(0, syn(&request(), DATA)).server(9, syn_ack(ALL, &[], &[])).verdict();
    assert_eq!(verdict.outcome, Outcome::Accepted);
    let first = Scene::default().client(0, syn(&request(), DATA));
    let verdict = first.server(9, syn_ack(0, &cookie(&FRESH), &[])).verdict();
    assert_eq!(verdict.outcome, handshake(Reason::NoCredential));
}

#[test]
fn the_same_syn_with_and_without_option_is_not_decided() {
    let scene = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .client(3, syn(&[], &[]))
        .server(50, syn_ack(0, &[], &[]));
    let verdict = scene.verdict();
    assert_eq!(verdict.outcome, handshake(Reason::DataNotAcknowledged));
    assert_eq!((&verdict.notes[..], verdict.syn_retransmits), (&[Note::WithAndWithout][..], 0));
    // A router's error explains why the plain SYN followed immediately.
    let too_big = IcmpErrorKind::PacketTooBig { mtu: 1280 };
    let verdict = scene.icmp(too_big).verdict();
    assert_eq!(verdict.outcome, handshake(Reason::PathTooSmall));
    assert_eq!(verdict.notes, [Note::WithAndWithout, Note::Icmp(too_big)]);
}

#[test]
fn data_in_the_syn_ack_is_the_first_byte() {
    let scene = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .server(80, syn_ack(ALL, &[], b"response"))
        .client(80, ack())
        .server(90, reply());
    let verdict = scene.verdict();
    assert_eq!((verdict.outcome, &verdict.notes[..]), (Outcome::Accepted, &[Note::DataInSynAck(8)][..]));
    assert_eq!(verdict.first_byte_rtts(), Some(1.0));
}

#[test]
fn syn_acks_sent_again_are_counted() {
    let first = Scene::default().client(0, syn(&cookie(&COOKIE), DATA)).server(1, syn_ack(ALL, &[], &[]));
    let scene = first.server(1001, syn_ack(ALL, &[], &[])).server(3001, syn_ack(ALL, &[], &[]));
    let verdict = scene.client(3101, ack()).verdict();
    assert_eq!((verdict.outcome, &verdict.notes[..]), (Outcome::Accepted, &[Note::SynAckSentAgain(2)][..]));
    // Measured from the SYN-ACK that was acknowledged.
    assert_eq!(verdict.rtt, Some(Duration::from_millis(101)));
}

#[test]
fn more_acknowledged_than_sent_is_no_answer() {
    let scene = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .server(20, syn_ack(ALL + 3, &[], &[]))
        .client(20, rst(CLIENT));
    let verdict = scene.verdict();
    assert_eq!((verdict.outcome, verdict.acked_bytes), (handshake(Reason::Unknown), None));
    assert_eq!(verdict.notes, [Note::AckedTooMuch(3), Note::ResetByClient]);
    // A later correct SYN-ACK still counts.
    let verdict = scene.server(40, syn_ack(ALL, &[], &[])).verdict();
    assert_eq!(verdict.outcome, Outcome::Accepted);
}

#[test]
fn a_syn_ack_for_another_syn_is_no_answer() {
    let stray =
        segment(CLIENT.other(), Flags::SYN | Flags::ACK, SERVER_ISN, CLIENT_ISN + (1 << 30), &[], &[]);
    let verdict = Scene::default().client(0, syn(&request(), &[])).server(20, stray).verdict();
    assert_eq!((verdict.outcome, &verdict.notes[..]), (Outcome::Undecided, &[Note::AckedOther][..]));
}

#[test]
fn refused_by_rst() {
    for (option, data, outcome) in [
        (cookie(&COOKIE), DATA, handshake(Reason::Unknown)),
        (request(), &[][..], Outcome::Undecided),
        (vec![], &[][..], handshake(Reason::NotRequested)),
    ] {
        let verdict = Scene::default().client(0, syn(&option, data)).server(9, rst(CLIENT.other())).verdict();
        assert_eq!((verdict.outcome, &verdict.notes[..]), (outcome, &[Note::Refused][..]));
    }
}

#[test]
fn an_icmp_error_answers() {
    let scene = Scene::default().client(0, syn(&cookie(&COOKIE), DATA)).icmp(IcmpErrorKind::AdminProhibited);
    let verdict = scene.verdict();
    assert_eq!(verdict.outcome, handshake(Reason::Unknown));
    assert_eq!(verdict.notes, [Note::Icmp(IcmpErrorKind::AdminProhibited)]);
    // The error is about another segment.
    let bytes = syn(&cookie(&COOKIE), DATA);
    let mut conversation = Conversation::new(Instant::ZERO, CLIENT, &Segment::parse(&bytes).unwrap());
    conversation.handle_icmp(CLIENT, CLIENT_ISN + 1, IcmpErrorKind::AdminProhibited);
    assert_eq!(judge(&conversation, false).unwrap().notes, [Note::NoAnswer]);
}

#[test]
fn no_answer_at_all() {
    let first = Scene::default().client(0, syn(&cookie(&COOKIE), DATA));
    assert_eq!(first.verdict().outcome, Outcome::Undecided);
    let verdict = first.client(1000, syn(&[], &[])).client(3000, syn(&[], &[])).verdict();
    assert_eq!((verdict.outcome, verdict.syn_retransmits), (handshake(Reason::Unknown), 2));
    assert_eq!((&verdict.notes[..], verdict.rtt), (&[Note::NoAnswer][..], None));
}

#[test]
fn what_was_not_captured_is_not_guessed() {
    let granted = syn_ack(0, &cookie(&COOKIE), &[]);
    let verdict =
        Scene::default().server(0, granted.clone()).server(3000, granted).client(3001, ack()).verdict();
    assert_eq!(verdict.outcome, Outcome::Undecided);
    assert_eq!(verdict.notes, [Note::SynNotCaptured, Note::SynAckSentAgain(1)]);
    assert_eq!((verdict.option, verdict.acked_bytes), (None, None));
    let scene = Scene::default().client(0, syn(&cookie(&COOKIE), DATA)).client(50, ack()).server(60, reply());
    let verdict = scene.verdict();
    assert_eq!((verdict.outcome, &verdict.notes[..]), (Outcome::Undecided, &[Note::SynAckNotCaptured][..]));
    // Neither a SYN nor a SYN-ACK.
    let bytes = ack();
    assert_eq!(
        judge(&Conversation::new(Instant::ZERO, CLIENT, &Segment::parse(&bytes).unwrap()), false),
        None
    );
}

#[test]
fn a_cookie_nobody_asked_for() {
    let verdict =
        Scene::default().client(0, syn(&[], &[])).server(9, syn_ack(0, &cookie(&FRESH), &[])).verdict();
    assert_eq!(
        (verdict.outcome, &verdict.notes[..]),
        (handshake(Reason::NotRequested), &[Note::UnaskedCookie][..])
    );
}

#[test]
fn both_open_at_once() {
    let other = segment(CLIENT.other(), Flags::SYN, SERVER_ISN, SeqNum::new(0), &[], &[]);
    let scene = Scene::default().client(0, syn(&request(), &[])).server(1, other);
    assert_eq!(scene.server(50, syn_ack(0, &[], &[])).verdict().outcome, handshake(Reason::SimultaneousOpen));
}

#[test]
fn ports_used_again_are_another_connection() {
    let parse = |bytes: &'static [u8]| Segment::parse(bytes).unwrap();
    let leak = |bytes: Vec<u8>| parse(bytes.leak());
    let (second, third) = (Instant::from_secs(100), Instant::from_secs(101));
    let old = Conversation::new(second, CLIENT, &leak(syn(&[], &[])));
    let next = segment(CLIENT, Flags::SYN, CLIENT_ISN + 77_777, SeqNum::new(0), &[], &[]);
    assert!(!old.owns(second, CLIENT, &leak(next)));
    assert!(old.owns(third, CLIENT, &leak(syn(&[], &[]))));
    // Traffic without a SYN, long before.
    let old = Conversation::new(Instant::from_secs(1), CLIENT, &leak(ack()));
    assert!(!old.owns(second, CLIENT, &leak(syn(&[], &[]))));
    assert!(!old.owns(second, CLIENT.other(), &leak(syn_ack(0, &[], &[]))));
}

#[test]
fn the_last_legal_option_counts() {
    let mut both = cookie(&COOKIE);
    both.extend(cookie(&FRESH));
    let verdict = Scene::default().client(0, syn(&both, DATA)).server(9, syn_ack(ALL, &[], &[])).verdict();
    assert_eq!(verdict.option.as_ref().and_then(FoOption::cookie), Some(&FRESH[..]));
}

#[test]
fn a_connection_takes_less_than_a_kilobyte() {
    assert!(size_of::<Conversation>() < 1000, "{}", size_of::<Conversation>());
}
