//! Compares the fast paths with the general paths: two equal connections get the same calls and segments, and
//! one of them runs without [`crate::straight`]. After each step both must agree in every variable.

use super::*;
use crate::plan::{ChildPlan, SynPlan};
use crate::straight::LONG;
use firstflight_wire::tcp::{Flags, Header, OptionsBuf, SackBlocks, Segment};
use proptest::prelude::*;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// A connection with its memory, with or without the fast paths.
struct StraightEnd {
    conn: Connection,
    pool: Pool,
    long: bool,
}

/// A segment from the peer, relative to the variables of its receiver.
#[derive(Debug, Clone, Copy)]
struct Incoming {
    /// Distance of its number from RCV.NXT.
    seq: i32,
    /// The number that it acknowledges: whether it is relative to NXT (else to UNA), and the distance.
    ack: (bool, i32),
    flags: u8,
    len: u16,
    window: u16,
    /// Distance of its timestamp from TS.Recent; `None` without a timestamp.
    ts: Option<i32>,
    /// The range that it SACKs, relative to UNA.
    sack: Option<(u16, u16)>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Segment(Incoming),
    Write(u16),
    Read(u16),
    Transmit,
    Wait(u32),
    Timeout,
    Close,
    Cork(bool, bool),
    Nodelay(bool),
    Probe,
    Mss(u16),
    Release,
}

fn incoming() -> impl Strategy<Value = Incoming> {
    let plain = Flags::ACK.bits();
    let pushed = Flags::ACK.union(Flags::PSH).bits();
    let last = Flags::ACK.union(Flags::PSH).union(Flags::FIN).bits();
    let flags = prop_oneof![8 => Just(plain), 8 => Just(pushed), 1 => Just(last), 1 => any::<u8>()];
    let seq = prop_oneof![12 => Just(0), 1 => -3000..3000i32, 1 => any::<i32>()];
    let ack = prop_oneof![8 => Just((true, 0)), 2 => Just((false, 0)), 1 => (any::<bool>(), -3000..3000i32)];
    let len = prop_oneof![2 => Just(0), 2 => 1..1500u16, 1 => Just(1448)];
    let window = prop_oneof![8 => Just(0xffff), 1 => any::<u16>(), 1 => Just(0)];
    let ts =
        prop_oneof![8 => Just(Some(1)), 2 => Just(Some(0)), 1 => (-9..9i32).prop_map(Some), 1 => Just(None)];
    let sack = prop_oneof![9 => Just(None), 1 => (0..4000u16, 1..3000u16).prop_map(Some)];
    (seq, ack, flags, len, window, ts, sack).prop_map(|(seq, ack, flags, len, window, ts, sack)| Incoming {
        seq,
        ack,
        flags,
        len,
        window,
        ts,
        sack,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => incoming().prop_map(Step::Segment),
        4 => prop_oneof![1..400u16, 1000..9000u16].prop_map(Step::Write),
        4 => (0..5000u16).prop_map(Step::Read),
        16 => Just(Step::Transmit),
        3 => prop_oneof![0..50_000u32, 1..3_000_000u32].prop_map(Step::Wait),
        2 => Just(Step::Timeout),
        1 => prop_oneof![
            4 => Just(Step::Close),
            2 => (any::<bool>(), any::<bool>()).prop_map(|(cork, more)| Step::Cork(cork, more)),
            2 => any::<bool>().prop_map(Step::Nodelay),
            1 => Just(Step::Probe),
            1 => (300..1500u16).prop_map(Step::Mss),
            1 => Just(Step::Release),
        ],
    ]
}

impl Incoming {
    /// The bytes of the segment, for `conn`.
    fn bytes(&self, conn: &Connection) -> Vec<u8> {
        let (newest, beside) = self.ack;
        let ack = if newest { conn.snd.nxt } else { conn.snd.una };
        let header = Header {
            src_port: 80,
            dst_port: 4000,
            seq: conn.rcv.nxt + self.seq as u32,
            ack: ack + beside as u32,
            flags: Flags::from_bits(self.flags),
            window: self.window,
            urgent: 0,
        };
        let mut options = OptionsBuf::new();
        if let Some(ts) = self.ts {
            let value = conn.rcv.ts_recent.wrapping_add(ts as u32);
            options.timestamps(Timestamps { value, echo: conn.ends.ts_offset });
        }
        if let Some((from, len)) = self.sack {
            let mut blocks = SackBlocks::EMPTY;
            let start = conn.snd.una + u32::from(from);
            blocks.push(start, start + u32::from(len));
            options.sack(&blocks);
        }
        let mut out = vec![0; 100];
        let at = header.emit(options.finish(), &mut out).unwrap();
        out.truncate(at);
        out.resize(at + usize::from(self.len), b'x');
        out
    }
}

impl StraightEnd {
    /// Runs `step`; returns its result and the whole state of the connection after it.
    fn take(&mut self, step: Step, incoming: &[u8], now: Instant) -> String {
        LONG.set(self.long);
        let (conn, pool) = (&mut self.conn, &mut self.pool);
        let came = match step {
            Step::Segment(_) => {
                let segment = Segment::parse(incoming).unwrap();
                format!("{:?}", conn.handle_segment(&segment, now, pool))
            }
            Step::Write(n) => format!("{:?}", conn.write(pool, &vec![b'y'; n.into()], now)),
            Step::Read(n) => {
                let mut out = vec![0; n.into()];
                format!("{:?} {out:?}", conn.read(pool, &mut out))
            }
            Step::Transmit => {
                let mut out = vec![0; 2000];
                let len = conn.poll_transmit(now, &mut out, pool);
                format!("{len:?} {:?} {}", out.get(..len.unwrap_or(0)), conn.is_quiet())
            }
            Step::Timeout => format!("{:?}", conn.handle_timeout(now, pool)),
            Step::Close => format!("{:?}", conn.close(now)),
            Step::Cork(cork, more) => format!("{:?}", conn.set_cork(cork, more)),
            Step::Nodelay(nodelay) => format!("{:?}", conn.set_nodelay(nodelay)),
            Step::Probe => format!("{:?}", conn.probe()),
            Step::Mss(mss) => format!("{:?}", conn.reduce_mss(mss, now)),
            Step::Release => format!("{:?}", conn.release(pool, now)),
            Step::Wait(_) => String::new(),
        };
        LONG.set(false);
        let next = (conn.poll_timeout(), conn.poll_readiness(), conn.poll_transition());
        format!("{came}\n{next:?}\n{conn:#?}\n{pool:#?}")
    }
}

/// A SYN or SYN-ACK of the peer.
fn syn(flags: Flags, seq: u32, ack: SeqNum, full: bool) -> Vec<u8> {
    let window = 0xffff;
    let header =
        Header { src_port: 80, dst_port: 4000, seq: SeqNum::new(seq), ack, flags, window, urgent: 0 };
    let mut options = OptionsBuf::new();
    options.mss(1460);
    if full {
        options.sack_permitted();
        options.timestamps(Timestamps { value: 7, echo: 0 });
        options.window_scale(7);
    }
    let mut out = vec![0; 100];
    let at = header.emit(options.finish(), &mut out).unwrap();
    out.truncate(at);
    out
}

/// Opens a connection: which side opens it, and with which options and settings.
fn begin(opens: bool, early: bool, full: bool, odd: u8, long: bool) -> StraightEnd {
    LONG.set(long);
    let mut config = Config { pacing: odd == 1, push_bursts: (odd == 2).then_some(2), ..Config::default() };
    if odd == 3 {
        config.user_timeout = Some(Duration::from_secs(20));
        config.keepalive = Some(crate::config::Keepalive::default());
    }
    let isn = SeqNum::new(u32::MAX - 2000);
    let probe = if odd == 4 { [1300, 1400, 1460] } else { [0; 3] };
    let path_mss = if odd == 4 { 1200 } else { 1460 };
    let ends =
        Endpoints { local_port: 4000, remote_port: 80, isn, ts_offset: 0, default_mss: 536, path_mss, probe };
    let now = Instant::from_millis(5);
    let (mut pool, config) = (Pool::new(1 << 20), Arc::new(config));
    let mut out = vec![0; 2000];
    let conn = if opens {
        let plan = SynPlan { data_limit: if early { 100 } else { 0 }, ..SynPlan::default() };
        let mut conn = Connection::connect(config, ends, plan, &[b'y'; 120], &mut pool, now).0;
        conn.poll_transmit(now, &mut out, &mut pool);
        let answer = syn(Flags::SYN.union(Flags::ACK), u32::MAX - 3000, conn.snd.nxt, full);
        conn.handle_segment(&Segment::parse(&answer).unwrap(), now, &mut pool);
        conn
    } else {
        let syn = syn(Flags::SYN, u32::MAX - 3000, SeqNum::new(0), full);
        let plan = ChildPlan { early, pre_ack_budget: 3000, overhead: 20, ..ChildPlan::default() };
        Connection::accept(config, ends, &Segment::parse(&syn).unwrap(), &plan, &mut pool, now)
    };
    LONG.set(false);
    StraightEnd { conn, pool, long }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_shorter_way_comes_to_what_the_long_one_comes_to(
        (opens, early, full, odd) in (any::<bool>(), any::<bool>(), any::<bool>(), 0..8u8),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut short = begin(opens, early, full, odd, false);
        let mut long = begin(opens, early, full, odd, true);
        let mut now = Instant::from_millis(5);
        for step in steps {
            if let Step::Wait(micros) = step {
                now += Duration::from_micros(micros.into());
            }
            let incoming = if let Step::Segment(incoming) = step { incoming.bytes(&long.conn) } else { Vec::new() };
            let (came, wanted) = (short.take(step, &incoming, now), long.take(step, &incoming, now));
            prop_assert_eq!(came, wanted, "{:?}", step);
        }
    }
}
