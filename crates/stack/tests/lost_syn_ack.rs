//! The SYN-ACK of an accepted first flight is lost, and then the ACK of the next SYN-ACK: what that costs.

use crate::pair::{End, Pair, key, policy};
use firstflight_link::path::PathConfig;
use firstflight_stack::ConnectConfig;
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::udp::Datagram;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

fn flags(packet: &[u8]) -> Flags {
    let ip = Packet::parse(packet).unwrap();
    let segment = match ip.protocol {
        Protocol::Udp => match Carried::parse(Datagram::parse(ip.payload).unwrap().payload).unwrap() {
            Carried::Segment(segment) => segment,
            Carried::Control(_) => return Flags::EMPTY,
        },
        _ => ip.payload,
    };
    Segment::parse(segment).unwrap().flags
}

/// Fetches with the cookie of an earlier visit. The first SYN-ACK is lost, and this number of the client's ACKs
/// (`acks`). Returns the milliseconds until the response of two segments is complete.
fn fetch(udp: bool, acks: usize) -> u64 {
    let path = PathConfig::with_delay(DELAY);
    let mut p = if udp { Pair::in_udp(path, 1, false) } else { Pair::new(path, 1, false, |_, _| {}) };
    let listener = p.listen(Some(policy(key(1), 10)));
    let first = p.connect(b"", true);
    let server = p.accept(listener);
    p.connected(first);
    p.client.release(first, p.now);
    p.server.release(server, p.now);
    p.idle(Duration::from_secs(1));

    let (mut syn_acks, mut lost) = (0, 0);
    p.middlebox = Some(Box::new(move |end, packet| {
        let flags = flags(packet);
        if end == End::Server && flags.contains(Flags::SYN) {
            syn_acks += 1;
            return syn_acks > 1;
        }
        if end == End::Client && flags.contains(Flags::ACK) && lost < acks {
            lost += 1;
            return false;
        }
        true
    }));
    let config = ConnectConfig::default().fast_open(true).replay_safe(true).encapsulation(p.encapsulation);
    let began = p.now;
    let id = p.client.connect(p.server_addr(), REQUEST, &config, p.now).unwrap().0;
    let server = p.accept(listener);
    assert_eq!(p.server_reads(server), REQUEST);
    p.server.write(server, &[7; 1_200], p.now).unwrap();
    let mut got = 0;
    p.run(Duration::from_secs(60), |p| {
        got += p.client_reads(id).len();
        got == 1_200
    });
    (p.now - began).as_millis() as u64
}

/// The client's plain SYN follows after 100 ms and is answered at once. The client's ACK shows that it dropped the
/// response, so the response is sent again without a timeout. It arrives two round trips after the plain SYN.
#[test]
fn a_lost_syn_ack_costs_no_timeout_of_the_server() {
    for udp in [false, true] {
        let took = fetch(udp, 0);
        assert!((175..185).contains(&took), "{took} ms");
    }
}

/// In UDP the client repeats its ACK half a second later. (On IP the server repeats its SYN-ACK.)
#[test]
fn a_lost_ack_behind_a_lost_syn_ack_costs_half_a_second_more() {
    let took = fetch(true, 1);
    assert!((675..690).contains(&took), "{took} ms");
}
