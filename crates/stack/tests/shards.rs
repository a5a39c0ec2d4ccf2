//! One-time cookies on several stacks that share their addresses: a SYN may overtake the ACK that activates its cookie, if
//! they come to different queues.

use crate::peer::{Peer, Seg, key, policy, seg};
use firstflight_credential::{
    FastOpenPolicy, OneTimeCookies, OneTimeKeys, Outcome, Reason, Replays, SerialTable,
};
use firstflight_stack::{EncapsulationConfig, ListenerId, ShardConfig, Visits};
use firstflight_wire::tcp::{Cookie, FastOpenForm};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::sync::Arc;

const SHARDS: usize = 3;
const SEED: [u8; 16] = [7; 16];
const DATA: &[u8] = b"POST /pay HTTP/1.1";
const AFTER: u32 = 1 + DATA.len() as u32;

/// Stacks with one table of serials, and what they hand to each other.
struct Group {
    stacks: Vec<(Peer, ListenerId)>,
    mail: Vec<VecDeque<(Visits, Vec<u8>)>>,
    /// Packets that were handed over.
    hops: usize,
    /// How often the data ran: from a SYN, and behind a handshake.
    early: usize,
    late: usize,
}

impl Group {
    fn new() -> Self {
        Self::of(false)
    }

    /// In IP, or in UDP.
    fn of(udp: bool) -> Self {
        let policy = one_time();
        let stack = |index| {
            let mut p = Peer::with(|config| {
                config.shard = ShardConfig::new(index, SHARDS, SEED);
                config.encapsulation = udp.then(|| EncapsulationConfig::new(4433).probe(false));
            });
            p.outer = udp.then_some((5000, 4433));
            let listener = p.listen_with(|c| c.fast_open = Some(policy.clone()));
            (p, listener)
        };
        Self {
            stacks: (0..SHARDS).map(stack).collect(),
            mail: vec![VecDeque::new(); SHARDS],
            hops: 0,
            early: 0,
            late: 0,
        }
    }

    fn peer(&mut self, shard: usize) -> &mut Peer {
        &mut self.stacks[shard].0
    }

    /// A packet arrives at the queue of `shard`.
    fn arrives(&mut self, shard: usize, packet: &[u8]) {
        self.peer(shard).inject(packet);
        self.hand_out(shard);
    }

    fn hand_out(&mut self, shard: usize) {
        while let Some(next) = self.stacks[shard].0.stack.poll_misdirected() {
            self.mail[next.shard].push_back((next.visits, next.packet.to_vec()));
            self.hops += 1;
        }
    }

    /// `shard` takes its turn: what the others handed to it.
    fn turn(&mut self, shard: usize) {
        for (visits, packet) in std::mem::take(&mut self.mail[shard]) {
            let p = self.peer(shard);
            p.stack.handle_misdirected(p.now, visits, &packet);
            p.pump();
        }
        self.hand_out(shard);
    }

    /// All take turns until nothing is left to do.
    fn settle(&mut self) {
        while let Some(shard) = self.mail.iter().position(|mail| !mail.is_empty()) {
            self.turn(shard);
        }
    }

    /// A handshake at `shard` without its ACK. Returns the cookie, and the ACK.
    fn visit(&mut self, shard: usize) -> (Cookie, Vec<u8>) {
        let p = self.peer(shard);
        p.flow(port_of(shard, 0), 5000);
        p.send(seg().syn().mss(1460).cookie(&[]));
        let cookie = p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard);
        (cookie, p.packet(&seg().seq(1).ack(1)))
    }

    /// A SYN with the cookie, from the `nth` port whose flows `shard` has.
    fn first_flight(&mut self, shard: usize, nth: usize, cookie: &Cookie) -> Vec<u8> {
        let p = self.peer(shard);
        p.flow(port_of(shard, nth), 77);
        p.packet(&first_flight(cookie))
    }

    /// The client sends a plain SYN from the port of its SYN. If the answer does not acknowledge the data, it sends the data
    /// with its ACK. Then it resets the connection, which leaves no TIME-WAIT.
    fn repeat_plain(&mut self, shard: usize) {
        let p = self.peer(shard);
        p.flow(port_of(shard, 1), 77);
        p.drain();
        p.send(seg().syn().mss(1460));
        if !p.drain().iter().any(|got| got.ack == AFTER) {
            p.send(seg().seq(1).ack(1).data(DATA));
        }
        self.run_applications();
        self.peer(shard).send(seg().seq(AFTER).ack(1).rst());
    }

    /// The applications accept and read.
    fn run_applications(&mut self) {
        for (p, listener) in &mut self.stacks {
            while let Some(id) = p.stack.accept(*listener) {
                let is_early = p.stack.info(id).unwrap().outcome == Outcome::Accepted;
                if p.read(id) == DATA {
                    *(if is_early { &mut self.early } else { &mut self.late }) += 1;
                }
            }
        }
    }

    fn outcome(&mut self, shard: usize) -> Outcome {
        let (p, listener) = &mut self.stacks[shard];
        let id = p.accept(*listener);
        p.stack.info(id).unwrap().outcome
    }
}

fn one_time() -> FastOpenPolicy {
    let serials = SerialTable::own(1, 1, 1000);
    serials.extend(1 << 40);
    let mut policy = policy(key(1), 100);
    policy.verifier =
        Some(Arc::new(OneTimeCookies::new(OneTimeKeys::from_bytes([7; 32]), Arc::new(serials))));
    policy.replays = Replays::AtMostOnce;
    policy
}

fn first_flight(cookie: &Cookie) -> Seg {
    seg().syn().mss(1460).cookie(cookie.as_bytes()).data(DATA)
}

/// The `nth` client port whose flows `shard` has.
fn port_of(shard: usize, nth: usize) -> u16 {
    let config = ShardConfig::new(0, SHARDS, SEED).unwrap();
    (20_000..).filter(|port| config.owner(*port, 80) == shard).nth(nth).unwrap()
}

#[test]
fn a_syn_that_overtakes_its_cookies_ack_waits_for_it() {
    let mut group = Group::new();
    let (cookie, ack) = group.visit(0);
    let syn = group.first_flight(1, 1, &cookie);
    group.arrives(1, &syn);
    group.peer(1).quiet();
    // It goes round. The ACK was in the queue of the first stack, which handles that first.
    group.turn(2);
    group.arrives(0, &ack);
    group.settle();
    group.peer(1).expect().syn_ack().ack(AFTER);
    assert_eq!((group.outcome(1), group.hops), (Outcome::Accepted, 2 * SHARDS));
}

/// The ACK waits in the queue of a third stack, which hands it to its own behind the SYN's first visit there.
#[test]
fn an_ack_at_a_wrong_queue_is_found_in_the_second_round() {
    let mut group = Group::new();
    let (cookie, ack) = group.visit(0);
    let syn = group.first_flight(2, 1, &cookie);
    group.arrives(2, &syn);
    group.turn(0);
    group.arrives(1, &ack);
    group.turn(1);
    group.turn(2);
    group.peer(2).quiet();
    group.settle();
    group.peer(2).expect().syn_ack().ack(AFTER);
    // Two rounds, and the ACK.
    assert_eq!((group.outcome(2), group.hops), (Outcome::Accepted, 2 * SHARDS + 1));
}

#[test]
fn a_cookie_without_its_ack_is_used_up_behind_two_rounds() {
    let mut group = Group::new();
    let (cookie, ack) = group.visit(0);
    let syn = group.first_flight(1, 1, &cookie);
    group.arrives(1, &syn);
    group.settle();
    group.peer(1).expect().syn_ack().ack(1);
    assert_eq!(group.hops, 2 * SHARDS);
    let completes = seg().seq(1).ack(1).data(DATA);
    group.peer(1).send(completes);
    assert_eq!(group.outcome(1), Outcome::Handshake(Reason::NotActive));
    // A recorded copy is good for nothing when the ACK has come.
    group.arrives(0, &ack);
    for shard in 0..SHARDS {
        let copy = group.first_flight(shard, 2, &cookie);
        group.arrives(shard, &copy);
        group.settle();
        group.peer(shard).expect().syn_ack().ack(1);
    }
    assert_eq!(group.hops, 2 * SHARDS);
}

/// Of copies that come together, only the first waits, and it runs.
#[test]
fn of_copies_that_go_round_one_runs() {
    let mut group = Group::new();
    let (cookie, ack) = group.visit(0);
    for shard in [1, 2] {
        for nth in 1..4 {
            let copy = group.first_flight(shard, nth, &cookie);
            group.arrives(shard, &copy);
        }
    }
    group.arrives(0, &ack);
    group.settle();
    let mut accepted = 0;
    for shard in [1, 2] {
        for _ in 1..4 {
            accepted += u32::from(group.peer(shard).expect().syn_ack().ack == AFTER);
        }
    }
    assert_eq!((accepted, group.hops), (1, 2 * SHARDS));
}

/// While a SYN is on its way round, or lost there, its client sends the data behind a plain SYN, reads the answer and resets
/// the connection. Whether the data runs a second time, by the SYN or by a copy of it.
fn runs_again(lost: bool) -> bool {
    let mut group = Group::new();
    let (cookie, ack) = group.visit(0);
    let syn = group.first_flight(1, 1, &cookie);
    group.arrives(1, &syn);
    if lost {
        group.mail[2].clear();
    }
    group.arrives(0, &ack);
    // Our client waits at least so long before it sends the data in another way.
    (0..SHARDS).for_each(|shard| group.peer(shard).pass(50));
    let (p, listener) = &mut group.stacks[1];
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(*listener);
    assert_eq!(p.read(id), DATA, "executed once");
    p.send(seg().seq(AFTER).ack(1).rst());
    p.release(id);
    p.drain();
    let copy = group.first_flight(1, 2, &cookie);
    if lost {
        group.arrives(1, &copy);
    }
    group.settle();
    group.peer(1).drain().iter().any(|got| got.ack == AFTER)
}

#[test]
fn a_syn_overtaken_by_its_plain_repetition_does_not_run() {
    assert!(!runs_again(false));
}

#[test]
fn a_syn_lost_on_its_way_is_good_for_no_copy() {
    assert!(!runs_again(true));
}

/// A SYN that is back late gets a handshake, although its ACK has come.
#[test]
fn a_syn_that_is_back_late_is_not_accepted() {
    for (away, ack) in [(40, AFTER), (41, 1)] {
        let mut group = Group::new();
        let (cookie, activates) = group.visit(0);
        let syn = group.first_flight(1, 1, &cookie);
        group.arrives(1, &syn);
        group.arrives(0, &activates);
        group.peer(1).pass(away);
        group.settle();
        group.peer(1).expect().syn_ack().ack(ack);
    }
}

/// Its sender repeats the SYN, and gets an answer though the first one does not come back.
#[test]
fn one_stack_that_hangs_keeps_no_client_waiting() {
    let mut group = Group::new();
    let (cookie, _ack) = group.visit(0);
    let syn = group.first_flight(1, 1, &cookie);
    group.arrives(1, &syn);
    group.peer(1).quiet();
    group.arrives(1, &syn);
    group.peer(1).expect().syn_ack().ack(1);
}

#[test]
fn what_opens_nothing_does_not_go_round() {
    let mut group = Group::new();
    let (cookie, _ack) = group.visit(0);
    for odd in [first_flight(&cookie).fin(), first_flight(&cookie).rst(), first_flight(&cookie).ack(1)] {
        let p = group.peer(1);
        p.flow(port_of(1, 1), 77);
        let packet = p.packet(&odd);
        group.arrives(1, &packet);
        group.settle();
    }
    assert_eq!(group.hops, 0);
}

/// A long packet costs each stack more than the handshake that it may save.
#[test]
fn what_is_longer_than_a_packet_does_not_go_round() {
    let mut group = Group::new();
    let (cookie, _ack) = group.visit(0);
    let p = group.peer(1);
    p.flow(port_of(1, 1), 77);
    let packet = p.packet(&seg().syn().mss(1460).cookie(cookie.as_bytes()).bytes(3000));
    group.arrives(1, &packet);
    assert_eq!(group.hops, 0);
}

/// The client's SYN, copies of it from its port and others, the ACK that activates the cookie, turns and delays come in
/// any order; packets are lost between stacks. From 50 ms behind its SYN the client may send the data behind a plain SYN.
#[test]
fn in_any_order_the_data_runs_at_most_once() {
    let (mut early, mut late) = (0, 0);
    for seed in 0..2000 {
        let group = random_order(seed);
        assert!(group.early + group.late <= 1, "seed {seed}: {} early and {} late", group.early, group.late);
        (early, late) = (early + group.early, late + group.late);
    }
    assert!(early > 50 && late > 50, "{early} early and {late} late");
}

fn random_order(seed: u64) -> Group {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut next = |n: usize| rng.next_u32() as usize % n;
    let mut group = Group::of(next(3) == 0);
    let (cookie, ack) = group.visit(0);
    let owner = next(SHARDS);
    let own = group.first_flight(owner, 1, &cookie);
    group.arrives(next(SHARDS), &own);
    // A stack that takes a turn handles its mail as well: what was handed to the owner is there before the client repeats.
    group.turn(owner);
    let (mut waited, mut activated, mut repeated) = (0, false, false);
    for _ in 0..60 {
        match next(7) {
            0 | 6 if !activated => {
                activated = true;
                group.arrives(next(SHARDS), &ack);
            }
            1 => group.arrives(next(SHARDS), &own),
            2 => {
                let copy = group.first_flight(next(SHARDS), 2 + next(2), &cookie);
                group.arrives(next(SHARDS), &copy);
            }
            3 if next(3) == 0 => {
                waited += 10;
                (0..SHARDS).for_each(|shard| group.peer(shard).pass(10));
            }
            4 if next(4) == 0 => group.mail[next(SHARDS)].clear(),
            5 if waited >= 50 && !repeated => {
                repeated = true;
                group.repeat_plain(owner);
            }
            _ => group.turn(next(SHARDS)),
        }
        group.run_applications();
    }
    group.settle();
    group.run_applications();
    group
}

/// Each cookie lets one SYN go round, and only some SYNs may at a time.
#[test]
fn few_packets_do_not_keep_all_stacks_busy() {
    let mut group = Group::new();
    let most = 1000 / (2 * SHARDS * SHARDS);
    let show = |group: &mut Group, nth| {
        let p = group.peer(0);
        p.flow(port_of(0, nth), 5000);
        p.send(seg().syn().mss(1460).cookie(&[]));
        let cookie = p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard);
        let syn = group.first_flight(1, nth, &cookie);
        group.arrives(1, &syn);
    };
    (0..2 * most).for_each(|nth| show(&mut group, nth));
    assert_eq!(group.hops, most);
    // Those beyond the limit are answered at once, and what waits ends at its owner.
    group.settle();
    assert_eq!(group.hops, most * 2 * SHARDS);
    assert_eq!(group.peer(1).sent.len(), 2 * most);
    // Later there is room again.
    (0..2).for_each(|shard| group.peer(shard).pass(20));
    let before = group.hops;
    show(&mut group, 2 * most);
    assert_eq!(group.hops, before + 1);
}

/// With many stacks a round is longer, so there are fewer of them.
#[test]
fn the_largest_group_is_not_kept_busy_either() {
    let count = ShardConfig::MOST;
    let mut p = Peer::with(|config| config.shard = ShardConfig::new(0, count, SEED));
    let listener = p.listen_with(|c| c.fast_open = Some(one_time()));
    let ports: Vec<u16> = {
        let config = ShardConfig::new(0, count, SEED).unwrap();
        (20_000..u16::MAX).filter(|port| config.owner(*port, 80) == 0).take(20).collect()
    };
    let mut rounds = 0;
    for pair in ports.chunks_exact(2) {
        p.flow(pair[0], 5000);
        p.send(seg().syn().mss(1460).cookie(&[]));
        let cookie = p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard);
        p.flow(pair[1], 77);
        p.send(first_flight(&cookie));
        rounds += usize::from(p.stack.poll_misdirected().is_some());
        p.pass(100);
    }
    // All 256 together handle 131,072 hops in 1.3 s, and not in each 10 ms.
    assert_eq!(rounds, 1);
    p.nothing_to_accept(listener);
}

/// A keep-alive that nobody knows has been at all stacks of the largest group: its count must not stay below their number.
#[test]
fn a_keep_alive_ends_its_way_at_the_last_of_256_stacks() {
    const KEEP_ALIVE: [u8; 4] = [9, 0, 0, 1];
    let mut p = Peer::with(|config| {
        config.encapsulation = Some(EncapsulationConfig::new(4433));
        config.shard = ShardConfig::new(0, ShardConfig::MOST, SEED);
    });
    let packet = p.udp((5000, 4433), &KEEP_ALIVE);
    for (count, goes_on) in [(0, true), (254, true), (255, false)] {
        p.stack.handle_misdirected(p.now, Visits { count, ..Visits::default() }, &packet);
        p.pump();
        let next = p.stack.poll_misdirected().map(|next| (next.shard, next.visits.count));
        assert_eq!(next, goes_on.then_some((1, count + 1)));
    }
    assert_eq!(p.others.len(), 1, "the last one answers");
}
