//! The signals of a service.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRequest {
    /// Read the files again: SIGHUP.
    Reload,
    /// End: SIGINT from a user, SIGTERM from a service manager.
    End,
}

/// SIGHUP alone, for a part of a service that follows files of its own. Each part has one of these.
#[derive(Debug)]
pub struct Hangup(Signal);

impl Hangup {
    /// Replaces the system's default handling of SIGHUP for the life of the process.
    ///
    /// # Errors
    /// When the system refuses.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one.
    pub async fn asked(&mut self) {
        // It never ends.
        let _ = self.0.recv().await;
    }
}

/// The signals of a service. One that arrives while the service is still starting is not lost.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Replaces the system's default handling of these signals for the life of the process. SIGUSR1 and SIGUSR2 do nothing
    /// from then on.
    ///
    /// # Errors
    /// When the system refuses.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        // Others use these to have logs opened again, and end by default what does not know them.
        for ignored in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(ignored)?);
        }
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalRequest {
        let Self { hangup, interrupt, terminate } = self;
        tokio::select! {
            _ = hangup.recv() => SignalRequest::Reload,
            _ = interrupt.recv() => SignalRequest::End,
            _ = terminate.recv() => SignalRequest::End,
        }
    }

    /// Waits for a signal to end.
    pub async fn end(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
