//! The server's end.

mod builder;
mod certificates;

pub use builder::{AcceptorBuilder, ClientCertificates};

use crate::error::AcceptError;
use crate::farm::FarmTickets;
use crate::machine::Machine;
use crate::store::{self, Keeping, OfConnection, SessionStore};
use crate::stream::TlsStream;
use certificates::Certificates;
use firstflight::{Stream, Time};
use rustls::ServerConfig;
use rustls::server::{Accepted, AcceptedAlert};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How much is read before there is a ClientHello, bytes. A handshake message of rustls has at most 64 KiB; records around
/// it and early data behind it come to that.
const LONGEST: usize = 128 * 1024;
/// How much is read at a time, bytes.
const PIECE: usize = 4096;

/// How a server's sessions are resumed, by tickets (RFC 8446 §4.6.1).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Tickets {
    /// Not at all: each visit is a full handshake.
    None,
    /// The server remembers them, and takes early data for them.
    Sessions(Arc<dyn SessionStore>),
    /// Every member of a farm reads the tickets of the others. Never with early data.
    Farm(Arc<FarmTickets>),
}

/// Accepts TLS 1.3 on streams that a server has accepted. Clones share all settings.
///
/// **Early.** [`Acceptor::accept`] returns as soon as the ClientHello is processed, before the client's Finished. The
/// application can read the early data that came with it, and answers at once: its answer follows the server's Finished in
/// the same flight (RFC 8446 §2.3, and 0.5-RTT data in §4.4.4). [`TlsStream::is_early`] says that what was read may be a
/// copy, [`TlsStream::confirmed`] waits until it cannot be one.
///
/// ```no_run
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// use firstflight_tls::Acceptor;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// let acceptor = Acceptor::builder().files("chain.pem", "key.pem").build()?;
/// let server = firstflight::Server::bind("0.0.0.0:443").await?;
/// loop {
///     let (stream, acceptor) = (server.accept().await?, acceptor.clone());
///     tokio::spawn(async move {
///         let mut stream = acceptor.accept(stream).await?;
///         let mut request = [0; 4];
///         stream.read_exact(&mut request).await?;
///         if request == *b"pay " {
///             // A request with effects waits.
///             stream.confirmed().await?;
///         }
///         stream.write_all(b"done").await?;
///         stream.shutdown().await
///     });
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Acceptor {
    shared: Arc<Shared>,
}

struct Shared {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    store: Option<Arc<dyn SessionStore>>,
    /// Whether clients are asked for certificates.
    asks: bool,
    timeout: Duration,
    time: Time,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { certificates, store, asks, .. } = &*self.shared;
        f.debug_struct("Acceptor")
            .field("certificates", certificates)
            .field("store", store)
            .field("asks_for_certificates", asks)
            .finish_non_exhaustive()
    }
}

impl Acceptor {
    /// An acceptor with these settings.
    pub fn builder() -> AcceptorBuilder {
        AcceptorBuilder::default()
    }

    /// Accepts TLS on a stream of a [`Server`](firstflight::Server) or a [`Listener`](firstflight::Listener). It turns
    /// Nagle's algorithm off: otherwise the answer would wait for the ACK of the certificate. Drop the future to give up.
    ///
    /// # Errors
    /// See [`AcceptError`]. The client gets an alert.
    ///
    /// # Panics
    /// Outside a tokio runtime with time, unless the [`time`](AcceptorBuilder::time) is virtual.
    pub async fn accept(&self, stream: Stream) -> Result<TlsStream<Stream>, AcceptError> {
        stream.set_nodelay(true);
        self.accept_over(stream).await
    }

    /// Accepts TLS on any stream. Turn its Nagle's algorithm off.
    ///
    /// # Errors
    /// See [`AcceptError`].
    ///
    /// # Panics
    /// As [`Acceptor::accept`].
    pub async fn accept_over<IO>(&self, io: IO) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_behind(io, Vec::new()).await
    }

    /// Accepts TLS on a stream of which the bytes `read` were read already, for example to see which protocol it has.
    ///
    /// # Errors
    /// See [`AcceptError`].
    ///
    /// # Panics
    /// As [`Acceptor::accept`].
    pub async fn accept_behind<IO>(&self, io: IO, read: Vec<u8>) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Shared { timeout, time, .. } = &*self.shared;
        let accepting = self.handshake(io, read);
        time.timeout(*timeout, accepting).await.unwrap_or(Err(AcceptError::Timeout(*timeout)))
    }

    async fn handshake<IO>(&self, mut io: IO, read: Vec<u8>) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.shared.certificates.refresh().await;
        match Hello::read(&mut io, read).await {
            Ok(hello) => self.go_on(hello, io, &self.shared.config).await,
            Err(refusal) => Err(refusal.send(&mut io).await),
        }
    }

    /// Goes on from a ClientHello with these settings. One that came inside something else, such as a seal, has settings of
    /// its own.
    async fn go_on<IO>(
        &self,
        hello: Hello,
        mut io: IO,
        config: &Arc<ServerConfig>,
    ) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Shared { store, time, .. } = &*self.shared;
        let (config, keeping) = match store {
            None => (Arc::clone(config), None),
            Some(store) => {
                let sessions = OfConnection::fetch(&**store, store::ids_in(&hello.records)).await;
                let connection = Arc::new(sessions);
                let mut config = (**config).clone();
                config.session_storage = Arc::<OfConnection>::clone(&connection);
                (Arc::new(config), Some(Keeping { store: Arc::clone(store), connection }))
            }
        };
        let connection = match hello.accepted.into_connection(config) {
            Ok(connection) => connection,
            Err((error, alert)) => {
                return Err(Refusal { error: AcceptError::of(error), alert: Some(alert) }
                    .send(&mut io)
                    .await);
            }
        };
        let mut machine = Machine::new(io, connection.into(), hello.behind);
        let mut begun = false;
        poll_fn(|cx| {
            if !std::mem::replace(&mut begun, true) {
                // What rustls has read behind the hello.
                machine.process(cx)?;
            }
            machine.poll_until_writable(cx)
        })
        .await
        .map_err(AcceptError::handshake)?;
        Ok(TlsStream::server(machine, time.clone(), keeping))
    }
}

/// A ClientHello that was read.
struct Hello {
    accepted: Accepted,
    /// What carried it. May have more behind it.
    records: Vec<u8>,
    /// What rustls has not taken.
    behind: Vec<u8>,
}

/// Why there is none.
struct Refusal {
    error: AcceptError,
    alert: Option<AcceptedAlert>,
}

impl From<AcceptError> for Refusal {
    fn from(error: AcceptError) -> Self {
        Self { error, alert: None }
    }
}

impl Refusal {
    /// Tells the client, if it listens.
    async fn send<IO: AsyncWrite + Unpin>(self, io: &mut IO) -> AcceptError {
        let mut bytes = Vec::new();
        if let Some(mut alert) = self.alert
            && alert.write_all(&mut bytes).is_ok()
            && !bytes.is_empty()
            && io.write_all(&bytes).await.is_ok()
        {
            let _ = io.shutdown().await;
        }
        self.error
    }
}

impl Hello {
    async fn read<IO: AsyncRead + Unpin>(io: &mut IO, mut piece: Vec<u8>) -> Result<Self, Refusal> {
        let mut acceptor = rustls::server::Acceptor::default();
        let mut records = Vec::new();
        loop {
            let mut rest = piece.as_slice();
            records.extend_from_slice(rest);
            while !rest.is_empty() {
                acceptor.read_tls(&mut rest).map_err(|_| AcceptError::TooLong(LONGEST))?;
                match acceptor.accept() {
                    Ok(None) => {}
                    Ok(Some(accepted)) => return Ok(Self { accepted, records, behind: rest.to_vec() }),
                    Err((error, alert)) => {
                        return Err(Refusal { error: AcceptError::of(error), alert: Some(alert) });
                    }
                }
            }
            if records.len() >= LONGEST {
                return Err(AcceptError::TooLong(LONGEST).into());
            }
            piece.resize(PIECE, 0);
            let count = io.read(&mut piece).await.map_err(AcceptError::Io)?;
            piece.truncate(count);
            if count == 0 {
                return Err(AcceptError::Closed.into());
            }
        }
    }
}
