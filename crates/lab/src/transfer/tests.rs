//! What the figure shows must also hold for single transfers.

use super::trial::transfer;
use super::{Transfer, TransferWay, run};
use std::time::Duration;

fn options() -> Transfer {
    Transfer {
        full: false,
        seed: 1,
        rtt: Duration::from_millis(100),
        jitter: Duration::ZERO,
        size: 11_448,
        initial_window: 3,
        initial_rto: Duration::from_secs(3),
        plot: None,
        json: true,
    }
}

fn round_trips(options: &Transfer, way: TransferWay, size: usize) -> f64 {
    let took = transfer(options, way, size, 0, 0).unwrap().unwrap();
    (took.div_duration_f64(options.rtt) * 100.0).round() / 100.0
}

#[test]
fn each_way_has_its_round_trips() {
    let small = |way| round_trips(&options(), way, 1000);
    assert_eq!(TransferWay::ALL.map(small), [2.0, 1.0, 1.0, 3.0]);
    // Three segments, then six: 11.18 KB of eight segments take a round trip more than a single one.
    let page = |way| round_trips(&options(), way, 11_448);
    assert_eq!(TransferWay::ALL.map(page), [3.0, 2.0, 2.0, 3.0]);
    // The windows of today take all of it at once.
    let today = Transfer { initial_window: 10, ..options() };
    assert_eq!(TransferWay::ALL.map(|way| round_trips(&today, way, 11_448)), [2.0, 1.0, 1.0, 3.0]);
}

#[test]
fn a_lost_syn_costs_the_first_timeout() {
    // Every packet of this trial's way to the server is lost for a while: find a trial whose SYN is lost.
    let options = options();
    let late = |way| {
        (0..500).find_map(|trial| {
            let took = transfer(&options, way, 1000, 2, trial).unwrap()?;
            (took > Duration::from_secs(3)).then_some(took)
        })
    };
    let took = late(TransferWay::Handshake).expect("a lost SYN or SYN-ACK in 500 trials with 2 % loss");
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn one_seed_gives_one_output() {
    let first = run(&options()).unwrap();
    assert_eq!(first, run(&options()).unwrap());
    assert_ne!(first, run(&Transfer { seed: 2, jitter: Duration::from_millis(5), ..options() }).unwrap());
}

#[test]
fn the_plot_has_every_curve() {
    let results = super::measure(&options()).unwrap();
    let svg = super::plot::svg(&results, &options()).unwrap();
    for way in TransferWay::ALL {
        assert!(svg.contains(way.name()), "{}", way.name());
    }
    assert!(svg.matches("<polyline").count() >= 16, "four ways in four panels");
}
