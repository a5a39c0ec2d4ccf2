//! An attempt in UDP that races with the kernel's.

use crate::endpoint::Endpoint;
use crate::first_flight::FirstFlight;
use crate::stream::{EngineStream, first_data};
use firstflight_credential::Outcome;
use firstflight_stack::ConnectConfig;
use std::io;
use std::net::SocketAddr;

/// What an attempt in UDP needs.
#[derive(Debug)]
pub(crate) struct Carried<'a> {
    pub endpoint: &'a Endpoint,
    /// The server's address, with its TCP port.
    pub remote: SocketAddr,
    /// With the server's UDP port, and the certificate.
    pub config: ConnectConfig,
}

impl Carried<'_> {
    /// Sends the SYN. Returns how much of the data left with it.
    pub(crate) fn open(&self, first: FirstFlight<'_>) -> io::Result<(Attempt, usize)> {
        let mut config = self.config.clone().replay_safe(first.is_replayable());
        let data = first_data(&mut config, first.data());
        let (stream, taken) = EngineStream::open(&self.endpoint.shared, self.remote, data, &config)?;
        Ok((Attempt(Some(stream)), taken))
    }
}

/// A connect whose SYN has left. Dropping it aborts the connection.
#[derive(Debug)]
pub(crate) struct Attempt(Option<EngineStream>);

impl Attempt {
    /// Waits until the handshake is complete.
    pub(crate) async fn established(mut self) -> Result<EngineStream, (Outcome, io::Error)> {
        let gone = || (Outcome::Undecided, io::ErrorKind::NotConnected.into());
        let stream = self.0.as_ref().ok_or_else(gone)?;
        match stream.connected().await {
            Ok(()) => self.0.take().ok_or_else(gone),
            Err(error) => Err((stream.outcome(), error)),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            stream.abort();
        }
    }
}
