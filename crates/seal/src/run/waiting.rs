//! A request that waits for the client's Finished (6.4).

use super::admission::Why;
use super::strike_register::{Question, RegisterAnswer, StrikeRegister};
use crate::bind::Bind;
use crate::defence::{Defence, on};
use crate::plain::{Flags, Rid};
use firstflight_wire::{Clock, Instant};
use std::time::Duration;

/// Whether the strike register has an entry already, which this connection made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryState {
    No,
    Ours,
    /// It was asked for, and the store did not answer.
    Unknown,
}

/// A request that waits for Finished. Drop it with its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    rid: Rid,
    t_ms: u64,
    flags: Flags,
    is_bound: bool,
    /// Whether it came under an accepted block.
    with_block: bool,
    held: EntryState,
    ends: Instant,
}

/// What happens to a waiting request when Finished was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It runs.
    Run,
    /// Ask the strike register, and give the answer to [`Waiting::answered`].
    Ask(Question),
    /// Close without a response. Never 425. `None`: Finished came too late.
    Close(Option<Why>),
}

impl Waiting {
    /// How long it waits after the arrival of the flight.
    pub const WITHIN: Duration = Duration::from_secs(60);

    pub(crate) fn new(
        rid: Rid,
        t_ms: u64,
        flags: Flags,
        bind: Bind,
        with_block: bool,
        arrived: Instant,
    ) -> Self {
        Self {
            rid,
            t_ms,
            flags,
            is_bound: bind.is_bound(),
            with_block,
            held: EntryState::No,
            ends: arrived + Self::WITHIN,
        }
    }

    pub(crate) const fn held(self, held: EntryState) -> Self {
        Self { held, ..self }
    }

    /// Whether it may be executed more than once.
    #[must_use]
    pub const fn is_replayable(&self) -> bool {
        self.flags.replayable
    }

    /// When it is dropped, and its connection closed without a response.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.ends
    }

    /// Finished was verified at `clock`.
    #[must_use]
    pub fn finished(&self, clock: &Clock) -> Finished {
        if clock.mono >= self.ends && on(Defence::Deadline) {
            return Finished::Close(None);
        }
        match self.held {
            EntryState::Ours => Finished::Run,
            // The entry may be its own: a store that is back may have it by now.
            EntryState::Unknown if self.flags.replayable => Finished::Run,
            EntryState::No | EntryState::Unknown => {
                let (rid, t_ms, now_ms) = (self.rid, self.t_ms, clock.unix_ms);
                Finished::Ask(Question { rid, t_ms, now_ms, early: false, with_block: self.with_block })
            }
        }
    }

    /// The table has answered.
    #[must_use]
    pub fn answered(&self, answer: RegisterAnswer) -> Finished {
        match answer {
            // After Finished presence alone decides.
            RegisterAnswer::New | RegisterAnswer::Floor { .. } => Finished::Run,
            RegisterAnswer::Seen => Finished::Close(Some(Why::Seen)),
            // A request that is neither replayable nor bound cannot have run before (6.2).
            RegisterAnswer::Full | RegisterAnswer::Unavailable if self.flags.replayable || !self.is_bound => {
                Finished::Run
            }
            RegisterAnswer::Full => Finished::Close(Some(Why::Full)),
            RegisterAnswer::Unavailable if !on(Defence::StoreLost) => Finished::Run,
            RegisterAnswer::Unavailable => Finished::Close(Some(Why::NoTable)),
        }
    }

    /// Decides with a table that answers at once.
    pub fn finished_with(&self, clock: &Clock, table: &mut impl StrikeRegister) -> Finished {
        match self.finished(clock) {
            Finished::Ask(question) => self.answered(table.test_and_set(&question, clock.mono)),
            decided => decided,
        }
    }
}
