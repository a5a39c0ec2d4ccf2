use super::*;
use crate::fixtures::{V4, V6, ci, rng};
use crate::seal::OpenBuffer;
use proptest::prelude::*;

const NOW: u64 = 1_767_225_660_000;
const RESOLVER: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(198, 51, 100, 53));

fn key() -> RelayKey {
    RelayKey::from_bytes(&[9; 32])
}

fn sender(boot: u32) -> RelaySender {
    RelaySender::new(&key(), 2, 7, Boot(boot))
}

fn receiver() -> RelayReceiver {
    let mut receiver = RelayReceiver::new();
    receiver.set_key(2, &key());
    receiver
}

fn emit(sender: &mut RelaySender, unix_ms: u64) -> Vec<u8> {
    let mut out = [0; MAX_RELAY];
    let ci = ci(V4, b"GET", &mut rng(1));
    let len = sender.emit(&ci, &ReplyKey::from_bytes(&[4; 16]), RESOLVER, unix_ms, &mut out).unwrap();
    out[..len].to_vec()
}

fn take(receiver: &mut RelayReceiver, datagram: &[u8], unix_ms: u64) -> Result<(), RelayRefused> {
    receiver.handle_datagram(datagram, unix_ms, &mut OpenBuffer::new()).map(|_| ())
}

#[test]
fn what_was_handed_over_arrives() {
    let (mut sender, mut receiver) = (sender(100), receiver());
    for address in [V4, V6] {
        for len in [0, 1, ConnectionInfo::max_data(address)] {
            let data = vec![b'x'; len];
            let ci = ci(address, &data, &mut rng(1));
            let mut out = [0; MAX_RELAY];
            let reply = ReplyKey::from_bytes(&[4; 16]);
            let written = sender.emit(&ci, &reply, RESOLVER, NOW, &mut out).unwrap();
            assert_eq!(written, 22 + 36 + ci.wire_len() + 16);
            let mut buffer = OpenBuffer::new();
            let relayed = receiver.handle_datagram(&out[..written], NOW, &mut buffer).unwrap();
            assert_eq!((relayed.ci, relayed.resolver), (ci, RESOLVER));
            assert_eq!(*relayed.reply.to_bytes(), [4; 16]);
        }
    }
    assert_eq!(receiver.counters().accepted, 6);
}

#[test]
fn any_changed_bit_is_noticed() {
    let datagram = emit(&mut sender(100), NOW);
    let mut receiver = receiver();
    for at in 0..datagram.len() {
        let mut bad = datagram.clone();
        bad[at] ^= 1;
        assert!(take(&mut receiver, &bad, NOW).is_err(), "{at}");
    }
    for len in 0..datagram.len() {
        assert!(take(&mut receiver, &datagram[..len], NOW).is_err(), "{len}");
    }
    assert!(take(&mut receiver, &[&datagram[..], &[0; 200]].concat(), NOW).is_err());
    let counters = *receiver.counters();
    // Magic and version, the key's number, and the higher bytes of the time.
    assert_eq!((counters.malformed, counters.unknown_key, counters.time), (3 + 38 + 1, 1, 4));
    // Forgeries leave no state.
    assert_eq!(receiver.fronts(), 0);
    assert_eq!(take(&mut receiver, &datagram, NOW), Ok(()));
}

#[test]
fn a_copy_is_refused() {
    let (mut sender, mut receiver) = (sender(100), receiver());
    let datagrams: Vec<_> = (0..1500).map(|_| emit(&mut sender, NOW)).collect();
    // Out of order within the window.
    for at in [5, 3, 1100, 1099, 77, 1499] {
        assert_eq!(take(&mut receiver, &datagrams[at], NOW), Ok(()), "{at}");
        assert_eq!(take(&mut receiver, &datagrams[at], NOW), Err(RelayRefused::Replayed), "{at}");
    }
    // 1499 is the highest: 476 is the last of the window.
    assert_eq!(take(&mut receiver, &datagrams[475], NOW), Err(RelayRefused::Behind));
    assert_eq!(take(&mut receiver, &datagrams[476], NOW), Ok(()));
    assert_eq!(take(&mut receiver, &datagrams[5], NOW), Err(RelayRefused::Behind));
}

#[test]
fn times_are_five_seconds_apart_at_most() {
    for (sent, expected) in [
        (NOW - 5000, Ok(())),
        (NOW + 5000, Ok(())),
        (NOW - 5001, Err(RelayRefused::Time)),
        (NOW + 5001, Err(RelayRefused::Time)),
        (0, Err(RelayRefused::Time)),
    ] {
        assert_eq!(take(&mut receiver(), &emit(&mut sender(100), sent), NOW), expected);
    }
}

fn clock_of(receiver: &mut RelayReceiver) -> Option<FrontClock> {
    let report = receiver.poll_clock()?;
    assert_eq!((report.key_id, report.front), (2, 7));
    assert_eq!(receiver.poll_clock(), None);
    Some(report.clock)
}

#[test]
fn a_wrong_clock_is_reported_again_and_once_when_it_is_right() {
    const REMIND: u64 = 600_000;
    let (mut sender, mut receiver) = (sender(100), receiver());
    let mut at = |receiver: &mut RelayReceiver, sent: u64, now: u64| {
        let expected = if sent.abs_diff(now) > RELAY_WINDOW_MS { Err(RelayRefused::Time) } else { Ok(()) };
        assert_eq!(take(receiver, &emit(&mut sender, sent), now), expected);
        clock_of(receiver)
    };
    assert_eq!(at(&mut receiver, NOW - 12_345, NOW), Some(FrontClock::Behind(12_345)));
    // The dropped datagram has left no state that would drop others.
    assert_eq!(receiver.fronts(), 0);
    // Not every datagram is opened or reported.
    for n in 1..100 {
        assert_eq!(at(&mut receiver, NOW, NOW + 6000 * n), None);
    }
    assert_eq!(receiver.counters().time_genuine, 1);
    assert_eq!(at(&mut receiver, NOW, NOW + REMIND), Some(FrontClock::Behind(REMIND)));
    // A clock near the limit does not count as right yet.
    let later = NOW + REMIND;
    assert_eq!(at(&mut receiver, later - 4000, later), None);
    assert_eq!(at(&mut receiver, later - 2000, later), Some(FrontClock::Right));
    assert_eq!(at(&mut receiver, later, later), None);
    assert_eq!(at(&mut receiver, later + 10_000, later + 2000), Some(FrontClock::Ahead(8000)));
    let counters = receiver.counters();
    assert_eq!((counters.accepted, counters.time, counters.time_genuine), (3, 102, 3));
}

#[test]
fn a_wrong_time_moves_neither_window_nor_start() {
    let (mut old, mut receiver) = (sender(100), receiver());
    let first = emit(&mut old, NOW);
    assert_eq!(take(&mut receiver, &emit(&mut old, NOW), NOW), Ok(()));
    // Two genuine datagrams: one far ahead in the sequence, and one of a later start.
    old.sequence = 1_000_000;
    assert_eq!(take(&mut receiver, &emit(&mut old, NOW - 9000), NOW), Err(RelayRefused::Time));
    let mut new = sender(101);
    assert_eq!(take(&mut receiver, &emit(&mut new, NOW - 9000), NOW + 1000), Err(RelayRefused::Time));
    assert!(receiver.counters().time_genuine > 0);
    assert_eq!(take(&mut receiver, &first, NOW), Ok(()));
}

#[test]
fn a_warning_about_a_clock_is_not_forged() {
    let (mut sender, mut receiver) = (sender(100), receiver());
    let kept = emit(&mut sender, NOW);
    let late = emit(&mut sender, NOW);
    // One datagram with another key, and one whose time was changed on the way.
    let mut other = RelaySender::new(&RelayKey::from_bytes(&[1; 32]), 2, 7, Boot(100));
    let forged = emit(&mut other, NOW - 9000);
    let mut changed = kept.clone();
    changed[18] ^= 1;
    for (n, datagram) in [&forged, &changed, &forged].into_iter().enumerate() {
        assert_eq!(take(&mut receiver, datagram, NOW + 1000 * n as u64), Err(RelayRefused::Time));
        assert_eq!(clock_of(&mut receiver), None);
    }
    // At most one datagram a second is opened.
    assert_eq!(take(&mut receiver, &forged, NOW + 2999), Err(RelayRefused::Time));
    assert_eq!((receiver.counters().time, receiver.counters().time_forged), (4, 3));
    // Copies of datagrams that were accepted, that were overtaken and lost, and that were reported.
    assert_eq!(take(&mut receiver, &emit(&mut sender, NOW), NOW), Ok(()));
    for (n, datagram) in [&kept, &late].into_iter().enumerate() {
        let now = NOW + 10_000 * (n as u64 + 1);
        assert_eq!(take(&mut receiver, datagram, now), Err(RelayRefused::Time));
        assert_eq!(clock_of(&mut receiver), None);
    }
    let reported = emit(&mut sender, NOW);
    let later = NOW + 1_000_000;
    assert_eq!(take(&mut receiver, &reported, later), Err(RelayRefused::Time));
    assert_eq!(clock_of(&mut receiver), Some(FrontClock::Behind(1_000_000)));
    assert_eq!(take(&mut receiver, &reported, later + 1_000_000), Err(RelayRefused::Time));
    assert_eq!(clock_of(&mut receiver), None);
    assert_eq!((receiver.counters().time_genuine, receiver.counters().time_forged), (1, 3));
}

/// A server reads its key file again every second.
#[test]
fn a_key_that_is_set_again_keeps_what_was_seen() {
    let (mut sender, mut receiver) = (sender(100), receiver());
    let datagram = emit(&mut sender, NOW);
    assert_eq!(take(&mut receiver, &datagram, NOW), Ok(()));
    receiver.set_key(2, &key());
    assert_eq!(take(&mut receiver, &datagram, NOW), Err(RelayRefused::Replayed));
}

#[test]
fn a_new_start_begins_anew_and_ends_the_old_one() {
    let (mut old, mut new, mut receiver) = (sender(100), sender(101), receiver());
    let kept = emit(&mut old, NOW);
    let first = emit(&mut old, NOW);
    assert_eq!(take(&mut receiver, &first, NOW), Ok(()));
    assert_eq!(take(&mut receiver, &emit(&mut new, NOW), NOW), Ok(()));
    assert_eq!(take(&mut receiver, &kept, NOW), Err(RelayRefused::OldBoot));
    assert_eq!(take(&mut receiver, &emit(&mut new, NOW), NOW), Ok(()));
    // Another sender of the front has its own start.
    let mut other = RelaySender::new(&key(), 2, 8, Boot(50));
    assert_eq!(take(&mut receiver, &emit(&mut other, NOW), NOW), Ok(()));
    assert_eq!(receiver.fronts(), 2);
}

#[test]
fn starts_only_grow() {
    assert_eq!(Boot::after(None, 500), Some(Boot(500)));
    assert_eq!(Boot::after(Some(Boot(400)), 500), Some(Boot(500)));
    // Two starts in one second, or with a clock that went back.
    assert_eq!(Boot::after(Some(Boot(500)), 500), Some(Boot(501)));
    assert_eq!(Boot::after(Some(Boot(900)), 500), Some(Boot(901)));
    assert_eq!(Boot::after(Some(Boot(u32::MAX)), 500), None);
}

#[test]
fn sequence_numbers_end() {
    let mut sender = sender(100);
    sender.sequence = MAX_SEQUENCE;
    let last = emit(&mut sender, NOW);
    assert_eq!(last[10..16], [0xff; 6]);
    let ci = ci(V4, b"", &mut rng(1));
    let error = sender.emit(&ci, &ReplyKey::from_bytes(&[4; 16]), RESOLVER, NOW, &mut [0; MAX_RELAY]);
    assert_eq!(error, Err(RelayError::Exhausted));
    assert_eq!(take(&mut receiver(), &last, NOW), Ok(()));
}

#[test]
fn a_key_that_is_replaced_or_removed_opens_nothing() {
    let (mut sender, mut receiver) = (sender(100), receiver());
    assert_eq!(take(&mut receiver, &emit(&mut sender, NOW), NOW), Ok(()));
    receiver.set_key(2, &RelayKey::from_bytes(&[8; 32]));
    assert_eq!(receiver.fronts(), 0);
    assert_eq!(take(&mut receiver, &emit(&mut sender, NOW), NOW), Err(RelayRefused::Forged));
    receiver.remove_key(2);
    assert_eq!(take(&mut receiver, &emit(&mut sender, NOW), NOW), Err(RelayRefused::UnknownKey));
}

#[test]
fn fronts_are_bounded_and_forgotten_when_nothing_of_theirs_can_come_back() {
    let mut receiver = receiver();
    let send = |receiver: &mut RelayReceiver, front: u16, now: u64| {
        let mut sender = RelaySender::new(&key(), 2, front, Boot(100));
        let datagram = emit(&mut sender, now);
        take(receiver, &datagram, now)
    };
    for front in 0..RelayReceiver::MAX_FRONTS as u16 {
        assert_eq!(send(&mut receiver, front, NOW), Ok(()));
    }
    assert_eq!(send(&mut receiver, 5000, NOW + 5000), Err(RelayRefused::TooManyFronts));
    assert_eq!(send(&mut receiver, 5, NOW), Err(RelayRefused::Replayed));
    assert_eq!(send(&mut receiver, 5000, NOW + 5001), Ok(()));
    assert_eq!(receiver.fronts(), 1);
}

#[test]
fn who_has_the_key_is_read_with_care_too() {
    let sealed = |plain: &[u8], sequence: u8| {
        let mut head = emit(&mut sender(100), NOW)[..HEAD].to_vec();
        head[15] = sequence;
        let mut text = plain.to_vec();
        let nonce = nonce(&head).unwrap();
        let buffer = InOutBuf::from(text.as_mut_slice());
        let tag = key().cipher().encrypt_inout_detached(&nonce, &head, buffer).unwrap();
        [head, text, tag.to_vec()].concat()
    };
    let mut ci_bytes = [0; ConnectionInfo::MAX_LEN];
    let len = ci(V4, b"GET", &mut rng(1)).emit(&mut ci_bytes).unwrap();
    let plain = |zero: u8, len_field: usize| {
        let mut plain = vec![0; INNER_HEAD];
        plain[16] = zero;
        plain[18..20].copy_from_slice(&(len_field as u16).to_be_bytes());
        plain.extend(&ci_bytes[..len]);
        plain
    };
    let mut receiver = receiver();
    assert_eq!(take(&mut receiver, &sealed(&plain(0, len), 0), NOW), Ok(()));
    for (sequence, bad) in
        [plain(1, len), plain(0, len - 1), plain(0, 0), vec![0; 35], vec![], vec![0; 36]].iter().enumerate()
    {
        let refused = take(&mut receiver, &sealed(bad, sequence as u8 + 1), NOW);
        assert!(matches!(refused, Err(RelayRefused::Content(_))), "{sequence}");
    }
    assert_eq!(receiver.counters().content, 6);
}

#[test]
fn no_secret_is_printed() {
    let text = format!("{:?} {:?} {:?}", key(), sender(100), receiver());
    assert!(text.starts_with("RelayKey(..) RelaySender") && !text.contains("9, 9"), "{text}");
}

proptest! {
    #[test]
    fn no_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..500), repaired: bool) {
        let mut bytes = bytes;
        if repaired && bytes.len() > HEAD {
            bytes[..4].copy_from_slice(&[0xff, 0x52, 0x11, 2]);
            bytes[16..22].copy_from_slice(&NOW.to_be_bytes()[2..]);
        }
        let mut receiver = receiver();
        prop_assert!(take(&mut receiver, &bytes, NOW).is_err());
        prop_assert_eq!(receiver.fronts(), 0);
    }
}
