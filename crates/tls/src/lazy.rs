//! TLS streams for libraries that ask for a connection before they have a request.

use crate::connector::Connector;
use crate::error::ConnectError;
use crate::sealed::SealReport;
use crate::stream::TlsStream;
use firstflight::{Authority, Client, FirstFlight, LazyStream, ReplaySafety, Stream};
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use zeroize::Zeroizing;

/// A TLS stream that connects with its first write, for libraries that do not know about first flights.
/// [`Connector::connect_lazy`] makes it. A read before the first write waits for that write. A shutdown before it ends the
/// stream, and nothing connects: reads return the end, and writes fail with [`io::ErrorKind::BrokenPipe`]. In HTTP/2 the
/// first write is the preface, which waits two milliseconds at most for the request behind it.
///
/// [`Connector::connect_or_lazy`] makes it, too, and then it may be connected already.
pub struct LazyTlsStream {
    stream: LazyStream<TlsStream<Stream>>,
    /// What is offered, if that is one protocol.
    offered: Option<Vec<u8>>,
    /// What became of the seal of a connect that has failed.
    failed: Arc<OnceLock<SealReport>>,
}

impl fmt::Debug for LazyTlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyTlsStream").field(&self.stream()).finish()
    }
}

impl Connector {
    /// A stream that connects to `server` with its first write. `safety` says whether that write may be executed twice: if
    /// so, it travels as early data if a ticket allows it. The first protocol of the connector is offered, and no other.
    #[must_use]
    pub fn connect_lazy(&self, client: &Client, server: Authority, safety: ReplaySafety) -> LazyTlsStream {
        let failed = Arc::new(OnceLock::new());
        let (connector, client, report) = (self.clone(), client.clone(), Arc::clone(&failed));
        let stream = LazyStream::connecting(move |first| {
            let first = Zeroizing::new(first);
            async move {
                let data = safety.flight(&first);
                // More of a request with effects may follow.
                let complete = data.is_replayable();
                // It is over soon, and large.
                match Box::pin(connector.contact(&client, None, &server, data, complete)).await {
                    (Ok(stream), _) => Ok(stream),
                    (Err(error), of_seal) => {
                        of_seal.into_iter().for_each(|of_seal| {
                            // It connects once.
                            let _ = report.set(of_seal);
                        });
                        Err(error.into())
                    }
                }
            }
        });
        LazyTlsStream { stream, offered: self.protocols().first().cloned(), failed }
    }

    /// A stream to `server` whose protocol is known, for a library that asks for a connection, looks at its protocol
    /// (ALPN), and then writes a request.
    ///
    /// If a request can gain a round trip by waiting for it, this is [`Connector::connect_lazy`]: where a ticket allows early
    /// data and `safety` does, or where the connector seals. The one protocol that it offers is that of the ticket. Otherwise
    /// this connects now and offers all protocols: without early data, a request has its answer as soon as if it had waited.
    /// So what prevents a first contact is the error of this call.
    ///
    /// A connector that seals and has several protocols waits for the first request to a hidden name only, and seals it in
    /// the first protocol. Give it one protocol, so that it seals every first request.
    ///
    /// # Errors
    /// As [`Connector::connect`], if it connects now.
    ///
    /// # Panics
    /// As [`Connector::connect`].
    pub async fn connect_or_lazy(
        &self,
        client: &Client,
        server: Authority,
        safety: ReplaySafety,
    ) -> Result<LazyTlsStream, ConnectError> {
        if self.waits_with_first(&server) {
            return Ok(self.connect_lazy(client, server, safety));
        }
        if safety != ReplaySafety::Unsafe
            && let Some(protocol) = self.protocol_for_early_data(&server)
        {
            return Ok(self.agreed_before(protocol).connect_lazy(client, server, safety));
        }
        let stream = self.connect_to(client, &server, FirstFlight::empty()).await?;
        let stream = LazyStream::connected(stream);
        Ok(LazyTlsStream { stream, offered: None, failed: Arc::default() })
    }
}

impl LazyTlsStream {
    /// The connection, once there is one.
    #[must_use]
    pub fn stream(&self) -> Option<&TlsStream<Stream>> {
        self.stream.stream()
    }

    /// The protocol: the one that was agreed on by ALPN (RFC 7301) or, before there is a connection, the only one that it
    /// offers. `None` if there is none.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        match self.stream() {
            Some(stream) => stream.alpn(),
            None => self.offered.as_deref(),
        }
    }

    /// What became of the seal, also of a connect that has failed. `None` if no seal was considered, or nothing is known yet.
    #[must_use]
    pub fn seal_report(&self) -> Option<SealReport> {
        match self.stream() {
            Some(stream) => stream.seal_report(),
            None => self.failed.get().copied(),
        }
    }

    /// As [`TlsStream::poll_leave`]. Ready at once if there is no connection.
    ///
    /// # Errors
    /// As [`TlsStream::leave`].
    pub fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.stream_mut().map_or(Poll::Ready(Ok(())), |stream| stream.poll_leave(cx))
    }
}

firstflight::forward_io!([] LazyTlsStream, Self { stream, .. } => *stream);
