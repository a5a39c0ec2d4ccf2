//! A client's opening bytes.

use crate::error::ConnectError;
use crate::machine::Machine;
use crate::stream::{Early, TlsStream};
use crate::tickets::AtPlace;
use firstflight::Time;
use rustls::{AlertDescription, ClientConnection};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

/// A client's opening bytes: the ClientHello, and early data if there is any, with the state of TLS behind them.
/// [`Connector::hello`](crate::Connector::hello) makes it.
///
/// Send [`Hello::bytes`] as the first data of a connection, in one write, and only on one connection of which the answers
/// are read. Copies of them on other connections do no harm: a ClientHello runs nothing, and early data is only what may be
/// executed twice. Then give that connection to [`Hello::finish`].
pub struct Hello {
    bytes: Vec<u8>,
    connection: ClientConnection,
    /// The caller's data.
    data: Zeroizing<Vec<u8>>,
    replayable: bool,
    /// How much of it is among the bytes.
    early: usize,
    resumes: bool,
    protocol: Protocol,
    timeout: Duration,
    time: Time,
}

/// What depends on the protocol that the server chooses.
pub(crate) struct Protocol {
    /// Where tickets go.
    pub(crate) store: Arc<AtPlace>,
    /// The protocol that the server chose before, if no other one will do.
    pub(crate) expected: Option<Vec<u8>>,
}

impl Protocol {
    /// Of a handshake that is over.
    fn agreed(&self, connection: &rustls::Connection) -> Result<(), ConnectError> {
        let agreed = connection.alpn_protocol();
        if self.expected.as_deref().is_some_and(|expected| agreed != Some(expected)) {
            self.store.forget();
            return Err(ConnectError::Protocol);
        }
        self.store.agreed(agreed);
        Ok(())
    }

    /// Of a handshake that has failed.
    fn failed(&self, error: ConnectError) -> ConnectError {
        match error {
            ConnectError::Refused(AlertDescription::NoApplicationProtocol) if self.expected.is_some() => {
                self.store.forget();
                ConnectError::Protocol
            }
            error => error,
        }
    }
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("bytes", &self.bytes.len())
            .field("early", &self.early)
            .field("resumes", &self.resumes)
            .finish_non_exhaustive()
    }
}

impl Hello {
    pub(crate) fn new(
        mut connection: ClientConnection,
        data: &[u8],
        replayable: bool,
        resumes: bool,
        protocol: Protocol,
        (timeout, time): (Duration, Time),
    ) -> Self {
        let mut early = 0;
        if let Some(mut writer) = connection.early_data().filter(|_| replayable) {
            // Writes become short at the ticket's limit.
            while let Some(rest) = data.get(early..).filter(|rest| !rest.is_empty()) {
                match writer.write(rest) {
                    Ok(count @ 1..) => early += count,
                    _ => break,
                }
            }
        }
        // rustls returns the ClientHello, the ChangeCipherSpec and the early data one by one. Each write of its own would
        // be a segment of its own, and only the first one is in the SYN.
        let mut bytes = Vec::new();
        while connection.wants_write() {
            if connection.write_tls(&mut bytes).is_err() {
                break;
            }
        }
        let data = Zeroizing::new(data.to_vec());
        Self { bytes, connection, data, replayable, early, resumes, protocol, timeout, time }
    }

    /// What to send first.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes of the caller's data are among them, encrypted as early data (RFC 8446 §2.3).
    #[must_use]
    pub const fn early(&self) -> usize {
        self.early
    }

    /// Whether a session ticket is offered.
    #[must_use]
    pub const fn resumes(&self) -> bool {
        self.resumes
    }

    /// Completes the handshake on a connection on which [`Hello::bytes`] were sent. Resolves when the server's Finished is
    /// verified and all of the data is given to the stream below, or waits for it: what was early data and is refused, and what had to wait, follow the client's
    /// Finished in the same write.
    ///
    /// # Errors
    /// See [`ConnectError`].
    ///
    /// # Panics
    /// Outside a tokio runtime with time, unless the [`time`](crate::ConnectorBuilder::time) is virtual.
    pub async fn finish<IO>(self, io: IO) -> Result<TlsStream<IO>, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.finish_behind(io, Vec::new()).await
    }

    /// Like [`Hello::finish`], on a connection of which the bytes `read` were read already.
    async fn finish_behind<IO>(self, io: IO, read: Vec<u8>) -> Result<TlsStream<IO>, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { connection, data, replayable, early, protocol, timeout, time, .. } = self;
        let mut machine = Machine::new(io, connection.into(), read);
        let handshake = poll_fn(|cx| machine.poll_answered(cx));
        match time.timeout(timeout, handshake).await {
            Some(result) => result.map_err(|error| protocol.failed(ConnectError::handshake(error)))?,
            None => return Err(ConnectError::Timeout(timeout)),
        }
        protocol.agreed(machine.connection())?;
        let taken = matches!(machine.connection(), rustls::Connection::Client(client) if client.is_early_data_accepted());
        let (outcome, sent) = match (early, taken) {
            (0, _) => (Early::None, 0),
            (early, true) => (Early::Accepted, early),
            (_, false) => (Early::Refused, 0),
        };
        let mut stream = TlsStream::client(machine, time, outcome);
        let rest = data.get(sent..).unwrap_or_default();
        let fail = |error: io::Error| match replayable || rest.is_empty() {
            true => ConnectError::Io(error),
            false => ConnectError::MaybeDelivered(error),
        };
        stream.write_all(rest).await.map_err(fail)?;
        // What the stream does not take now leaves with the next read.
        let begun = poll_fn(|cx| match Pin::new(&mut stream).poll_flush(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => Poll::Ready(Ok(())),
        });
        begun.await.map_err(fail)?;
        Ok(stream)
    }

    /// Sends the bytes on a stream, in one write if it takes them, and completes the handshake.
    ///
    /// # Errors
    /// See [`ConnectError`].
    ///
    /// # Panics
    /// As [`Hello::finish`].
    pub async fn finish_over<IO>(self, io: IO) -> Result<TlsStream<IO>, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.finish_over_behind(io, Vec::new()).await
    }

    /// Like [`Hello::finish_over`], on a connection of which the bytes `read` were read already.
    pub(crate) async fn finish_over_behind<IO>(
        self,
        mut io: IO,
        read: Vec<u8>,
    ) -> Result<TlsStream<IO>, ConnectError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        io.write_all(&self.bytes).await.map_err(ConnectError::Io)?;
        io.flush().await.map_err(ConnectError::Io)?;
        self.finish_behind(io, read).await
    }

    /// The state of TLS, for a hello that travels inside something else, and how long a handshake may take.
    pub(crate) fn into_connection(self) -> (ClientConnection, Duration) {
        (self.connection, self.timeout)
    }
}
