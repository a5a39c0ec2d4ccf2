//! First flights longer than one datagram, in UDP: two stacks, virtual time.

use crate::certified::{certificate, certified, policy};
use crate::pair::{End, Pair, key};
use firstflight_credential::{Outcome, Reason};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, ConnectConfig, EncapsulationConfig, ListenerId};
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::udp::Datagram;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const SERVER: u16 = 4433;
const DELAY: Duration = Duration::from_millis(50);
/// A ClientHello with a post-quantum key share.
const HELLO: usize = 1900;
/// The part of it that rides in the SYN, after a block: a datagram of 1,200 bytes has room for this.
const RIDES: usize = 940;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Certificate,
    Cookie,
}

fn pair(path: PathConfig, seed: u64, v6: bool) -> (Pair, ListenerId) {
    let mut pair = Pair::new(path, seed, v6, |config, end| {
        config.tcp.set_nodelay(true);
        config.encapsulation = Some(EncapsulationConfig::new(if end == End::Client { 5000 } else { SERVER }));
    });
    pair.keep_log = true;
    pair.encapsulation = Some(SERVER);
    let listener = pair.listen_with(|config| {
        config.asap = Some(policy(&[1]));
        config.fast_open = Some(crate::pair::policy(key(1), 16));
    });
    (pair, listener)
}

fn stream(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Connects with `data`, which may run twice, and a certificate.
fn visit(p: &mut Pair, data: &[u8]) -> ConnId {
    let address = p.client.config().addresses[0];
    let asap = Some(certified(certificate(1, 2, address), p.now));
    let config = ConnectConfig::default().asap(asap).replay_safe(true).encapsulation(p.encapsulation);
    p.client.connect(p.server_addr(), data, &config, p.now).unwrap().0
}

/// Like `visit`, with a cookie, which is fetched first.
fn visit_by_cookie(p: &mut Pair, listener: ListenerId, data: &[u8]) -> ConnId {
    let fetch = p.connect(b"", true);
    p.idle(Duration::from_secs(5));
    // On a lossy path, there may be neither a child nor a cookie.
    while let Some(child) = p.server.accept(listener) {
        p.server.release(child, p.now);
    }
    p.client.abort(fetch, p.now);
    p.client.release(fetch, p.now);
    p.idle(Duration::from_secs(1));
    p.log.clear();
    let config = ConnectConfig::default().fast_open(true).replay_safe(true).encapsulation(p.encapsulation);
    p.client.connect(p.server_addr(), data, &config, p.now).unwrap().0
}

/// Reads the whole request and answers it. Returns when the request and the answer's first byte arrived.
fn serve(p: &mut Pair, listener: ListenerId, id: ConnId, data: &[u8]) -> (ConnId, Duration, Duration) {
    let began = p.now;
    let child = p.accept(listener);
    let mut got = Vec::new();
    p.run(Duration::from_secs(60), |p| {
        got.extend(p.server_reads(child));
        got.len() >= data.len()
    });
    assert!(got == data, "the request is another one");
    let there = p.now - began;
    p.server.write(child, b"answer", p.now).unwrap();
    let mut answer = Vec::new();
    p.run(Duration::from_secs(60), |p| {
        answer.extend(p.client_reads(id));
        answer.len() >= 6
    });
    assert_eq!(answer, b"answer");
    let back = p.now - began;
    // Everything was acknowledged, and nothing comes a second time.
    p.run(Duration::from_secs(60), |p| p.client.info(id).unwrap().totals.bytes_acked == data.len() as u64);
    assert!(p.server_reads(child).is_empty());
    assert!(p.server.accept(listener).is_none());
    (child, there, back)
}

/// The payload length of a packet that follows a SYN; `None` for other packets.
fn follower(packet: &[u8]) -> Option<usize> {
    let ip = Packet::parse(packet).unwrap();
    let Ok(Carried::Segment(bytes)) = Carried::parse(Datagram::parse(ip.payload).ok()?.payload) else {
        return None;
    };
    let segment = Segment::parse(bytes).unwrap();
    (!segment.flags.intersects(Flags::SYN.union(Flags::ACK))).then_some(segment.payload.len())
}

fn followers(p: &Pair) -> Vec<usize> {
    p.log
        .iter()
        .filter(|(_, end, _)| *end == End::Client)
        .filter_map(|(_, _, bytes)| follower(bytes))
        .collect()
}

#[test]
fn a_client_hello_and_8_kb_are_answered_in_one_round_trip() {
    for (v6, by, len) in [
        (false, By::Certificate, HELLO),
        (true, By::Certificate, HELLO),
        (false, By::Certificate, 8192),
        (false, By::Cookie, HELLO),
        (true, By::Cookie, 8192),
    ] {
        let (mut p, listener) = pair(PathConfig::with_delay(DELAY), 1, v6);
        let data = stream(len);
        let id = match by {
            By::Certificate => visit(&mut p, &data),
            By::Cookie => visit_by_cookie(&mut p, listener, &data),
        };
        let (child, there, back) = serve(&mut p, listener, id, &data);
        assert_eq!((there, back), (DELAY, DELAY * 2), "{by:?} {len}");
        let info = p.client.info(id).unwrap();
        assert_eq!((info.outcome, info.totals.retransmits), (Outcome::Accepted, 0), "{by:?} {len}");
        assert_eq!(p.server.info(child).unwrap().totals.early as usize, len, "all of it came early");
        let rides = if by == By::Cookie { RIDES + 196 } else { RIDES };
        let sent = followers(&p);
        assert_eq!(sent.iter().sum::<usize>(), len - rides);
        assert_eq!(sent.len(), (len - rides).div_ceil(1164));
        // Every byte was sent once.
        let packets = p.log.iter().filter(|(_, end, _)| *end == End::Client).map(|(_, _, bytes)| bytes.len());
        assert!(packets.sum::<usize>() < len + 196 + 90 * (sent.len() + 12));
    }
}

#[test]
fn what_is_not_replay_safe_follows_only_if_it_runs_once() {
    for (replay_safe, once, follows) in [(true, false, true), (false, true, true), (false, false, false)] {
        let (mut p, listener) = pair(PathConfig::with_delay(DELAY), 1, false);
        let data = stream(HELLO);
        let mut asap = certified(certificate(1, 2, p.client.config().addresses[0]), p.now);
        asap.once = once;
        let config =
            ConnectConfig::default().asap(Some(asap)).replay_safe(replay_safe).encapsulation(p.encapsulation);
        let id = p.client.connect(p.server_addr(), &data, &config, p.now).unwrap().0;
        serve(&mut p, listener, id, &data);
        assert_eq!(!followers(&p).is_empty(), follows);
    }
}

#[test]
fn on_raw_ip_nothing_follows() {
    let mut p = Pair::perfect(DELAY);
    p.keep_log = true;
    let listener = p.listen_with(|config| config.asap = Some(policy(&[1])));
    let data = stream(HELLO);
    let id = visit(&mut p, &data);
    serve(&mut p, listener, id, &data);
    assert_eq!(p.client.info(id).unwrap().outcome, Outcome::Accepted);
    for (_, _, packet) in &p.log {
        let segment = Segment::parse(Packet::parse(packet).unwrap().payload).unwrap();
        assert_ne!(Flags::from_bits(segment.flags.bits() & !Flags::PSH.bits()), Flags::EMPTY);
    }
}

/// Loses the followers for which `lost` is true, by their order.
fn losing(p: &mut Pair, lost: impl Fn(usize) -> bool + 'static) -> Rc<Cell<usize>> {
    let seen = Rc::new(Cell::new(0));
    let count = Rc::clone(&seen);
    p.middlebox = Some(Box::new(move |end, packet| {
        if end == End::Server || follower(packet).is_none() {
            return true;
        }
        count.set(count.get() + 1);
        !lost(count.get() - 1)
    }));
    seen
}

#[test]
fn what_is_lost_of_it_is_sent_again() {
    // Loses the first follower, one in the middle, the last, every second one, all.
    let masks: [fn(usize) -> bool; 5] = [|i| i == 0, |i| i == 3, |i| i == 6, |i| i % 2 == 0, |_| true];
    for (i, lost) in masks.into_iter().enumerate() {
        let (mut p, listener) = pair(PathConfig::with_delay(DELAY), 1, i % 2 == 0);
        let seen = losing(&mut p, lost);
        let data = stream(8192);
        let id = visit(&mut p, &data);
        let (_, there, _) = serve(&mut p, listener, id, &data);
        assert_eq!(seen.get(), 7, "it follows once");
        let info = p.client.info(id).unwrap();
        assert_eq!(info.outcome, Outcome::Accepted);
        let again = (0..7).filter(|i| lost(*i)).count() as u32;
        assert!(
            (1..=again + 2).contains(&info.totals.retransmits),
            "{} for {again}",
            info.totals.retransmits
        );
        assert!(there > DELAY && there < Duration::from_secs(2), "{there:?}");
    }
}

#[test]
fn a_verdict_that_takes_its_time_finds_all_of_it() {
    let (mut p, listener) = pair(PathConfig::with_delay(DELAY), 1, false);
    p.verifies = false;
    let data = stream(8192);
    let id = visit(&mut p, &data);
    p.idle(DELAY + Duration::from_millis(10));
    assert_eq!(p.server.gauges().deferred, 1);
    p.verifies = true;
    p.verify();
    let (_, there, back) = serve(&mut p, listener, id, &data);
    assert_eq!((there, back), (Duration::ZERO, DELAY));
    assert_eq!(p.client.info(id).unwrap().totals.retransmits, 0);
}

#[test]
fn what_is_refused_arrives_once_by_the_handshake() {
    let (mut p, listener) = pair(PathConfig::with_delay(DELAY), 1, false);
    let data = stream(8192);
    // Nobody verifies, so the SYN waits too long.
    p.verifies = false;
    let id = visit(&mut p, &data);
    let (child, ..) = serve(&mut p, listener, id, &data);
    let info = p.client.info(id).unwrap();
    assert!(matches!(info.outcome, Outcome::Handshake(_)), "{:?}", info.outcome);
    assert_eq!(p.server.info(child).unwrap().totals.early, 0);
    // The certificate of another verifier is refused at once. The followers find an ordinary child.
    p.verifies = true;
    let address = p.client.config().addresses[0];
    let asap = Some(certified(certificate(2, 2, address), p.now));
    let config = ConnectConfig::default().asap(asap).replay_safe(true).encapsulation(p.encapsulation);
    p.log.clear();
    let id = p.client.connect(p.server_addr(), &data, &config, p.now).unwrap().0;
    let (child, there, _) = serve(&mut p, listener, id, &data);
    assert_eq!(p.client.info(id).unwrap().outcome, Outcome::Handshake(Reason::UntrustedVerifier));
    assert_eq!(p.server.info(child).unwrap().totals.early, 0);
    assert_eq!(there, DELAY * 3, "a round trip later, all at once: the window is not cut");
    assert_eq!(followers(&p).len(), 7);
}

#[test]
fn on_200_paths_that_lose_reorder_and_copy_every_byte_arrives_once() {
    let mut accepted = 0;
    for seed in 0..200 {
        println!("seed {seed}");
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: u64| dice.next_u64() % n;
        let path = PathConfig::with_delay(Duration::from_millis(1 + below(60)))
            .loss(below(150) as f64 / 1000.0)
            .reorder(below(300) as f64 / 1000.0)
            .reorder_delay(Duration::from_millis(1 + below(60)))
            .duplicate(below(200) as f64 / 1000.0);
        let (mut p, listener) = pair(path, seed, below(2) == 0);
        p.keep_log = false;
        // Sometimes nobody verifies.
        p.verifies = below(8) != 0;
        let data = stream(1000 + below(15_000) as usize);
        let id = match below(3) {
            0 => visit_by_cookie(&mut p, listener, &data),
            _ => visit(&mut p, &data),
        };
        let child = p.accept(listener);
        let mut got = Vec::new();
        p.run(Duration::from_secs(300), |p| {
            got.extend(p.server_reads(child));
            got.len() >= data.len()
        });
        // Copies that are still in flight deliver nothing.
        p.idle(Duration::from_secs(5));
        got.extend(p.server_reads(child));
        assert!(got == data && p.server.accept(listener).is_none());
        accepted += u32::from(p.client.info(id).unwrap().outcome.is_accepted());
    }
    assert!(accepted > 100, "{accepted}");
}
