//! A first flight was accepted, and its connection ended before the client's ACK. A SYN with the same number opens no
//! connection, in which the data would run a second time (docs/spec/asap.md 7.3).

use crate::certified::{certificate, certified};
use crate::pair::{End, Pair};
use crate::peer::visited::{AFTER, DATA, first_flight, server, server_with, syn};
use crate::peer::{Peer, key, seg};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnectConfig, ListenerId};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Segment};
use std::time::Duration;

/// The application reads the request of a first flight and aborts its connection. Nothing arrives at the client.
fn aborted(p: &mut Peer, listener: ListenerId) {
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    p.stack.abort(id, p.now);
    p.stack.release(id, p.now);
    p.pump();
    p.expect().is_rst();
    p.quiet();
}

#[test]
fn a_syn_of_an_aborted_first_flight_is_reset() {
    let (mut p, listener, cookie) = server();
    aborted(&mut p, listener);
    // The client's next SYN has a later timestamp. An eavesdropper's may have any.
    for again in [syn(), syn().ts(50), syn().data(b"other"), first_flight(&cookie)] {
        for _ in 0..2 {
            p.send(again.clone());
            p.expect().is_rst();
            p.quiet();
        }
        p.nothing_to_accept(listener);
    }
    assert_eq!(p.stack.connections(), 0);
}

#[test]
fn another_connection_of_the_same_ports_opens() {
    let (mut p, listener, _) = server();
    aborted(&mut p, listener);
    p.send(syn().seq(7_000));
    p.expect().syn_ack().ack(7_001);
    // The eavesdropper opened it, to make the server forget. The client resets it.
    p.send(seg().rst().seq(7_001));
    p.quiet();
    p.send(syn());
    p.expect().is_rst();
    p.nothing_to_accept(listener);
}

/// The last SYN of a client that sends six again comes 63 s after the first one.
#[test]
fn an_end_is_remembered_for_two_minutes() {
    let (mut p, listener, _) = server();
    aborted(&mut p, listener);
    p.pass(127_000);
    p.send(syn());
    p.expect().is_rst();
    p.pass(3_000);
    p.send(syn());
    p.expect().syn_ack().ack(1);
}

#[test]
fn the_end_may_be_a_reset_or_a_timeout() {
    let (mut p, _, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    p.send(seg().rst().seq(AFTER));
    p.quiet();
    p.send(syn());
    p.expect().is_rst();

    p.flow(crate::peer::CLIENT_PORT + 1, 99);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    p.pass(150_000);
    p.drain();
    p.send(syn());
    p.expect().is_rst();
}

/// What the client has acknowledged is over for it: TIME-WAIT, or nothing, remains.
#[test]
fn an_acknowledged_first_flight_is_not_remembered() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    let id = p.accept(listener);
    p.send(seg().seq(AFTER).ack(1));
    p.stack.abort(id, p.now);
    p.pump();
    p.expect().is_rst();
    p.send(syn());
    p.expect().syn_ack().ack(1);
}

#[test]
fn the_memory_is_bounded() {
    let (mut p, listener, cookie) = server_with(|config| config.limits.early_ends = 4, |_| {});
    for n in 0..20 {
        p.flow(crate::peer::CLIENT_PORT + n, 99);
        p.send(first_flight(&cookie));
        p.expect().syn_ack().ack(AFTER);
        let id = p.accept(listener);
        p.stack.abort(id, p.now);
        p.pump();
        p.expect().is_rst();
    }
    p.send(syn());
    p.expect().is_rst();
    p.flow(crate::peer::CLIENT_PORT, 99);
    p.send(syn());
    p.expect().syn_ack().ack(1);
}

/// Over IP a client sends data that must not run twice also after a timeout (10.9), if a plain SYN opens a connection. Here
/// the SYN-ACK and the RST are lost.
#[test]
fn a_client_whose_first_flight_was_aborted_does_not_send_its_data_again() {
    const REQUEST: &[u8] = b"POST /pay HTTP/1.0\r\n\r\n";
    let mut p = Pair::new(PathConfig::with_delay(Duration::from_millis(50)), 1, false, |_, _| {});
    let listener = p.listen_with(|config| config.asap = Some(crate::certified::policy(&[1])));
    let mut lost = 2;
    p.middlebox = Some(Box::new(move |end, packet| {
        let of_server = end == End::Server
            && Packet::parse(packet).is_ok_and(|ip| {
                Segment::parse(ip.payload).is_ok_and(|s| s.flags.intersects(Flags::SYN.union(Flags::RST)))
            });
        if of_server && lost > 0 {
            lost -= 1;
            return false;
        }
        true
    }));
    let address = p.client.config().addresses[0];
    let mut asap = certified(certificate(1, 2, address), p.now);
    asap.once = true;
    let config = ConnectConfig::default().asap(Some(asap)).replay_safe(false);
    p.client.connect(p.server_addr(), REQUEST, &config, p.now).unwrap();
    let mut executed = 0;
    for _ in 0..2_000 {
        p.idle(Duration::from_millis(5));
        while let Some(id) = p.server.accept(listener) {
            executed += usize::from(p.server_reads(id) == REQUEST);
            p.server.abort(id, p.now);
            p.server.release(id, p.now);
        }
    }
    assert_eq!(executed, 1);
}
