//! A connection that is over gives its memory back to the pool, and leaves nothing to the one in its place.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use firstflight_tcp::congestion::Algorithm;
use firstflight_tcp::{ChildPlan, Config, Connection, Endpoints, Pool, Resolution, SynPlan};
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Flags, Segment};
use std::sync::Arc;

use crate::common::{self, ms};

fn ends(local_port: u16, remote_port: u16, isn: u32) -> Endpoints {
    Endpoints { probe: [1200, 1400, 1500], ..common::ends(local_port, remote_port, isn) }
}

/// Delivers everything that `from` has to send to `to`, except every `lost`-th segment.
fn carry(from: &mut Connection, to: &mut Connection, now: Instant, lost: usize, pool: &mut Pool) {
    let mut out = vec![0; 2000];
    let mut number = 0;
    while let Some(len) = from.poll_transmit(now, &mut out, pool) {
        number += 1;
        if number % lost == 0 {
            continue;
        }
        let segment = Segment::parse(&out[..len]).unwrap();
        if segment.flags.contains(Flags::SYN.union(Flags::ACK)) && to.syn_ack_report(&segment).is_some() {
            to.handle_syn_ack(&segment, Resolution::Accepted, now, pool);
        } else {
            to.handle_segment(&segment, now, pool);
        }
    }
}

/// Two connections that have been used: data with losses and marks in both directions, then closed or aborted.
fn lived(config: &Arc<Config>, pool: &mut Pool, abort: bool) -> [Connection; 2] {
    let plan = SynPlan { data_limit: 100, ..SynPlan::default() };
    let (mut a, _) =
        Connection::connect(Arc::clone(config), ends(40_000, 80, 1000), plan, &[1; 50], pool, ms(0));
    let mut out = vec![0; 2000];
    let len = a.poll_transmit(ms(0), &mut out, pool).unwrap();
    let syn = Segment::parse(&out[..len]).unwrap();
    let child = ChildPlan { early: true, ..ChildPlan::default() };
    let mut b = Connection::accept(Arc::clone(config), ends(80, 40_000, 9000), &syn, &child, pool, ms(10));
    for turn in 1..60 {
        let now = ms(10 * turn);
        for end in [&mut a, &mut b] {
            let _ = end.write(pool, &[7; 5000], now);
            end.handle_timeout(now, pool);
            let mut read = [0; 4000];
            let _ = end.read(pool, &mut read);
        }
        carry(&mut a, &mut b, now, 7, pool);
        carry(&mut b, &mut a, now, 5, pool);
    }
    if abort {
        a.abort(pool);
    } else {
        a.close(ms(700));
        b.close(ms(700));
    }
    carry(&mut a, &mut b, ms(710), 2, pool);
    [a, b]
}

#[test]
fn a_connection_that_is_over_leaves_nothing_behind() {
    let default = Config::default();
    let configs = [
        default.clone(),
        default.clone().congestion(Algorithm::NewReno).nodelay(true).first_window(Some(3000)),
        default.congestion(Algorithm::Bbr).pacing(true).push_bursts(Some(2)),
    ]
    .map(Arc::new);
    for (old, new) in configs.iter().flat_map(|old| configs.iter().map(move |new| (old, new))) {
        for abort in [false, true] {
            let pool = &mut Pool::new(1 << 24);
            for mut conn in lived(old, pool, abort) {
                conn.retire(pool);
                conn.renew(new, ends(1, 2, 3), ms(5000));
                let fresh = Connection::new(Arc::clone(new), ends(1, 2, 3), ms(5000));
                assert_eq!(format!("{conn:#?}"), format!("{fresh:#?}"));
            }
            assert_eq!(pool.outstanding(), 0);
        }
    }
}
