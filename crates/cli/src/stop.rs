//! The signals that stop a service.

use crate::error::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT from a user, and SIGTERM from a service manager. A signal that arrives while the service is still starting
/// is not lost.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Replaces the system's default handling of both signals.
    pub fn new() -> Result<Self, Error> {
        let of = |kind| signal(kind).map_err(Error::Runtime);
        Ok(Self { interrupt: of(SignalKind::interrupt())?, terminate: of(SignalKind::terminate())? })
    }

    /// Waits until one of them arrives.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
