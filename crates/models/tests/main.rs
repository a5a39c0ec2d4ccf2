//! Models: what must never happen does not, whatever the order of events, up to a number of events. Each defence is a switch:
//! without it, the model finds how a request is executed twice.
//!
//! `FIRSTFLIGHT_MODEL_EVENTS=n` explores n events more than the usual number.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

mod asap;
mod farm;
mod network;
mod one_time;
mod overtaken;
mod requests;

use firstflight_models::{Explored, World, explore};
use std::fmt::Debug;

/// How many events are explored.
fn most(usual: usize) -> usize {
    usual + std::env::var("FIRSTFLIGHT_MODEL_EVENTS").map_or(0, |more| more.parse().unwrap())
}

/// With all defences nothing is executed twice within `usual` events, in any of the worlds.
fn holds<W: World>(name: &str, worlds: usize, usual: usize, begin: impl Fn(usize) -> W) {
    let (most, mut all) = (most(usual), Explored::default());
    for n in 0..worlds {
        match explore(|| begin(n), most) {
            Ok(explored) => all += explored,
            Err(trace) => panic!("{name}, world {n}, with all defences:\n{trace}"),
        }
    }
    println!(
        "{name}: {worlds} worlds, up to {most} events, {} states, {} steps, none wrong",
        all.states, all.steps
    );
    assert!(all.states > 500, "only {} states", all.states);
}

/// Without this defence something is, in one of the worlds.
fn needs<W: World>(defence: impl Debug, worlds: usize, most: usize, begin: impl Fn(usize) -> W) {
    for depth in 1..=most {
        for n in 0..worlds {
            if let Err(trace) = explore(|| begin(n), depth) {
                return println!("without {defence:?}, world {n}:\n{trace}");
            }
        }
    }
    panic!("nothing goes wrong without {defence:?}");
}
