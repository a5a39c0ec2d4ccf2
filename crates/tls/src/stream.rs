//! The TLS stream of either end.

use crate::machine::{Machine, Plain};
use crate::sealed::{self, Rejection, SealReport, SealedInfo, ServedSeal};
use crate::store::Keeping;
use firstflight::Time;
use rustls::{Connection, HandshakeKind};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use zeroize::Zeroizing;

/// How long an end waits for what the other end sends last: a server for the client's Finished, a client for tickets.
const LINGER: Duration = Duration::from_secs(5);
/// How many bytes it reads while it waits.
const LINGER_BYTES: u64 = 64 * 1024;

/// What became of a client's early data (RFC 8446 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Early {
    /// There was none: no ticket that allows it, or no data that may be executed twice.
    None,
    /// The server took it.
    Accepted,
    /// The server refused it. The client has sent it again after the handshake.
    Refused,
}

impl Early {
    /// A label: `none`, `accepted` or `refused`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
        }
    }
}

/// How the handshake went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handshake {
    /// A ticket replaced the certificate.
    pub resumed: bool,
    /// The server asked for another ClientHello, which costs a round trip (HelloRetryRequest, RFC 8446 §4.1.4).
    pub retried: bool,
    /// The key exchange is a hybrid with ML-KEM, which a quantum computer does not break.
    pub hybrid: bool,
    /// What became of the client's early data. A server says `Accepted` or `None`.
    pub early: Early,
}

impl Handshake {
    /// A label: `full`, `resumed`, or `retried` after a HelloRetryRequest without a ticket.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match (self.resumed, self.retried) {
            (true, _) => "resumed",
            (false, true) => "retried",
            (false, false) => "full",
        }
    }
}

/// A TLS 1.3 stream over another stream. [`Connector`](crate::Connector) and [`Acceptor`](crate::Acceptor) make it.
///
/// **Ends.** `poll_shutdown` sends a close_notify and closes the sending direction; the other direction stays open (RFC
/// 8446 §6.1). A server that shuts down before the client's Finished first waits for it, for at most five seconds and 64
/// KiB: otherwise its host would answer the Finished with a RST, and the client could lose the response. A reader gets
/// [`io::ErrorKind::UnexpectedEof`] if the peer's stream ends without a close_notify, because somebody may have cut it.
///
/// **Tickets** come after the handshake. A client that may leave before it has read to the end calls
/// [`TlsStream::leave`].
pub struct TlsStream<IO> {
    machine: Machine<IO>,
    time: Time,
    early: Early,
    /// Server: bytes of early data that were read.
    early_bytes: u64,
    /// Server: the sealed request, and how many bytes of it were read. They come before those of the machine.
    request: Zeroizing<Vec<u8>>,
    read: usize,
    sealed: Option<SealedInfo>,
    /// Server: why a flight in front of the connection was rejected.
    rejected: Option<Rejection>,
    /// Client: what became of a seal.
    seal: Option<SealReport>,
    /// Server: what follows the client's Finished.
    confirming: Option<Confirming>,
    closing: Closing,
    /// Client: how many bytes are read at most while it leaves.
    leaving: Option<u64>,
}

/// What a server does when the client's Finished is verified.
struct Confirming {
    tell: watch::Sender<bool>,
    done: bool,
    keeping: Option<Keeping>,
}

enum Closing {
    Not,
    /// Waits for the client's Finished until this ends, or this many bytes have come.
    Waiting(Pin<Box<dyn Future<Output = ()> + Send + Sync>>, u64),
    /// The close_notify is among what waits to be sent.
    Notified,
}

impl<IO> fmt::Debug for TlsStream<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("handshake", &self.handshake())
            .field("is_early", &self.is_early())
            .finish_non_exhaustive()
    }
}

impl<IO> TlsStream<IO> {
    pub(crate) fn client(machine: Machine<IO>, time: Time, early: Early) -> Self {
        Self {
            machine,
            time,
            early,
            early_bytes: 0,
            request: Zeroizing::new(Vec::new()),
            read: 0,
            sealed: None,
            rejected: None,
            seal: None,
            confirming: None,
            closing: Closing::Not,
            leaving: None,
        }
    }

    /// Server: the client's first bytes came sealed.
    pub(crate) fn sealed(mut self, request: Zeroizing<Vec<u8>>, info: SealedInfo) -> Self {
        self.request = request;
        self.sealed = Some(info);
        self
    }

    /// Server: a flight was rejected before.
    pub(crate) const fn behind(mut self, rejected: Option<Rejection>) -> Self {
        self.rejected = rejected;
        self
    }

    /// Client: what became of a seal, if one was considered.
    pub(crate) const fn considered(mut self, seal: Option<SealReport>) -> Self {
        self.seal = seal;
        self
    }

    pub(crate) fn server(machine: Machine<IO>, time: Time, keeping: Option<Keeping>) -> Self {
        let confirming = Confirming { tell: watch::channel(false).0, done: false, keeping };
        let mut stream = Self::client(machine, time, Early::None);
        if let Connection::Server(server) = stream.machine.connection_mut()
            && server.early_data().is_some()
        {
            stream.early = Early::Accepted;
        }
        stream.confirming = Some(confirming);
        stream.note();
        stream
    }

    /// The stream below.
    #[must_use]
    pub const fn io(&self) -> &IO {
        self.machine.io()
    }

    /// The stream below. Reading from it or writing to it breaks the connection.
    pub const fn io_mut(&mut self) -> &mut IO {
        self.machine.io_mut()
    }

    /// How the handshake went.
    #[must_use]
    pub fn handshake(&self) -> Handshake {
        let connection = self.machine.connection();
        let kind = connection.handshake_kind();
        Handshake {
            resumed: kind == Some(HandshakeKind::Resumed),
            retried: kind == Some(HandshakeKind::FullWithHelloRetryRequest),
            hybrid: connection
                .negotiated_key_exchange_group()
                .is_some_and(|group| crate::groups::is_hybrid(group.name())),
            early: self.early,
        }
    }

    /// The protocol that was agreed on by ALPN (RFC 7301), also inside a sealed first flight. `None` if none was.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.machine.connection().alpn_protocol().map(sealed::protocol)
    }

    /// Server: about the sealed request that the connection began with. `None` if it began in clear.
    #[must_use]
    pub const fn sealed_info(&self) -> Option<&SealedInfo> {
        self.sealed.as_ref()
    }

    /// Client: what became of the seal (`docs/spec/sealed.md` 7.7). `None` if the connector has no
    /// [`SealClient`](crate::SealClient).
    #[must_use]
    pub const fn seal_outcome(&self) -> Option<firstflight_seal::Outcome> {
        match self.seal {
            Some(SealReport { outcome, .. }) => Some(outcome),
            None => None,
        }
    }

    /// Client: like [`TlsStream::seal_outcome`], with the reason.
    #[must_use]
    pub const fn seal_report(&self) -> Option<SealReport> {
        self.seal
    }

    /// Server: what became of the sealed flight that the connection began with. `None` if it began in clear.
    #[must_use]
    pub fn served_seal(&self) -> Option<ServedSeal> {
        let taken = self.sealed.as_ref().map(ServedSeal::taken);
        taken.or(self.rejected.map(ServedSeal::rejected))
    }

    /// The certificates of the other end, its own first. A server has those of a client once it has asked for them and is
    /// confirmed.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[rustls::pki_types::CertificateDer<'static>]> {
        self.machine.connection().peer_certificates()
    }

    /// Server: the name that the client asked for (SNI, RFC 6066 §3).
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        match self.machine.connection() {
            Connection::Server(server) => server.server_name(),
            Connection::Client(_) => None,
        }
    }

    /// Server: whether the client's Finished is not yet verified, so that what was read may be a copy that the network made
    /// of another connection's first flight. An attacker who repeats a first flight can complete TCP's handshake, but
    /// never this one. Always false for a client, which has verified the server's Finished.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.confirming.as_ref().is_some_and(|confirming| !confirming.done)
    }

    /// Server: how many of the bytes that were read so far were TLS early data, or a sealed request that ran early.
    #[must_use]
    pub const fn early_bytes(&self) -> u64 {
        self.early_bytes
    }

    /// Server: a handle that tells others whether the connection is confirmed. It follows the stream only while the stream
    /// is read, or [`TlsStream::confirmed`] runs.
    #[must_use]
    pub fn confirmation(&self) -> Confirmation {
        let told = match &self.confirming {
            Some(confirming) => confirming.tell.subscribe(),
            None => watch::channel(true).1,
        };
        Confirmation(told)
    }

    /// Client: how many session tickets have come.
    #[must_use]
    pub fn tickets(&self) -> u32 {
        match self.machine.connection() {
            Connection::Client(client) => client.tls13_tickets_received(),
            Connection::Server(_) => 0,
        }
    }

    /// Notes that the client's Finished is verified, if it is.
    fn note(&mut self) {
        if let Some(confirming) = &mut self.confirming
            && !confirming.done
            && !self.machine.connection().is_handshaking()
        {
            confirming.done = true;
            confirming.tell.send_replace(true);
            if let Some(keeping) = confirming.keeping.take() {
                keeping.keep();
            }
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> TlsStream<IO> {
    /// Server: waits until the client's Finished is verified (RFC 8446 §4.4.4), so that nothing that was read is a copy.
    /// Early data stays readable. Returns at once for a client.
    ///
    /// # Errors
    /// When the connection ends before that, or the client is at fault. What was read must then not be executed, if it
    /// must not be executed twice.
    pub async fn confirmed(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_confirmed(cx)).await
    }

    /// Poll version of [`TlsStream::confirmed`].
    ///
    /// # Errors
    /// As [`TlsStream::confirmed`].
    pub fn poll_confirmed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_early() {
            ready!(self.machine.poll_until(cx, |connection| !connection.is_handshaking()))?;
            self.note();
        }
        Poll::Ready(Ok(()))
    }

    /// Client: closes, and waits until a ticket for the next visit has come, the peer has closed, data has come that was not
    /// read, or five seconds are over. A ticket comes one round trip after the client's Finished.
    ///
    /// # Errors
    /// When the close cannot be sent.
    pub async fn leave(&mut self) -> io::Result<()> {
        let time = self.time.clone();
        time.timeout(LINGER, poll_fn(|cx| self.poll_leave(cx))).await.unwrap_or(Ok(()))
    }

    /// Poll version of [`TlsStream::leave`], without the limit of five seconds.
    ///
    /// # Errors
    /// As [`TlsStream::leave`].
    pub fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut *self).poll_shutdown(cx))?;
        let until = *self.leaving.get_or_insert(self.machine.received() + LINGER_BYTES);
        while self.tickets() == 0
            && self.machine.received() < until
            && self.machine.connection().wants_read()
            // An error does not matter: tickets are nice to have.
            && ready!(self.machine.poll_receive(cx)).unwrap_or(false)
        {}
        Poll::Ready(Ok(()))
    }

    /// Waits for the client's Finished.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.is_early() {
            let Closing::Waiting(over, until) = &mut self.closing else { return Poll::Ready(()) };
            if over.as_mut().poll(cx).is_ready() || self.machine.received() >= *until {
                return Poll::Ready(());
            }
            match ready!(self.machine.poll_receive(cx)) {
                Ok(true) => {
                    self.note();
                    let _ = self.machine.poll_flush(cx);
                }
                Ok(false) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }
}

/// Whether a server's connection is confirmed: see [`TlsStream::is_early`]. It does not keep the connection open.
#[derive(Debug, Clone)]
pub struct Confirmation(watch::Receiver<bool>);

impl Confirmation {
    /// Whether the client's Finished is not yet verified.
    #[must_use]
    pub fn is_early(&self) -> bool {
        !*self.0.borrow()
    }

    /// Waits until the client's Finished is verified. Any task may wait.
    ///
    /// # Errors
    /// When the connection ends before that.
    pub async fn confirmed(&self) -> io::Result<()> {
        let confirmed = self.0.clone().wait_for(|confirmed| *confirmed).await.map(drop);
        confirmed.map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let rest = this.request.get(this.read..).unwrap_or_default();
        if !rest.is_empty() {
            let count = rest.len().min(buf.remaining());
            buf.put_slice(rest.get(..count).unwrap_or_default());
            this.read += count;
            if this.sealed.is_some_and(|info| info.ran_early) {
                this.early_bytes = this.early_bytes.saturating_add(count as u64);
            }
            return Poll::Ready(Ok(()));
        }
        loop {
            match this.machine.read(buf)? {
                Some(Plain::Early(count)) => {
                    this.early_bytes = this.early_bytes.saturating_add(count as u64);
                    return Poll::Ready(Ok(()));
                }
                Some(Plain::Data | Plain::End) => return Poll::Ready(Ok(())),
                None => {}
            }
            // Tickets and key updates leave without a write of the application, which gets the error if there is one.
            let _ = this.machine.poll_flush(cx);
            match (ready!(this.machine.poll_receive(cx)), this.machine.has_plaintext()) {
                // What came before the fault is right. The next read returns the error.
                (Err(_), true) => continue,
                (result, _) => drop(result?),
            }
            this.note();
            let _ = this.machine.poll_flush(cx);
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if !matches!(this.closing, Closing::Not) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        loop {
            let written = this.machine.write(bytes)?;
            let sending = this.machine.poll_send(cx)?;
            if written > 0 {
                return Poll::Ready(Ok(written));
            }
            ready!(sending);
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().machine.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.closing, Closing::Not) && this.is_early() {
            let time = this.time.clone();
            let over = Box::pin(async move { time.sleep(LINGER).await });
            this.closing = Closing::Waiting(over, this.machine.received() + LINGER_BYTES);
        }
        if matches!(this.closing, Closing::Waiting(..)) {
            // The client may read the answer only when it has sent its Finished.
            let _ = this.machine.poll_flush(cx)?;
            ready!(this.poll_linger(cx));
        }
        if !matches!(this.closing, Closing::Notified) {
            this.machine.connection_mut().send_close_notify();
            this.closing = Closing::Notified;
        }
        ready!(this.machine.poll_flush(cx))?;
        Pin::new(this.machine.io_mut()).poll_shutdown(cx)
    }
}
