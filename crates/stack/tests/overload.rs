//! An overloaded server, or path, drops first flights as it drops everything else. The client tells that from a path that
//! drops only first flights, and goes on using them.

use crate::pair::{End, PORT, Pair, key, policy};
use firstflight_credential::{Outcome, Reason};
use firstflight_link::path::{Duplex, PathConfig};
use firstflight_stack::{ConnId, ConnectConfig, IoError, ListenerId};
use firstflight_wire::Instant;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Segment};
use std::net::SocketAddr;
use std::time::Duration;

const REQUEST: &[u8] = &[b'q'; 100];
const RESPONSE: &[u8] = &[b'a'; 300];
/// Connections a second that the server sustains, about: its work stands for a bottleneck on the way to it, and each
/// connection sends it some 400 bytes.
const SUSTAINABLE: u64 = 1000;
const BYTES: u64 = 400;

struct World {
    pair: Pair,
    listener: ListenerId,
    serving: Vec<ConnId>,
    visits: Vec<ConnId>,
}

/// What became of the connects of a phase.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    /// The memory of failures withheld the first flight.
    withheld: usize,
    accepted: usize,
    lost: usize,
}

impl World {
    /// A path of 1 ms, and a server that lets `queue` wait before it drops what comes.
    fn new(queue: Duration) -> Self {
        let mut pair =
            Pair::new(PathConfig::with_delay(Duration::from_micros(500)), 1, false, |config, _| {
                config.limits.connections = 100_000;
            });
        let rate = SUSTAINABLE * BYTES;
        let there = PathConfig::with_delay(Duration::from_micros(500))
            .rate_bits_per_s(Some(rate * 8))
            .queue_bytes((rate as f64 * queue.as_secs_f64()) as usize);
        let back = PathConfig::with_delay(Duration::from_micros(500));
        pair.wire = Duplex::new(there, back, 1).unwrap();
        let listener = pair.listen_with(|config| {
            config.local = SocketAddr::from(([0, 0, 0, 0], PORT));
            config.fast_open = Some(policy(key(1), 100_000));
            config.backlog = 100_000;
        });
        let mut world = Self { pair, listener, serving: Vec::new(), visits: Vec::new() };
        for _ in 0..20 {
            world.phase(1, 1);
        }
        world
    }

    /// Connects `count` times, evenly over `count / per_s` seconds, and lets each visit end for itself.
    fn phase(&mut self, count: usize, per_s: u64) -> Count {
        let mut total = Count::default();
        let gap = Duration::from_nanos(1_000_000_000 / per_s);
        let began = self.pair.now;
        for n in 0..count {
            let at = began + gap * n as u32;
            self.until(at, &mut total);
            let remote = self.pair.server_addr();
            let config = ConnectConfig::default().fast_open(true);
            let (id, _) = self.pair.client.connect(remote, REQUEST, &config, at).unwrap();
            self.visits.push(id);
        }
        self.until(began + gap * count as u32, &mut total);
        total
    }

    fn until(&mut self, end: Instant, total: &mut Count) {
        loop {
            self.pair.flush();
            self.turn(total);
            self.pair.flush();
            match self.pair.next() {
                Some(next) if next <= end => self.pair.advance(next.max(self.pair.now)),
                _ => return self.pair.advance(end),
            }
        }
    }

    fn turn(&mut self, total: &mut Count) {
        let Self { pair, listener, serving, visits } = self;
        let now = pair.now;
        serving.extend(std::iter::from_fn(|| pair.server.accept(*listener)));
        let mut bytes = [0; 512];
        serving.retain(|id| match pair.server.read(*id, &mut bytes, now) {
            Ok(1..) => {
                pair.server.write(*id, RESPONSE, now).unwrap();
                pair.server.shutdown(*id, now).unwrap();
                pair.server.release(*id, now);
                false
            }
            Err(IoError::WouldBlock) => true,
            _ => {
                pair.server.release(*id, now);
                false
            }
        });
        visits.retain(|id| {
            let Some(info) = pair.client.info(*id) else { return false };
            if let Ok(1..) = pair.client.read(*id, &mut bytes, now) {
                match info.outcome {
                    Outcome::Accepted => total.accepted += 1,
                    Outcome::Handshake(Reason::FailureMemory) => total.withheld += 1,
                    Outcome::Handshake(Reason::SynTimedOut) => total.lost += 1,
                    _ => {}
                }
                pair.client.release(*id, now);
                return false;
            }
            true
        });
    }
}

/// Drops SYNs with data, as some middleboxes do.
fn drop_data_in_syns(end: End, packet: &mut [u8]) -> bool {
    let ip = Packet::parse(packet).unwrap();
    let segment = Segment::parse_checked(ip.payload, ip.src, ip.dst).unwrap();
    end == End::Server || !segment.flags.contains(Flags::SYN) || segment.payload.is_empty()
}

#[test]
fn an_overloaded_server_is_no_bad_path() {
    for queue in [5, 40, 200] {
        let mut world = World::new(Duration::from_millis(queue));
        let before = world.phase(500, SUSTAINABLE / 2);
        let over = world.phase(4000, SUSTAINABLE * 2);
        let after = world.phase(1000, SUSTAINABLE / 2);
        println!("queue {queue} ms: before {before:?}, at twice the rate {over:?}, after {after:?}");
        assert_eq!(before.accepted, 500);
        assert!(over.lost > 100, "the server is not overloaded");
        assert_eq!(over.withheld + after.withheld, 0, "taken for a path that drops first flights");
    }
}

#[test]
fn a_bad_path_to_an_overloaded_server_is_noticed() {
    let mut world = World::new(Duration::from_millis(40));
    world.pair.middlebox = Some(Box::new(drop_data_in_syns));
    let over = world.phase(4000, SUSTAINABLE * 2);
    assert!(over.lost < 1000 && over.withheld > 500, "{over:?}");
    assert_eq!(over.accepted, 0);
}

/// The client makes one visit at a time, and others load the server. Its plain SYN waits as long as its first one did,
/// so the loss of the first one shows nothing.
#[test]
fn a_plain_syn_that_is_as_slow_clears_the_first_flight() {
    let queue = Duration::from_millis(80);
    let mut world = World::new(queue);
    let noise = [0; 40];
    // More than the queue holds.
    for _ in 0..SUSTAINABLE * BYTES {
        world.pair.wire.a_to_b.send(world.pair.now, &noise);
    }
    let mut lost = world.phase(1, 1000);
    // The plain SYN leaves 50 ms after the first one. Until then, half of the queue was emptied; it fills again.
    world.until(world.pair.now + Duration::from_millis(48), &mut lost);
    for _ in 0..SUSTAINABLE * BYTES / 40 / 20 {
        world.pair.wire.a_to_b.send(world.pair.now, &noise);
    }
    world.until(world.pair.now + Duration::from_secs(3), &mut lost);
    assert_eq!((lost.lost, lost.accepted), (1, 0), "{lost:?}");
    let next = world.phase(1, 1);
    assert_eq!((next.withheld, next.accepted), (0, 1), "{next:?}");
}

#[test]
fn lost_first_flights_and_quick_plain_syns_are_a_failure() {
    let mut world = World::new(Duration::from_millis(80));
    let mut left = 4;
    world.pair.middlebox = Some(Box::new(move |end, packet| {
        let passes = left == 0 || drop_data_in_syns(end, packet);
        left -= u32::from(!passes);
        passes
    }));
    for _ in 0..4 {
        let mut lost = world.phase(1, 1);
        world.until(world.pair.now + Duration::from_secs(3), &mut lost);
        assert_eq!(lost.lost, 1, "{lost:?}");
    }
    assert_eq!(world.phase(1, 1).withheld, 1);
}
