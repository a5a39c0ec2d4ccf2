//! The server's end.

mod builder;
mod certificates;
mod hello;

pub use builder::{AcceptorBuilder, ClientCertificates};
pub use certificates::ServedCertificate;

use crate::error::{AcceptError, ConfigError};
use crate::farm::FarmTickets;
use crate::machine::Machine;
use crate::sealed::{Arrival, Decline, Rejection, SealServer, SealedInfo, ServedSeal};
use crate::store::{self, Keeping, OfConnection, SessionStore};
use crate::stream::TlsStream;
use certificates::{Certificates, Staged};
use firstflight::{Stream, Time};
use firstflight_seal::{Flight, Intake, PROTOCOL_PREFIX, REJECT, Refused, Runs, Step, Waiting, is_reserved};
use hello::{Alert, Hello, PIECE, Refusal};
use rustls::{HandshakeKind, ServerConfig, ServerConnection};
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

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
    /// For clients that ask for a name without a certificate here.
    without_sessions: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    store: Option<Arc<dyn SessionStore>>,
    /// Whether clients are asked for certificates.
    asks: bool,
    /// The keys of sealed first flights, if they are taken.
    seal: Option<SealServer>,
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

/// The certificates of an [`Acceptor`], and of its clones. It keeps nothing else of them alive.
#[derive(Debug, Clone)]
pub struct ServerCertificates(Arc<Certificates>);

impl ServerCertificates {
    /// The certificates as they are now, in their order.
    #[must_use]
    pub fn now(&self) -> Vec<ServedCertificate> {
        self.0.served()
    }

    /// Whether one of them is for this name.
    #[must_use]
    pub fn are_for(&self, name: &str) -> bool {
        self.0.are_for(name)
    }

    /// Why clients refuse certificates at this time, a sentence each.
    #[must_use]
    pub fn problems(&self, at: SystemTime) -> Vec<String> {
        self.now().iter().filter_map(|served| served.problem(at)).collect()
    }

    /// Reads the files of all certificates, whether they look changed or not. This blocks. Nothing changes before
    /// [`NewCertificates::commit`].
    ///
    /// # Errors
    /// When a file is not right. The caller has to say so.
    pub fn read_again(&self) -> Result<NewCertificates, ConfigError> {
        let staged = self.0.read_again()?;
        Ok(NewCertificates { certificates: Arc::clone(&self.0), staged })
    }

    /// Reads the files of all certificates, whether they look changed or not, and uses those that are right. This blocks. A
    /// line in the log says what is not right.
    pub fn look(&self) {
        self.0.look();
    }
}

/// Certificates that [`ServerCertificates::read_again`] has read.
#[derive(Debug)]
pub struct NewCertificates {
    certificates: Arc<Certificates>,
    staged: Staged,
}

impl NewCertificates {
    /// Uses them from the next handshake on.
    pub fn commit(self) {
        self.certificates.commit(self.staged);
    }
}

impl Acceptor {
    /// An acceptor with these settings.
    pub fn builder() -> AcceptorBuilder {
        AcceptorBuilder::default()
    }

    /// Whether the certificate that clients without a name in their ClientHello get, the first one, is for this name.
    #[must_use]
    pub fn shows_by_default(&self, name: &str) -> bool {
        self.shared.certificates.first_is_for(name)
    }

    /// The certificates that clients get.
    #[must_use]
    pub fn certificates(&self) -> ServerCertificates {
        ServerCertificates(Arc::clone(&self.shared.certificates))
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
        // It fails only when the connection is over, which the handshake will say.
        let _ = stream.set_nodelay(true);
        let from = Arrival::of(&stream);
        self.accept_read(stream, Vec::new(), from).await
    }

    /// Accepts TLS on any stream. Turn its Nagle's algorithm off. The clients of such streams share one part of the
    /// [`openings`](crate::SealServerBuilder::openings) of sealed first flights; see [`Acceptor::accept_over_from`].
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

    /// Like [`Acceptor::accept_over`], of a client whose address is known, so that it has a part of the
    /// [`openings`](crate::SealServerBuilder::openings) of sealed first flights with its network only.
    ///
    /// # Errors
    /// See [`AcceptError`].
    ///
    /// # Panics
    /// As [`Acceptor::accept`].
    pub async fn accept_over_from<IO>(&self, io: IO, client: IpAddr) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_from(io, Arrival::at(client)).await
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
        self.accept_read(io, read, Arrival::UNKNOWN).await
    }

    /// Like [`Acceptor::accept_over`], on a stream around one that a server has accepted. What is known of that one counts,
    /// so a sealed first flight behind a certificate (ASAP) is opened whatever [`openings`](crate::SealServerBuilder::openings)
    /// are left.
    ///
    /// # Errors
    /// See [`AcceptError`].
    ///
    /// # Panics
    /// As [`Acceptor::accept`].
    pub async fn accept_from<IO>(&self, io: IO, from: Arrival) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_read(io, Vec::new(), from).await
    }

    async fn accept_read<IO>(
        &self,
        io: IO,
        read: Vec<u8>,
        from: Arrival,
    ) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Shared { timeout, time, .. } = &*self.shared;
        // A handshake takes 27 KB and is over soon. The future of the whole connection must not have this size.
        let accepting = Box::pin(self.handshake(io, read, from));
        let accepted = time.timeout(*timeout, accepting).await.unwrap_or(Err(AcceptError::Timeout(*timeout)));
        count(match &accepted {
            Ok(stream) => stream.sealed_info().map(ServedSeal::taken),
            Err(error) => ServedSeal::failed(error),
        });
        accepted
    }

    async fn handshake<IO>(
        &self,
        mut io: IO,
        read: Vec<u8>,
        from: Arrival,
    ) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.shared.certificates.refresh().await;
        let mut rejected = None;
        let read = match &self.shared.seal {
            None => read,
            Some(seal) => {
                let begun = self.begin(seal, &mut io, read, &from, &mut rejected);
                let late = || Err(AcceptError::Flight(Refused::TimedOut));
                match seal.time().timeout(Intake::WITHIN, begun).await.unwrap_or_else(late)? {
                    ClientStart::Tls(read) => read,
                    ClientStart::Sealed(taken, behind) => return self.answer(seal, *taken, io, behind).await,
                }
            }
        };
        match self.hello(&mut io, read).await {
            Ok((answered, behind)) => Ok(self.go_on(answered, io, behind).await?.behind(rejected)),
            Err(refusal) => Err(refusal.send(&mut io).await),
        }
    }

    /// Reads a ClientHello in clear, and answers it.
    async fn hello<IO>(&self, io: &mut IO, read: Vec<u8>) -> Result<(AnsweredHello, Vec<u8>), Refusal>
    where
        IO: AsyncRead + Unpin,
    {
        let hello = Hello::read(io, read).await?;
        let offered = hello.accepted.client_hello().alpn();
        if offered.is_some_and(|mut names| names.any(is_reserved)) {
            // Somebody has opened a sealed first flight, and forwards its ClientHello.
            return Err(Refusal::no_protocol());
        }
        let certificates = &self.shared.certificates;
        if hello.accepted.client_hello().server_name().is_some_and(|name| !certificates.are_for(name)) {
            // A session needs no certificate. With one of another site, whose acceptor has the same store, the early data of a
            // client that was led here would run here.
            return Self::tls_with(hello, Arc::clone(&self.shared.without_sessions), None);
        }
        self.tls(hello, Arc::clone(&self.shared.config)).await
    }

    /// Answers a ClientHello in memory, with these settings. One that came sealed has settings of its own.
    async fn tls(
        &self,
        hello: Hello,
        config: Arc<ServerConfig>,
    ) -> Result<(AnsweredHello, Vec<u8>), Refusal> {
        let Shared { store, .. } = &*self.shared;
        let (config, keeping) = match store {
            None => (config, None),
            Some(store) => {
                let sessions = OfConnection::fetch(&**store, store::ids_in(&hello.records)).await;
                let connection = Arc::new(sessions);
                let mut config = (*config).clone();
                config.session_storage = Arc::<OfConnection>::clone(&connection);
                (Arc::new(config), Some(Keeping { store: Arc::clone(store), connection }))
            }
        };
        Self::tls_with(hello, config, keeping)
    }

    fn tls_with(
        hello: Hello,
        config: Arc<ServerConfig>,
        keeping: Option<Keeping>,
    ) -> Result<(AnsweredHello, Vec<u8>), Refusal> {
        match hello.accepted.into_connection(config) {
            Ok(connection) => Ok((AnsweredHello { connection, keeping }, hello.behind)),
            Err((error, alert)) => Err(Refusal { error: AcceptError::of(error), alert: Alert::Tls(alert) }),
        }
    }

    /// Goes on behind an answered ClientHello.
    async fn go_on<IO>(
        &self,
        answered: AnsweredHello,
        io: IO,
        behind: Vec<u8>,
    ) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let AnsweredHello { connection, keeping } = answered;
        let mut machine = Machine::new(io, connection.into(), behind);
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
        Ok(TlsStream::server(machine, self.shared.time.clone(), keeping))
    }

    /// Reads the first bytes, up to TLS or a flight that is taken (sealed.md 3.5).
    async fn begin<IO>(
        &self,
        seal: &SealServer,
        io: &mut IO,
        mut held: Vec<u8>,
        from: &Arrival,
        rejected: &mut Option<Rejection>,
    ) -> Result<ClientStart, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let mut intake = Intake::new(seal.now());
        loop {
            let (used, step) = intake.handle(&held, |id| seal.knows(id));
            held.drain(..used);
            match step {
                Step::Tls => return Ok(ClientStart::Tls(held)),
                Step::Sealed(flight) => match self.open(seal, &flight, from).await {
                    Ok(taken) => return Ok(ClientStart::Sealed(Box::new(taken), held)),
                    Err(Decline::Reject(why)) => {
                        *rejected = Some(why);
                        count(Some(ServedSeal::rejected(why)));
                        send(io, &intake.reject()).await?;
                    }
                    Err(Decline::Close(why)) => {
                        let _ = io.shutdown().await;
                        return Err(AcceptError::NotRun(why));
                    }
                },
                Step::Reject => {
                    *rejected = Some(Rejection::UnknownKey);
                    count(rejected.map(ServedSeal::rejected));
                    send(io, &REJECT).await?;
                }
                Step::Close(why) => {
                    let _ = io.shutdown().await;
                    return Err(AcceptError::Flight(why));
                }
                // All that was held is used.
                Step::More(_) => {
                    held.resize(PIECE, 0);
                    let count = io.read(&mut held).await.map_err(AcceptError::Io)?;
                    held.truncate(count);
                    if count == 0 {
                        return Err(AcceptError::Closed);
                    }
                }
            }
        }
    }

    /// Opens a flight, answers its ClientHello in memory, and decides when its request runs (6.1). Nothing is sent before
    /// it is certain that TLS takes the ClientHello.
    async fn open(&self, seal: &SealServer, flight: &Flight, from: &Arrival) -> Result<Taken, Decline> {
        let arrived = seal.now();
        let opened = seal.open(flight, from)?;
        // Without a certificate of the name the client would not accept the answer, but the request would have run.
        let certificates = &self.shared.certificates;
        let hello = opened.check(|name| seal.has(name) && certificates.are_for(name.as_str()))?;
        let rejected = |kind, why: &dyn fmt::Display| {
            tracing::debug!("a sealed first flight is rejected: {why}");
            Decline::Reject(kind)
        };
        let mut config = (*self.shared.config).clone();
        if !config.alpn_protocols.iter().any(|known| known == hello.protocol) {
            return Err(rejected(Rejection::OtherProtocol, &"another protocol"));
        }
        let name = [&PROTOCOL_PREFIX, hello.protocol].concat();
        config.alpn_protocols = vec![name.clone()];
        config.max_early_data_size = 0;
        let mut inner = opened.inner().hello;
        let refused = |refusal: Refusal| rejected(Rejection::Handshake, &refusal.error);
        let read = Hello::read(&mut inner, Vec::new()).await.map_err(refused)?;
        let answered = self.tls(read, Arc::new(config)).await;
        let (answered, _) = answered.map_err(refused)?;
        let connection = &answered.connection;
        let retried = connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
        if retried || connection.alpn_protocol() != Some(&name) {
            return Err(rejected(Rejection::Handshake, &"TLS would ask for another ClientHello"));
        }
        let (waiting, why) = match seal.judge(&opened, &hello, from, self.shared.asks, arrived).await {
            Runs::Now(why) => (None, why),
            Runs::AfterFinished(waiting, why) => (Some(waiting), why),
            Runs::Reject(why) => return Err(rejected(Rejection::Block(why), &why)),
            Runs::Close(why) => return Err(Decline::Close(why)),
        };
        let (request, replayable) = (opened.inner().request, opened.inner().flags.replayable);
        let info = SealedInfo { replayable, ran_early: waiting.is_none(), in_first_flight: from.first, why };
        Ok(Taken { answered, waiting, info, request: Zeroizing::new(request.to_vec()) })
    }

    /// Answers a flight. A request that waits for Finished is given to the application when it runs, or never.
    async fn answer<IO>(
        &self,
        seal: &SealServer,
        taken: Taken,
        io: IO,
        behind: Vec<u8>,
    ) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Taken { answered, waiting, info, request } = taken;
        let Some(waiting) = waiting else {
            return Ok(self.go_on(answered, io, behind).await?.sealed(request, info));
        };
        let left = waiting.deadline().saturating_since(seal.now());
        let finishing = async {
            let mut stream = self.go_on(answered, io, behind).await?;
            stream.confirmed().await.map_err(AcceptError::handshake)?;
            Ok(stream)
        };
        let late = || Err(AcceptError::Timeout(Waiting::WITHIN));
        let mut stream = seal.time().timeout(left, finishing).await.unwrap_or_else(late)?;
        match seal.finished(&waiting).await {
            Ok(()) => Ok(stream.sealed(request, info)),
            Err(why) => {
                let _ = stream.io_mut().shutdown().await;
                Err(why.map_or(AcceptError::Timeout(Waiting::WITHIN), AcceptError::NotRun))
            }
        }
    }
}

/// What a client begins with.
enum ClientStart {
    /// TLS, of which this was read.
    Tls(Vec<u8>),
    /// A flight that is taken, and what was read behind it.
    Sealed(Box<Taken>, Vec<u8>),
}

/// A flight that is taken. Nothing was sent yet.
struct Taken {
    answered: AnsweredHello,
    /// Set if the request waits for the client's Finished.
    waiting: Option<Waiting>,
    info: SealedInfo,
    request: Zeroizing<Vec<u8>>,
}

/// A ClientHello that TLS has answered in memory.
struct AnsweredHello {
    connection: ServerConnection,
    keeping: Option<Keeping>,
}

/// Counts what became of a sealed flight.
#[cfg_attr(
    not(feature = "metrics"),
    allow(clippy::missing_const_for_fn, reason = "it counts with the feature")
)]
fn count(seal: Option<ServedSeal>) {
    #[cfg(feature = "metrics")]
    seal.into_iter().for_each(crate::metrics::served);
    #[cfg(not(feature = "metrics"))]
    let _ = seal;
}

async fn send<IO: AsyncWrite + Unpin>(io: &mut IO, bytes: &[u8]) -> Result<(), AcceptError> {
    io.write_all(bytes).await.map_err(AcceptError::Io)?;
    io.flush().await.map_err(AcceptError::Io)
}
