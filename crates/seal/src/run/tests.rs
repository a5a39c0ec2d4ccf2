//! The strike register beside a model, and the rows of 6.2 to 6.6.

use super::admission::{BlockState, Judged, Request, Runs, Server, Why};
use super::strike_register::{
    MemoryRegister, Question, RegisterAnswer, RegisterLimits, StrikeRegister, WINDOW_MS,
};
use super::waiting::{Finished, Waiting};
use crate::bind::Bind;
use crate::fixtures::{BOTH, COMPLETE, NAME, NOW, rng};
use crate::plain::{Flags, Inner, Rid};
use firstflight_credential::asap::Identity;
use firstflight_wire::{Clock, Instant};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

const BOUND: Bind = Bind([3; 16]);
const PLAIN: Server = Server { client_certificates: false, several_tables: false };

fn clock(s: u64) -> Clock {
    Clock {
        mono: Instant::from_secs(1000 + s),
        unix_ms: (NOW + s) * 1000,
        uncertainty: Duration::from_secs(1),
    }
}

fn table() -> MemoryRegister {
    MemoryRegister::new(RegisterLimits::default(), &clock(0), true, &mut rng(1))
}

fn identity() -> Identity {
    Identity::name(NAME, 443)
}

fn block() -> BlockState {
    BlockState::Accepted { bind: BOUND, identity: identity(), signed_len: 38 }
}

fn request(rid: u8, flags: Flags, bind: Bind, block: BlockState) -> Request {
    let inner = Inner { rid: Rid([rid; 16]), bind, t_ms: NOW * 1000, flags, hello: b"", request: b"GET" };
    Request::new(&inner, block, [identity(), Identity::name("public.example", 443)], clock(0).mono)
}

fn why(runs: &Runs) -> (&'static str, Why) {
    match runs {
        Runs::Now(why) => ("now", *why),
        Runs::AfterFinished(_, why) => ("after", *why),
        Runs::Reject(why) => ("reject", *why),
        Runs::Close(why) => ("close", *why),
    }
}

fn judged(request: &Request, server: &Server) -> (&'static str, Why) {
    why(&request.judge_with(server, &clock(0), &mut table()))
}

#[test]
fn when_a_request_runs() {
    let with = |flags| request(1, flags, BOUND, block());
    let without = |flags, bind| request(1, flags, bind, BlockState::None);
    let replayable = Flags { replayable: true, complete: false };
    let certificates = Server { client_certificates: true, ..PLAIN };
    let several = Server { several_tables: true, ..PLAIN };
    let cases = [
        (with(COMPLETE), &PLAIN, ("now", Why::Block)),
        (with(BOTH), &PLAIN, ("now", Why::Block)),
        (without(BOTH, Bind::NONE), &PLAIN, ("now", Why::Replayable)),
        (without(BOTH, BOUND), &PLAIN, ("now", Why::Replayable)),
        (without(COMPLETE, Bind::NONE), &PLAIN, ("after", Why::NotReplayable)),
        (without(COMPLETE, BOUND), &PLAIN, ("after", Why::NotReplayable)),
        (with(replayable), &PLAIN, ("after", Why::Incomplete)),
        (with(Flags::default()), &PLAIN, ("after", Why::Incomplete)),
        (with(BOTH), &certificates, ("after", Why::ClientCertificates)),
        (with(COMPLETE), &several, ("after", Why::SeveralTables)),
        (with(BOTH), &several, ("now", Why::Block)),
        (request(1, BOTH, Bind::NONE, block()), &PLAIN, ("reject", Why::WrongBind)),
        (request(1, BOTH, Bind([4; 16]), block()), &PLAIN, ("reject", Why::WrongBind)),
    ];
    for (request, server, expected) in cases {
        assert_eq!(judged(&request, server), expected, "{request:?}");
    }
    // No block has the bind zero; a caller that says so gets no early run.
    let none = BlockState::Accepted { bind: Bind::NONE, identity: identity(), signed_len: 99 };
    assert_eq!(judged(&request(1, BOTH, Bind::NONE, none), &PLAIN), ("reject", Why::WrongBind));
    let short = BlockState::Accepted { bind: BOUND, identity: identity(), signed_len: 37 };
    assert_eq!(judged(&request(1, COMPLETE, BOUND, short), &PLAIN), ("reject", Why::UnsignedEnc));
    let other = |name, port| BlockState::Accepted {
        bind: BOUND,
        identity: Identity::name(name, port),
        signed_len: 99,
    };
    assert_eq!(
        judged(&request(1, BOTH, BOUND, other("other.example", 443)), &PLAIN),
        ("reject", Why::OtherIdentity)
    );
    assert_eq!(judged(&request(1, BOTH, BOUND, other(NAME, 8443)), &PLAIN), ("reject", Why::OtherIdentity));
    assert_eq!(judged(&request(1, BOTH, BOUND, other("public.example", 443)), &PLAIN), ("now", Why::Block));
}

#[test]
fn t_and_the_clock() {
    let request = request(1, BOTH, Bind::NONE, BlockState::None);
    let at = |unix_ms, uncertainty| {
        let clock = Clock { unix_ms, uncertainty: Duration::from_secs(uncertainty), ..clock(0) };
        why(&request.judge_with(&PLAIN, &clock, &mut table())).1
    };
    let t = NOW * 1000;
    assert_eq!([t - WINDOW_MS, t, t + WINDOW_MS].map(|now| at(now, 300)), [Why::Replayable; 3]);
    assert_eq!([t - WINDOW_MS - 1, t + WINDOW_MS + 1].map(|now| at(now, 1)), [Why::OutsideWindow; 2]);
    assert_eq!(at(t, 301), Why::ClockUncertain);
}

#[test]
fn a_start_has_a_floor() {
    let mut table = MemoryRegister::new(RegisterLimits::default(), &clock(0), false, &mut rng(1));
    assert_eq!(table.floor_ms(), NOW * 1000 + WINDOW_MS);
    let request = request(1, BOTH, Bind::NONE, BlockState::None);
    let Runs::AfterFinished(waiting, Why::Floor) = request.judge_with(&PLAIN, &clock(0), &mut table) else {
        panic!()
    };
    assert!(table.is_empty());
    assert_eq!(waiting.finished_with(&clock(1), &mut table), Finished::Run);
    assert_eq!(waiting.finished_with(&clock(1), &mut table), Finished::Close(Some(Why::Seen)));
}

#[test]
fn a_request_runs_once_early_or_after_finished() {
    let mut table = table();
    let early = request(1, BOTH, Bind::NONE, BlockState::None);
    assert!(matches!(early.judge_with(&PLAIN, &clock(0), &mut table), Runs::Now(_)));
    assert_eq!(why(&early.judge_with(&PLAIN, &clock(1), &mut table)), ("close", Why::Seen));
    let late = request(1, COMPLETE, Bind::NONE, BlockState::None);
    let Runs::AfterFinished(waiting, _) = late.judge_with(&PLAIN, &clock(2), &mut table) else { panic!() };
    assert_eq!(waiting.finished_with(&clock(2), &mut table), Finished::Close(Some(Why::Seen)));
}

#[test]
fn a_request_waits_for_a_minute() {
    let request = request(1, COMPLETE, Bind::NONE, BlockState::None);
    let Runs::AfterFinished(waiting, _) = request.judge_with(&PLAIN, &clock(0), &mut table()) else {
        panic!()
    };
    assert_eq!(waiting.deadline(), clock(60).mono);
    assert_eq!(waiting.finished_with(&clock(60), &mut table()), Finished::Close(None));
    let early = Clock { mono: clock(59).mono, ..clock(100_000) };
    assert_eq!(waiting.finished_with(&early, &mut table()), Finished::Run, "the monotonic clock counts");
}

/// The rows of 6.6, and of a full table.
#[test]
fn what_the_table_answers() {
    let asked = |flags, bind, block| match request(1, flags, bind, block).judge(&PLAIN, &clock(0)) {
        Judged::Ask(asked) => asked,
        Judged::Runs(runs) => panic!("{runs:?}"),
    };
    let early = |flags, bind, block, answer| why(&asked(flags, bind, block).answered(answer));
    let lost = RegisterAnswer::Unavailable;
    assert_eq!(early(BOTH, Bind::NONE, BlockState::None, lost), ("after", Why::NoTable));
    assert_eq!(early(COMPLETE, BOUND, block(), lost), ("after", Why::NoTable));
    assert_eq!(early(COMPLETE, BOUND, block(), RegisterAnswer::Full), ("after", Why::Full));
    assert_eq!(early(COMPLETE, BOUND, block(), RegisterAnswer::Seen), ("close", Why::Seen));

    let floor = |set| match asked(COMPLETE, BOUND, block()).answered(RegisterAnswer::Floor { set }) {
        Runs::AfterFinished(waiting, Why::Floor) => waiting.finished(&clock(1)),
        runs => panic!("{runs:?}"),
    };
    assert_eq!(floor(true), Finished::Run, "the entry is its own");
    assert!(matches!(floor(false), Finished::Ask(_)));

    let unanswered = |flags, bind, block| match asked(flags, bind, block).answered(lost) {
        Runs::AfterFinished(waiting, Why::NoTable) => waiting.finished(&clock(1)),
        runs => panic!("{runs:?}"),
    };
    assert_eq!(
        unanswered(BOTH, BOUND, block()),
        Finished::Run,
        "a store that is back may know its own question"
    );
    assert!(matches!(unanswered(COMPLETE, BOUND, block()), Finished::Ask(_)));

    let after = |flags, bind, answer| {
        Waiting::new(Rid([1; 16]), 0, flags, bind, false, clock(0).mono).answered(answer)
    };
    for (answer, why) in [(lost, Why::NoTable), (RegisterAnswer::Full, Why::Full)] {
        assert_eq!(after(BOTH, BOUND, answer), Finished::Run);
        assert_eq!(after(COMPLETE, Bind::NONE, answer), Finished::Run);
        assert_eq!(after(COMPLETE, BOUND, answer), Finished::Close(Some(why)));
    }
    let waiting = Waiting::new(Rid([1; 16]), 0, COMPLETE, BOUND, true, clock(0).mono);
    assert_eq!(waiting.answered(RegisterAnswer::Floor { set: true }), Finished::Run);
}

#[test]
fn limits_and_quota() {
    let limits = RegisterLimits { entries: 10, without_block: 4 };
    let mut table = MemoryRegister::new(limits, &clock(0), true, &mut rng(1));
    let mut ask = |rid: u8, early, with_block, s| {
        let question =
            Question { rid: Rid([rid; 16]), t_ms: NOW * 1000, now_ms: NOW * 1000, early, with_block };
        table.test_and_set(&question, clock(s).mono)
    };
    assert!((0..4).all(|rid| ask(rid, true, false, 0) == RegisterAnswer::New));
    assert_eq!(ask(4, true, false, 0), RegisterAnswer::Full);
    assert_eq!(ask(3, true, false, 0), RegisterAnswer::Seen);
    assert_eq!(ask(4, false, false, 0), RegisterAnswer::Full, "after Finished as well");
    assert!((4..10).all(|rid| ask(rid, rid % 2 == 0, true, 0) == RegisterAnswer::New));
    assert_eq!(
        (ask(10, false, true, 0), ask(10, false, true, 899)),
        (RegisterAnswer::Full, RegisterAnswer::Full)
    );
    assert_eq!(ask(10, false, true, 900), RegisterAnswer::New);
    // The quota is free again as well. Early ones are below the floor: t of what was forgotten.
    assert_eq!(ask(11, true, false, 900), RegisterAnswer::Floor { set: false });
    assert_eq!(ask(11, false, false, 900), RegisterAnswer::New);
}

#[derive(Debug, Clone)]
enum Action {
    Ask {
        rid: u8,
        early: bool,
        with_block: bool,
        t_ahead_s: i64,
    },
    Wait(u64),
    /// The wall clock jumps, seconds.
    Jump(i64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => (0u8..24, any::<bool>(), any::<bool>(), -900i64..900)
            .prop_map(|(rid, early, with_block, t_ahead_s)| Action::Ask { rid, early, with_block, t_ahead_s }),
        3 => (0u64..700).prop_map(Action::Wait),
        1 => (-7200i64..7200).prop_map(Action::Jump),
    ]
}

proptest! {
    /// Nothing runs twice within 15 minutes. And what ran with a t that was in time never runs early again, whatever the
    /// clock does.
    #[test]
    fn a_table_remembers(actions in proptest::collection::vec(action(), 1..120), first_start: bool) {
        let limits = RegisterLimits { entries: 16, without_block: 6 };
        let mut now = clock(100_000);
        let mut table = MemoryRegister::new(limits, &now, first_start, &mut rng(7));
        // When each request ran last, and whether its t was in time then. Its t stays the same.
        let (mut ran, mut stamps): (HashMap<u8, (Instant, bool)>, HashMap<u8, u64>) = Default::default();
        for action in actions {
            match action {
                Action::Wait(s) => {
                    now.mono += Duration::from_secs(s);
                    now.unix_ms += s * 1000;
                }
                Action::Jump(s) => now.unix_ms = now.unix_ms.saturating_add_signed(s * 1000),
                Action::Ask { rid, early, with_block, t_ahead_s } => {
                    let t_ms = *stamps.entry(rid).or_insert(now.unix_ms.saturating_add_signed(t_ahead_s * 1000));
                    if early && t_ms.abs_diff(now.unix_ms) > WINDOW_MS {
                        continue;
                    }
                    let in_time = t_ms <= now.unix_ms + WINDOW_MS;
                    let question = Question { rid: Rid([rid; 16]), t_ms, now_ms: now.unix_ms, early, with_block };
                    let answer = table.test_and_set(&question, now.mono);
                    let last = ran.get(&rid).copied();
                    let recent = last.is_some_and(|(last, _)| now.mono < last + MemoryRegister::LIFETIME);
                    prop_assert_eq!(answer == RegisterAnswer::Seen, recent);
                    if answer == RegisterAnswer::New {
                        prop_assert!(!(early && last.is_some_and(|(_, in_time)| in_time)), "{} again", rid);
                        ran.insert(rid, (now.mono, in_time));
                    }
                    prop_assert!(table.len() <= 16);
                }
            }
        }
    }
}
