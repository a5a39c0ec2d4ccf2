//! Scenarios at the client, against a hand-made server.

use super::Scenario;
use crate::certified;
use crate::pair::{End, Pair};
use crate::peer::primed::{self, primed};
use crate::peer::{Peer, Seg, seg};
use crate::visitor::{self, Visit, end, outcome, reply_with, visit};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::ConnectConfig;
use firstflight_wire::asap::Status;
use firstflight_wire::icmp::IcmpErrorKind;
use std::time::Duration;

/// Additional scenarios, and their reasons.
pub(super) const OTHERS: &[(Scenario, Reason)] = &[
    (at_most_once_by_certificate, Reason::NotReplaySafe),
    (held_back_by_certificate, Reason::NotReplaySafe),
    (at_most_once_without_data, Reason::NoData),
    (at_most_once_to_an_unknown_server, Reason::CapabilityUnknown),
    (certificate_over, Reason::Expired),
    (refused_cookies_lately, Reason::FailureMemory),
    (at_most_once_without_cookie, Reason::NoCredential),
    (silent_without_option, Reason::SynTimedOut),
    (old_connection_without_cookie, Reason::OldConnection),
    (old_connection_with_certificate, Reason::OldConnection),
];

fn syn_ack(ack: u32) -> Seg {
    seg().syn().ack(ack).mss(1460)
}

fn fast() -> ConnectConfig {
    ConnectConfig::default().fast_open(true)
}

/// A connect with this configuration, and its answer.
fn connect(mut p: Peer, data: &[u8], config: &ConnectConfig, answer: Seg) -> Outcome {
    p.port = crate::peer::PORT;
    let id = p.connect_with(data, config);
    p.expect().is_syn();
    p.send(answer);
    outcome(&p, id)
}

/// A first flight with a cookie, and its answer.
fn by_cookie(answer: Seg) -> Outcome {
    connect(primed(), primed::DATA, &fast(), answer)
}

pub(super) fn not_requested() -> Outcome {
    connect(primed(), primed::DATA, &ConnectConfig::default(), syn_ack(1))
}

pub(super) fn no_credential() -> Outcome {
    connect(Peer::new(), primed::DATA, &fast(), syn_ack(1).cookie(&primed::COOKIE))
}

pub(super) fn peer_without_fast_open() -> Outcome {
    connect(Peer::new(), primed::DATA, &fast(), syn_ack(1))
}

pub(super) fn stale_credential() -> Outcome {
    by_cookie(syn_ack(1).cookie(b"another!"))
}

pub(super) fn data_not_acknowledged() -> Outcome {
    by_cookie(syn_ack(1))
}

pub(super) fn data_partly_acknowledged() -> Outcome {
    by_cookie(syn_ack(primed::AFTER - 1))
}

pub(super) fn no_data() -> Outcome {
    connect(primed(), b"", &fast(), syn_ack(1))
}

/// The caller keeps the data back, as `firstflight` does for data that must not run twice.
pub(super) fn not_replay_safe() -> Outcome {
    let held = fast().held_back(Some(Reason::NotReplaySafe));
    connect(primed(), b"", &held, syn_ack(1))
}

/// Connects like `firstflight` to the later ones of several addresses.
pub(super) fn not_first_address() -> Outcome {
    let later = ConnectConfig::default().held_back(Some(Reason::NotFirstAddress));
    connect(primed(), b"", &later, syn_ack(1))
}

fn at_most_once_without_cookie() -> Outcome {
    let held = fast().held_back(Some(Reason::NotReplaySafe));
    connect(Peer::new(), b"", &held, syn_ack(1).cookie(&primed::COOKIE))
}

pub(super) fn syn_timed_out() -> Outcome {
    let mut p = primed();
    let id = p.connect(primed::DATA, true);
    p.expect().is_syn();
    p.pass(1_500);
    p.drain();
    p.send(syn_ack(1));
    outcome(&p, id)
}

/// The answer to the SYN has the numbers of an earlier connection of the ports. The next SYN opens the connection.
fn meet_old_connection(p: &mut Peer) {
    p.send(seg().seq(5_000).ack(1 << 30));
    p.drain();
    p.send(syn_ack(1));
}

pub(super) fn old_connection() -> Outcome {
    let mut p = primed();
    let id = p.connect(primed::DATA, true);
    p.expect().is_syn();
    meet_old_connection(&mut p);
    outcome(&p, id)
}

fn old_connection_with_certificate() -> Outcome {
    let (mut p, flight) = with_certificate(|_| {});
    meet_old_connection(&mut p);
    outcome(&p, flight.id)
}

fn old_connection_without_cookie() -> Outcome {
    let mut p = Peer::new();
    let id = p.connect(primed::DATA, true);
    p.expect().is_syn();
    meet_old_connection(&mut p);
    outcome(&p, id)
}

fn silent_without_option() -> Outcome {
    let (mut p, flight) = with_certificate(|_| {});
    p.pass(1_500);
    p.drain();
    p.send(syn_ack(1));
    outcome(&p, flight.id)
}

pub(super) fn unknown() -> Outcome {
    let mut p = primed();
    let id = p.connect(primed::DATA, true);
    let syn = p.expect().is_syn();
    p.icmp(IcmpErrorKind::PortUnreachable, &syn.packet);
    let plain = p.expect().is_syn();
    p.icmp(IcmpErrorKind::PortUnreachable, &plain.packet);
    outcome(&p, id)
}

// --- with a certificate ------------------------------------------------------------------------------------------

/// A connect with a certificate. Its data must not run twice, and the server runs it once.
fn with_certificate(tune: impl FnOnce(&mut ConnectConfig)) -> (Peer, Visit) {
    let mut p = Peer::new();
    let flight = visit(&mut p, |config| {
        config.replay_safe = false;
        config.asap.as_mut().unwrap().once = true;
        tune(config);
    });
    (p, flight)
}

/// The outcome after a SYN-ACK with this number and option.
fn answered(acked: u32, option: impl Fn(&Visit) -> Vec<u8>) -> Outcome {
    let (mut p, flight) = with_certificate(|_| {});
    p.send(syn_ack(acked).option(&option(&flight)));
    outcome(&p, flight.id)
}

fn told(status: Status) -> Outcome {
    answered(1, |flight| reply_with(status, flight.tag))
}

pub(super) fn option_stripped() -> Outcome {
    answered(1, |_| Vec::new())
}

pub(super) fn policy() -> Outcome {
    told(Status::Policy)
}

/// For data that may run twice. Other data is not sent again, and its outcome is unknown.
pub(super) fn replay() -> Outcome {
    let (mut p, flight) = with_certificate(|config| config.replay_safe = true);
    p.send(syn_ack(1).option(&reply_with(Status::Replayed, flight.tag)));
    outcome(&p, flight.id)
}

pub(super) fn untrusted_verifier() -> Outcome {
    told(Status::UnknownVerifier)
}

pub(super) fn expired() -> Outcome {
    told(Status::Expired)
}

pub(super) fn clock_skew() -> Outcome {
    told(Status::OutsideWindow)
}

pub(super) fn overloaded() -> Outcome {
    told(Status::Overloaded)
}

pub(super) fn barred() -> Outcome {
    told(Status::Barred)
}

pub(super) fn address_mismatch() -> Outcome {
    told(Status::AddressMismatch)
}

pub(super) fn wrong_identity() -> Outcome {
    told(Status::WrongIdentity)
}

pub(super) fn guard_floor() -> Outcome {
    told(Status::GuardFloor)
}

pub(super) fn bad_signature() -> Outcome {
    told(Status::BadSignature)
}

pub(super) fn malformed() -> Outcome {
    told(Status::Malformed)
}

pub(super) fn reply_stripped() -> Outcome {
    answered(visitor::AFTER, |_| Vec::new())
}

pub(super) fn ack_inside() -> Outcome {
    answered(100, |_| Vec::new())
}

pub(super) fn peer_misbehaved() -> Outcome {
    answered(visitor::AFTER, |flight| reply_with(Status::Expired, flight.tag))
}

/// A connect that only probes the server.
fn asked(tune: impl FnOnce(&mut ConnectConfig)) -> Outcome {
    let (mut p, flight) = with_certificate(tune);
    assert_eq!(visitor::asap_option(&flight.syn), Some(false));
    p.send(syn_ack(1).option(&reply_with(Status::Capable, [0; 2])));
    outcome(&p, flight.id)
}

pub(super) fn capability_unknown() -> Outcome {
    asked(|config| config.asap.as_mut().unwrap().known = false)
}

/// The server has published that it takes no more than the block.
pub(super) fn message_too_large() -> Outcome {
    asked(|config| config.asap.as_mut().unwrap().mss = Some(200))
}

fn at_most_once_by_certificate() -> Outcome {
    asked(|config| config.asap.as_mut().unwrap().once = false)
}

fn at_most_once_to_an_unknown_server() -> Outcome {
    asked(|config| {
        let asap = config.asap.as_mut().unwrap();
        (asap.once, asap.known) = (false, false);
    })
}

/// Without any data at the connect, with `tune`.
fn without_data(tune: impl FnOnce(&mut ConnectConfig)) -> Outcome {
    let mut p = Peer::new();
    let flight = visitor::visit_with(&mut p, b"", tune);
    p.send(syn_ack(1).option(&reply_with(Status::Capable, [0; 2])));
    outcome(&p, flight.id)
}

fn held_back_by_certificate() -> Outcome {
    without_data(|config| (config.replay_safe, config.held_back) = (false, Some(Reason::NotReplaySafe)))
}

fn at_most_once_without_data() -> Outcome {
    without_data(|config| config.replay_safe = false)
}

fn certificate_over() -> Outcome {
    let mut p = Peer::new();
    p.at(200_001_000);
    let flight = visit(&mut p, |_| {});
    p.send(syn_ack(1).option(&reply_with(Status::Capable, [0; 2])));
    outcome(&p, flight.id)
}

/// The block is refused, and a middlebox drops segments that repeat its numbers with other bytes. An attempt from
/// another port succeeds.
pub(super) fn overlap_blackhole() -> Outcome {
    let mut pair = Pair::perfect(Duration::from_millis(20));
    pair.listen_with(|config| config.asap = Some(certified::policy(&[7])));
    let mut first = None;
    pair.middlebox = Some(Box::new(move |end, packet| {
        let (port, syn) = ([packet[20], packet[21]], packet[33] & 2 != 0);
        let with_data = packet.windows(visitor::DATA.len()).any(|part| part == visitor::DATA);
        end == End::Server || port != *first.get_or_insert(port) || syn || !with_data
    }));
    let certificate = certified::certificate(1, 2, pair.client.config().addresses[0]);
    let asap = Some(certified::certified(certificate, pair.now));
    let config = ConnectConfig::default().asap(asap).replay_safe(true);
    let (id, _) = pair.client.connect(pair.server_addr(), visitor::DATA, &config, pair.now).unwrap();
    pair.connected(id);
    assert_eq!(pair.client.info(id).unwrap().outcome, Outcome::Handshake(Reason::UntrustedVerifier));
    pair.run(Duration::from_secs(60), |pair| pair.client.info(id).unwrap().totals.bytes_acked > 0);
    pair.client.info(id).unwrap().outcome
}

pub(super) fn simultaneous_open() -> Outcome {
    let (mut p, flight) = with_certificate(|_| {});
    p.send(seg().syn().mss(1460));
    p.send(syn_ack(1).seq(0));
    outcome(&p, flight.id)
}

/// A path that removes the option.
fn stripped() -> Peer {
    let (mut p, flight) = with_certificate(|_| {});
    p.send(syn_ack(1));
    end(&mut p, flight.id);
    p
}

pub(super) fn failure_memory() -> Outcome {
    let mut p = stripped();
    let next = visit(&mut p, |_| {});
    outcome(&p, next.id)
}

/// Three cookies in a row were refused though they were fresh. The SYN requests a cookie, and shows none.
fn with_refused_cookies() -> Peer {
    let mut p = primed();
    for fresh in [b"refused1", b"refused2", b"refused3"] {
        p.port = crate::peer::PORT;
        let id = p.connect(primed::DATA, true);
        p.expect().data(primed::DATA);
        p.send(syn_ack(1).cookie(fresh));
        p.drain();
        primed::end(&mut p, id);
    }
    p
}

fn refused_cookies_lately() -> Outcome {
    connect(with_refused_cookies(), primed::DATA, &fast(), syn_ack(1).cookie(b"refused4"))
}

/// A RST answers the SYN with data. The plain SYN after it opens the connection.
pub(super) fn syn_refused() -> Outcome {
    let mut p = primed();
    let id = p.connect_with(primed::DATA, &fast().replay_safe(true));
    p.expect().is_syn();
    p.send(seg().rst().ack(primed::AFTER));
    p.expect().is_syn();
    p.send(syn_ack(1));
    outcome(&p, id)
}

/// A router reports that the SYN is too large. The smaller one after it opens the connection.
pub(super) fn path_too_small() -> Outcome {
    let mut p = primed();
    let id = p.connect(&[0; 1_200], true);
    let syn = p.expect().is_syn();
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 600 }, &syn.packet);
    p.drain();
    p.send(syn_ack(1));
    outcome(&p, id)
}
