//! TCP in UDP: the client's port changes while something is lost, or while a connection begins.

use crate::certified::{certificate, certified, policy};
use crate::pair::{End, Pair, SERVER_UDP};
use crate::peer::seg;
use crate::rebinding;
use crate::translator::{Translator, translate};
use firstflight_credential::Outcome;
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, ConnectConfig, ListenerId, StateName};
use firstflight_wire::encapsulation::Control;
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::ip::Packet;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);

fn new() -> (Pair, Translator, ListenerId) {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 1, false);
    let translator = translate(&mut p);
    let listener = p.listen(None);
    (p, translator, listener)
}

/// The server sends, and the client gets it within this time.
#[track_caller]
fn hears(p: &mut Pair, client: ConnId, server: ConnId, within: Duration) {
    p.server.write(server, b"news", p.now).unwrap();
    p.run(within, |p| p.client_reads(client) == b"news");
}

/// The answer to the SYN meets a mapping that no longer exists, and the SYN is repeated from another port. So the server has
/// two children with the same inner ports, and the client knows one of them. The other one must not take its segments.
#[test]
fn a_client_that_returns_to_the_port_of_its_first_syn_goes_on() {
    let (mut p, translator, listener) = new();
    let client = p.connect(b"", false);
    p.idle(DELAY / 2);
    translator.rebind();
    let server = p.accept(listener);
    assert_eq!(p.server.info(server).unwrap().encapsulation, Some(translator.port()));
    assert_eq!(p.server.connections(), 1, "the other child has ended");
    translator.set(translator.port() - 1);
    p.client.write(client, b"more", p.now).unwrap();
    p.run(Duration::from_secs(10), |p| p.server_reads(server) == b"more");
    hears(&mut p, client, server, Duration::from_secs(1));
    assert_eq!((p.server.counters().resets_sent, p.client.counters().resets_sent), (0, 0));
}

/// The child that the client left has its first flight from a certificate, which stays good.
#[test]
fn a_child_that_its_client_left_bars_no_certificate() {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 1, false);
    let translator = translate(&mut p);
    let listener = p.listen_with(|config| config.asap = Some(policy(&[1])));
    let visit = |p: &mut Pair| {
        let asap = certified(certificate(1, 2, p.client.config().addresses[0]), p.now);
        let config =
            ConnectConfig::default().asap(Some(asap)).replay_safe(true).encapsulation(Some(SERVER_UDP));
        p.client.connect(p.server_addr(), b"GET /", &config, p.now).unwrap().0
    };
    let first = visit(&mut p);
    p.idle(DELAY / 2);
    translator.rebind();
    p.connected(first);
    p.idle(Duration::from_millis(100));
    let left = p.server.accept(listener).unwrap();
    assert_eq!(p.server.info(left).unwrap().state, StateName::Closed);
    // The client sends no first flights for a while, because its SYN was not answered.
    p.idle(Duration::from_secs(1_000));
    let second = visit(&mut p);
    p.connected(second);
    assert_eq!(p.client.info(second).unwrap().outcome, Outcome::Accepted);
}

/// Only children of the same SYN are rivals: clients behind one address may use the same inner ports.
#[test]
fn a_half_open_connection_of_another_client_stays() {
    let mut p = rebinding::new();
    let listener = p.listen();
    p.port = 2_000;
    rebinding::from(&mut p, rebinding::NEW, seg().seq(7).syn().mss(1176));
    p.expect().syn_ack();
    p.open_passive(listener, seg().mss(1176));
    assert_eq!(p.stack.connections(), 2);
}

/// The encapsulation's reset says that the port has changed, and the client's connections send probes. One whose SYN is
/// not answered has nothing to probe with: the probe would leave as the ACK of the handshake, with a number that no
/// server takes there.
#[test]
fn a_reset_before_the_syn_ack_leaves_the_handshake_alone() {
    let mut p = rebinding::new();
    p.port = crate::peer::PORT;
    p.connect(b"", false);
    p.expect().is_syn();
    p.pass(300);
    assert_eq!(rebinding::controls(&mut p), [(rebinding::THEIRS, Control::KeepAlive)]);
    rebinding::control(&mut p, rebinding::THEIRS, Control::Reset);
    assert_eq!(p.stack.counters().encapsulation_resets_believed, 1);
    p.send(seg().syn().ack(1).mss(1176));
    p.expect().is_ack().seq(1).ack(1);
}

/// The answer to the SYN arrives, and behind it the translator forgets its mapping. It reports that there is no port for the
/// beginning of the response. The client's ACK comes from another port.
#[test]
fn a_report_about_the_earlier_port_ends_no_half_open_connection() {
    let mut p = rebinding::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1176));
    let syn_ack = p.expect().syn_ack();
    p.icmp(IcmpErrorKind::PortUnreachable, &syn_ack.packet);
    assert_eq!(p.stack.connections(), 1);
    rebinding::from(&mut p, rebinding::NEW, seg().seq(1).ack(1));
    let [new, _] = rebinding::asked(&mut p, [rebinding::NEW, rebinding::THEIRS]);
    rebinding::respond(&mut p, rebinding::NEW, new);
    p.outer = Some((rebinding::NEW, rebinding::OURS));
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    assert_eq!(rebinding::at(&p, id), rebinding::NEW);
}

/// The ACK of a handshake was lost, and a probe of the client comes. The client will not repeat the ACK once the probe is
/// answered.
#[test]
fn a_probe_completes_a_handshake_whose_ack_was_lost() {
    let mut p = rebinding::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1176));
    p.expect().syn_ack();
    // Another acknowledgement is none. The number is an old one, which comes first (RFC 9293 §3.10.7.4).
    p.send(seg().seq(0).ack(2));
    p.expect().is_ack().seq(1).ack(1).empty();
    p.quiet();
    p.nothing_to_accept(listener);
    p.send(seg().seq(0).ack(1));
    let id = p.accept(listener);
    assert_eq!(p.state(id), StateName::Established);
}

/// The server knows two connections at two earlier ports, because the check of one was lost, and one of them moves. The
/// client's keep-alives find that one. It must not rely on them for the other one, on which it only receives.
#[test]
fn a_connection_left_at_an_earlier_port_is_found_beside_another_one() {
    let (mut p, translator, listener) = new();
    let first = p.connect(b"", false);
    p.accept(listener);
    p.idle(Duration::from_secs(1));
    translator.rebind();
    let second = p.connect(b"", false);
    let server = p.accept(listener);
    // The first one is being probed from this port, and now the port changes again.
    translator.rebind();
    p.client.write(first, b"x", p.now).unwrap();
    p.run(Duration::from_secs(10), |p| p.server.counters().encapsulation_paths_moved == 1);
    hears(&mut p, second, server, Duration::from_secs(10));
}

/// The port changes while a response comes, and a moment later the client opens another connection, which its keep-alives find
/// from then on.
#[test]
fn a_download_is_found_beside_a_connection_that_was_just_opened() {
    let (mut p, translator, listener) = new();
    let client = p.connect(b"", false);
    let server = p.accept(listener);
    p.idle(Duration::from_secs(1));
    hears(&mut p, client, server, Duration::from_secs(1));
    // The acknowledgement is not to show the new port.
    p.idle(Duration::from_millis(100));
    translator.rebind();
    p.connect(b"", false);
    p.accept(listener);
    hears(&mut p, client, server, Duration::from_secs(10));
}

/// The beginning of the response leaves before the client's ACK, and its only ACK is lost, as is the repeated SYN-ACK. The
/// client repeats its ACK though it has received something.
#[test]
fn an_ack_that_was_lost_behind_an_early_response_is_repeated() {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 1, false);
    let listener = p.listen_with(|config| config.asap = Some(policy(&[1])));
    // The client's datagrams are lost for a while behind the first one, and so is each SYN-ACK but the first.
    let (deaf, answers) = (Rc::new(Cell::new(false)), Cell::new(0));
    let is_deaf = Rc::clone(&deaf);
    p.middlebox = Some(Box::new(move |end, packet| {
        if end == End::Client {
            return !is_deaf.get();
        }
        let payload = Packet::parse(packet).unwrap().payload;
        // Behind the headers of UDP and the encapsulation: TCP's flags.
        let syn_ack = payload.get(8) == Some(&8) && payload.get(25).is_some_and(|flags| flags & 2 != 0);
        answers.set(answers.get() + u32::from(syn_ack));
        !syn_ack || answers.get() == 1
    }));
    let asap = certified(certificate(1, 2, p.client.config().addresses[0]), p.now);
    let config = ConnectConfig::default().asap(Some(asap)).replay_safe(true).encapsulation(Some(SERVER_UDP));
    let client = p.client.connect(p.server_addr(), b"GET /", &config, p.now).unwrap().0;
    let server = p.accept(listener);
    let response: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
    let mut written = p.server.write(server, &response, p.now).unwrap();
    deaf.set(true);
    let mut read = Vec::new();
    p.run(Duration::from_secs(1), |p| {
        read.extend(p.client_reads(client));
        read.len() > 5_000
    });
    p.idle(Duration::from_millis(200));
    deaf.set(false);
    p.run(Duration::from_secs(20), |p| {
        written += p.server.write(server, &response[written..], p.now).unwrap_or(0);
        read.extend(p.client_reads(client));
        read == response
    });
}
