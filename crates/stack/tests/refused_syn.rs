//! A path or a server answers a SYN with an option or data by a RST or an ICMP error, or is too narrow for it, but
//! passes a plain SYN. The connect succeeds one round trip later, and the next SYN is plain from the start.

use crate::peer::primed::{AFTER, DATA, end, failures, outcome, primed};
use crate::peer::{Got, PORT, Peer, Seg, seg};
use crate::visitor::{Visit, once, visit};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{CloseReason, ConnId, ConnectConfig, EncapsulationConfig, StateName};
use firstflight_wire::icmp::IcmpErrorKind;

const REFUSED: Outcome = Outcome::Handshake(Reason::SynRefused);

/// How a SYN is refused.
#[derive(Debug, Clone, Copy)]
enum By {
    Reset,
    Icmp(IcmpErrorKind),
}

/// All that end the connect if they answer a plain SYN, and then two soft errors, which filters also report.
const EACH: [By; 6] = [
    By::Reset,
    By::Icmp(IcmpErrorKind::AdminProhibited),
    By::Icmp(IcmpErrorKind::PortUnreachable),
    By::Icmp(IcmpErrorKind::ProtocolUnreachable),
    By::Icmp(IcmpErrorKind::NetUnreachable),
    By::Icmp(IcmpErrorKind::HostUnreachable),
];

const FINAL: &[By] = EACH.first_chunk::<4>().unwrap();

fn refuse(p: &mut Peer, by: By, syn: &Got) {
    match by {
        // As a host without the port does, and as middleboxes do on its behalf.
        By::Reset => p.send(seg().rst().ack(1 + syn.data.len() as u32)),
        By::Icmp(kind) => p.icmp(kind, &syn.packet),
    }
}

/// Connects with data that may run twice.
fn connect(p: &mut Peer) -> ConnId {
    let config = ConnectConfig::default().fast_open(true).replay_safe(true);
    p.connect_with(DATA, &config)
}

fn syn_ack(ack: u32) -> Seg {
    seg().syn().ack(ack).mss(1_000)
}

/// The next segment is a plain SYN of the same connection, sent now.
#[track_caller]
fn plain_again(p: &mut Peer, first: &Got) {
    let again = p.expect().is_syn().empty().no_fast_open().at(p.ms());
    assert_eq!((again.raw_seq, again.port), (first.raw_seq, first.port), "the same connection");
    p.quiet();
}

//= rfc7413 4.1.3.1-a 4.1.3.1-b test
#[test]
fn a_refused_syn_with_data_goes_again_plain_at_once() {
    for by in EACH {
        let mut p = primed();
        let id = connect(&mut p);
        let first = p.expect().is_syn().data(DATA);
        p.pass(10);
        refuse(&mut p, by, &first);
        plain_again(&mut p, &first);
        p.pass(10);
        p.send(syn_ack(1));
        p.expect().is_ack().seq(1).ack(1).data(DATA);
        assert_eq!((outcome(&p, id), failures(&p)), (REFUSED, 1), "{by:?}");
        let info = p.stack.info(id).unwrap();
        assert_eq!((info.handshake_retransmits, info.cwnd), (1, 10_000), "nothing was lost");
        end(&mut p, id);
        // The failure is remembered, and the cookie is kept until the failure is forgotten.
        let id = connect(&mut p);
        p.expect().is_syn().empty().no_fast_open();
        assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::FailureMemory));
        end(&mut p, id);
        p.pass(61_000);
        connect(&mut p);
        p.expect().is_syn().data(DATA);
    }
}

/// A SYN that asks for a cookie and is refused after `ms` milliseconds.
fn refused_request(by: By, ms: u64) -> (Peer, ConnId, Got) {
    let mut p = Peer::new();
    p.port = PORT;
    let id = connect(&mut p);
    let first = p.expect().is_syn().empty();
    p.pass(ms);
    refuse(&mut p, by, &first);
    (p, id, first)
}

#[test]
fn a_refused_request_for_a_cookie_goes_again_plain_at_once() {
    for by in EACH {
        let (mut p, id, first) = refused_request(by, 10);
        plain_again(&mut p, &first);
        p.send(syn_ack(1));
        p.expect().is_ack().data(DATA);
        assert_eq!((outcome(&p, id), failures(&p)), (REFUSED, 1), "{by:?}");
    }
}

#[test]
fn a_refused_block_goes_again_plain_at_once() {
    for by in EACH {
        let mut p = Peer::new();
        let Visit { id, syn, .. } = visit(&mut p, |_| {});
        refuse(&mut p, by, &syn);
        plain_again(&mut p, &syn);
        p.send(syn_ack(1));
        p.expect().is_ack().data(crate::visitor::DATA);
        assert_eq!((outcome(&p, id), failures(&p)), (REFUSED, 1), "{by:?}");
    }
}

#[test]
fn a_server_that_refuses_every_syn_is_down_and_not_remembered() {
    for by in FINAL.iter().copied() {
        let mut p = primed();
        let id = connect(&mut p);
        let first = p.expect().is_syn();
        p.pass(10);
        refuse(&mut p, by, &first);
        let plain = p.expect().is_syn().empty();
        p.pass(10);
        refuse(&mut p, by, &plain);
        let reason = if matches!(by, By::Reset) { CloseReason::Refused } else { CloseReason::Unreachable };
        assert_eq!((p.reason(id), failures(&p)), (Some(reason), 0), "{by:?}");
        p.quiet();
    }
}

#[test]
fn a_plain_syn_that_is_refused_ends_the_connect() {
    for by in FINAL.iter().copied() {
        let mut p = primed();
        let id = p.connect(DATA, false);
        let first = p.expect().is_syn();
        refuse(&mut p, by, &first);
        assert!(p.reason(id).is_some(), "{by:?}");
        p.quiet();
    }
}

/// The SYN with data timed out, and a plain one is in flight. Then the RST for the first one comes.
#[test]
fn a_late_reset_for_the_data_does_not_end_the_plain_syn() {
    let mut p = primed();
    let id = connect(&mut p);
    p.expect().is_syn();
    p.pass(60);
    p.expect().is_syn().empty();
    for _ in 0..100 {
        p.send(seg().rst().ack(AFTER));
    }
    p.quiet();
    p.send(syn_ack(1));
    p.expect().is_ack().data(DATA);
    assert_eq!(p.state(id), StateName::Established);
}

#[test]
fn forged_resets_make_one_syn() {
    let mut p = primed();
    connect(&mut p);
    p.expect().is_syn();
    for _ in 0..100 {
        p.send(seg().rst().ack(AFTER));
    }
    p.expect().is_syn().empty();
    p.quiet();
}

/// A middlebox sends the RST, although the server has taken the data.
#[test]
fn data_that_was_taken_beside_a_reset_does_not_go_again() {
    let mut p = primed();
    let id = connect(&mut p);
    let first = p.expect().is_syn();
    refuse(&mut p, By::Reset, &first);
    plain_again(&mut p, &first);
    p.send(syn_ack(AFTER));
    p.expect().is_ack().seq(AFTER).empty();
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Accepted, 0));
}

/// The server may have executed the data before the RST.
#[test]
fn refused_data_that_must_not_run_twice_does_not_go_again() {
    for by in EACH {
        let (mut p, Visit { id, syn, .. }) = once();
        refuse(&mut p, by, &syn);
        plain_again(&mut p, &syn);
        p.send(syn_ack(1));
        p.expect().is_rst();
        p.quiet();
        assert_eq!(p.reason(id), Some(CloseReason::Refused));
        assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::Unknown), 1), "{by:?}");
        p.release(id);
        // The next request uses a plain SYN, and succeeds.
        let id = visit(&mut p, |config| config.replay_safe = false).id;
        p.send(syn_ack(1));
        p.expect().is_ack().data(crate::visitor::DATA);
        assert_eq!(p.state(id), StateName::Established);
    }
}

#[test]
fn data_that_must_not_run_twice_and_was_taken_beside_a_reset_is_accepted() {
    let (mut p, flight) = once();
    refuse(&mut p, By::Reset, &flight.syn);
    plain_again(&mut p, &flight.syn);
    p.send(syn_ack(1 + flight.syn.data.len() as u32).option(&flight.accepted()));
    p.expect().is_ack().empty();
    assert_eq!(outcome(&p, flight.id), Outcome::Accepted);
}

// --- too large -----------------------------------------------------------------------------------

/// Connects with more data than a SYN takes.
fn large(p: &mut Peer) -> (ConnId, Got) {
    let id = p.connect(&[7; 1_200], true);
    let syn = p.expect().is_syn();
    (id, syn)
}

#[test]
fn a_syn_too_large_for_the_path_says_so_and_is_no_failure() {
    let mut p = primed();
    let (id, first) = large(&mut p);
    assert!(first.data.len() > 800, "{}", first.data.len());
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 600 }, &first.packet);
    plain_again(&mut p, &first);
    p.send(syn_ack(1));
    p.drain();
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::PathTooSmall), 0));
    end(&mut p, id);
    // The next SYN is smaller, and carries its cookie.
    let (id, second) = large(&mut p);
    assert!((400..=560).contains(&second.data.len()), "{}", second.data.len());
    p.send(syn_ack(1 + second.data.len() as u32));
    assert_eq!(outcome(&p, id), Outcome::Accepted);
}

#[test]
fn a_block_too_large_for_the_path_says_so_and_is_no_failure() {
    let mut p = Peer::new();
    let Visit { id, syn, .. } = crate::visitor::visit_with(&mut p, &[7; 800], |config| {
        config.asap.as_mut().unwrap().mss = Some(1_400);
    });
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 600 }, &syn.packet);
    plain_again(&mut p, &syn);
    p.send(syn_ack(1));
    p.drain();
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::PathTooSmall), 0));
}

/// Anyone who has seen the SYN can forge the message. Any number of messages causes one SYN and shortens no timer.
#[test]
fn many_messages_of_a_path_too_small_make_one_syn() {
    let connect = |mtus: &mut dyn Iterator<Item = u16>| {
        let mut p = primed();
        let (id, first) = large(&mut p);
        for mtu in mtus {
            p.icmp(IcmpErrorKind::PacketTooBig { mtu: mtu.into() }, &first.packet);
        }
        let at_once = p.drain().len();
        let seconds = (0..400).take_while(|_| {
            p.pass(1_000);
            p.drain();
            p.reason(id).is_none()
        });
        (at_once, seconds.count())
    };
    let (silent, one) = (connect(&mut [].into_iter()), connect(&mut [600].into_iter()));
    assert_eq!((silent.0, one.0), (0, 1));
    assert_eq!(connect(&mut (500..=600).rev()), one);
    assert!(one.1 >= silent.1, "{silent:?}, {one:?}");
}

// --- in UDP --------------------------------------------------------------------------------------

fn in_udp() -> Peer {
    let mut p = Peer::with(|config| config.encapsulation = Some(EncapsulationConfig::new(4433)));
    p.outer = Some((5_000, 4433));
    p
}

/// A network that drops datagrams with a SYN and data: a plain SYN follows, and the next connect begins with one.
#[test]
fn a_plain_syn_follows_a_first_flight_that_is_dropped_in_udp() {
    let mut p = in_udp();
    let Visit { id, syn, .. } = visit(&mut p, |config| config.encapsulation = Some(5_000));
    p.pass(1_001);
    let again = p.expect().is_syn().empty();
    assert_eq!(again.raw_seq, syn.raw_seq);
    p.send(syn_ack(1));
    p.expect().is_ack().data(crate::visitor::DATA);
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::SynTimedOut));
    end(&mut p, id);
    // A plain SYN directly follows the next ones.
    for _ in 0..3 {
        let Visit { id, syn, .. } = visit(&mut p, |config| config.encapsulation = Some(5_000));
        assert!(!syn.data.is_empty());
        assert_eq!(p.expect().is_syn().empty().raw_seq, syn.raw_seq);
        p.send(syn_ack(1));
        p.expect().is_ack().data(crate::visitor::DATA);
        assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::SynTimedOut));
        end(&mut p, id);
    }
    let Visit { id, syn, .. } = visit(&mut p, |config| config.encapsulation = Some(5_000));
    assert!(syn.data.is_empty());
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::FailureMemory));
}

/// The server has executed the first flight, but its answers were lost. The plain SYN gets the first answer again.
#[test]
fn a_first_flight_in_udp_that_was_taken_is_accepted_by_the_plain_syn() {
    let mut p = in_udp();
    let flight = visit(&mut p, |config| {
        config.encapsulation = Some(5_000);
        config.replay_safe = false;
        config.asap.as_mut().unwrap().once = true;
    });
    // The block is sent again once, because the server's guard knows it. Then the SYN is plain.
    p.pass(1_001);
    assert_eq!(p.expect().is_syn().data, flight.syn.data);
    p.pass(2_100);
    p.expect().is_syn().empty();
    p.send(syn_ack(1 + flight.syn.data.len() as u32).option(&flight.accepted()));
    p.expect().is_ack().empty();
    assert_eq!(outcome(&p, flight.id), Outcome::Accepted);
}

/// Either the network drops first flights in UDP, or the server has executed the first one: the client cannot tell.
#[test]
fn data_that_must_not_run_twice_does_not_go_behind_a_plain_syn_in_udp() {
    let mut p = in_udp();
    let once = |config: &mut ConnectConfig| {
        config.encapsulation = Some(5_000);
        config.replay_safe = false;
        config.asap.as_mut().unwrap().once = true;
    };
    let Visit { id, .. } = visit(&mut p, once);
    p.pass(3_200);
    assert!(p.drain().last().unwrap().data.is_empty());
    p.send(syn_ack(1));
    p.expect().is_rst();
    assert_eq!((outcome(&p, id), failures(&p)), (Outcome::Handshake(Reason::Unknown), 1));
    p.release(id);
    // The next request succeeds.
    let id = visit(&mut p, once).id;
    p.send(syn_ack(1));
    p.expect().is_ack().data(crate::visitor::DATA);
    assert_eq!(p.state(id), StateName::Established);
}

/// The request was executed, and SYN-ACK and RST were lost. An ACK with a wrong number, which anyone can forge,
/// makes the client send a plain SYN.
#[test]
fn data_that_must_not_run_twice_does_not_go_behind_an_earlier_connection_in_udp() {
    let mut p = in_udp();
    let Visit { id, .. } = visit(&mut p, |config| {
        config.encapsulation = Some(5_000);
        config.replay_safe = false;
        config.asap.as_mut().unwrap().once = true;
    });
    p.send(seg().seq(5_000).ack(1 << 30));
    p.drain();
    p.send(syn_ack(1));
    p.expect().is_rst();
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::Unknown));
}

/// A SYN without ACK can be forged without a number, and opens the connection with any number that it has (RFC
/// 9293, MUST-10). The true answer does not count then, and the request may have been executed.
#[test]
fn data_that_must_not_run_twice_is_unknown_behind_a_forged_syn() {
    let (mut p, Visit { id, .. }) = once();
    let isn = p.isn;
    p.flow(PORT, 0x4444_0000);
    p.send(seg().syn().mss(1_000));
    p.drain();
    p.flow(PORT, isn);
    p.send(syn_ack(crate::visitor::AFTER));
    p.drain();
    p.pass(300_000);
    p.drain();
    assert!(p.reason(id).is_some());
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::Unknown));
}

/// The RST for the first SYN comes when the plain one is already in flight: the RST counts.
#[test]
fn a_late_reset_counts_for_data_that_must_not_run_twice() {
    let (mut p, Visit { id, syn, .. }) = once();
    p.pass(1_001);
    p.expect().is_syn().empty();
    refuse(&mut p, By::Reset, &syn);
    p.send(syn_ack(1));
    p.expect().is_rst();
    assert_eq!(outcome(&p, id), Outcome::Handshake(Reason::Unknown));
}

/// The network duplicates the answer. The second copy does not answer the plain SYN, which cannot have reached the
/// server yet.
#[test]
fn an_answer_that_comes_twice_does_not_end_the_connect() {
    for by in EACH {
        let (mut p, id, first) = refused_request(by, 40);
        p.expect().is_syn().empty();
        p.pass(5);
        refuse(&mut p, by, &first);
        p.pass(35);
        p.send(syn_ack(1));
        p.expect().is_ack().data(DATA);
        assert_eq!(p.state(id), StateName::Established, "{by:?}");
    }
}
