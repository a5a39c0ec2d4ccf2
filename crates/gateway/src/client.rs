//! A client's connection, with what is known of it.

use firstflight::{Stream, Way};
use firstflight_credential::Outcome;
use firstflight_http::proxy_header::{self, NoHeader};
use firstflight_tls::Arrival;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// What is taken at most of a client while its backend is dialled, bytes.
const AHEAD: usize = 16 * 1024;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: Stream,
    /// What was read behind a PROXY header, and not yet read again.
    ahead: Vec<u8>,
    about: ClientFacts,
}

/// What is known of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientFacts {
    /// The client's address, perhaps from a PROXY header.
    pub(crate) peer: SocketAddr,
    /// The address to which it connected.
    pub(crate) local: SocketAddr,
    /// The address of the connection's other end, which is a proxy if there was a header.
    pub(crate) hop: SocketAddr,
    pub(crate) way: Way,
    pub(crate) outcome: Outcome,
    /// Its first flight was accepted by a certificate.
    pub(crate) is_certified: bool,
    /// Bytes that came in the first flight.
    pub(crate) early_bytes: u32,
    /// Bytes that a proxy in front marked as early. This end can never know whether they are a copy.
    pub(crate) marked: u32,
}

impl Client {
    /// A stream that was accepted.
    pub(crate) fn new(stream: Stream) -> Self {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let peer = stream.peer_addr().unwrap_or(unknown);
        let about = ClientFacts {
            peer,
            local: stream.local_addr().unwrap_or(unknown),
            hop: peer,
            way: stream.way(),
            outcome: stream.outcome(),
            is_certified: stream.accepted_block().is_some(),
            early_bytes: stream.early_bytes(),
            marked: 0,
        };
        Self { stream, ahead: Vec::new(), about }
    }

    /// Reads the PROXY header with which the connection begins.
    /// Errors: when it does not begin with one.
    pub(crate) async fn read_proxy_header(&mut self) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(256);
        loop {
            let wrong = |error: NoHeader| io::Error::new(io::ErrorKind::InvalidData, error);
            if let Some(said) = proxy_header::read(&bytes).map_err(wrong)? {
                if let Some((peer, local)) = said.addresses {
                    (self.about.peer, self.about.local) = (peer, local);
                }
                self.about.marked = said.early_bytes;
                self.ahead = bytes.split_off(said.length);
                return Ok(());
            }
            if self.stream.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Waits until the client has left: its connection failed, or it ended its direction before it had `said` anything. A client
    /// that has said something may have ended its direction only. What comes meanwhile is read later.
    pub(crate) async fn left(&mut self, said: bool) {
        loop {
            let room = AHEAD.saturating_sub(self.ahead.len());
            let mut piece = [0; 2048];
            let Some(piece) = piece.get_mut(..room.min(2048)).filter(|piece| !piece.is_empty()) else {
                return pending().await;
            };
            match self.stream.read(piece).await {
                Ok(0) if said || !self.ahead.is_empty() => return pending().await,
                Ok(0) | Err(_) => return,
                Ok(count) => self.ahead.extend_from_slice(piece.get(..count).unwrap_or_default()),
            }
        }
    }

    /// Where its first flight came from. A proxy in front has opened none.
    pub(crate) fn arrival(&self) -> Arrival {
        match self.about.peer == self.about.hop {
            true => Arrival::of(&self.stream),
            false => Arrival::at(self.about.peer.ip()),
        }
    }

    pub(crate) fn about(&self) -> ClientFacts {
        let mut about = self.about;
        about.early_bytes = self.stream.early_bytes();
        about.outcome = self.stream.outcome();
        about.is_certified = self.stream.accepted_block().is_some();
        about
    }

    /// Whether what was read may be a copy of another connection's first flight.
    pub(crate) fn is_early(&self) -> bool {
        self.stream.is_early()
    }

    /// Waits until it cannot be one.
    pub(crate) fn poll_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_handshake_confirmed(cx)
    }

    /// Ends the connection with a RST.
    pub(crate) fn abort(&self) {
        self.stream.abort();
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.ahead.len().min(buf.remaining());
        let rest = self.ahead.split_off(count);
        buf.put_slice(&self.ahead);
        self.ahead = rest;
        Poll::Ready(Ok(()))
    }
}

firstflight::forward_write!([] Client, Self { stream, .. } => *stream);
