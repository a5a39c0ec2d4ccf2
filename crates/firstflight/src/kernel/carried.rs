//! An attempt in UDP that races with the kernel's.

use crate::endpoint::Endpoint;
use crate::first_flight::Flights;
use crate::stream::{EngineStream, first_data};
use firstflight_credential::{NetworkId, Outcome};
use firstflight_stack::ConnectConfig;
use std::borrow::Cow;
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

/// An attempt whose SYN has left.
pub(crate) struct Opened<'a> {
    pub attempt: Attempt,
    /// How much of the data left with it.
    pub taken: usize,
    pub data: Cow<'a, [u8]>,
    /// The data may be executed twice.
    pub replayable: bool,
}

impl Carried<'_> {
    /// Sends the SYN with the data of an attempt.
    pub(crate) fn open<'f>(
        &self,
        flights: &Flights<'f>,
        attempt: u32,
        network: NetworkId,
    ) -> io::Result<Opened<'f>> {
        let mut config = self.config.clone();
        let replayable = flights.are_replayable(true);
        let data = flights.by_engine(attempt, network, &mut config)?;
        let mut config = Cow::Owned(config.replay_safe(replayable));
        let first = first_data(&mut config, &data);
        let (stream, taken) = EngineStream::open(&self.endpoint.shared, self.remote, first, &config)?;
        Ok(Opened { attempt: Attempt(Some(stream)), taken, data, replayable })
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
