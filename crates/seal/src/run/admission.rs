//! May a request run before Finished (6.1 steps 5 and 8, 6.3)?

use super::strike_register::{Question, RegisterAnswer, StrikeRegister, WINDOW_MS};
use super::waiting::{EntryState, Waiting};
use crate::bind::Bind;
use crate::defence::{Defence, on};
use crate::flight::{ENC, HEAD};
use crate::plain::{Flags, Inner, Rid};
use firstflight_credential::asap::{AcceptedBlock, Identity};
use firstflight_wire::{Clock, Instant};
use std::time::Duration;

/// The block that a flight came behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockState {
    /// None, or one that was not accepted.
    None,
    /// One that was accepted by a replay guard that claims at-most-once.
    Accepted {
        /// The bind that belongs to it: [`Bind::new`] of its client key, request id and identity.
        bind: Bind,
        /// The identity that it was signed for.
        identity: Identity,
        /// How many bytes of the flight the block's signature covers (D).
        signed_len: usize,
    },
}

impl BlockState {
    /// A block that was accepted by a replay guard that claims at-most-once, and whose signature covers `signed_len` bytes
    /// of the flight.
    #[must_use]
    pub fn accepted(block: &AcceptedBlock, signed_len: usize) -> Self {
        Self::Accepted { bind: Bind::to(block), identity: Identity::from_digest(block.identity), signed_len }
    }
}

/// What the listener is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// It requests or demands client certificates (6.9).
    pub client_certificates: bool,
    /// Several strike registers serve one name: a farm without a shared table, or a listener that declares `per site`
    /// (6.3).
    pub several_tables: bool,
}

/// A request that was opened, and what the server knows about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    rid: Rid,
    bind: Bind,
    t_ms: u64,
    flags: Flags,
    block: BlockState,
    /// The identities that the block may be signed for: of the server's name, and of the public name (6.8).
    identities: [Identity; 2],
    arrived: Instant,
}

/// Why a request does not run early, or does: for logs and counters, never for the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// Early: an accepted block, bound to this flight.
    Block,
    /// Early: replayable.
    Replayable,
    /// The bind is not that of the accepted block.
    WrongBind,
    /// The block does not sign the flight's first 38 bytes.
    UnsignedEnc,
    /// The block was signed for another server than the ClientHello names.
    OtherIdentity,
    /// There is no complete request.
    Incomplete,
    /// The listener wants client certificates.
    ClientCertificates,
    /// Neither an accepted block nor replayable.
    NotReplayable,
    /// Several strike registers, and not replayable.
    SeveralTables,
    /// t is too far from the server's clock.
    OutsideWindow,
    /// The server's clock may be wrong.
    ClockUncertain,
    /// The strike register may have forgotten it.
    Floor,
    /// The strike register has no room for it.
    Full,
    /// The shared table did not answer.
    NoTable,
    /// It has run, or may run elsewhere.
    Seen,
}

/// What to do with a request.
#[derive(Debug)]
pub enum Runs {
    /// Now, before Finished. The entry was made.
    Now(Why),
    /// After Finished, if the table has no entry then.
    AfterFinished(Waiting, Why),
    /// Send REJECT.
    Reject(Why),
    /// Close without a response. Never 425.
    Close(Why),
}

/// A decision, or a question to the strike register.
#[derive(Debug)]
pub enum Judged {
    /// Decided.
    Runs(Runs),
    /// Ask the table, and give the answer to [`EarlyCandidate::answered`].
    Ask(EarlyCandidate),
}

/// A request that may run early if the strike register has no entry.
#[derive(Debug)]
pub struct EarlyCandidate {
    question: Question,
    waiting: Waiting,
    why: Why,
}

impl Request {
    /// How far the server's clock may be wrong (6.5).
    pub const MOST_UNCERTAIN: Duration = Duration::from_millis(WINDOW_MS);

    /// The request of an opened and checked flight, whose last byte arrived at `arrived`. `identities` are those of the
    /// ClientHello's server name and of the public name, with the port.
    #[must_use]
    pub fn new(inner: &Inner<'_>, block: BlockState, identities: [Identity; 2], arrived: Instant) -> Self {
        let Inner { rid, bind, t_ms, flags, hello: _, request: _ } = *inner;
        Self { rid, bind, t_ms, flags, block, identities, arrived }
    }

    /// Decides, or says what to ask.
    #[must_use]
    pub fn judge(&self, server: &Server, clock: &Clock) -> Judged {
        if let Some(why) = self.is_never_honest() {
            return Judged::Runs(Runs::Reject(why));
        }
        let waiting =
            Waiting::new(self.rid, self.t_ms, self.flags, self.bind, self.has_block(), self.arrived);
        match self.may_run_early(server, clock) {
            Err(why) => Judged::Runs(Runs::AfterFinished(waiting, why)),
            Ok(why) => {
                let with_block = self.has_block();
                let (rid, t_ms, now_ms) = (self.rid, self.t_ms, clock.unix_ms);
                Judged::Ask(EarlyCandidate {
                    question: Question { rid, t_ms, now_ms, early: true, with_block },
                    waiting,
                    why,
                })
            }
        }
    }

    /// Decides with a table that answers at once.
    pub fn judge_with(&self, server: &Server, clock: &Clock, table: &mut impl StrikeRegister) -> Runs {
        match self.judge(server, clock) {
            Judged::Runs(runs) => runs,
            Judged::Ask(asked) => {
                let answer = table.test_and_set(asked.question(), clock.mono);
                asked.answered(answer)
            }
        }
    }

    const fn has_block(&self) -> bool {
        matches!(self.block, BlockState::Accepted { .. })
    }

    /// What no client sends under an accepted block (5, 6.8).
    fn is_never_honest(&self) -> Option<Why> {
        let BlockState::Accepted { bind, identity, signed_len } = &self.block else { return None };
        if (*bind != self.bind || !self.bind.is_bound()) && on(Defence::Bind) {
            return Some(Why::WrongBind);
        }
        if *signed_len < HEAD + ENC && on(Defence::SignedEnc) {
            return Some(Why::UnsignedEnc);
        }
        (!self.identities.contains(identity) && on(Defence::Names)).then_some(Why::OtherIdentity)
    }

    fn may_run_early(&self, server: &Server, clock: &Clock) -> Result<Why, Why> {
        let replayable = self.flags.replayable;
        if !self.flags.complete {
            return Err(Why::Incomplete);
        }
        if server.client_certificates && on(Defence::ClientCertificates) {
            return Err(Why::ClientCertificates);
        }
        if !replayable && !self.has_block() {
            return Err(Why::NotReplayable);
        }
        if !replayable && server.several_tables && on(Defence::PerSite) {
            return Err(Why::SeveralTables);
        }
        if clock.uncertainty > Self::MOST_UNCERTAIN {
            return Err(Why::ClockUncertain);
        }
        if self.t_ms.abs_diff(clock.unix_ms) > WINDOW_MS && on(Defence::Window) {
            return Err(Why::OutsideWindow);
        }
        Ok(if self.has_block() { Why::Block } else { Why::Replayable })
    }
}

impl EarlyCandidate {
    /// The question.
    #[must_use]
    pub const fn question(&self) -> &Question {
        &self.question
    }

    /// Decides with the table's answer.
    #[must_use]
    pub fn answered(self, answer: RegisterAnswer) -> Runs {
        let Self { question: _, waiting, why } = self;
        match answer {
            RegisterAnswer::New => Runs::Now(why),
            RegisterAnswer::Seen => Runs::Close(Why::Seen),
            RegisterAnswer::Floor { set } => {
                let held = if set { EntryState::Ours } else { EntryState::No };
                Runs::AfterFinished(waiting.held(held), Why::Floor)
            }
            RegisterAnswer::Full => Runs::AfterFinished(waiting, Why::Full),
            RegisterAnswer::Unavailable if !on(Defence::StoreLost) => Runs::Now(why),
            RegisterAnswer::Unavailable => {
                Runs::AfterFinished(waiting.held(EntryState::Unknown), Why::NoTable)
            }
        }
    }
}
