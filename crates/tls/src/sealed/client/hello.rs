//! A sealed ClientHello that leaves, and what becomes of it.

use super::super::report::SealReport;
use super::{Memory, age_clock};
use crate::error::{ConnectError, HiddenError};
use crate::hello::Hello;
use crate::machine::Machine;
use crate::stream::{Early, TlsStream};
use firstflight::credential::NetworkId;
use firstflight_seal::{Event, REJECT, Reason, Sent, SentAgain, ServerAnswer, Then};
use rustls::{Connection, HandshakeKind};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
/// A sealed ClientHello with its request, and the state of TLS behind it.
pub(crate) struct SealedHello {
    pub(super) hello: Hello,
    pub(super) bytes: Vec<u8>,
    pub(super) sent: Sent,
    pub(super) complete: bool,
    /// It could run early, and must not run twice.
    pub(super) once: bool,
    pub(super) memory: Memory,
}

impl fmt::Debug for SealedHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedHello").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// How a flight ended.
pub(crate) enum Ended<IO> {
    Taken(Box<TlsStream<IO>>),
    /// REJECT: the request goes again on the same connection, in ordinary TLS, as on this network. Behind the REJECT this
    /// was read.
    Rejected(IO, Vec<u8>, NetworkId),
    /// It may go again by itself on a new connection.
    Failed(ConnectError),
    /// It does not go again.
    Over(ConnectError),
}

/// What was read of the answer.
enum Got {
    Finished,
    Retried,
}

impl SealedHello {
    /// What to send first.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the server may have executed the request although nothing has come back, and it must not go again.
    pub(crate) const fn is_once(&self) -> bool {
        self.once
    }

    /// The flight has left, and there is no connection on which it could be answered.
    pub(crate) fn unanswered(&self) {
        self.memory.failed();
    }

    /// Reads what the server answers to the flight. `first`: it left in the first flight of the transport. Nothing is
    /// written before the server's Finished is verified and the server has taken the flight (7.1, 4.4).
    pub(crate) async fn finish<IO>(self, mut io: IO, first: bool) -> Ended<IO>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { hello, sent, complete, memory, .. } = self;
        let (connection, timeout) = hello.into_connection();
        let time = memory.time.clone();
        let began = time.now();
        let flight = OpenFlight { sent, complete, memory };
        let mut read = Vec::new();
        let answer = time.timeout(timeout, first_bytes(&mut io, &mut read)).await;
        match answer {
            None => return flight.fail(Event::Timeout, ConnectError::Timeout(timeout)),
            Some(Err(error)) => return flight.fail(Event::Reset, ConnectError::Io(error)),
            Some(Ok(ServerAnswer::Reject)) => {
                let mut flight = flight;
                flight.memory.failed();
                flight.memory.seal.is_stale(&flight.memory.server);
                return match flight.sent.handle(Event::Reject, age_clock(&time)) {
                    Then::Again(SentAgain::SameConnection) => {
                        let behind = read.get(REJECT.len()..).unwrap_or_default().to_vec();
                        Ended::Rejected(io, behind, flight.memory.network)
                    }
                    Then::Unknown => Ended::Over(unknown("the server did not open the sealed request")),
                    // Sealed to the same key again, it would be rejected again.
                    Then::Again(SentAgain::NewConnectionSealed) => {
                        Ended::Over(ConnectError::Hidden(HiddenError::Rejected))
                    }
                    _ => Ended::Failed(ConnectError::Closed),
                };
            }
            Some(Ok(ServerAnswer::Tls)) => {}
            Some(Ok(_)) => return flight.fail(Event::Close, ConnectError::Closed),
        }
        let mut machine = Machine::new(io, Connection::Client(connection), read);
        machine.be_silent(true);
        let left = timeout.saturating_sub(time.now() - began);
        let got = match time.timeout(left, poll_fn(|cx| machine.poll_answered(cx))).await {
            None => return flight.fail(Event::Timeout, ConnectError::Timeout(timeout)),
            Some(Err(error)) => {
                let event = match error.kind() {
                    io::ErrorKind::UnexpectedEof => Event::Close,
                    io::ErrorKind::InvalidData => Event::Alert,
                    _ => Event::Reset,
                };
                return flight.fail(event, ConnectError::handshake(error));
            }
            Some(Ok(())) => match machine.connection().handshake_kind() {
                Some(HandshakeKind::FullWithHelloRetryRequest) => Got::Retried,
                _ => Got::Finished,
            },
        };
        match got {
            Got::Retried => {
                let misbehaved =
                    rustls::Error::General("a HelloRetryRequest for a sealed ClientHello".into());
                flight.fail(Event::HelloRetryRequest, ConnectError::Server(misbehaved))
            }
            Got::Finished => flight.finished(machine, first).await,
        }
    }
}

/// A flight without an answer.
struct OpenFlight {
    sent: Sent,
    complete: bool,
    memory: Memory,
}

impl OpenFlight {
    /// No valid Finished of the server answered it.
    fn fail<IO>(mut self, event: Event<'_>, error: ConnectError) -> Ended<IO> {
        self.memory.failed();
        match self.sent.handle(event, age_clock(&self.memory.time)) {
            Then::Unknown => Ended::Over(ConnectError::MaybeDelivered(error.into())),
            // Another connection would show the same certificate, or that of another attacker.
            Then::Again(_) if !matches!(error, ConnectError::Certificate(_)) => Ended::Failed(error),
            _ => Ended::Over(error),
        }
    }

    /// The server's Finished is verified.
    async fn finished<IO>(mut self, mut machine: Machine<IO>, first: bool) -> Ended<IO>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Memory { seal, network, server, time } = &self.memory;
        let selected = machine.connection().alpn_protocol().map(<[u8]>::to_vec);
        let now = age_clock(time);
        match self.sent.handle(Event::FinishedVerified(selected.as_deref()), now) {
            Then::Continue => seal.failures().worked(network, server, time.now()),
            // Too late: that says nothing about the key.
            Then::Unknown if now >= self.sent.deadline() => {
                return Ended::Over(unknown("the server answered the sealed request too late"));
            }
            Then::Unknown => {
                seal.failures().misbehaved(network, server, time.now());
                return Ended::Over(unknown("the server did not take the sealed request"));
            }
            _ => return Ended::Over(ConnectError::Timeout(Sent::LASTS)),
        }
        machine.be_silent(false);
        let report = match (self.sent.could_run_early() && self.complete, first) {
            (true, true) => SealReport::ONE_ROUND_TRIP,
            (true, false) => Reason::AfterHandshake.into(),
            (false, _) => Reason::AfterFinished.into(),
        };
        let mut stream = TlsStream::client(machine, time.clone(), Early::None).considered(Some(report));
        // The Finished. What the stream does not take now leaves with the next read.
        let begun = poll_fn(|cx| match Pin::new(&mut stream).poll_flush(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => Poll::Ready(Ok(())),
        });
        match begun.await {
            Ok(()) => Ended::Taken(Box::new(stream)),
            Err(error) => match self.sent.handle(Event::Reset, age_clock(&self.memory.time)) {
                Then::Again(_) => Ended::Failed(ConnectError::Io(error)),
                _ => Ended::Over(ConnectError::MaybeDelivered(error)),
            },
        }
    }
}

fn unknown(why: &'static str) -> ConnectError {
    ConnectError::MaybeDelivered(io::Error::new(io::ErrorKind::ConnectionAborted, why))
}

/// Reads until it is clear what the server's first bytes are.
async fn first_bytes<IO: AsyncRead + Unpin>(io: &mut IO, read: &mut Vec<u8>) -> io::Result<ServerAnswer> {
    let mut piece = [0; 4096];
    loop {
        match ServerAnswer::read(read) {
            ServerAnswer::More => {}
            answer => return Ok(answer),
        }
        let count = io.read(&mut piece).await?;
        if count == 0 {
            return Ok(ServerAnswer::Close);
        }
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
}

/// Sends a flight on a stream that is open, and reads the answer.
pub(crate) async fn finish_over<IO>(sealed: SealedHello, mut io: IO) -> Ended<IO>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let sending = async {
        io.write_all(sealed.bytes()).await?;
        io.flush().await
    };
    match sending.await {
        Ok(()) => sealed.finish(io, true).await,
        Err(error) => {
            let SealedHello { sent, complete, memory, .. } = sealed;
            OpenFlight { sent, complete, memory }.fail(Event::Reset, ConnectError::Io(error))
        }
    }
}
