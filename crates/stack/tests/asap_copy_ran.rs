//! An eavesdropper's copy from another port is executed first, and the client's own SYN is refused then, for whatever reason.
//! The reply says *replayed*, so a client does not send data again that must not be executed twice (`docs/spec/asap.md` §7.4).

use crate::certified::{NOW_MS, policy};
use crate::flights::{DATA, Server, flight, reply, server_with};
use crate::peer::seg;
use firstflight_credential::PendingLimit;
use firstflight_credential::asap::{AsapPolicy, Identity, TrustStore, Trusted, Verified};
use firstflight_stack::{ListenConfig, PacketDrop, Verifications};
use firstflight_wire::Clock;
use firstflight_wire::asap::Status;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;
use std::time::Duration;

/// Another port and another ISN.
fn next(s: &mut Server) {
    s.p.drain();
    let (port, isn) = (s.p.port + 1, s.p.isn.wrapping_mul(3) + 7);
    s.p.flow(port, isn);
}

/// A server that has executed an eavesdropper's copy of request 5.
fn after_a_copy(asap: impl FnOnce(&mut AsapPolicy), listen: impl FnOnce(&mut ListenConfig)) -> Server {
    let mut s = server_with(|_| {}, asap, listen);
    s.accepts(flight(5));
    next(&mut s);
    s
}

fn trust(entries: impl IntoIterator<Item = Trusted>) -> Arc<TrustStore> {
    Arc::new(TrustStore::new(entries).unwrap())
}

fn entry() -> Trusted {
    Trusted::new(crate::certified::verifier(1).public())
}

fn set_trust(s: &mut Server, entries: impl IntoIterator<Item = Trusted>) {
    assert!(s.p.stack.set_trust(s.listener, trust(entries), s.p.now));
}

fn differ_by(s: &mut Server, by: i64, uncertainty: Duration) {
    let unix_ms = (NOW_MS + s.p.ms()).checked_add_signed(by).unwrap();
    s.p.stack.handle_clock(Clock { mono: s.p.now, unix_ms, uncertainty });
}

/// What makes a server refuse the client's own SYN, and the status that it would have without the copy.
type Cause = (&'static str, Status, fn(&mut Server));

const CAUSES: [Cause; 8] = [
    ("the verifier is no longer trusted", Status::UnknownVerifier, |s| set_trust(s, [])),
    ("the verifier may certify less", Status::Policy, |s| {
        set_trust(s, [Trusted { min_vantage: 2, ..entry() }]);
    }),
    ("the verifier was not trusted for a while", Status::GuardFloor, |s| {
        set_trust(s, []);
        set_trust(s, [entry()]);
    }),
    ("the clock is a day ahead", Status::Expired, |s| differ_by(s, 86_400_000, Duration::ZERO)),
    ("the clock is two minutes ahead", Status::OutsideWindow, |s| differ_by(s, 120_000, Duration::ZERO)),
    ("the clock is an hour behind", Status::NotYetValid, |s| differ_by(s, -3_600_000, Duration::ZERO)),
    ("the clock may be wrong", Status::OutsideWindow, |s| differ_by(s, 0, Duration::from_secs(60))),
    ("no first flight more may be pending", Status::Overloaded, |s| {
        let pending = s.pending.clone();
        while let Ok(permit) = pending.reserve("192.0.2.7".parse().unwrap()) {
            core::mem::forget(permit);
        }
    }),
];

#[test]
fn a_refusal_says_that_the_request_may_have_run() {
    for (what, without, cause) in CAUSES {
        let few = |asap: &mut AsapPolicy| asap.pending = Arc::new(PendingLimit::new(2));
        // Without the copy, the reason is said.
        let mut s = server_with(|_| {}, few, |_| {});
        cause(&mut s);
        let got = s.asks(flight(5)).ack(1).empty();
        assert_eq!(reply(&got).map(|reply| reply.status), Some(without), "{what}");
        let mut s = after_a_copy(few, |_| {});
        cause(&mut s);
        let got = s.asks(flight(5)).ack(1).empty();
        assert_eq!(reply(&got).map(|reply| reply.status), Some(Status::Replayed), "{what}");
        s.p.nothing_to_accept(s.listener);
    }
}

/// The client's own SYN waits for its verification while the copy is executed.
#[test]
fn a_copy_that_overtakes_a_verification_is_told() {
    // The verification takes too long.
    let mut s = server_with(|_| {}, |_| {}, |_| {});
    let waits = own_syn_waits(&mut s);
    s.p.at(30);
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|reply| reply.status), Some(Status::Replayed));
    drop(waits);
    // A plain SYN of the client opens no connection. The verdict answers.
    let mut s = server_with(|_| {}, |_| {}, |_| {});
    let (flights, verdicts) = own_syn_waits(&mut s);
    s.p.pass(6);
    s.p.send(seg().syn().mss(1460));
    s.p.quiet();
    assert_eq!(s.p.stack.counters().dropped(PacketDrop::Unreported), 1);
    s.p.stack.handle_verified(flights, &verdicts, s.p.now);
    s.p.pump();
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|reply| reply.status), Some(Status::Replayed));
}

/// Takes the client's own SYN for verification, executes the copy, and returns to the flow of the own SYN.
fn own_syn_waits(s: &mut Server) -> (Verifications, Vec<Verified>) {
    let (port, isn) = (s.p.port, s.p.isn);
    s.p.send(flight(5));
    let flights = s.p.stack.poll_verifications().expect("a verification");
    next(s);
    s.accepts(flight(5));
    s.p.drain();
    s.p.flow(port, isn);
    let verdicts = flights.verify(&mut ChaCha20Rng::from_seed([9; 32]));
    (flights, verdicts)
}

/// A SYN cookie says it as well. A plain SYN that would overtake a waiting one gets none.
#[test]
fn a_cookie_says_what_may_have_run() {
    let mut s = after_a_copy(|_| {}, |listen| listen.syn_backlog = 1);
    // Another client's handshake takes the backlog.
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack().ack(1);
    next(&mut s);
    s.refuses(flight(5), Status::Replayed);
    next(&mut s);
    s.refuses(flight(6), Status::Overloaded);
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 2);

    let mut s = server_with(|_| {}, |_| {}, |listen| listen.syn_backlog = 1);
    let (port, isn) = (s.p.port, s.p.isn);
    drop(own_syn_waits(&mut s));
    s.p.flow(port + 7, 77);
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack().ack(1);
    s.p.drain();
    s.p.flow(port, isn);
    s.p.send(seg().syn().mss(1460));
    s.p.quiet();
    assert_eq!(s.p.stack.counters().dropped(PacketDrop::Unreported), 1);
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 0);
}

/// The copy went to another address, whose listener has a guard of its own.
#[test]
fn a_listener_beside_may_have_executed_it() {
    let all = "0.0.0.0:80".parse().unwrap();
    let mut s = server_with(|_| {}, |_| {}, |listen| listen.local = all);
    s.accepts(flight(5));
    next(&mut s);
    s.p.listen_with(|listen| listen.asap = Some(AsapPolicy { trust: trust([]), ..policy(&[1]) }));
    s.refuses(flight(5), Status::Replayed);
    next(&mut s);
    s.refuses(flight(6), Status::UnknownVerifier);
    // Or it shares the guard, and has another name as well.
    let named = policy(&[1]);
    let other = AsapPolicy { identities: [Identity::name("www.example.net", 80)].into(), ..policy(&[1]) };
    let mut s = server_with(
        |_| {},
        |asap| *asap = AsapPolicy { guard: named.guard.clone(), ..policy(&[1]) },
        |listen| listen.local = all,
    );
    s.accepts(flight(5));
    next(&mut s);
    s.p.listen_with(|listen| listen.asap = Some(AsapPolicy { guard: named.guard.clone(), ..other }));
    s.refuses(flight(5), Status::Replayed);
    next(&mut s);
    s.refuses(flight(6), Status::WrongIdentity);
}

/// A request that was refused before is told in the same way: nobody knows any more what became of it.
#[test]
fn a_copy_that_was_refused_is_told_as_well() {
    let mut s = server_with(|_| {}, |asap| asap.pending = Arc::new(PendingLimit::new(0)), |_| {});
    s.refuses(flight(5), Status::Overloaded);
    next(&mut s);
    s.refuses(flight(5), Status::Replayed);
}

/// An eavesdropper's plain SYN, in the client's name and before the client's own, gets an answer without reply. In TCP over IP
/// the client takes that for an option that was removed, and sends the data. The server has learnt more by then.
#[test]
fn a_plain_syn_in_the_clients_name_is_reset_when_the_clients_own_comes() {
    for copied in [false, true] {
        let mut s = server_with(|_| {}, |_| {}, |_| {});
        if copied {
            s = after_a_copy(|_| {}, |_| {});
        }
        s.p.send(seg().syn().mss(1460));
        let got = s.p.expect().syn_ack().ack(1);
        assert_eq!(reply(&got), None);
        s.p.send(flight(5));
        s.p.drain();
        s.p.send(seg().seq(1).ack(1).data(DATA));
        if copied {
            s.p.expect().is_rst();
            s.p.nothing_to_accept(s.listener);
            assert_eq!(s.p.stack.counters().repeats_reset, 1);
        } else {
            let id = s.p.accept(s.listener);
            assert_eq!(s.p.read(id), DATA);
        }
    }
}

/// The client's own SYN was refused, and the network brings it twice.
#[test]
fn a_refused_syn_that_comes_twice_is_no_copy() {
    let mut s = server_with(|_| {}, |asap| asap.pending = Arc::new(PendingLimit::new(0)), |_| {});
    s.refuses(flight(5), Status::Overloaded);
    s.p.send(flight(5));
    s.p.drain();
    s.p.send(seg().seq(1).ack(1).data(DATA));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
}
