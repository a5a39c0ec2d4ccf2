//! Fast Open at a listener, packet by packet (RFC 7413 §4.2).

use crate::peer::visited::{AFTER, DATA, first_flight, server, server_with, syn};
use crate::peer::{CLIENT_PORT, Peer, key, policy, seg};
use firstflight_credential::{FastOpenPolicy, Flow, KeyRing, Outcome, PendingLimit, Reason, Scheme};
use firstflight_stack::{IoError, ListenerId, StateName};
use firstflight_wire::tcp::{Cookie, FastOpenForm};
use std::sync::Arc;

// --- cookies ---------------------------------------------------------------------------------------

/// RFC 7413 §4.1.1, §4.2.1: a request gets a cookie in the form of the request. Its data waits.
//= rfc7413 9-a test
#[test]
fn a_request_is_granted_in_its_own_form() {
    for form in [FastOpenForm::Standard, FastOpenForm::Experimental] {
        let (mut p, listener, cookie) = server();
        let ask = if form == FastOpenForm::Standard { syn().cookie(&[]) } else { syn().cookie_254(&[]) };
        p.send(ask.data(DATA));
        let granted = p.expect().syn_ack().ack(1).empty().grants(form);
        assert_eq!(granted, cookie);
        p.nothing_to_accept(listener);
        p.send(seg().seq(1).ack(1).data(DATA));
        let id = p.accept(listener);
        assert_eq!(p.read(id), DATA);
        assert_eq!(p.stack.info(id).unwrap().outcome, Outcome::Handshake(Reason::NoCredential));
    }
}

/// A policy with key 2, under which a cookie of key 1 is accepted and replaced.
fn with_backup() -> FastOpenPolicy {
    let ring = KeyRing::new(Scheme::Linux, key(2)).with_backup(key(1));
    FastOpenPolicy::new(Arc::new(ring), Arc::new(PendingLimit::new(10)))
}

/// RFC 7413 §4.2.2: the cookie, for which a middlebox may have dropped the SYN-ACK, is not retransmitted, neither
/// when the timer fires nor when the client's SYN comes again.
//= rfc7413 4.2.2-d test
#[test]
fn a_syn_ack_that_goes_again_has_no_cookie() {
    let (p, ..) = server();
    let wrong = Cookie::new(&[7; 8]).unwrap();
    let cases =
        [(syn().cookie(&[]), 1), (first_flight(&wrong), 1), (first_flight(&p.cookie_of(key(1))), AFTER)];
    for (flight, ack) in cases {
        let (mut p, ..) = server_with(|_| {}, |c| c.fast_open = Some(with_backup()));
        p.send(flight);
        assert_eq!(p.expect().syn_ack().ack(ack).grants(FastOpenForm::Standard), p.cookie_of(key(2)));
        p.sends_at(1600, &[1000]).remove(0).syn_ack().ack(ack).empty().no_fast_open();
        p.send(syn());
        p.expect().syn_ack().ack(ack).empty().no_fast_open();
    }
}

/// RFC 7413 §4.2.2: the data is readable before the handshake is complete, and acknowledged.
//= rfc7413 4.2-a test
#[test]
fn a_valid_cookie_opens_at_once() {
    for experimental in [false, true] {
        let (mut p, listener, cookie) = server();
        let bytes = cookie.as_bytes();
        let with = if experimental { syn().cookie_254(bytes) } else { syn().cookie(bytes) };
        p.send(with.data(DATA));
        p.expect().syn_ack().ack(AFTER).empty().no_fast_open();
        let id = p.accept(listener);
        assert_eq!(p.state(id), StateName::SynRcvd);
        let info = p.stack.info(id).unwrap();
        assert_eq!((info.outcome, info.confirmed), (Outcome::Accepted, false));
        assert_eq!((info.totals.early as usize, p.read(id)), (DATA.len(), DATA.to_vec()));
        p.send(seg().seq(AFTER).ack(1));
        assert_eq!(p.state(id), StateName::Established);
        assert!(p.stack.info(id).unwrap().confirmed);
        p.quiet();
    }
}

/// RFC 7413 §4.2.2: a wrong cookie is an ordinary handshake with a fresh cookie; the data comes once.
#[test]
fn a_wrong_cookie_falls_back_and_grants_another() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&Cookie::new(&[0x55; 8]).unwrap()));
    assert_eq!(p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard), cookie);
    p.nothing_to_accept(listener);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    assert_eq!(p.stack.info(id).unwrap().outcome, Outcome::Handshake(Reason::StaleOrWrongCredential));
    assert_eq!(p.stack.counters().first_flights_refused, 1);
}

/// RFC 7413 §4.1.2: the cookie proves the address. Another client's cookie does not.
//= rfc7413 4.1.2-a test
#[test]
fn a_cookie_belongs_to_one_address() {
    let (mut p, listener, _) = server();
    let stolen = KeyRing::new(Scheme::Linux, key(1))
        .grant(&Flow { client: "10.0.0.3".parse().unwrap(), server: "10.0.0.1".parse().unwrap() });
    p.send(first_flight(&stolen));
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
}

/// RFC 7413 §4.1.2, key change: a cookie of the backup key is accepted, and replaced.
#[test]
fn a_backup_key_accepts_and_renews() {
    let (mut p, listener, old) = server_with(|_| {}, |c| c.fast_open = Some(with_backup()));
    p.send(first_flight(&old));
    let granted = p.expect().syn_ack().ack(AFTER).grants(FastOpenForm::Standard);
    assert_eq!(granted, p.cookie_of(key(2)));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
}

/// A cookie without data: the child is there at once and readable when data comes.
#[test]
fn a_valid_cookie_without_data() {
    let (mut p, listener, cookie) = server();
    p.send(syn().cookie(cookie.as_bytes()));
    p.expect().syn_ack().ack(1).no_fast_open();
    let id = p.accept(listener);
    assert_eq!(p.read_once(id), Err(IoError::WouldBlock));
    // The server may send first.
    p.write(id, b"220 ready");
    p.expect().is_ack().seq(1).ack(1).data(b"220 ready");
    p.send(seg().seq(1).ack(10).data(DATA));
    assert_eq!(p.read(id), DATA);
}

/// RFC 7413 §4.2.2 (and RFC 9293 §3.10.7.2): data without the option waits for the handshake.
#[test]
fn data_without_the_option_is_an_ordinary_handshake() {
    let (mut p, listener, _) = server();
    p.send(syn().data(DATA));
    p.expect().syn_ack().ack(1).no_fast_open();
    p.nothing_to_accept(listener);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
}

/// A listener is without Fast Open unless it is asked to have it. It answers no option and takes no data.
//= rfc7413 2-a 4.2-a 4.2-b test
#[test]
fn a_listener_without_fast_open_answers_none() {
    let mut p = Peer::new();
    let listener = p.listen();
    let cookie = p.cookie_of(key(1));
    for flight in [first_flight(&cookie), syn().cookie(&[]).data(DATA), syn().cookie_254(&[])] {
        p.flow(p.port + 1, 77);
        p.send(flight);
        p.expect().syn_ack().ack(1).no_fast_open();
        p.nothing_to_accept(listener);
    }
}

/// RFC 7413 §4.1.1: a cookie has 4 to 16 bytes, and an even length. An odd length is ignored; a length out of range
/// counts as absent.
//= rfc7413 4.1.1-a 4.1.1-b test
#[test]
fn impossible_cookie_lengths_are_no_fast_open() {
    for len in [1, 2, 3, 5, 7, 17, 18] {
        let (mut p, listener, _) = server();
        p.send(syn().cookie(&vec![1; len]).data(DATA));
        p.expect().syn_ack().ack(1).no_fast_open();
        p.nothing_to_accept(listener);
    }
    // A possible length, but not ours: the cookie is wrong, so a fresh one is granted.
    for len in [4, 6, 16] {
        let (mut p, _, _) = server();
        p.send(syn().cookie(&vec![1; len]).data(DATA));
        p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard);
    }
}

/// RFC 7413 §4.1.3 note: the no-cookie mode of closed networks.
#[test]
fn no_cookie_mode_takes_data_without_option() {
    let (mut p, listener, _) = server_with(
        |_| {},
        |c| {
            let mut closed = policy(key(1), 10);
            closed.no_cookie = true;
            c.fast_open = Some(closed);
        },
    );
    p.send(syn().data(DATA));
    p.expect().syn_ack().ack(AFTER).no_fast_open();
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
}

/// Nothing of a SYN with FIN is accepted, with or without a cookie.
#[test]
fn syn_with_fin_and_cookie_is_dropped() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie).fin());
    p.quiet();
    p.nothing_to_accept(listener);
}

// --- the pending limit ---------------------------------------------------------------------------

fn limited(limit: u32) -> (Peer, ListenerId, Cookie, Arc<PendingLimit>) {
    let fast_open = policy(key(1), limit);
    let pending = fast_open.pending.clone();
    let (p, listener, cookie) = server_with(|_| {}, |c| c.fast_open = Some(fast_open));
    (p, listener, cookie, pending)
}

/// RFC 7413 §4.2.2, §5.1: at the limit the server acts as if Fast Open were off, and sends no cookie option either.
/// The client's ACK gives the permit back.
//= rfc7413 4.2-c test
#[test]
fn the_pending_limit_and_its_release_by_the_ack() {
    let (mut p, listener, cookie, pending) = limited(1);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    assert_eq!(pending.pending(), 1);
    for other in [first_flight(&cookie), syn().cookie(&[])] {
        p.flow(p.port + 1, 77);
        p.send(other);
        p.expect().syn_ack().ack(1).no_fast_open();
    }
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    p.send(seg().seq(AFTER).ack(1));
    assert_eq!(pending.pending(), 0);
    p.accept(listener);
    p.nothing_to_accept(listener);
    p.flow(CLIENT_PORT + 9, 77);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
}

/// Limit 0 switches Fast Open off.
#[test]
fn limit_zero_is_off() {
    let (mut p, listener, cookie, _) = limited(0);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1).no_fast_open();
    p.nothing_to_accept(listener);
}

/// A RST before the application has the child frees the permit at once (Linux).
#[test]
fn a_reset_before_accept_gives_the_permit_back() {
    let (mut p, listener, cookie, pending) = limited(1);
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    p.send(seg().seq(AFTER).rst());
    assert_eq!(pending.pending(), 0);
    // Data that came before is still readable.
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    assert!(matches!(p.read_once(id), Err(IoError::Closed(_))));
}

/// RFC 7413 §5.1: a later RST may answer a spoofed SYN on which the application has already worked, so the permit
/// stays taken for 60 s.
#[test]
fn a_reset_after_accept_keeps_the_permit_for_a_minute() {
    let (mut p, listener, cookie, pending) = limited(1);
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    let id = p.accept(listener);
    p.send(seg().seq(AFTER).rst());
    assert_eq!(p.state(id), StateName::Closed);
    p.release(id);
    assert_eq!((p.stack.connections(), pending.pending()), (0, 1));
    p.at(59_900);
    assert_eq!(pending.pending(), 1);
    p.at(60_100);
    assert_eq!(pending.pending(), 0);
}

/// A child whose client never answers gives all its resources back.
#[test]
fn a_child_without_ack_is_given_up() {
    let (mut p, listener, cookie, pending) = limited(1);
    p.send(first_flight(&cookie));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    let sent = p.sends_at(120_000, &[0, 1_000, 3_000, 7_000, 15_000, 31_000]);
    assert!(sent.into_iter().all(|g| g.syn_ack().ack(AFTER).no_fast_open().data.is_empty()));
    assert_eq!((p.state(id), pending.pending()), (StateName::Closed, 0));
}
