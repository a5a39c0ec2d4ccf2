//! Both ends of TLS in memory: this project's, and rustls alone.

use super::io::{Io, now, poll};
use crate::bench::BenchError;
use crate::tls::NAME;
use crate::tls::files;
use firstflight::link::VirtualTime;
use firstflight::{Authority, FirstFlight, Time};
use firstflight_tls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use firstflight_tls::rustls::pki_types::pem::PemObject;
use firstflight_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use firstflight_tls::rustls::{self, ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use firstflight_tls::seal::{KeySet, KeySource, Record, RegisterLimits, SealKey};
use firstflight_tls::{
    Acceptor, ConnectError, Connector, HTTP_1_1, Hybrid, SealClient, SealServer, TlsStream,
};
use std::io::{Read, Write};
use std::num::{NonZeroU8, NonZeroU32};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub const PORT: u16 = 443;
/// Bytes of the server's certificates.
const CHAIN: usize = 2000;
pub const REQUEST: &[u8] =
    b"GET /a-page-of-the-site HTTP/1.1\r\nHost: www.example.com\r\nAccept: */*\r\n\r\n";
pub const ANSWER: [u8; 1000] = [b'r'; 1000];

/// A connect under way.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<TlsStream<Io>, ConnectError>> + 'a>>;

/// What both ends have in common. The clock stands still unless it is moved.
pub struct SealEnds {
    pub clock: VirtualTime,
    time: Time,
    site: Authority,
    /// The server's certificates and its key.
    made: files::MadeChain,
    pub keys: KeySet,
    pub record: Record,
    sealed: Connector,
    clear: Connector,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

fn refused<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::refused(what, error)
}

impl SealEnds {
    /// Keys, certificates and settings.
    pub fn new() -> Result<Self, BenchError> {
        let began = Duration::from_millis(firstflight::unix_ms());
        let clock = VirtualTime::new(began);
        let time = Time::from(clock.clone());
        let (root, made) = files::make("root", CHAIN).map_err(refused("a certificate"))?;
        let mut keys = KeySet::new(NAME.parse().map_err(refused("the name"))?);
        let (id, key) =
            NonZeroU8::new(7).zip(SealKey::from_bytes(&[5; 32])).ok_or(BenchError::Wrong("a key".into()))?;
        keys.add(id, key, (began.as_secs() + 86_400) as u32, began.as_secs())
            .map_err(refused("a seal key"))?;
        let record = keys.record(began.as_secs()).ok_or(BenchError::Wrong("no record".into()))?;
        let site = Authority::new(NAME, PORT).map_err(refused("the site"))?;
        let roots = roots(&root)?;
        let connector = |seal: Option<SealClient>| {
            let builder = Connector::builder().roots(roots.clone()).http1().hybrid(Hybrid::Never);
            let builder = builder.time(time.clone());
            let builder = if let Some(seal) = seal { builder.seal(seal) } else { builder };
            builder.build().map_err(refused("a connector"))
        };
        let seal = SealClient::new().record(site.clone(), record.clone(), KeySource::Configuration);
        let (sealed, clear) = (connector(Some(seal))?, connector(None)?);
        let (client, server) = (Arc::new(client(roots)?), Arc::new(server(&made)?));
        Ok(Self { clock, time, site, made, keys, record, sealed, clear, client, server })
    }

    /// A server that has run nothing, with a budget of so many openings a second.
    pub fn acceptor(&self, openings: NonZeroU32) -> Result<Acceptor, BenchError> {
        let seal = SealServer::builder(self.keys.clone(), PORT).first_start(true).openings(openings);
        let limits = RegisterLimits { entries: 1 << 20, without_block: 1 << 20 };
        let seal = seal.limits(limits).time(self.time.clone()).build().map_err(refused("a seal server"))?;
        let (chain, key) = pem(&self.made)?;
        let builder = Acceptor::builder().certificate(chain, key).alpn([HTTP_1_1]).time(self.time.clone());
        builder.seal(seal).build().map_err(refused("an acceptor"))
    }

    /// Begins a connect with the request, sealed or in clear.
    pub fn connect(&self, io: Io, sealed: bool) -> Connecting<'_> {
        let connector = if sealed { &self.sealed } else { &self.clear };
        Box::pin(connector.connect_over(io, &self.site, FirstFlight::safely_replayable(REQUEST)))
    }

    /// What a client begins with: a sealed flight, or a ClientHello.
    pub fn first_flight(&self, sealed: bool) -> Result<Vec<u8>, BenchError> {
        let io = Io::default();
        match poll(self.connect(io.clone(), sealed).as_mut()) {
            Poll::Pending => Ok(io.written()),
            Poll::Ready(result) => Err(BenchError::refused("a connect", result.map(drop))),
        }
    }

    pub fn rustls_client(&self) -> Result<ClientConnection, BenchError> {
        let name = ServerName::try_from(NAME).map_err(refused("the name"))?;
        ClientConnection::new(Arc::clone(&self.client), name).map_err(refused("rustls' client"))
    }

    /// A ClientHello of rustls alone with these ALPN names.
    pub fn rustls_hello(&self, names: &[Vec<u8>]) -> Result<Vec<u8>, BenchError> {
        let name = ServerName::try_from(NAME).map_err(refused("the name"))?;
        let config = Arc::clone(&self.client);
        let mut client = ClientConnection::new_with_alpn(config, name, names.to_vec())
            .map_err(refused("rustls' client"))?;
        let mut hello = Vec::new();
        client.write_tls(&mut hello).map_err(refused("rustls' client"))?;
        Ok(hello)
    }

    /// rustls alone answers a ClientHello: the handshake and the response, before the client's Finished.
    pub fn rustls_answer(&self, mut hello: &[u8]) -> Result<Vec<u8>, BenchError> {
        let fail = refused::<rustls::Error>("rustls' server");
        let mut acceptor = rustls::server::Acceptor::default();
        acceptor.read_tls(&mut hello).map_err(refused("rustls' server"))?;
        let accepted = acceptor.accept().map_err(|(error, _)| fail(error))?;
        let accepted = accepted.ok_or(BenchError::Wrong("a part of a ClientHello".into()))?;
        let connection = accepted.into_connection(Arc::clone(&self.server));
        let mut connection = connection.map_err(|(error, _)| fail(error))?;
        connection.writer().write_all(&ANSWER).map_err(refused("rustls' server"))?;
        let mut out = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut out).map_err(refused("rustls' server"))?;
        }
        Ok(out)
    }

    /// rustls alone reads the answer, and makes its Finished.
    pub fn rustls_read(client: &mut ClientConnection, mut answer: &[u8]) -> Result<(), BenchError> {
        while !answer.is_empty() {
            client.read_tls(&mut answer).map_err(refused("rustls' client"))?;
            client.process_new_packets().map_err(refused("rustls' client"))?;
        }
        let (mut read, mut out) = ([0; ANSWER.len()], Vec::new());
        client.reader().read_exact(&mut read).map_err(refused("rustls' client"))?;
        while client.wants_write() {
            client.write_tls(&mut out).map_err(refused("rustls' client"))?;
        }
        check(read == ANSWER && !out.is_empty() && !client.is_handshaking(), "what rustls' client read")
    }
}

pub fn check(holds: bool, what: &str) -> Result<(), BenchError> {
    if holds { Ok(()) } else { Err(BenchError::Wrong(what.to_owned())) }
}

/// A server answers what an end has sent: a sealed request, which it reads first, or a ClientHello.
pub fn answer(acceptor: &Acceptor, io: &Io, sealed: bool) -> Result<(), BenchError> {
    let mut stream = now("an accept", acceptor.accept_over(io.clone()))?;
    if sealed {
        let mut request = [0; REQUEST.len()];
        now("a read", stream.read_exact(&mut request))?;
        check(request == REQUEST && stream.is_early(), "the sealed request")?;
    }
    now("a write", stream.write_all(&ANSWER))?;
    now("a flush", stream.flush())
}

/// A client reads the answer.
pub fn read_answer(stream: &mut TlsStream<Io>) -> Result<(), BenchError> {
    let mut read = [0; ANSWER.len()];
    now("a read", stream.read_exact(&mut read))?;
    check(read == ANSWER, "the answer")
}

fn roots(pem: &str) -> Result<RootCertStore, BenchError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(refused("the authority"))?;
        roots.add(certificate).map_err(refused("the authority"))?;
    }
    Ok(roots)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn pem(made: &files::MadeChain) -> Result<Identity, BenchError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(made.chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes());
    Ok((chain.map_err(refused("the chain"))?, key.map_err(refused("the key"))?))
}

/// rustls alone offers what the connectors do: X25519.
fn client(roots: RootCertStore) -> Result<ClientConfig, BenchError> {
    let groups = vec![aws_lc_rs::kx_group::X25519];
    let provider = CryptoProvider { kx_groups: groups, ..aws_lc_rs::default_provider() };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused("rustls' client"))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(config)
}

fn server(made: &files::MadeChain) -> Result<ServerConfig, BenchError> {
    let (chain, key) = pem(made)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(refused("rustls' server"))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused("rustls' server"))?;
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    config.send_half_rtt_data = true;
    Ok(config)
}
