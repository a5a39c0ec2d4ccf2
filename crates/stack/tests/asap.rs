//! A first contact in one round trip: two stacks, a certificate, virtual time.

use crate::certified::{certificate, certified, policy};
use crate::pair::{End, Pair};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{ConnId, ConnectConfig, ListenerId};
use firstflight_wire::asap::BLOCK_LEN;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Segment};
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(50);
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

fn pair(v6: bool) -> (Pair, ListenerId) {
    let mut pair = Pair::new(firstflight_link::path::PathConfig::with_delay(DELAY), 1, v6, |_, _| {});
    pair.keep_log = true;
    let listener = pair.listen_with(|config| config.asap = Some(policy(&[1])));
    (pair, listener)
}

/// Connects with a certificate of verifier `by`. The server answers every request with 11 KB.
fn visit(pair: &mut Pair, by: u8, known: bool) -> ConnId {
    let address = pair.client.config().addresses[0];
    let mut asap = certified(certificate(by, 2, address), pair.now);
    asap.known = known;
    let config = ConnectConfig::default().asap(Some(asap)).replay_safe(true);
    pair.client.connect(pair.server_addr(), REQUEST, &config, pair.now).unwrap().0
}

/// Serves one request. Returns the time until the first byte of the answer is at the client.
fn serve(pair: &mut Pair, listener: ListenerId, id: ConnId) -> Duration {
    let began = pair.now;
    let child = pair.accept(listener);
    let mut got = Vec::new();
    pair.run(Duration::from_secs(10), |p| {
        got.extend(p.server_reads(child));
        got.len() >= REQUEST.len()
    });
    assert_eq!(got, REQUEST);
    pair.server.write(child, &[b'x'; 11 << 10], pair.now).unwrap();
    let mut first = Vec::new();
    pair.run(Duration::from_secs(10), |p| {
        first = p.client_reads(id);
        !first.is_empty()
    });
    pair.now - began
}

#[test]
fn the_first_contact_takes_one_round_trip() {
    for v6 in [false, true] {
        let (mut pair, listener) = pair(v6);
        let id = visit(&mut pair, 1, true);
        assert_eq!(serve(&mut pair, listener, id), DELAY * 2);
        let info = pair.client.info(id).unwrap();
        assert_eq!((info.outcome, info.certificate), (Outcome::Accepted, true));
        assert_eq!(pair.server.counters().signatures_verified, 2);
        // The block is not part of the stream.
        let (_, _, syn) = &pair.log[0];
        let packet = Packet::parse(syn).unwrap();
        let segment = Segment::parse(packet.payload).unwrap();
        assert!(segment.flags.contains(Flags::SYN));
        assert_eq!(segment.payload.len(), BLOCK_LEN + REQUEST.len());
        assert_eq!(info.totals.bytes_acked, REQUEST.len() as u64);
    }
}

/// A protocol above binds what it encrypts to the block, so both ends know it: the client before the SYN leaves, the
/// server also after the client's ACK.
#[test]
fn both_ends_know_the_block() {
    let (mut pair, listener) = pair(false);
    let certificate = certificate(1, 2, pair.client.config().addresses[0]);
    let client_key = *certificate.key().public().as_bytes();
    let mut asap = certified(certificate, pair.now);
    asap.request_id = Some([7; 8]);
    let identity = *asap.identity.digest();
    let config = ConnectConfig::default().asap(Some(asap)).replay_safe(true);
    let (id, _) = pair.client.connect(pair.server_addr(), REQUEST, &config, pair.now).unwrap();
    let child = pair.accept(listener);
    let (block, signed) = pair.server.accepted_block(child).unwrap();
    assert_eq!(signed as usize, REQUEST.len());
    assert_eq!((block.client_key, block.request_id, block.identity), (client_key, [7; 8], identity));
    assert!(!pair.server.info(child).unwrap().confirmed);
    pair.run(Duration::from_secs(1), |p| p.server.info(child).unwrap().confirmed);
    assert_eq!(pair.server.accepted_block(child), Some((block, signed)));
    assert_eq!(pair.client.accepted_block(id), None, "it was the client's own");
    // Without a block there is none.
    pair.client.connect(pair.server_addr(), REQUEST, &ConnectConfig::default(), pair.now).unwrap();
    let child = pair.accept(listener);
    assert_eq!(pair.server.accepted_block(child), None);
}

/// A probe costs nothing, and the answer is remembered.
#[test]
fn an_unknown_server_is_asked_first() {
    let (mut pair, listener) = pair(false);
    let id = visit(&mut pair, 1, false);
    assert_eq!(serve(&mut pair, listener, id), DELAY * 4, "an ordinary handshake's time");
    assert_eq!(pair.client.info(id).unwrap().outcome, Outcome::Handshake(Reason::CapabilityUnknown));
    let id = visit(&mut pair, 1, false);
    assert_eq!(serve(&mut pair, listener, id), DELAY * 2);
    assert_eq!(pair.client.info(id).unwrap().outcome, Outcome::Accepted);
}

#[test]
fn a_refusal_costs_what_a_handshake_costs() {
    let (mut pair, listener) = pair(false);
    let id = visit(&mut pair, 7, true);
    assert_eq!(serve(&mut pair, listener, id), DELAY * 4);
    assert_eq!(pair.client.info(id).unwrap().outcome, Outcome::Handshake(Reason::UntrustedVerifier));
    assert_eq!(pair.server.counters().signatures_verified, 0);
    assert_eq!(pair.client.info(id).unwrap().totals.bytes_acked, REQUEST.len() as u64);
}

/// The same packet is replayed, also with other ports. The request is executed once.
#[test]
fn a_replayed_request_is_executed_once() {
    let (mut pair, listener) = pair(false);
    let id = visit(&mut pair, 1, true);
    serve(&mut pair, listener, id);
    let (_, end, syn) = pair.log[0].clone();
    assert_eq!(end, End::Client);
    for port in [1u8, 2] {
        let mut copy = syn.clone();
        // Another source port, with the checksum adapted.
        copy[21] ^= port;
        fix_checksum(&mut copy);
        pair.server.handle_packet(pair.now, &copy);
        pair.verify();
    }
    assert!(pair.server.accept(listener).is_none());
    assert_eq!(pair.server.counters().first_flights_accepted, 1);
    assert_eq!(pair.server.counters().first_flights_refused, 2);
}

fn fix_checksum(packet: &mut [u8]) {
    let ip = Packet::parse(packet).unwrap();
    let (src, dst, at) = (ip.src, ip.dst, packet.len() - ip.payload.len());
    firstflight_wire::tcp::fill_checksum(&mut packet[at..], src, dst);
}

/// A certificate is for one address. From another address it proves nothing, whether it is cached or not.
#[test]
fn a_certificate_from_another_address_is_refused() {
    let (mut pair, listener) = pair(false);
    let id = visit(&mut pair, 1, true);
    serve(&mut pair, listener, id);
    let stolen = certificate(1, 2, "10.0.0.9".parse().unwrap());
    let asap = certified(stolen, pair.now);
    let config = ConnectConfig::default().asap(Some(asap)).replay_safe(true);
    let id = pair.client.connect(pair.server_addr(), REQUEST, &config, pair.now).unwrap().0;
    assert_eq!(serve(&mut pair, listener, id), DELAY * 4);
    assert_eq!(pair.client.info(id).unwrap().outcome, Outcome::Handshake(Reason::AddressMismatch));
}

/// A path that removes the options: the connection is an ordinary one, and the application gets no byte of the
/// block.
#[test]
fn a_block_without_its_option_is_never_delivered() {
    let (mut pair, listener) = pair(false);
    pair.middlebox = Some(Box::new(|end, packet| {
        if end == End::Client {
            strip(packet);
        }
        true
    }));
    let id = visit(&mut pair, 1, true);
    assert_eq!(serve(&mut pair, listener, id), DELAY * 4);
    assert_eq!(pair.client.info(id).unwrap().outcome, Outcome::Handshake(Reason::OptionStripped));
}

/// Overwrites ASAP's option with NOPs.
fn strip(packet: &mut [u8]) {
    let Some(at) = packet.windows(4).position(|w| w == [253, 8, 0xfa, 0x57]) else { return };
    packet[at..at + 8].fill(1);
    fix_checksum(packet);
}

/// The SYN-ACKs are lost until the server stops sending them. The client's retransmitted SYN still finds the
/// connection. A new ordinary connection would execute the request a second time.
#[test]
fn lost_syn_acks_do_not_run_the_request_twice() {
    let (mut pair, listener) = pair(false);
    let mut lost = 0;
    pair.middlebox = Some(Box::new(move |end, packet| {
        let syn_ack = end == End::Server && packet[33] & 0x12 == 0x12;
        lost += u32::from(syn_ack);
        !(syn_ack && lost <= 5)
    }));
    // Data that may run twice would be sent again from another port.
    let mut asap = certified(certificate(1, 2, pair.client.config().addresses[0]), pair.now);
    asap.once = true;
    let config = ConnectConfig::default().asap(Some(asap));
    let id = pair.client.connect(pair.server_addr(), REQUEST, &config, pair.now).unwrap().0;
    let first = pair.accept(listener);
    assert_eq!(pair.server_reads(first), REQUEST);
    pair.server.write(first, b"answer", pair.now).unwrap();
    let mut answer = Vec::new();
    pair.run(Duration::from_secs(60), |p| {
        answer.extend(p.client_reads(id));
        answer == b"answer"
    });
    assert!(pair.server.accept(listener).is_none(), "one connection");
    assert_eq!(pair.client.info(id).unwrap().outcome, Outcome::Accepted);
}
