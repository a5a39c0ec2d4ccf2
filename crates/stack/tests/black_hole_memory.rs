//! A path that drops large packets without an ICMP message: the segment size that passes is found once (RFC 4821), and
//! remembered.

use crate::pair::{End, Pair, key, policy};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, ConnectConfig, ListenerId};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::Segment;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);
/// The largest packet that passes.
const NARROW: usize = 1_200;
const UPLOAD: usize = 20_000;

fn narrow(mtu: usize) -> Pair {
    let mut p = Pair::new(PathConfig::with_delay(DELAY), 1, false, |_, _| {});
    p.keep_log = true;
    p.middlebox = Some(Box::new(move |_, packet| packet.len() <= mtu));
    p
}

/// Uploads and closes. Returns the time that it took.
fn upload(p: &mut Pair, listener: ListenerId) -> Duration {
    p.log.clear();
    let begun = p.now;
    let id = p.connect(&[7; UPLOAD], false);
    let child = p.accept(listener);
    let mut got = 0;
    p.run(Duration::from_secs(60), |p| {
        got += p.server_reads(child).len();
        got == UPLOAD
    });
    let took = p.now - begun;
    let close = |stack: &mut firstflight_stack::Stack, id: ConnId, now| {
        stack.shutdown(id, now).unwrap();
        stack.release(id, now);
    };
    close(&mut p.client, id, p.now);
    close(&mut p.server, child, p.now);
    p.idle(Duration::from_secs(1));
    took
}

/// A request of two segments with a cookie, and how long it takes until the server has it.
fn request(p: &mut Pair, listener: ListenerId) -> Duration {
    const REQUEST: usize = 2_000;
    p.log.clear();
    let begun = p.now;
    let config = ConnectConfig::default().fast_open(true).replay_safe(true);
    let (id, _) = p.client.connect(p.server_addr(), &[7; REQUEST], &config, p.now).unwrap();
    let mut children: Vec<(ConnId, usize)> = Vec::new();
    p.run(Duration::from_secs(60), |p| {
        children.extend(std::iter::from_fn(|| p.server.accept(listener)).map(|child| (child, 0)));
        let mut answered = false;
        for (child, got) in &mut children {
            *got += p.server_reads(*child).len();
            answered |= *got == REQUEST;
        }
        answered
    });
    let took = p.now - begun;
    for (child, _) in children {
        p.server.write(child, b"answer", p.now).unwrap();
        p.server.shutdown(child, p.now).unwrap();
        p.server.release(child, p.now);
    }
    p.idle(Duration::from_millis(100));
    p.client.shutdown(id, p.now).unwrap();
    p.client.release(id, p.now);
    took
}

/// The largest segments that the client sent, bytes of payload.
fn largest(p: &Pair) -> usize {
    let sent = p.log.iter().filter(|(_, from, _)| *from == End::Client);
    let payload =
        |packet: &[u8]| Segment::parse(Packet::parse(packet).unwrap().payload).unwrap().payload.len();
    sent.map(|(_, _, packet)| payload(packet)).max().unwrap()
}

/// The second attempt does not repeat the timeouts of the first one.
#[test]
fn a_second_attempt_uses_small_segments_where_large_ones_vanish() {
    let mut p = narrow(usize::MAX);
    let listener = p.listen(Some(policy(key(1), 16)));
    for _ in 0..4 {
        request(&mut p, listener);
        p.idle(Duration::from_secs(1));
    }
    p.middlebox = Some(Box::new(|_, packet| packet.len() <= NARROW));
    let first = request(&mut p, listener);
    assert!(first < Duration::from_millis(1_600), "{first:?}");
    // The next request may follow at once.
    let second = request(&mut p, listener);
    assert!(largest(&p) <= 1_024, "{}", largest(&p));
    assert!(second < DELAY * 6, "{second:?}");
}

/// A plain connection that still closes in the background has reported what it knows.
#[test]
fn the_next_connect_knows_the_round_trip_time_of_a_released_connection() {
    let mut p = narrow(usize::MAX);
    let listener = p.listen(Some(policy(key(1), 16)));
    let id = p.connect(b"x", false);
    p.accept(listener);
    p.client.shutdown(id, p.now).unwrap();
    p.client.release(id, p.now);
    p.middlebox =
        Some(Box::new(|_, packet| Segment::parse(&packet[20..]).unwrap().options.fast_open().is_none()));
    let begun = p.now;
    let id = p.connect(b"", true);
    p.connected(id);
    assert!(p.now - begun < Duration::from_millis(300), "{:?}", p.now - begun);
}

#[test]
fn a_segment_size_found_in_a_black_hole_is_remembered() {
    let mut p = narrow(NARROW);
    let listener = p.listen(None);
    let first = upload(&mut p, listener);
    assert!(largest(&p) > NARROW, "{}", largest(&p));
    assert!(first > Duration::from_secs(1), "{first:?}");
    let second = upload(&mut p, listener);
    assert!(largest(&p) <= 1_024, "{}", largest(&p));
    assert!(second < DELAY * 10, "{second:?}");
    // Ten minutes later the path may have changed.
    p.idle(Duration::from_secs(600));
    upload(&mut p, listener);
    assert!(largest(&p) > NARROW, "{}", largest(&p));
}

/// A path that recovers gets larger segments within the connection, and nothing is remembered.
#[test]
fn a_path_that_was_only_dead_for_a_while_is_not_remembered_as_narrow() {
    let mut p = narrow(usize::MAX);
    let listener = p.listen(None);
    let id = p.connect(b"", false);
    let child = p.accept(listener);
    p.middlebox = Some(Box::new(|_, _| false));
    let now = p.now;
    p.client.write(id, &[7; 5_000], now).unwrap();
    p.idle(Duration::from_secs(10));
    p.middlebox = None;
    p.idle(Duration::from_secs(30));
    assert_eq!(p.server_reads(child).len(), 5_000);
    for _ in 0..2 {
        let now = p.now;
        p.client.write(id, &[7; UPLOAD], now).unwrap();
        p.idle(Duration::from_secs(2));
        assert_eq!(p.server_reads(child).len(), UPLOAD);
    }
    assert!(largest(&p) > NARROW, "{}", largest(&p));
    let now = p.now;
    p.client.shutdown(id, now).unwrap();
    p.server.shutdown(child, now).unwrap();
    p.client.release(id, now);
    p.server.release(child, now);
    p.idle(Duration::from_secs(1));
    upload(&mut p, listener);
    assert!(largest(&p) > NARROW, "{}", largest(&p));
}
