//! When a service is to end.

use crate::error::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, from a person, and SIGTERM, from whoever keeps services. One that comes while the service still starts is not
/// lost.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Takes both from the system's own way with them.
    pub fn new() -> Result<Self, Error> {
        let of = |kind| signal(kind).map_err(Error::Runtime);
        Ok(Self { interrupt: of(SignalKind::interrupt())?, terminate: of(SignalKind::terminate())? })
    }

    /// Until one of them comes.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
