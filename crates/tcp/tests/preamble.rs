//! A preamble in front of the data in a SYN uses sequence numbers, but is not part of the stream. This crate
//! knows no credentials: the layer above says what the preamble is and whether it was accepted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use firstflight_tcp::{ChildPlan, Config, Connection, Disposition, Pool, Resolution, SynPlan};
use firstflight_wire::tcp::{Flags, OptionBytes, Segment};
use firstflight_wire::{Instant, SeqNum};
use std::sync::Arc;

use crate::common::{ends, ms};

const PREAMBLE: &[u8] = b"credential";
const DATA: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
const OPTION: &[u8] = &[253, 8, 0xfa, 0x57, 0x11, 0, 0, 10];

fn client(pool: &mut Pool) -> Connection {
    let plan = SynPlan {
        options: OptionBytes::new(OPTION).unwrap(),
        preamble: PREAMBLE.to_vec(),
        data_limit: 1000,
        ..SynPlan::default()
    };
    let (conn, taken) =
        Connection::connect(Arc::new(Config::default()), ends(40_000, 80, 1000), plan, DATA, pool, ms(0));
    assert_eq!(taken, DATA.len());
    conn
}

fn sent(conn: &mut Connection, now: Instant) -> Vec<u8> {
    let mut out = vec![0; 2000];
    let len = conn.poll_transmit(now, &mut out, &mut Pool::new(0)).expect("something to send");
    out.truncate(len);
    out
}

fn server(pool: &mut Pool, syn: &Segment<'_>, plan: &ChildPlan) -> Connection {
    Connection::accept(Arc::new(Config::default()), ends(80, 40_000, 9000), syn, plan, pool, ms(10))
}

fn read(conn: &mut Connection, pool: &mut Pool) -> Vec<u8> {
    let mut buf = [0; 200];
    let n = conn.read(pool, &mut buf).unwrap_or(0);
    buf[..n].to_vec()
}

#[test]
fn the_syn_carries_options_preamble_and_data() {
    let pool = &mut Pool::new(1 << 20);
    let syn = sent(&mut client(pool), ms(0));
    let syn = Segment::parse(&syn).unwrap();
    assert_eq!(syn.flags, Flags::SYN);
    assert_eq!(syn.payload, [PREAMBLE, DATA].concat());
    assert!(syn.options.raw.windows(OPTION.len()).any(|w| w == OPTION));
}

#[test]
fn an_accepted_preamble_is_skipped_by_both_ends() {
    let pool = &mut Pool::new(1 << 20);
    let mut a = client(pool);
    let bytes = sent(&mut a, ms(0));
    let syn = Segment::parse(&bytes).unwrap();
    let plan = ChildPlan {
        early: true,
        skip: PREAMBLE.len() as u32,
        options: OptionBytes::new(OPTION).unwrap(),
        ..ChildPlan::default()
    };
    let mut b = server(pool, &syn, &plan);
    assert_eq!(read(&mut b, pool), DATA);
    assert_eq!(b.totals().early as usize, DATA.len());
    // The reply option is on every SYN-ACK, including retransmissions.
    let first = sent(&mut b, ms(10));
    b.handle_timeout(ms(1100), pool);
    let again = sent(&mut b, ms(1100));
    for bytes in [&first, &again] {
        let segment = Segment::parse(bytes).unwrap();
        assert!(segment.flags.contains(Flags::SYN.union(Flags::ACK)));
        assert_eq!(segment.ack, SeqNum::new(1001 + (PREAMBLE.len() + DATA.len()) as u32));
        assert!(segment.options.raw.windows(OPTION.len()).any(|w| w == OPTION));
    }
    let syn_ack = Segment::parse(&first).unwrap();
    let report = a.syn_ack_report(&syn_ack).unwrap();
    assert_eq!(report.acked, report.carried);
    assert_eq!(a.handle_syn_ack(&syn_ack, Resolution::Accepted, ms(20), pool), Disposition::Processed);
    assert_eq!(a.unacknowledged(), 0);
    assert_eq!(a.totals().bytes_acked as usize, DATA.len(), "a preamble is not part of the stream");
    a.write(pool, b"more", ms(20)).unwrap();
    let bytes = sent(&mut a, ms(20));
    assert_eq!(b.handle_segment(&Segment::parse(&bytes).unwrap(), ms(30), pool), Disposition::Processed);
    assert_eq!(read(&mut b, pool), b"more");
}

#[test]
fn a_refused_preamble_gives_its_numbers_to_the_data() {
    let pool = &mut Pool::new(1 << 20);
    let mut a = client(pool);
    let bytes = sent(&mut a, ms(0));
    let mut b = server(pool, &Segment::parse(&bytes).unwrap(), &ChildPlan::default());
    assert!(read(&mut b, pool).is_empty());
    let bytes = sent(&mut b, ms(10));
    let syn_ack = Segment::parse(&bytes).unwrap();
    assert_eq!(a.syn_ack_report(&syn_ack).unwrap().acked, 0);
    a.handle_syn_ack(&syn_ack, Resolution::DataRefused, ms(20), pool);
    let bytes = sent(&mut a, ms(20));
    let data = Segment::parse(&bytes).unwrap();
    assert_eq!((data.seq, data.payload), (SeqNum::new(1001), DATA));
    b.handle_segment(&data, ms(30), pool);
    assert_eq!(read(&mut b, pool), DATA);
    assert!(b.is_confirmed());
}

#[test]
fn a_path_that_acknowledges_inside_the_preamble_is_reset() {
    let pool = &mut Pool::new(1 << 20);
    let mut a = client(pool);
    let bytes = sent(&mut a, ms(0));
    let mut b = server(pool, &Segment::parse(&bytes).unwrap(), &ChildPlan::default());
    let mut bytes = sent(&mut b, ms(10));
    bytes[8..12].copy_from_slice(&1004u32.to_be_bytes());
    let syn_ack = Segment::parse(&bytes).unwrap();
    assert_eq!(a.syn_ack_report(&syn_ack).unwrap().acked, 3);
    assert_eq!(a.handle_syn_ack(&syn_ack, Resolution::Abort, ms(20), pool), Disposition::Reset);
    assert!(a.close_reason().is_some());
}

#[test]
fn a_retransmitted_syn_is_plain() {
    let pool = &mut Pool::new(1 << 20);
    let mut a = client(pool);
    sent(&mut a, ms(0));
    a.handle_timeout(ms(1001), pool);
    let bytes = sent(&mut a, ms(1001));
    let again = Segment::parse(&bytes).unwrap();
    assert_eq!(again.payload, b"");
    assert!(!again.options.raw.windows(OPTION.len()).any(|w| w == OPTION));
}

#[test]
fn the_budget_bounds_what_leaves_before_the_ack() {
    let pool = &mut Pool::new(1 << 20);
    let mut a = client(pool);
    let bytes = sent(&mut a, ms(0));
    let plan = ChildPlan {
        early: true,
        skip: PREAMBLE.len() as u32,
        pre_ack_budget: 1000,
        overhead: 20,
        ..ChildPlan::default()
    };
    let mut b = server(pool, &Segment::parse(&bytes).unwrap(), &plan);
    b.write(pool, &[7; 5000], ms(10)).unwrap();
    let mut out = vec![0; 2000];
    let mut bytes = 0;
    while let Some(len) = b.poll_transmit(ms(10), &mut out, pool) {
        bytes += 20 + len;
    }
    assert_eq!(bytes, 1000, "whole packets, the SYN-ACK's too, before the client's ACK");
}

#[test]
fn what_follows_the_syn_is_taken_if_the_child_may() {
    // Three cases: accepted, accepted but nothing may follow, and refused.
    for (early, follow) in [(true, 1000), (true, 0), (false, 0)] {
        let pool = &mut Pool::new(1 << 20);
        let plan = SynPlan { preamble: PREAMBLE.to_vec(), data_limit: 8, follow: 16, ..SynPlan::default() };
        let config = Arc::new(Config::default().timestamps(false));
        let (mut a, taken) = Connection::connect(config, ends(40_000, 80, 1000), plan, DATA, pool, ms(0));
        assert_eq!(taken, DATA.len());
        let bytes = sent(&mut a, ms(0));
        let syn = Segment::parse(&bytes).unwrap();
        let skip = if early { PREAMBLE.len() as u32 } else { 0 };
        let plan = ChildPlan { early, skip, follow, ..ChildPlan::default() };
        let mut b = server(pool, &syn, &plan);
        let follower = sent(&mut a, ms(0));
        let segment = Segment::parse(&follower).unwrap();
        assert_eq!((segment.flags, segment.payload), (Flags::PSH, &DATA[8..]));
        assert_eq!(segment.seq, syn.seq + syn.len());
        assert!(a.is_quiet() && a.poll_transmit(ms(0), &mut [0; 200], pool).is_none());
        let taken = b.handle_segment(&segment, ms(10), pool) == Disposition::Processed;
        assert_eq!(taken, follow > 0);
        let there = if early { &DATA[..if taken { DATA.len() } else { 8 }] } else { &[] };
        assert_eq!(b.totals().early as usize, there.len());
        assert_eq!(read(&mut b, pool), there);
        let syn_ack = sent(&mut b, ms(10));
        let syn_ack = Segment::parse(&syn_ack).unwrap();
        let report = a.syn_ack_report(&syn_ack).unwrap();
        assert_eq!(report.carried as usize, PREAMBLE.len() + 8, "what follows is not carried");
        assert_eq!(report.acked as usize, if early { PREAMBLE.len() + there.len() } else { 0 });
        let resolution = if early { Resolution::Accepted } else { Resolution::DataRefused };
        a.handle_syn_ack(&syn_ack, resolution, ms(20), pool);
        assert_eq!(a.unacknowledged(), DATA.len() - there.len());
    }
}

/// A SYN that travels by another way, and may later be sent from here, too.
#[test]
fn a_syn_that_travels_elsewhere_is_answered_like_one_that_was_sent() {
    let pool = &mut Pool::new(1 << 20);
    let plan = SynPlan {
        options: OptionBytes::new(OPTION).unwrap(),
        preamble: PREAMBLE.to_vec(),
        data_limit: 1000,
        elsewhere: true,
        ..SynPlan::default()
    };
    let config = Arc::new(Config::default());
    let (mut conn, _) = Connection::connect(config, ends(40_000, 80, 1000), plan, DATA, pool, ms(0));
    let mut out = vec![0; 2000];
    assert_eq!(conn.poll_transmit(ms(0), &mut out, &mut Pool::new(0)), None);
    assert_eq!(conn.poll_timeout(), None);
    assert!(conn.is_quiet());
    let len = conn.copy_syn(&mut out).unwrap();
    let copy = Segment::parse(&out[..len]).unwrap();
    assert_eq!(copy.payload, [PREAMBLE, DATA].concat());
    let mut server = server(pool, &copy, &ChildPlan { early: true, skip: 10, ..ChildPlan::default() });
    assert_eq!(read(&mut server, pool), DATA);
    // Send it from here, too, with another preamble of the same length. This works only once.
    assert!(!conn.release_syn(b"short", None));
    assert!(conn.release_syn(b"CREDENTIAL", None));
    let direct = sent(&mut conn, ms(40));
    assert_eq!(&Segment::parse(&direct).unwrap().payload[..10], b"CREDENTIAL");
    assert!(!conn.release_syn(b"credential", None));
    // The answer to the other copy arrives a millisecond later, which is too soon for a round trip, so no
    // sample is taken.
    let answer = sent(&mut server, ms(20));
    let answer = Segment::parse(&answer).unwrap();
    let report = conn.syn_ack_report(&answer).unwrap();
    assert_eq!((report.acked, report.carried), (10 + DATA.len() as u32, 10 + DATA.len() as u32));
    conn.handle_syn_ack(&answer, Resolution::Accepted, ms(41), pool);
    assert!(conn.is_confirmed());
    assert_eq!(conn.unacknowledged(), 0);
    let rtt = conn.rtt().map(|rtt| rtt.0);
    assert!(rtt.is_none_or(|rtt| rtt > std::time::Duration::from_millis(1)), "{rtt:?}");
}
