//! A first flight was accepted, and its connection ended before the client's ACK. A SYN with the same number opens no
//! connection, in which the data would run a second time (docs/spec/asap.md 7.3).

use crate::certified::{certificate, certified, request};
use crate::flights::{self, CLIENT};
use crate::pair::{End, Pair};
use crate::peer::visited::{AFTER, DATA, first_flight, server_with, syn};
use crate::peer::{CLIENT_PORT, Peer, key, policy, seg};
use firstflight_credential::{GuardKey, ReplayTable, Replays, Window};
use firstflight_link::path::{PathConfig, fragment};
use firstflight_stack::{Config, ConnectConfig, FlowOwners, ListenerId, ShardConfig};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::Cookie;
use firstflight_wire::tcp::{Flags, Segment};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// A server that refuses copies, at a time when its guard is open, and a client's cookie.
fn server() -> (Peer, ListenerId, Cookie) {
    guarded(|_| {})
}

fn guarded(stack: impl FnOnce(&mut Config)) -> (Peer, ListenerId, Cookie) {
    let guard = ReplayTable::new(
        GuardKey::from_bytes([3; 16]),
        Window::NETWORK,
        1 << 16,
        Peer::new().now.as_millis(),
    );
    let (mut p, listener, cookie) = server_with(stack, |c| {
        let mut policy = policy(key(1), 1000);
        policy.replays = Replays::NoDuplicates(Arc::new(guard));
        c.fast_open = Some(policy);
    });
    p.at(121_000);
    (p, listener, cookie)
}

/// The application aborts all connections. Returns how many.
fn aborts_all(p: &mut Peer, listener: ListenerId) -> usize {
    let mut count = 0;
    while let Some(id) = p.stack.accept(listener) {
        p.stack.abort(id, p.now);
        p.stack.release(id, p.now);
        count += 1;
    }
    p.drain();
    count
}

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

/// A server that hands its connections over to another process keeps those, and these.
#[test]
fn the_four_tuple_is_the_servers_as_long_as_an_end_is_remembered() {
    let (mut p, listener, _) = server();
    let (ours, theirs): (SocketAddr, IpAddr) = ("10.0.0.1:80".parse().unwrap(), CLIENT.parse().unwrap());
    let has = |p: &Peer, port| p.stack.has_four_tuple(ours, SocketAddr::new(theirs, port));
    assert!(p.stack.four_tuples().next().is_none() && !has(&p, CLIENT_PORT));
    aborted(&mut p, listener);
    assert!(has(&p, CLIENT_PORT) && !has(&p, CLIENT_PORT + 1));
    let all = |p: &Peer| p.stack.four_tuples().collect::<Vec<_>>();
    let tuple = (ours, SocketAddr::new(theirs, CLIENT_PORT));
    assert_eq!(all(&p), [tuple]);
    p.pass(241_000);
    assert!(!has(&p, CLIENT_PORT) && all(&p).is_empty());
    p.send(syn().seq(7_000));
    p.expect().syn_ack();
    assert!(has(&p, CLIENT_PORT) && all(&p) == [tuple]);
}

/// Packets come here that went to another server.
#[test]
fn copies_of_what_another_server_took_are_refused() {
    let (mut p, listener, cookie) = server();
    p.stack.refuse_earlier_flights(p.now);
    p.pass(119_000);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1);
    p.send(seg().rst().seq(1));
    p.quiet();
    p.nothing_to_accept(listener);
    p.pass(2_000);
    p.send(first_flight(&cookie).seq(7_000));
    p.expect().syn_ack();
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
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

/// A client with six retransmissions gives up 127 s after its first SYN.
#[test]
fn an_end_is_remembered_for_four_minutes() {
    let (mut p, listener, _) = server();
    aborted(&mut p, listener);
    p.pass(239_000);
    p.send(syn());
    p.expect().is_rst();
    p.pass(2_000);
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

    p.flow(CLIENT_PORT + 1, 99);
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

/// Another first flight of the same ports is another end: it does not take the place of the first one.
#[test]
fn two_ends_of_the_same_ports_are_remembered() {
    let (mut p, listener, cookie) = server();
    aborted(&mut p, listener);
    let isn = p.isn;
    p.isn = 5_000;
    p.send(first_flight(&cookie));
    assert_eq!(aborts_all(&mut p, listener), 1);
    for number in [isn, 5_000] {
        p.isn = number;
        p.send(syn());
        p.expect().is_rst();
    }
}

/// A client's ends are in one part of the memory of 64.
#[test]
fn the_memory_is_bounded_for_each_client() {
    let (mut p, listener, cookie) = guarded(|config| config.limits.early_ends = 64 * 4);
    for n in 0..20 {
        p.flow(CLIENT_PORT + n, 99);
        p.send(first_flight(&cookie));
        assert_eq!(aborts_all(&mut p, listener), 1);
    }
    for n in 16..20 {
        p.flow(CLIENT_PORT + n, 99);
        p.send(syn());
        p.expect().is_rst();
    }
    p.flow(CLIENT_PORT + 15, 99);
    p.send(syn());
    p.expect().syn_ack().ack(1);
}

/// Data that may run twice gets another connection, as if a box between had reset the first one.
#[test]
fn where_copies_are_allowed_a_plain_syn_opens() {
    let (mut p, listener, cookie) = server_with(|_| {}, |_| {});
    p.send(first_flight(&cookie));
    assert_eq!(aborts_all(&mut p, listener), 1);
    p.send(syn());
    p.expect().syn_ack().ack(1);
}

/// No application has seen the data.
#[test]
fn the_end_of_a_listener_is_no_such_end() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.stack.unlisten(listener, p.now);
    p.drain();
    p.listen();
    p.send(syn());
    p.expect().syn_ack().ack(1);
}

/// A SYN with this number and a malformed block came first, and a SYN cookie answered it. Then the client's own came.
#[test]
fn the_ack_of_a_syn_cookie_is_reset_too() {
    let mut s = flights::server();
    let real = request(&certificate(1, 2, CLIENT.parse().unwrap()), 5, DATA, 3_000);
    let mut forged = real.clone();
    forged.payload[0] ^= 0xff;
    s.p.send(flights::syn(&forged));
    s.verify();
    let cookie = s.p.drain().remove(0);
    s.p.send(flights::syn(&real));
    s.verify();
    assert_eq!(aborts_all(&mut s.p, s.listener), 1);
    s.p.send(seg().seq(1).raw_ack(cookie.raw_seq + 1).data(DATA));
    s.p.drain();
    s.p.nothing_to_accept(s.listener);
}

/// Fragments of a SYN are put together by another stack of the group, which asks whose flow it is.
#[test]
fn another_stack_of_the_group_knows_the_end() {
    let owners = Arc::new(FlowOwners::new([9; 32], 1000));
    let mut stacks: Vec<_> = (0..3)
        .map(|index| {
            guarded(|config| {
                config.shard = ShardConfig::new(index, 3, [7; 16]);
                config.owners = Some(Arc::clone(&owners));
            })
        })
        .collect();
    let (p, listener, cookie) = &mut stacks[0];
    p.send(first_flight(cookie));
    assert_eq!(aborts_all(p, *listener), 1);
    let mut mail = Vec::new();
    for part in fragment(&p.packet(&syn()), 28, 9).unwrap() {
        p.stack.handle_packet(p.now, &part);
    }
    for _ in 0..4 {
        for (p, ..) in &mut stacks {
            while let Some(m) = p.stack.poll_misdirected() {
                mail.push((m.shard, m.visits, m.packet.to_vec()));
            }
        }
        for (to, visits, packet) in std::mem::take(&mut mail) {
            let p = &mut stacks[to].0;
            p.stack.handle_misdirected(p.now, visits, &packet);
            p.pump();
        }
    }
    let answers: Vec<_> = stacks.iter_mut().flat_map(|(p, ..)| p.drain()).collect();
    assert_eq!(answers.len(), 1);
    answers.into_iter().for_each(|answer| drop(answer.is_rst()));
}

/// The flow is free for the group when the end is forgotten.
#[test]
fn an_end_that_is_over_frees_its_flow() {
    let owners = Arc::new(FlowOwners::new([9; 32], 1000));
    let own = |index| {
        let owners = Arc::clone(&owners);
        guarded(move |config| {
            config.shard = ShardConfig::new(index, 3, [7; 16]);
            config.owners = Some(owners);
        })
    };
    let ((mut p, listener, cookie), (mut q, ..)) = (own(0), own(1));
    p.send(first_flight(&cookie));
    assert_eq!(aborts_all(&mut p, listener), 1);
    q.send(syn());
    q.quiet();
    assert!(q.stack.poll_misdirected().is_some_and(|m| m.shard == 0));
    p.pass(241_000);
    q.send(syn());
    q.expect().syn_ack().ack(1);
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
