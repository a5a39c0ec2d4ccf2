//! Datagrams from other fronts, and from attackers.

use super::*;
use crate::ReplyKey;
use crate::relay::{FrontClock, MAX_RELAY};
use proptest::prelude::*;

/// A receiver, a datagram for it with a fragment, and the clock.
fn pair() -> (Forwarder, Vec<u8>, Clock) {
    let mut sender = ForwardSender::new(&shared(), KEY_ID, 0, Boot(5));
    let forwarded = Forwarded { resolver: RESOLVER, fragment: fragment(1) };
    let datagram = datagram::seal(&mut sender.inner, &[forwarded], UNIX_MS).unwrap();
    let clock = Clock { mono: START, unix_ms: UNIX_MS, uncertainty: Duration::ZERO };
    (Forwarder::new(config(1, 0..2)).unwrap(), datagram, clock)
}

#[test]
fn only_genuine_datagrams_are_taken_and_each_once() {
    let (mut two, datagram, clock) = pair();
    let mut take = |datagram: &[u8], clock: &Clock| two.handle_datagram(address(0), datagram, clock);
    for at in 0..datagram.len() {
        let mut bad = datagram.clone();
        bad[at] ^= 1;
        assert!(take(&bad, &clock).is_err(), "{at}");
    }
    for len in 0..datagram.len() {
        assert!(take(&datagram[..len], &clock).is_err(), "{len}");
    }
    assert!(take(&[&datagram[..], &[0; MAX_FORWARD]].concat(), &clock).is_err());
    let late = Clock { unix_ms: UNIX_MS + 5001, ..clock };
    assert_eq!(take(&datagram, &late), Err(ForwardRefused::Datagram(RelayRefused::Time)));
    assert_eq!(take(&datagram, &clock).map(|taken| taken.len()), Ok(1));
    assert_eq!(take(&datagram, &clock), Err(ForwardRefused::Datagram(RelayRefused::Replayed)));
    let mut before = ForwardSender::new(&shared(), KEY_ID, 0, Boot(4));
    let before = datagram::seal(&mut before.inner, &[], UNIX_MS).unwrap();
    assert_eq!(take(&before, &clock), Err(ForwardRefused::Datagram(RelayRefused::OldBoot)));
    let mut other = ForwardSender::new(&RelayKey::from_bytes(&[5; 32]), KEY_ID, 0, Boot(6));
    let other = datagram::seal(&mut other.inner, &[], UNIX_MS).unwrap();
    assert_eq!(take(&other, &clock), Err(ForwardRefused::Datagram(RelayRefused::Forged)));
    let counters = two.counters();
    assert_eq!((counters.taken, counters.datagrams.accepted), (1, 1));
    assert_eq!((counters.datagrams.replayed, counters.datagrams.old_boot), (1, 1));
}

/// If the fronts' key were not derived, a relay key that is also used as the fronts' key would use its nonces
/// twice.
#[test]
fn one_key_file_for_servers_and_fronts_uses_no_nonce_twice() {
    let (mut relay, mut forward) =
        (RelaySender::new(&shared(), KEY_ID, 0, Boot(5)), ForwardSender::new(&shared(), KEY_ID, 0, Boot(5)));
    let mut out = [0; MAX_RELAY];
    let ci = ci(V4, b"GET", &mut rng(1));
    let reply = ReplyKey::from_bytes(&[4; 16]);
    let len = relay.emit(&ci, &reply, RESOLVER, UNIX_MS, &mut out).unwrap();
    let forwarded = Forwarded { resolver: RESOLVER, fragment: fragment(1) };
    let datagram = datagram::seal(&mut forward.inner, &[forwarded], UNIX_MS).unwrap();
    // Both begin with the resolver's address, under the same nonce.
    assert_eq!(out[4..22], datagram[4..22]);
    assert_ne!(out[22..38], datagram[22..38]);
    // Neither is accepted in place of the other, even if its type is changed.
    let (mut two, _, clock) = pair();
    let mut server = RelayReceiver::new();
    server.set_key(KEY_ID, &shared());
    let mut wrong = out[..len].to_vec();
    assert_eq!(
        two.handle_datagram(address(0), &wrong, &clock),
        Err(ForwardRefused::Datagram(RelayRefused::Malformed))
    );
    wrong[2] = 0x12;
    assert!(two.handle_datagram(address(0), &wrong, &clock).is_err());
    let mut wrong = datagram.clone();
    assert!(server.handle_datagram(&wrong, UNIX_MS, &mut OpenBuffer::new()).is_err());
    wrong[2] = 0x11;
    assert!(server.handle_datagram(&wrong, UNIX_MS, &mut OpenBuffer::new()).is_err());
}

#[test]
fn fronts_need_a_configured_address_and_a_number_of_their_own() {
    let (mut two, datagram, clock) = pair();
    let elsewhere: SocketAddr = "203.0.113.99:4455".parse().unwrap();
    assert_eq!(two.handle_datagram(elsewhere, &datagram, &clock), Err(ForwardRefused::Address(elsewhere)));
    assert_eq!((two.alive(START), two.counters().address), (1, 1));
    // The address as a socket of both families reports it.
    let mapped = SocketAddr::new(Ipv4Addr::new(203, 0, 113, 1).to_ipv6_mapped().into(), 4455);
    let mut zero = ForwardSender::new(&shared(), KEY_ID, 0, Boot(6));
    let empty = |sender: &mut ForwardSender| datagram::seal(&mut sender.inner, &[], UNIX_MS).unwrap();
    assert!(two.handle_datagram(mapped, &empty(&mut zero), &clock).is_ok());
    assert_eq!(two.alive(START), 2);
    let mut own = ForwardSender::new(&shared(), KEY_ID, 1, Boot(6));
    let refused = two.handle_datagram(address(0), &empty(&mut own), &clock);
    assert_eq!(refused, Err(ForwardRefused::SameNumber(1)));
    assert_eq!((two.alive(START), two.counters().same_number), (2, 1));
    // If two other fronts have one number, the one that was heard first stays.
    let mut three = Forwarder::new(config(2, 0..3)).unwrap();
    assert!(three.handle_datagram(address(0), &empty(&mut zero), &clock).is_ok());
    let refused = three.handle_datagram(address(1), &empty(&mut zero), &clock);
    assert_eq!(refused, Err(ForwardRefused::SameNumber(0)));
}

#[test]
fn malformed_content_under_the_key_is_refused() {
    let (mut two, _, clock) = pair();
    let mut sender = ForwardSender::new(&shared(), KEY_ID, 0, Boot(6));
    let good = [&mapped(RESOLVER)[..], &fragment(1).to_bytes()].concat();
    let (mut short, mut bad) = (good.clone(), good.clone());
    short.pop();
    bad[16 + 7] = 2;
    for plain in [&short[..], &bad, &[&good[..], &bad].concat(), &[&good[..], &[0]].concat(), &[0]] {
        let mut out = [0; 2048];
        let len = sender.inner.seal(Kind::Forward, plain, UNIX_MS, &mut out).unwrap();
        let refused = two.handle_datagram(address(0), &out[..len], &clock);
        assert!(matches!(refused, Err(ForwardRefused::Datagram(RelayRefused::Content(_)))), "{refused:?}");
    }
    assert_eq!((two.counters().datagrams.content, two.counters().taken), (5, 0));
}

fn mapped(address: IpAddr) -> [u8; 16] {
    firstflight_wire::asap::mapped(address)
}

#[test]
fn a_wrong_clock_of_a_front_is_reported() {
    let (mut two, datagram, clock) = pair();
    let wrong = Clock { unix_ms: UNIX_MS + 60_000, ..clock };
    let refused = two.handle_datagram(address(0), &datagram, &wrong);
    assert_eq!(refused, Err(ForwardRefused::Datagram(RelayRefused::Time)));
    let report = two.poll_clock().unwrap();
    assert_eq!((report.front, report.clock), (0, FrontClock::Behind(60_000)));
    assert_eq!((two.counters().datagrams.time, two.alive(START)), (1, 1));
    // An altered datagram is not believed.
    let mut forged = datagram;
    *forged.last_mut().unwrap() ^= 1;
    let (mut two, ..) = pair();
    assert!(two.handle_datagram(address(0), &forged, &wrong).is_err());
    assert!(two.poll_clock().is_none());
}

#[test]
fn keys_change_without_a_gap() {
    let new = RelayKey::from_bytes(&[7; 32]);
    let (mut two, datagram, clock) = pair();
    // Both keys are accepted, and datagrams that were seen under the first stay known.
    assert!(two.handle_datagram(address(0), &datagram, &clock).is_ok());
    two.set_keys(None, &[(KEY_ID, shared()), (5, new.clone())]);
    let replayed = ForwardRefused::Datagram(RelayRefused::Replayed);
    assert_eq!(two.handle_datagram(address(0), &datagram, &clock), Err(replayed));
    let mut sender = ForwardSender::new(&new, 5, 0, Boot(6));
    let mut empty = || datagram::seal(&mut sender.inner, &[], UNIX_MS).unwrap();
    assert!(two.handle_datagram(address(0), &empty(), &clock).is_ok());
    two.set_keys(Some(ForwardSender::new(&new, 5, 1, Boot(2))), &[(5, new)]);
    assert!(two.handle_datagram(address(0), &empty(), &clock).is_ok());
    let unknown = ForwardRefused::Datagram(RelayRefused::UnknownKey);
    assert_eq!(two.handle_datagram(address(0), &datagram, &clock), Err(unknown));
    assert_eq!(two.poll_datagram(&clock).unwrap().datagram[3], 5);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let error = |others| Forwarder::new(ForwardConfig { others, ..config(0, 0..2) }).unwrap_err();
    assert_eq!(error(vec![]), ForwardError::Count(0));
    assert_eq!(error((1..=16).map(address).collect()), ForwardError::Count(16));
    assert_eq!(error(vec![address(1), address(2), address(1)]), ForwardError::Twice(address(1)));
    // The options of `dns` are keys of a gateway's file.
    for error in [ForwardError::Count(16), ForwardError::Twice(address(1))] {
        assert!(!error.to_string().contains("--"), "{error}");
    }
    assert!(Forwarder::new(config(0, 0..16)).is_ok());
    let mut plain = Front::new(Vec::new(), RateLimit::default()).unwrap();
    assert!(!plain.forward(Forwarder::new(config(0, 0..2)).unwrap()));
    let (_, datagram, clock) = pair();
    assert_eq!(plain.handle_forward(&clock, address(1), &datagram, &mut rng(1)), Err(ForwardRefused::Off));
    assert!(plain.forwarding(START).is_none() && plain.next_forward_timeout().is_none());
    let text = format!("{:?} {:?}", pair().0, config(0, 0..2));
    assert!(text.contains("RelayKey(..)") && !text.contains("6, 6"), "{text}");
}

proptest! {
    /// Unauthenticated bytes leave no state.
    #[test]
    fn no_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..1400), repaired: bool) {
        let mut bytes = bytes;
        if repaired && bytes.len() > 22 {
            bytes[..4].copy_from_slice(&[0xff, 0x52, 0x12, KEY_ID]);
            bytes[16..22].copy_from_slice(&UNIX_MS.to_be_bytes()[2..]);
        }
        let (mut two, _, clock) = pair();
        prop_assert!(two.handle_datagram(address(0), &bytes, &clock).is_err());
        prop_assert_eq!((two.receiver.fronts(), two.alive(START)), (0, 1));
    }

    /// The opened fragments are the sealed ones, in the same order.
    #[test]
    fn fragments_come_back(count in 0..=MAX_FORWARDED, seed: u64, v6: bool, low: u32) {
        let resolver: IpAddr = match v6 {
            true => core::net::Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(low)).into(),
            false => Ipv4Addr::from_bits(low).into(),
        };
        let labels = labels(seed);
        let parsed = labels.iter().cycle().map(|label| Fragment::parse(label).unwrap());
        let sent: Vec<_> = parsed.take(count).map(|fragment| Forwarded { resolver, fragment }).collect();
        let mut sender = ForwardSender::new(&shared(), KEY_ID, 0, Boot(5));
        let datagram = datagram::seal(&mut sender.inner, &sent, UNIX_MS).unwrap();
        let (_, _, clock) = pair();
        let mut two = Forwarder::new(config(1, 0..2)).unwrap();
        prop_assert_eq!(two.handle_datagram(address(0), &datagram, &clock).unwrap(), sent);
    }
}
