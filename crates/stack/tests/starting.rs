//! The settings of a connection's start: the initial window and the initial retransmission timeout.

use crate::peer::primed::{AFTER, COOKIE, DATA, primed_by, with_cookie};
use crate::peer::visited::{AFTER as TAKEN, first_flight, server_with};
use crate::peer::{Got, Peer, seg};
use firstflight_stack::Config;
use firstflight_tcp::congestion::{Algorithm, InitialWindow};
use std::time::Duration;

fn bytes(got: &[Got]) -> usize {
    got.iter().map(|got| got.data.len()).sum()
}

fn starting(window: Option<InitialWindow>) -> impl Fn(&mut Config) {
    move |config| config.tcp.set_initial_window(window.unwrap())
}

/// RFC 3390's three segments, UDT's 16 packets, and a number of bytes, with each algorithm.
#[test]
fn as_much_leaves_at_first_as_the_setting_says() {
    let windows = [
        (InitialWindow::segments(3), 3_000),
        (InitialWindow::segments(16), 16_000),
        (InitialWindow::bytes(5_000), 5_000),
        // Less than a segment is one segment.
        (InitialWindow::bytes(1), 1_000),
        (Some(InitialWindow::Standard), 10_000),
    ];
    for algorithm in Algorithm::ALL {
        for (window, wanted) in windows {
            let mut p = Peer::with(|config| {
                config.tcp.set_congestion(algorithm);
                starting(window)(config);
            });
            let listener = p.listen();
            let id = p.open_passive(listener, seg().mss(1000));
            assert_eq!(p.stack.info(id).unwrap().cwnd, wanted, "{algorithm} {window:?}");
            p.write(id, &[0; 50_000]);
            // BBR paces: the first window leaves within a round trip.
            p.pass(1);
            assert_eq!(bytes(&p.drain()), wanted as usize, "{algorithm} {window:?}");
        }
    }
}

/// After a pause the window is the initial window again (RFC 5681 §4.1).
#[test]
fn a_pause_leads_back_to_the_set_window() {
    let mut p = Peer::with(|config| {
        config.tcp.set_congestion(Algorithm::NewReno);
        starting(InitialWindow::segments(3))(config);
    });
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1000));
    p.write(id, &[0; 30_000]);
    loop {
        let got = p.drain();
        let Some(last) = got.last() else { break };
        p.send(seg().seq(1).ack(last.seq + last.data.len() as u32));
    }
    assert!(p.stack.info(id).unwrap().cwnd > 5_000);
    p.pass(10_000);
    p.write(id, &[0; 50_000]);
    assert_eq!(bytes(&p.drain()), 3_000);
}

/// The response to a first flight is limited by the set window, too.
#[test]
fn the_response_to_a_first_flight_begins_with_the_set_window() {
    let (mut p, listener, cookie) = server_with(starting(InitialWindow::segments(3)), |_| {});
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    let id = p.accept(listener);
    p.write(id, &[b'a'; 30_000]);
    let got = p.drain();
    assert_eq!(bytes(&got), 3_000);
    assert!(got.iter().all(|got| got.ack == TAKEN));
}

fn patient(config: &mut Config) {
    config.tcp.set_initial_rto(Duration::from_secs(3));
}

/// The thesis' chapter 2 assumes 3 s. Both ends, with and without the request for a cookie.
#[test]
fn a_lost_syn_is_repeated_after_the_set_timeout() {
    for fast_open in [false, true] {
        let mut p = Peer::with(patient);
        p.connect(b"", fast_open);
        let sent = p.sends_at(22_000, &[0, 3_000, 9_000, 21_000]);
        assert!(sent.iter().all(|got| got.data.is_empty()));
    }
    let mut p = Peer::with(patient);
    p.listen();
    p.send(seg().syn().mss(1000));
    p.sends_at(22_000, &[0, 3_000, 9_000, 21_000]);
}

/// What an earlier visit measured sets the first timeout. The next ones are those of an unknown path.
#[test]
fn a_measured_path_has_its_own_first_timeout() {
    let mut p = primed_by(Peer::with(patient), seg().mss(1460), 100);
    let from = p.ms();
    p.connect(DATA, true);
    let mut times = Vec::new();
    p.pass(8_000);
    for got in p.drain() {
        times.push(got.at - from);
    }
    assert!(times[1] < 1_000, "{times:?}");
    assert_eq!(times.get(2).map(|at| at - times[1]), Some(3_000), "{times:?}");
}

/// A setting outside the limits counts as the nearest one within them.
#[test]
fn a_timeout_has_limits() {
    for (set, first) in [(Duration::ZERO, 200), (Duration::from_secs(3600), 120_000)] {
        for fast_open in [false, true] {
            let mut p = Peer::with(|config| config.tcp.set_initial_rto(set));
            p.connect(b"", fast_open);
            p.at(first + 1);
            let times: Vec<u64> = p.drain().iter().map(|got| got.at).collect();
            assert_eq!(times, [0, first], "{set:?}");
        }
    }
}

/// A client acknowledges the response to its first flight as often as the response to a request that waited for the
/// handshake: the first segments one by one, as Linux does.
#[test]
fn the_response_to_a_first_flight_is_acknowledged_as_often() {
    let quick = |config: &mut Config| config.tcp.set_quick_acks(16);
    let acks = |p: &mut Peer, ack: u32| {
        for n in 0..10 {
            p.send(seg().seq(1 + n * 1_000).ack(ack).bytes(1_000));
        }
        p.drain().len()
    };
    let mut p = primed_by(Peer::with(quick), seg().mss(1000), 10);
    p.connect(DATA, true);
    with_cookie(p.expect());
    p.send(seg().syn().ack(AFTER).mss(1000));
    p.expect().is_ack().empty();
    let first = acks(&mut p, AFTER);
    let mut p = Peer::with(quick);
    p.connect(DATA, false);
    p.expect().is_syn().empty();
    p.send(seg().syn().ack(1).mss(1000).cookie(&COOKIE));
    p.expect().is_ack().data(DATA);
    let behind = acks(&mut p, AFTER);
    assert_eq!((first, behind), (10, 10));
}
