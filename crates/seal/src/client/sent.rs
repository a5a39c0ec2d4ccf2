//! What may go again (7.3).

use super::trust::NamePolicy;
use crate::bind::Bind;
use crate::commitment::is_taken;
use crate::defence::{Defence, on};
use crate::plain::Flags;
use firstflight_wire::Instant;
use std::time::Duration;

/// A request whose flight was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    replayable: bool,
    bound: bool,
    hidden: NamePolicy,
    protocol: Box<[u8]>,
    /// When the request is given up.
    ends: Instant,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The server's Finished was not verified.
    Open,
    /// The server took the flight. The client's Finished may have been sent.
    Taken,
    Over,
}

/// What happened to a connection with a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// REJECT.
    Reject,
    /// A TLS alert, or TLS failed.
    Alert,
    /// The connection was closed.
    Close,
    /// The server's first message is a HelloRetryRequest.
    HelloRetryRequest,
    /// Nothing came in time.
    Timeout,
    /// The connection was reset, or cannot be made.
    Reset,
    /// The server's Finished and certificate were verified. This ALPN name was selected.
    FinishedVerified(Option<&'a [u8]>),
    /// The first byte of the answer arrived, after Finished was verified.
    Answered,
}

/// How a request goes again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentAgain {
    /// On the same connection, with a new ClientHello in clear (7.2).
    SameConnection,
    /// On a new connection: sealed if 7.4 allows it, or in ordinary TLS.
    NewConnection,
    /// On a new connection, and only sealed: the name is hidden (7.5).
    NewConnectionSealed,
}

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Goes on: the server took the flight. The client's Finished and application data may be written.
    Continue,
    /// The request is done.
    Done,
    /// Closes this connection (except for [`SentAgain::SameConnection`]), and the request goes again by itself.
    Again(SentAgain),
    /// Closes, and reports that the execution is unknown.
    Unknown,
    /// Closes, and reports that the attempt failed. The request has not run.
    Failed,
}

impl Sent {
    /// How long after the first seal of a request the client gives it up (7.1).
    pub const LASTS: Duration = Duration::from_secs(300);

    /// A flight for a request that was first sealed at `first_sealed`.
    #[must_use]
    pub fn new(flags: Flags, bind: Bind, protocol: &[u8], hidden: NamePolicy, first_sealed: Instant) -> Self {
        let (replayable, bound) = (flags.replayable, bind.is_bound());
        let ends = first_sealed + Self::LASTS;
        Self { replayable, bound, hidden, protocol: protocol.into(), ends, state: State::Open }
    }

    /// Whether the request can have run before Finished: it is replayable or bound.
    #[must_use]
    pub const fn could_run_early(&self) -> bool {
        self.replayable || self.bound
    }

    /// Whether the request may be sent in another way while this flight is open: for a race between encapsulations, or
    /// with ordinary TLS (7.3).
    #[must_use]
    pub const fn may_race(&self) -> bool {
        self.replayable
    }

    /// When nothing more is sent for this request.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.ends
    }

    /// What the client does after `event`.
    pub fn handle(&mut self, event: Event<'_>, now: Instant) -> Then {
        match (self.state, event) {
            (State::Over, _) => Then::Done,
            (State::Open, Event::FinishedVerified(selected)) => {
                if !is_taken(selected, &self.protocol) {
                    self.state = State::Over;
                    return Then::Unknown;
                }
                // No Finished for a request that is given up.
                if now >= self.ends {
                    self.state = State::Over;
                    return if self.could_run_early() { Then::Unknown } else { Then::Failed };
                }
                self.state = State::Taken;
                Then::Continue
            }
            (State::Taken, Event::Answered) => {
                self.state = State::Over;
                Then::Done
            }
            (State::Taken, Event::FinishedVerified(_)) => Then::Continue,
            // Not in the order of TLS: the caller is at fault, or another protocol answers.
            (State::Open, Event::Answered) => self.end(Event::Close, now),
            (State::Open | State::Taken, event) => self.end(event, now),
        }
    }

    fn end(&mut self, event: Event<'_>, now: Instant) -> Then {
        let taken = core::mem::replace(&mut self.state, State::Over) == State::Taken;
        // Before a valid Finished nothing is authenticated. So this does not depend on the event.
        let may = self.replayable || (!self.bound && !taken) || !on(Defence::Unknown);
        match event {
            _ if !may => Then::Unknown,
            _ if now >= self.ends && self.could_run_early() => Then::Unknown,
            _ if now >= self.ends => Then::Failed,
            Event::Reject if !taken && self.hidden.allows_clear() => Then::Again(SentAgain::SameConnection),
            _ if self.hidden.allows_clear() => Then::Again(SentAgain::NewConnection),
            _ => Then::Again(SentAgain::NewConnectionSealed),
        }
    }
}

#[cfg(test)]
mod tests;
