//! Stacks that note their flows (`Config::owners`): a connection is with the stack whose queue got its SYN.

use crate::peer::{CLIENT_PORT, PORT, Peer, seg};
use firstflight_stack::{ConnectConfig, FlowOwners, ListenConfig, ListenerId, ShardConfig};
use firstflight_wire::icmp::{IcmpErrorKind, emit_error};
use std::net::SocketAddr;
use std::sync::Arc;

const SHARDS: usize = 3;
const SEED: [u8; 16] = [7; 16];

/// Stacks of one group, with a listener each.
struct Group(Vec<(Peer, ListenerId)>);

impl Group {
    /// `flows` is the size of the table.
    fn new(flows: usize) -> Self {
        Self::with(flows, |_| {})
    }

    fn with(flows: usize, tune: impl Fn(&mut ListenConfig)) -> Self {
        let owners = Arc::new(FlowOwners::new([9; 32], flows));
        let stack = |index| {
            let mut p = Peer::with(|config| {
                config.shard = ShardConfig::new(index, SHARDS, SEED);
                config.owners = Some(Arc::clone(&owners));
            });
            let listener = p.listen_with(&tune);
            (p, listener)
        };
        Self((0..SHARDS).map(stack).collect())
    }

    fn peer(&mut self, shard: usize) -> &mut Peer {
        &mut self.0[shard].0
    }

    /// A packet comes to the queue of `shard`. Returns how often it, and what follows from it, changed the stack.
    fn arrives(&mut self, shard: usize, packet: &[u8]) -> usize {
        self.peer(shard).inject(packet);
        let mut hops = 0;
        loop {
            let mut mail = Vec::new();
            for (p, _) in &mut self.0 {
                while let Some(next) = p.stack.poll_misdirected() {
                    mail.push((next.shard, next.visits, next.packet.to_vec()));
                }
            }
            if mail.is_empty() {
                return hops;
            }
            for (to, visits, packet) in mail {
                hops += 1;
                let p = self.peer(to);
                p.stack.handle_misdirected(p.now, visits, &packet);
                p.pump();
            }
        }
    }

    /// The client's handshake by the queue of `shard`, from this port.
    fn open(&mut self, shard: usize, port: u16) {
        let p = self.peer(shard);
        p.flow(port, 77);
        let syn = p.packet(&seg().syn().mss(1460));
        assert_eq!(self.arrives(shard, &syn), 0, "a SYN stays where it came");
        self.peer(shard).expect().syn_ack().ack(1);
        let ack = self.peer(shard).packet(&seg().seq(1).ack(1));
        assert_eq!(self.arrives(shard, &ack), 0);
    }

    fn opened(&self) -> Vec<usize> {
        self.0.iter().map(|(p, _)| p.stack.connections()).collect()
    }
}

/// A client port whose flows another stack than `shard` would have by the ports.
fn foreign(shard: usize) -> u16 {
    let config = ShardConfig::new(0, SHARDS, SEED).unwrap();
    (20_000..).find(|port| config.owner(*port, PORT) != shard).unwrap()
}

#[test]
fn a_connection_is_where_its_syn_came() {
    for shard in 0..SHARDS {
        let mut group = Group::new(1000);
        group.open(shard, foreign(shard));
        let mut expected = vec![0; SHARDS];
        expected[shard] = 1;
        assert_eq!(group.opened(), expected);
    }
}

#[test]
fn a_segment_at_another_queue_is_passed_on() {
    let mut group = Group::new(1000);
    group.open(1, foreign(1));
    let data = group.peer(1).packet(&seg().seq(1).ack(1).data(b"hello"));
    assert_eq!(group.arrives(2, &data), 1);
    let (p, listener) = &mut group.0[1];
    let id = p.accept(*listener);
    assert_eq!(p.read(id), b"hello");
    // The SYN again, as from a sender that lost the answer: no second connection.
    let syn = group.peer(1).packet(&seg().syn().mss(1460));
    assert_eq!(group.arrives(0, &syn), 1);
    assert_eq!(group.opened(), [0, 1, 0]);
}

#[test]
fn what_no_stack_has_is_answered_where_it_came() {
    let mut group = Group::new(1000);
    let p = group.peer(2);
    p.flow(foreign(2), 77);
    let stray = p.packet(&seg().seq(1).ack(1));
    assert_eq!(group.arrives(2, &stray), 0);
    group.peer(2).expect().is_rst();
}

/// Resets the connection of `shard`.
fn reset(group: &mut Group, shard: usize) {
    let rst = group.peer(shard).packet(&seg().seq(1).rst());
    group.arrives(shard, &rst);
    let (p, listener) = &mut group.0[shard];
    while let Some(id) = p.stack.accept(*listener) {
        p.release(id);
    }
    p.drain();
}

#[test]
fn another_stack_takes_a_flow_that_is_over() {
    let mut group = Group::new(1000);
    let port = foreign(1);
    group.open(1, port);
    reset(&mut group, 1);
    assert_eq!(group.opened(), [0, 0, 0]);
    group.open(2, port);
    assert_eq!(group.opened(), [0, 0, 1]);
}

#[test]
fn time_wait_keeps_its_flow_until_it_ends() {
    let mut group = Group::new(1000);
    let port = foreign(1);
    group.open(1, port);
    let (p, listener) = &mut group.0[1];
    let id = p.accept(*listener);
    p.release(id);
    p.expect().is_fin();
    let end = p.packet(&seg().seq(1).ack(2).fin());
    group.arrives(1, &end);
    group.peer(1).expect().ack(2);
    assert_eq!(group.peer(1).stack.time_waits(), 1);
    // A FIN that comes again, by another queue.
    assert_eq!(group.arrives(0, &end), 1);
    group.peer(1).expect().ack(2);
    group.peer(0).quiet();
    let lasts = group.peer(1).stack.config().tcp.time_wait_lasts().as_millis() as u64 + 2000;
    (0..SHARDS).for_each(|shard| group.peer(shard).pass(lasts));
    assert_eq!(group.arrives(0, &end), 0);
    group.peer(0).expect().is_rst();
}

/// A report of a router has another hash in the card than its flow.
#[test]
fn a_report_is_passed_on_to_the_flow_that_it_quotes() {
    let mut group = Group::new(1000);
    group.open(1, foreign(1));
    let (p, listener) = &mut group.0[1];
    let id = p.accept(*listener);
    p.write(id, &[7; 1400]);
    let sent = p.expect();
    let mut report = vec![0; 1280];
    let kind = IcmpErrorKind::PacketTooBig { mtu: 1000 };
    let [router, host] = ["10.0.0.254", "10.0.0.1"].map(|ip| ip.parse().unwrap());
    let len = emit_error(kind, router, host, &sent.packet, &mut report).unwrap();
    report.truncate(len);
    assert_eq!(group.arrives(0, &report), 1);
    assert!(group.peer(1).stack.info(id).unwrap().mss < 1000);
}

#[test]
fn the_answer_to_a_connect_is_passed_on() {
    let mut group = Group::new(1000);
    let remote: SocketAddr = "10.0.0.2:4000".parse().unwrap();
    let p = group.peer(1);
    let (id, _) = p.stack.connect(remote, b"", &ConnectConfig::default(), p.now).unwrap();
    p.pump();
    let syn = p.expect();
    let local = p.stack.info(id).unwrap().local.port();
    let p = group.peer(1);
    p.flow(4000, 5000);
    p.local_port = local;
    let answer = p.packet(&seg().syn().raw_ack(syn.raw_seq + 1).mss(1460));
    assert_eq!(group.arrives(0, &answer), 1);
    assert!(group.peer(1).stack.is_confirmed(id));
}

/// More flows than the table has places: their segments are found by a round.
#[test]
fn a_flow_without_a_place_is_found_by_a_round() {
    let mut group = Group::new(1);
    let ports: Vec<u16> = (0..40).map(|n| CLIENT_PORT + n).collect();
    for port in &ports {
        group.open(1, *port);
    }
    let mut most = 0;
    for port in &ports {
        let p = group.peer(1);
        p.flow(*port, 77);
        let data = p.packet(&seg().seq(1).ack(1).data(b"hello"));
        most = most.max(group.arrives(0, &data));
        group.peer(0).quiet();
        group.peer(1).pass(20);
        group.peer(0).pass(20);
    }
    assert!((1..=2 * SHARDS).contains(&most), "{most}");
    let (p, listener) = &mut group.0[1];
    for _ in &ports {
        let id = p.accept(*listener);
        assert_eq!(p.read(id), b"hello");
    }
}

/// Under a flood of SYNs nothing is kept of one, and its ACK may come by another queue.
#[test]
fn all_stacks_know_the_syn_cookies_of_the_others() {
    let mut group = Group::with(1000, |listen| listen.syn_backlog = 0);
    // Both have made cookies.
    for (shard, port) in [(0, 33_000), (1, 34_000)] {
        let p = group.peer(shard);
        p.flow(port, 77);
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack().ack(1);
    }
    let p = group.peer(0);
    p.flow(33_000, 77);
    let ack = p.packet(&seg().seq(1).ack(1).data(b"hello"));
    assert_eq!(group.arrives(1, &ack), 0);
    let (p, listener) = &mut group.0[1];
    let id = p.accept(*listener);
    assert_eq!(p.read(id), b"hello");
}
