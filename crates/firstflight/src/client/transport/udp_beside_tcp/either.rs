//! What belongs to one of two transports.

use super::super::{Attempt, Event};
use crate::attempts::FailedAttempt;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// An attempt, or what it carries, of the one transport or the other.
pub(crate) enum Either<A, B> {
    One(A),
    Other(B),
}

impl<A: Attempt, B: Attempt> Attempt for Either<A, B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match self {
            Self::One(attempt) => attempt.poll(cx),
            Self::Other(attempt) => attempt.poll(cx),
        }
    }

    fn handle_addresses(&mut self, error: Option<&io::Error>) {
        match self {
            Self::One(attempt) => attempt.handle_addresses(error),
            Self::Other(attempt) => attempt.handle_addresses(error),
        }
    }

    fn send_direct(&mut self, remote: SocketAddr) -> bool {
        match self {
            Self::One(attempt) => attempt.send_direct(remote),
            Self::Other(attempt) => attempt.send_direct(remote),
        }
    }

    fn close(self) -> Option<FailedAttempt> {
        match self {
            Self::One(attempt) => attempt.close(),
            Self::Other(attempt) => attempt.close(),
        }
    }
}
