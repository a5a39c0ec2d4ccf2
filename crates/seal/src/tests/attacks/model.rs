//! Every order of events, up to a number of them: a request that must not run twice, under accepted blocks and on its client's
//! connections, while time passes, the clock is set, Finished is held back, and the process is killed. The machines are those
//! of the server: [`Request`], [`Waiting`], [`MemoryRegister`].
//!
//! A process runs it at most once, and none runs it early that may have run before (claim 4 of the specification). The claim
//! leaves out what runs while its t is more than five minutes ahead of the server's clock, and what runs after Finished after a
//! restart.
#![allow(clippy::print_stdout, reason = "tests")]

use super::{RegisterLimits, VICTIM, clock, table};
use crate::defence::{Defence, without};
use crate::fixtures::{COMPLETE, NAME, NOW};
use crate::flight::{ENC, HEAD};
use crate::plain::{Inner, Rid};
use crate::run::admission::{BlockState, Request, Runs, Server};
use crate::run::strike_register::MemoryRegister;
use crate::run::waiting::{Finished, Waiting};
use firstflight_credential::asap::Identity;
use std::collections::HashSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The flight arrives under an accepted block. The block is not what is modelled: it is accepted each time.
    UnderBlock,
    /// It arrives on a connection of its client, of which there are two at most, and waits for Finished.
    OnConnection,
    /// The Finished of a connection arrives.
    Finished(usize),
    Seconds(u64),
    /// The wall clock is set.
    ClockBy(i64),
    Restart,
}

/// A wall clock is set at most this often: more brings it to where it has been.
const SETS: usize = 2;
const CONNECTIONS: usize = 2;
/// When the client gives up, seconds after it sealed the request (7.1). It answers no server any more, but an attacker may hold
/// back what it has sent.
const CLIENT_ENDS: u64 = 5 * 60;

#[derive(Clone)]
struct World {
    /// When the client made the request, Unix seconds by its clock.
    made: u64,
    /// Whether it gives up (7.1).
    gives_up: bool,
    /// Seconds since the beginning, and how far the wall clock is off.
    second: u64,
    off_by: i64,
    sets: usize,
    table: MemoryRegister,
    waiting: Vec<Waiting>,
    connections: usize,
    /// It has run in this process; it has run.
    ran_here: bool,
    ran: bool,
}

impl World {
    fn new(made: u64, gives_up: bool) -> Self {
        let (waiting, table) = (Vec::new(), table(true, 0));
        Self {
            made,
            gives_up,
            second: 0,
            off_by: 0,
            sets: 0,
            table,
            waiting,
            connections: 0,
            ran_here: false,
            ran: false,
        }
    }

    fn clock(&self) -> firstflight_wire::Clock {
        let clock = clock(self.second);
        firstflight_wire::Clock { unix_ms: clock.unix_ms.saturating_add_signed(self.off_by * 1000), ..clock }
    }

    fn runs(&mut self, early: bool) -> Result<(), &'static str> {
        if self.made > self.clock().unix_ms / 1000 + 300 {
            return Ok(());
        }
        if self.ran_here || early && self.ran {
            return Err("the request runs twice");
        }
        (self.ran_here, self.ran) = (true, true);
        Ok(())
    }

    fn arrives(&mut self, block: BlockState) -> Result<(), &'static str> {
        let name = Identity::name(NAME, 443);
        let (rid, bind, t_ms) = (Rid([9; 16]), VICTIM.bind(), self.made * 1000);
        let inner = Inner { rid, bind, t_ms, flags: COMPLETE, hello: &[], request: b"POST" };
        let request = Request::new(&inner, block, [name.clone(), name], self.clock().mono);
        let listener = Server { client_certificates: false, several_tables: false };
        match request.judge_with(&listener, &self.clock(), &mut self.table) {
            Runs::Now(_) => self.runs(true),
            Runs::AfterFinished(waiting, _) => {
                self.waiting.push(waiting);
                Ok(())
            }
            Runs::Reject(_) | Runs::Close(_) => Ok(()),
        }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::UnderBlock];
        let client = !self.gives_up || self.second <= CLIENT_ENDS;
        if client && self.connections < CONNECTIONS {
            events.push(Event::OnConnection);
        }
        events.extend((0..self.waiting.len()).map(Event::Finished));
        events.extend([10, 130, 310, 620].map(Event::Seconds));
        if self.sets < SETS {
            events.extend([-700, 700].map(Event::ClockBy));
        }
        events.push(Event::Restart);
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), &'static str> {
        match event {
            Event::UnderBlock => {
                let waited = self.waiting.len();
                self.arrives(VICTIM.accepted(HEAD + ENC))?;
                // Its sender is the attacker, who has no Finished.
                self.waiting.truncate(waited);
            }
            Event::OnConnection => {
                self.connections += 1;
                self.arrives(BlockState::None)?;
            }
            Event::Finished(n) => {
                let waiting = self.waiting.remove(n);
                if waiting.finished_with(&self.clock(), &mut self.table) == Finished::Run {
                    self.runs(false)?;
                }
            }
            Event::Seconds(seconds) => self.second += seconds,
            Event::ClockBy(seconds) => (self.off_by, self.sets) = (self.off_by + seconds, self.sets + 1),
            Event::Restart => {
                let now = self.clock().unix_ms / 1000;
                self.table = MemoryRegister::new(
                    RegisterLimits { entries: 100, without_block: 20 },
                    &self.clock(),
                    false,
                    &mut crate::fixtures::rng(1),
                );
                self.waiting.clear();
                self.ran_here = false;
                // It begins while its clock is behind.
                self.ran &= self.made <= now + 300;
            }
        }
        Ok(())
    }

    /// Everything that the future depends on.
    fn state(&self) -> String {
        let Self { second, off_by, sets, table, waiting, connections, ran_here, ran, .. } = self;
        let entries = table.contents();
        format!("{second} {off_by} {sets} {entries:?} {waiting:?} {connections} {ran_here} {ran}")
    }
}

/// Explores every sequence of up to `most` events. The number of states and of events, or the shortest trace.
fn explore(made: u64, gives_up: bool, most: usize) -> Result<(usize, usize), (&'static str, Vec<Event>)> {
    let (mut seen, mut steps) = (HashSet::new(), 0);
    let mut open = vec![(World::new(made, gives_up), Vec::new())];
    for _ in 0..most {
        let mut next = Vec::new();
        for (world, trail) in open {
            for event in world.events() {
                let (mut world, mut trail) = (world.clone(), trail.clone());
                trail.push(event);
                steps += 1;
                if let Err(wrong) = world.happen(event) {
                    return Err((wrong, trail));
                }
                if seen.insert(world.state()) {
                    next.push((world, trail));
                }
            }
        }
        open = next;
    }
    Ok((seen.len(), steps))
}

/// Now, at the edges of the window, and beyond.
const MADE: [u64; 4] = [NOW, NOW + 290, NOW - 290, NOW + 800];

/// `FIRSTFLIGHT_MODEL_EVENTS=n` explores n events more.
#[test]
fn no_order_of_events_runs_a_request_twice() {
    let most = 6 + std::env::var("FIRSTFLIGHT_MODEL_EVENTS").map_or(0, |more| more.parse::<usize>().unwrap());
    let (mut states, mut steps) = (0, 0);
    for made in MADE {
        match explore(made, true, most) {
            Ok(explored) => (states, steps) = (states + explored.0, steps + explored.1),
            Err((wrong, trail)) => panic!("{wrong} after {trail:?}, made at {made}"),
        }
    }
    println!(
        "sealed requests: {} worlds, up to {most} events, {states} states, {steps} steps, none wrong",
        MADE.len()
    );
    assert!(states > 5000, "{states} states only");
}

#[test]
fn each_defence_is_needed_by_some_order_of_events() {
    for defence in [Defence::Table, Defence::Lifetime, Defence::Floor, Defence::Deadline] {
        let attack = || {
            let found =
                (1..=6).find_map(|most| MADE.iter().find_map(|made| explore(*made, true, most).err()));
            if let Some((wrong, trail)) = &found {
                println!("without {defence:?}: {wrong}");
                trail.iter().enumerate().for_each(|(n, event)| println!("  {:2}. {event:?}", n + 1));
            }
            found.is_some()
        };
        let (_, without) = without_only(defence, attack);
        assert!(without, "nothing goes wrong without {defence:?}");
    }
}

#[test]
fn a_client_that_never_gives_up_has_its_request_run_twice() {
    let (wrong, trail) = explore(NOW, false, 6).unwrap_err();
    println!("without a client that gives up: {wrong}");
    trail.iter().enumerate().for_each(|(n, event)| println!("  {:2}. {event:?}", n + 1));
}

/// Like [`without`], for what another test shows with all defences.
fn without_only(defence: Defence, mut attack: impl FnMut() -> bool) -> (bool, bool) {
    let mut first = true;
    without(defence, || !std::mem::take(&mut first) && attack())
}
