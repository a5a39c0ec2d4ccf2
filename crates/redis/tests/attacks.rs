//! Counts how often a recorded first flight is executed, for each event in the farm's store before its copy
//! arrives. The counts are printed with `--nocapture`, as in `docs/farm-store.md`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::questions::{ACCEPTED, activate, redeem};
use crate::server;
use crate::server::farm::{Farm, ask, runtime};
use firstflight::SharedStore;
use firstflight::credential::{JobRequest, JobResult};
use firstflight_redis::RedisStore;
use nix::sys::signal::Signal;

/// What happens between the first flight with cookie 1 and its copy.
#[derive(Debug, Clone, Copy)]
enum Event {
    Nothing,
    KilledInOutage,
    StoppedInOutage,
    StoppedInOrder,
    RedisRestarted,
    RedisEmptied,
    KeysEvicted,
}

impl Event {
    const ALL: [Self; 7] = [
        Self::Nothing,
        Self::KilledInOutage,
        Self::StoppedInOutage,
        Self::StoppedInOrder,
        Self::RedisRestarted,
        Self::RedisEmptied,
        Self::KeysEvicted,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::KilledInOutage => "refused in an outage, the member killed",
            Self::StoppedInOutage => "refused in an outage, the member stopped",
            Self::StoppedInOrder => "refused in an outage, told, the member stopped",
            Self::RedisRestarted => "Redis killed and started again",
            Self::RedisEmptied => "Redis emptied",
            Self::KeysEvicted => "keys evicted, the policy set right again",
        }
    }
}

/// Executions of the request with cookie 1. A refused first flight is executed after the ordinary handshake.
fn executed(mut farm: Farm, event: Event) -> u32 {
    let running = runtime();
    let store = farm.member(&running, Some(&farm.path));
    let accepted = |answer: JobResult| u32::from(answer == JobResult::Accept);
    // The data of the original is executed once, early or after the handshake.
    let first = 1;
    match event {
        Event::KilledInOutage => {
            farm.refuse(&running, &store);
            drop((store, running));
            farm.signal(Signal::SIGCONT);
        }
        Event::StoppedInOutage => {
            farm.refuse(&running, &store);
            farm.close(&running, store);
            drop(running);
            farm.signal(Signal::SIGCONT);
        }
        Event::StoppedInOrder => {
            farm.refuse(&running, &store);
            farm.end_of_outage(&running, &store);
            assert!(farm.close(&running, store));
        }
        Event::Nothing | Event::RedisRestarted | Event::RedisEmptied | Event::KeysEvicted => {
            assert_eq!(running.block_on(store.ask(redeem(1))), ACCEPTED);
            match event {
                Event::RedisRestarted => farm.redis.restart(),
                Event::RedisEmptied => drop(farm.redis.cli(&["FLUSHALL"])),
                Event::KeysEvicted => {
                    farm.redis.evict();
                    assert!(farm.redis.evicted() > 0, "nothing was evicted");
                }
                _ => {}
            }
            assert_eq!(running.block_on(ask(&store, activate(1))), ACCEPTED, "a late activation");
        }
    }
    let again = runtime();
    let state = server::farm::options(Some(&farm.redis.file("again")));
    let store = match event {
        Event::KilledInOutage | Event::StoppedInOutage | Event::StoppedInOrder => {
            again.block_on(server::farm::member(&farm.redis, Some(&farm.path)))
        }
        _ => again.block_on(RedisStore::connect(&farm.redis.url(), state)).unwrap(),
    };
    let copy: JobRequest = redeem(1);
    let there = farm.other(copy).map_or(0, accepted);
    let here = again.block_on(ask(&store, copy)).map_or(0, accepted);
    first + there + here
}

#[test]
fn a_copy_is_never_executed_whatever_happens_to_the_store() {
    println!("| between a first flight and its copies at both members | executed |\n|---|---|");
    for event in Event::ALL {
        let Some(farm) = Farm::start() else { return };
        let times = executed(farm, event);
        println!("| {} | {times} |", event.text());
        assert_eq!(times, 1, "{event:?}");
    }
}
