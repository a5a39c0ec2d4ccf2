//! Paths on which Fast Open fails: the round trips of a visit, compared with an ordinary connection (the Fast Open
//! paper §4.1). `cargo test -p firstflight-stack --test stack blackholes -- --nocapture` prints them.

use crate::pair::{End, Middlebox, PORT, Pair, key, policy};
use firstflight_credential::{Outcome, Reason};
use firstflight_link::path::PathConfig;
use firstflight_stack::{CloseReason, ConnId, ConnectConfig, ListenerId};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{FastOpen, Flags, Segment, fill_checksum};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const RTT: Duration = Duration::from_millis(100);
const REQUEST: &[u8] = b"GET / HTTP/1.0";
const RESPONSE: &[u8] = b"HTTP/1.0 200 OK";
/// Round trips to the first byte of the response over an ordinary connection, and with Fast Open.
const ORDINARY: f64 = 2.0;
const FAST: f64 = 1.0;

fn bad() -> IpAddr {
    "10.0.0.2".parse().unwrap()
}

fn good() -> IpAddr {
    "10.0.0.3".parse().unwrap()
}

/// A client and a server with two addresses; the path to one of them goes through a middlebox.
struct World {
    pair: Pair,
    listener: ListenerId,
    serving: Vec<ConnId>,
}

/// The result of a visit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Visit {
    /// Round trips until the first byte of the response.
    rtts: f64,
    outcome: Outcome,
    syns: u8,
}

impl World {
    /// Both servers were visited often enough that their round-trip times are known well.
    fn known() -> Self {
        let mut world = Self::new();
        for server in [bad(), good()] {
            for _ in 0..8 {
                world.visit(server, fast());
            }
            assert_eq!(world.visit(server, fast()).rtts, FAST);
            assert_eq!(world.visit(server, ordinary()).rtts, ORDINARY);
        }
        world
    }

    /// Round-trip times and cookies are known; no first flight was sent to the bad server.
    fn asked() -> Self {
        let mut world = Self::new();
        for _ in 0..8 {
            world.visit(bad(), ordinary());
            world.visit(good(), fast());
        }
        assert_eq!(world.visit(bad(), fast()).outcome, Outcome::Handshake(Reason::NoCredential));
        world
    }

    fn new() -> Self {
        let mut pair = Pair::new(PathConfig::with_delay(RTT / 2), 1, false, |config, end| {
            if end == End::Server {
                config.addresses.push(good());
            }
        });
        let listener = pair.listen_with(|config| {
            config.local = SocketAddr::from(([0, 0, 0, 0], PORT));
            config.fast_open = Some(policy(key(1), 16));
        });
        Self { pair, listener, serving: Vec::new() }
    }

    fn through(mut self, middlebox: Middlebox) -> Self {
        self.pair.middlebox = Some(middlebox);
        self
    }

    /// The server answers every request. It serves each connection once.
    fn serve(&mut self) {
        self.serving.extend(std::iter::from_fn(|| self.pair.server.accept(self.listener)));
        let now = self.pair.now;
        let pair = &mut self.pair;
        self.serving.retain(|id| {
            let mut request = [0; 64];
            match pair.server.read(*id, &mut request, now) {
                Ok(0) => pair.server.release(*id, now),
                Ok(n) => {
                    assert_eq!(&request[..n], REQUEST);
                    pair.server.write(*id, RESPONSE, now).unwrap();
                }
                Err(firstflight_stack::IoError::WouldBlock) => {}
                Err(_) => pair.server.release(*id, now),
            }
            pair.server.info(*id).is_some()
        });
    }

    /// Fetches once. The connection is closed in order, whatever happens to the packets.
    fn visit(&mut self, server: IpAddr, config: ConnectConfig) -> Visit {
        self.try_visit(server, config, Duration::from_secs(60)).expect("no response")
    }

    /// Like `visit`, but returns `None` after `patience`.
    fn try_visit(&mut self, server: IpAddr, config: ConnectConfig, patience: Duration) -> Option<Visit> {
        let began = self.pair.now;
        let remote = SocketAddr::new(server, PORT);
        let (id, taken) = self.pair.client.connect(remote, REQUEST, &config, began).unwrap();
        assert_eq!(taken, REQUEST.len());
        let mut response = Vec::new();
        let mut first = None;
        while response.len() < RESPONSE.len() && self.pair.now - began < patience {
            self.pair.flush();
            self.serve();
            self.pair.flush();
            response.extend(self.pair.client_reads(id));
            first = first.or((!response.is_empty()).then_some(self.pair.now));
            let next = self.pair.next().unwrap_or(began + patience).max(self.pair.now);
            self.pair.advance(next.min(began + patience));
        }
        let info = self.pair.client.info(id).unwrap();
        let now = self.pair.now;
        self.pair.client.release(id, now);
        self.pair.idle(RTT);
        self.serve();
        self.pair.idle(RTT * 5);
        assert!(response.is_empty() || response == RESPONSE);
        // Timers have a granularity, so the measurement is rounded to a tenth of a round trip.
        let rtts = |at| ((at - began) as Duration).as_secs_f64() / RTT.as_secs_f64();
        let round = |rtts: f64| (rtts * 10.0).round() / 10.0;
        first.map(|at| Visit {
            rtts: round(rtts(at)),
            outcome: info.outcome,
            syns: info.handshake_retransmits,
        })
    }

    /// Three visits to the bad server. Visits to the good server still use Fast Open after each.
    fn three_visits(&mut self, name: &str, config: &ConnectConfig) -> [Visit; 3] {
        let visits = [(); 3].map(|()| {
            let visit = self.visit(bad(), config.clone());
            let other = self.visit(good(), config.clone());
            assert_eq!((other.outcome, other.rtts), (Outcome::Accepted, FAST), "the other server");
            visit
        });
        let figures = visits.map(|v| format!("{:.1}", v.rtts)).join(", ");
        println!("{name}: first byte after {figures} RTT; ordinary {ORDINARY:.1}, Fast Open {FAST:.1}");
        visits
    }
}

fn ordinary() -> ConnectConfig {
    ConnectConfig::default()
}

fn fast() -> ConnectConfig {
    ConnectConfig::default().fast_open(true)
}

fn replay_safe() -> ConnectConfig {
    fast().replay_safe(true)
}

/// What a middlebox on the bad server's path sees in a packet.
struct Seen {
    from: End,
    flags: Flags,
    option: Option<FastOpen>,
    data: usize,
    /// The client's port.
    port: u16,
}

/// A middlebox that decides by what it sees in a segment. The other server's path has none.
fn middlebox(mut passes: impl FnMut(&Seen) -> bool + 'static) -> Middlebox {
    Box::new(move |from, packet| {
        let ip = Packet::parse(packet).unwrap();
        if ip.src != bad() && ip.dst != bad() {
            return true;
        }
        let segment = Segment::parse_checked(ip.payload, ip.src, ip.dst).unwrap();
        passes(&Seen {
            from,
            flags: segment.flags,
            option: segment.options.fast_open(),
            data: segment.payload.len(),
            port: if from == End::Client { segment.src_port } else { segment.dst_port },
        })
    })
}

#[test]
fn a_path_that_drops_syns_with_data() {
    let mut world =
        World::known().through(middlebox(|seen| !(seen.flags.contains(Flags::SYN) && seen.data > 0)));
    let visits = world.three_visits("SYNs with data dropped", &fast());
    assert!(visits[0].rtts <= ORDINARY + 1.5);
    assert_eq!((visits[0].outcome, visits[0].syns), (Outcome::Handshake(Reason::SynTimedOut), 1));
    // A plain SYN directly follows the next ones, so that they cost nothing. After four in a row they are plain.
    let lost = (ORDINARY, Outcome::Handshake(Reason::SynTimedOut));
    let mut next = || world.visit(bad(), fast());
    let more = [visits[1], visits[2], next()].map(|v| (v.rtts, v.outcome));
    assert_eq!(more, [lost; 3]);
    let fifth = next();
    assert_eq!((fifth.rtts, fifth.outcome), (ORDINARY, Outcome::Handshake(Reason::FailureMemory)));
}

/// Links lose packets by chance. The visit after a lost SYN has its round trip again.
#[test]
fn one_lost_syn_does_not_stop_fast_open() {
    for lost in [End::Client, End::Server] {
        let mut left = 1;
        let mut world = World::known().through(middlebox(move |seen| {
            let takes = left > 0 && seen.from == lost && seen.flags.contains(Flags::SYN);
            left -= i32::from(takes);
            !takes
        }));
        let visits = world.three_visits(&format!("one SYN of the {lost:?} lost"), &fast());
        assert!(visits[0].rtts <= ORDINARY + 1.5);
        assert_eq!(visits[1..].iter().map(|v| v.rtts).collect::<Vec<_>>(), [FAST; 2], "{lost:?}");
        assert!(visits[1..].iter().all(|v| v.outcome == Outcome::Accepted), "{lost:?}");
    }
}

#[test]
fn a_path_that_drops_syns_with_the_option() {
    let drops = || middlebox(|seen| !(seen.flags.contains(Flags::SYN) && seen.option.is_some()));
    let mut world = World::known().through(drops());
    let visits = world.three_visits("SYNs with the option dropped", &fast());
    assert!(visits[0].rtts <= ORDINARY + 1.5);
    assert_eq!([visits[1].rtts, visits[2].rtts], [ORDINARY; 2]);
    // Without a round-trip time, the first cookie request costs the initial timeout of RFC 6298, 1 s.
    let mut unknown = World::new().through(drops());
    unknown.visit(good(), fast());
    let visits = unknown.three_visits("the same, nothing known of the server", &fast());
    assert_eq!(visits.map(|v| v.rtts), [ORDINARY + 10.0, ORDINARY, ORDINARY]);
}

fn strips_the_option() -> Middlebox {
    Box::new(|_, packet| {
        let ip = Packet::parse(packet).unwrap();
        let (src, dst, at) = (ip.src, ip.dst, packet.len() - ip.payload.len());
        let flags = Segment::parse_checked(ip.payload, src, dst).unwrap().flags;
        if (src == bad() || dst == bad()) && flags.contains(Flags::SYN) {
            let tcp = &mut packet[at..];
            let end = usize::from(tcp[12] >> 4) * 4;
            let mut option = 20;
            while option < end && tcp[option] != 0 {
                let len = if tcp[option] == 1 { 1 } else { usize::from(tcp[option + 1]) };
                if tcp[option] == 34 {
                    tcp[option..option + len].fill(1);
                }
                option += len;
            }
            tcp[16..18].fill(0);
            fill_checksum(tcp, src, dst);
        }
        true
    })
}

#[test]
fn a_path_that_strips_the_option() {
    let mut world = World::known().through(strips_the_option());
    let visits = world.three_visits("the option stripped", &fast());
    assert_eq!(visits.map(|v| v.rtts), [ORDINARY; 3]);
    assert!(visits.iter().all(|v| v.outcome == Outcome::Handshake(Reason::DataNotAcknowledged)));
}

/// A box on the way acknowledges the data of a SYN and loses it: the server gets no option, so it takes no data.
fn acknowledges_and_loses() -> Middlebox {
    let mut strip = strips_the_option();
    let mut lost = BTreeMap::new();
    Box::new(move |from, packet| {
        let ip = Packet::parse(packet).unwrap();
        let (src, dst, at) = (ip.src, ip.dst, packet.len() - ip.payload.len());
        let segment = Segment::parse_checked(ip.payload, src, dst).unwrap();
        let (client, flags, ack) = (src != bad() && dst == bad(), segment.flags, segment.ack);
        if from == End::Client {
            if client && flags.contains(Flags::SYN) {
                let before = lost.entry(segment.src_port).or_insert(0);
                *before = segment.payload.len().max(*before);
            }
            return strip(from, packet);
        }
        let lost = lost.get(&segment.dst_port).copied().unwrap_or(0);
        if src == bad() && flags.contains(Flags::SYN) {
            let tcp = &mut packet[at..];
            tcp[8..12].copy_from_slice(&(ack + lost as u32).get().to_be_bytes());
            tcp[16..18].fill(0);
            fill_checksum(tcp, src, dst);
        }
        true
    })
}

/// The server waits for the request and answers no probe. On a path that is new to first flights that is noticed at once. It
/// is remembered.
#[test]
fn a_box_that_acknowledges_data_and_loses_it() {
    for (world, most) in [(World::asked(), ORDINARY + 1.5), (World::known(), FAST + 15.0 + ORDINARY)] {
        let mut world = world.through(acknowledges_and_loses());
        let visits = world.three_visits("data acknowledged by a box and lost, replay-safe", &replay_safe());
        assert!(visits[0].rtts <= most, "{visits:?}");
        assert_eq!(visits[0].outcome, Outcome::Handshake(Reason::Unknown));
        assert_eq!([visits[1].rtts, visits[2].rtts], [ORDINARY; 2]);
        assert_eq!(visits[1].outcome, Outcome::Handshake(Reason::FailureMemory));
    }
}

/// The path drops everything that carries data on a connection that was opened with data in the SYN.
fn swallows_what_follows() -> Middlebox {
    let mut fast = BTreeSet::new();
    middlebox(move |seen| {
        if seen.from == End::Client && seen.flags.contains(Flags::SYN) {
            if seen.data > 0 && seen.option.is_some() {
                fast.insert(seen.port);
            }
            return true;
        }
        !(fast.contains(&seen.port) && seen.data > 0)
    })
}

#[test]
fn a_path_that_swallows_the_connection_behind_the_syn() {
    let mut world = World::known().through(swallows_what_follows());
    let visits = world.three_visits("data behind the SYN dropped, replay-safe", &replay_safe());
    // Two checks of the silent connection, 0.5 s each, then an ordinary connection from another port.
    assert_eq!(visits[0].rtts, FAST + 10.0 + ORDINARY);
    assert_eq!(visits[0].outcome, Outcome::Handshake(Reason::Unknown));
    assert_eq!([visits[1].rtts, visits[2].rtts], [ORDINARY; 2]);
}

/// The same path at the first use of Fast Open: the round-trip time and a cookie are known, but not what the path
/// does after a SYN with data.
#[test]
fn a_path_that_always_swallowed_the_connection_behind_the_syn() {
    let mut world = World::asked().through(swallows_what_follows());
    let visits =
        world.three_visits("data behind the SYN dropped from the first, replay-safe", &replay_safe());
    assert!(visits[0].rtts <= ORDINARY + 1.5, "{visits:?}");
    assert_eq!(visits[0].outcome, Outcome::Handshake(Reason::Unknown));
    assert_eq!([visits[1].rtts, visits[2].rtts], [ORDINARY; 2]);
}

/// If the request must not be sent twice, the first visit fails when the application gives it up. It is the only
/// visit that fails.
#[test]
fn without_leave_the_swallowed_visit_fails_once() {
    let mut world = World::known().through(swallows_what_follows());
    assert_eq!(world.try_visit(bad(), fast(), Duration::from_secs(10)), None);
    let visits = world.three_visits("data behind the SYN dropped, given up after 10 s, then", &fast());
    assert_eq!(visits.map(|v| v.rtts), [ORDINARY; 3]);
}

/// How a server ends a connection.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Fin,
    Rst,
}

/// The path drops the response but passes the FIN or RST that the server sends after it, which shows that data was
/// lost. The first visit gets nothing; the next ones are ordinary.
#[test]
fn a_path_that_swallows_the_response_but_not_the_end_behind_it() {
    for ending in [Ending::Fin, Ending::Rst] {
        let mut world = World::known().through(swallows_what_follows());
        let (now, remote) = (world.pair.now, SocketAddr::new(bad(), PORT));
        let (id, _) = world.pair.client.connect(remote, REQUEST, &fast(), now).unwrap();
        let serving = world.pair.accept(world.listener);
        assert_eq!(world.pair.server_reads(serving), REQUEST);
        let now = world.pair.now;
        world.pair.server.write(serving, RESPONSE, now).unwrap();
        world.pair.flush();
        if matches!(ending, Ending::Rst) {
            world.pair.server.abort(serving, now);
        }
        world.pair.server.release(serving, now);
        // This is too early for a probe of a silent connection.
        world.pair.idle(RTT * 3);
        assert_eq!(world.pair.client_reads(id), b"");
        let reset = world.pair.client.close_reason(id) == Some(CloseReason::Reset);
        assert_eq!(reset, matches!(ending, Ending::Rst), "the client learns of the RST, and of nothing else");
        let now = world.pair.now;
        world.pair.client.release(id, now);
        world.pair.flush();
        let visits = world.three_visits(&format!("data behind the SYN dropped, not the {ending:?}"), &fast());
        assert_eq!(visits.map(|v| v.rtts), [ORDINARY; 3], "{ending:?}");
        assert_eq!(visits[0].outcome, Outcome::Handshake(Reason::FailureMemory), "{ending:?}");
    }
}

/// A path that blackholes the four-tuple once it has seen a SYN with data: step 3 of the fallback sequence.
#[test]
fn a_path_that_bans_the_four_tuple() {
    let mut banned = BTreeSet::new();
    let mut world = World::known().through(middlebox(move |seen| {
        if seen.flags.contains(Flags::SYN) && seen.data > 0 {
            banned.insert(seen.port);
        }
        !banned.contains(&seen.port)
    }));
    let visits = world.three_visits("four-tuple of a SYN with data banned, replay-safe", &replay_safe());
    // The SYN from another port is sent at twice 1.5 round trips.
    assert_eq!(visits.map(|v| v.rtts), [ORDINARY + 3.0, ORDINARY, ORDINARY]);
    assert_eq!((visits[0].outcome, visits[0].syns), (Outcome::Handshake(Reason::SynTimedOut), 2));
}

/// The path gets better: Fast Open is used again after the pause.
#[test]
fn a_mended_path_is_used_again() {
    let mut world =
        World::known().through(middlebox(|seen| !(seen.flags.contains(Flags::SYN) && seen.data > 0)));
    (0..4).for_each(|_| {
        assert_eq!(world.visit(bad(), fast()).outcome, Outcome::Handshake(Reason::SynTimedOut))
    });
    world.pair.middlebox = None;
    assert_eq!(world.visit(bad(), fast()).rtts, ORDINARY);
    world.pair.idle(Duration::from_secs(60));
    assert_eq!(world.visit(bad(), fast()).rtts, FAST);
}

/// Whatever is lost, the response arrives complete and once, and no state of either attempt is left.
#[test]
fn random_losses_leave_nothing_behind() {
    let mut raced = 0;
    for seed in 1..=200u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut world = World::known().through(middlebox(move |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % 100 >= 35
        }));
        let visit = world.try_visit(bad(), replay_safe(), Duration::from_secs(1_000));
        assert!(visit.is_some(), "seed {seed}");
        raced += world.pair.client.counters().second_attempts;
        world.pair.idle(Duration::from_secs(3_000));
        world.serve();
        let client = &world.pair.client;
        assert_eq!((client.connections(), client.time_waits()), (0, 0), "seed {seed}");
        assert_eq!((client.buffer_bytes(), client.poll_timeout()), (0, None), "seed {seed}");
    }
    println!("random losses: {raced} second attempts in 200 visits");
    assert!(raced > 20, "the third step was not reached often enough to mean anything");
}
