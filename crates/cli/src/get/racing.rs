//! A stream that connects with its first write, by the way that the options choose.

use super::via_dns::{Named, ViaDns};
#[cfg(feature = "tls")]
use firstflight::ReplaySafety;
use firstflight::carriage::HeldBack;
use firstflight::credential::{Outcome, Reason};
use firstflight::{
    Authority, Client, ConnectAnyConfig, ConnectAnyError, Endpoint, FirstFlight, LazyStream, Stream,
};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What to do at the first write.
pub struct Plan {
    pub how: How,
    /// Whether the first write may ride in a SYN and be executed twice.
    pub replay_safe: bool,
}

/// How to connect.
pub enum How {
    /// Whichever way works.
    Client(Client, Authority),
    /// By TLS, whichever way works below it.
    #[cfg(feature = "tls")]
    Tls(firstflight_tls::Connector, Client, Authority),
    /// By an engine, to the first of these addresses that answers.
    Engine(Endpoint, Vec<SocketAddr>, Box<ConnectAnyConfig>),
    /// By an engine, and inside the lookup of the server's name.
    Lookup(Arc<ViaDns>, Named, Box<ConnectAnyConfig>),
}

impl Plan {
    async fn run(self, first: &[u8], facts: &Mutex<Facts>) -> io::Result<Stream> {
        let first = if self.replay_safe {
            FirstFlight::safely_replayable(first)
        } else {
            FirstFlight::at_most_once(first)
        };
        match self.how {
            How::Client(client, server) => {
                let connected = client.connect(&server, first).await;
                connected.map_err(|error| failed(facts, error.maybe_delivered(), error.into()))
            }
            // It has a stream of its own.
            #[cfg(feature = "tls")]
            How::Tls(..) => Err(io::ErrorKind::Unsupported.into()),
            How::Engine(endpoint, addresses, config) => {
                let connected = endpoint.connect_any(&addresses, first, &config).await;
                connected.map_err(|error| failed(facts, is_unclear(&error), error.into()))
            }
            How::Lookup(via, to, config) => {
                let (stream, report) = via.connect(&to, first, &config.connect).await?;
                let held_back = report.held_back.as_ref().map(HeldBack::as_str);
                lock(facts).lookup = Some((report.way.as_str(), held_back));
                Ok(stream)
            }
        }
    }
}

/// The outcome is unknown if any server may have executed the data.
fn failed(facts: &Mutex<Facts>, unclear: bool, error: io::Error) -> io::Error {
    if unclear {
        lock(facts).outcome = Some(Outcome::Handshake(Reason::Unknown));
    }
    error
}

fn is_unclear(error: &ConnectAnyError) -> bool {
    let unknown = Outcome::Handshake(Reason::Unknown);
    error.attempts.iter().any(|attempt| attempt.outcome == unknown)
}

/// What is known apart from the stream.
#[derive(Default)]
struct Facts {
    /// If requests also travel inside lookups: how the connection was established, and why the request did not travel
    /// inside.
    lookup: Option<(&'static str, Option<&'static str>)>,
    /// The outcome of the first flight, if there is no connection.
    outcome: Option<Outcome>,
}

fn lock(facts: &Mutex<Facts>) -> MutexGuard<'_, Facts> {
    facts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream.
pub struct Racing {
    stream: Wire,
    facts: Arc<Mutex<Facts>>,
}

enum Wire {
    Plain(LazyStream),
    #[cfg(feature = "tls")]
    Tls(firstflight_tls::LazyTlsStream),
}

impl Racing {
    pub fn new(plan: Plan) -> Self {
        let facts: Arc<Mutex<Facts>> = Arc::default();
        #[cfg(feature = "tls")]
        if let How::Tls(connector, client, server) = plan.how {
            let safety = if plan.replay_safe { ReplaySafety::Safe } else { ReplaySafety::Unsafe };
            let stream = Wire::Tls(connector.connect_lazy(&client, server, safety));
            return Self { stream, facts };
        }
        let told = Arc::clone(&facts);
        let stream = LazyStream::new(move |first: Vec<u8>| async move { plan.run(&first, &told).await });
        Self { stream: Wire::Plain(stream), facts }
    }

    /// The outcome of the first flight.
    pub fn outcome(&self) -> Outcome {
        let of_stream = || self.stream().map_or(Outcome::Undecided, Stream::outcome);
        lock(&self.facts).outcome.unwrap_or_else(of_stream)
    }

    /// The connection that won, if there is one.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.stream {
            Wire::Plain(stream) => stream.stream(),
            #[cfg(feature = "tls")]
            Wire::Tls(stream) => stream.stream().map(firstflight_tls::TlsStream::io),
        }
    }

    /// Closes TLS, and reads a ticket for the next visit.
    #[cfg(feature = "tls")]
    pub fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Wire::Plain(_) => Poll::Ready(Ok(())),
            Wire::Tls(stream) => stream.poll_leave(cx),
        }
    }

    /// How the handshake of TLS went, if there was one.
    #[cfg(feature = "tls")]
    pub fn handshake(&self) -> Option<firstflight_tls::Handshake> {
        match &self.stream {
            Wire::Plain(_) => None,
            Wire::Tls(stream) => stream.stream().map(firstflight_tls::TlsStream::handshake),
        }
    }

    /// What became of the seal.
    #[cfg(feature = "tls")]
    pub fn seal(&self) -> Option<firstflight_tls::SealReport> {
        match &self.stream {
            Wire::Plain(_) => None,
            Wire::Tls(stream) => stream.seal_report(),
        }
    }

    /// If requests also travel inside lookups: how the connection was established, and why the request did not travel
    /// inside.
    pub fn lookup(&self) -> Option<(&'static str, Option<&'static str>)> {
        lock(&self.facts).lookup
    }
}

impl AsyncRead for Racing {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(feature = "tls")]
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Racing {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(feature = "tls")]
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "tls")]
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "tls")]
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
