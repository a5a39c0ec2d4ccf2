//! A certificate authority, both ends, and a stream that remembers writes.
#![allow(clippy::unwrap_used, dead_code, reason = "tests")]

pub(crate) mod emulated;
pub(crate) mod sealed;

use firstflight::credential::NetworkId;
use firstflight::{Authority, Client, FirstFlight};
use firstflight_tls::{
    AcceptError, Acceptor, AcceptorBuilder, ConnectError, Connector, ConnectorBuilder, TlsStream,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

pub(crate) const NAME: &str = "www.example.com";
pub(crate) const REQUEST: &[u8] = b"request";
pub(crate) const ANSWER: &[u8] = b"answer";

pub(crate) fn site() -> Authority {
    format!("{NAME}:443").parse().unwrap()
}

/// A client that knows its network. Finding that out takes time, and tickets of before are forgotten then.
pub(crate) fn client() -> Client {
    Client::builder().network(NetworkId([1; 16])).build().unwrap()
}

pub(crate) const fn safe() -> FirstFlight<'static> {
    FirstFlight::safely_replayable(REQUEST)
}

pub(crate) const fn once() -> FirstFlight<'static> {
    FirstFlight::at_most_once(REQUEST)
}

/// A certificate authority.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Made {
    pub(crate) certificate: rcgen::Certificate,
    pub(crate) key: KeyPair,
}

impl Made {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.der().clone()]
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.serialize_der().try_into().unwrap()
    }
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn certify(&self, name: &str) -> Made {
        self.certify_key(name, KeyPair::generate().unwrap())
    }

    /// A certificate with a key of RSA.
    pub(crate) fn certify_rsa(&self, name: &str) -> Made {
        self.certify_key(name, KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap())
    }

    fn certify_key(&self, name: &str, key: KeyPair) -> Made {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        Made { certificate: params.signed_by(&key, &self.0).unwrap(), key }
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    pub(crate) fn connector(&self) -> ConnectorBuilder {
        Connector::builder().roots(self.roots())
    }

    pub(crate) fn acceptor(&self) -> AcceptorBuilder {
        let made = self.certify(NAME);
        Acceptor::builder().certificate(made.chain(), made.key())
    }
}

/// Both ends.
pub(crate) struct World {
    pub(crate) ca: Ca,
    pub(crate) connector: Connector,
    pub(crate) acceptor: Acceptor,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|connector| connector, |acceptor| acceptor)
    }

    pub(crate) fn with(
        connector: impl FnOnce(ConnectorBuilder) -> ConnectorBuilder,
        acceptor: impl FnOnce(AcceptorBuilder) -> AcceptorBuilder,
    ) -> Self {
        let ca = Ca::new();
        let connector = connector(ca.connector()).build().unwrap();
        let acceptor = acceptor(ca.acceptor()).build().unwrap();
        Self { ca, connector, acceptor }
    }

    /// Connects both ends.
    pub(crate) async fn pair(
        &self,
        first: FirstFlight<'_>,
    ) -> (Result<TlsStream<Recorded>, ConnectError>, Result<TlsStream<Recorded>, AcceptError>) {
        let (ours, theirs) = wire();
        let site = site();
        tokio::join!(self.connector.connect_over(ours, &site, first), self.acceptor.accept_over(theirs))
    }

    /// A visit that ends well, after which the connector has tickets. Returns both ends.
    pub(crate) async fn visit(&self, first: FirstFlight<'_>) -> (TlsStream<Recorded>, TlsStream<Recorded>) {
        let (ours, theirs) = self.pair(first).await;
        let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
        exchange(&mut ours, &mut theirs, first.data()).await;
        (ours, theirs)
    }
}

/// The server reads `request` and answers, both close.
pub(crate) async fn exchange<A, B>(ours: &mut TlsStream<A>, theirs: &mut TlsStream<B>, request: &[u8])
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let serve = async {
        let mut got = vec![0; request.len()];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(got, request);
        theirs.write_all(ANSWER).await.unwrap();
        theirs.shutdown().await.unwrap();
    };
    let read = async {
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, ANSWER);
        ours.shutdown().await.unwrap();
    };
    tokio::join!(serve, read);
}

/// The writes of an end.
pub(crate) type Writes = Arc<Mutex<Vec<Vec<u8>>>>;

/// A stream that remembers what was written to it.
#[derive(Debug)]
pub(crate) struct Recorded {
    io: DuplexStream,
    pub(crate) writes: Writes,
}

pub(crate) fn wire() -> (Recorded, Recorded) {
    let (a, b) = duplex(1 << 18);
    (Recorded::new(a), Recorded::new(b))
}

impl Recorded {
    pub(crate) fn new(io: DuplexStream) -> Self {
        Self { io, writes: Writes::default() }
    }
}

/// The first write.
pub(crate) fn first_write(writes: &Writes) -> Vec<u8> {
    writes.lock().unwrap().first().cloned().unwrap_or_default()
}

/// The types of the records in these bytes, which are whole.
pub(crate) fn record_types(mut bytes: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let Some((&[kind, _, _, high, low], rest)) = bytes.split_first_chunk() {
        types.push(kind);
        bytes = &rest[usize::from(u16::from_be_bytes([high, low]))..];
    }
    assert!(bytes.is_empty());
    types
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.writes.lock().unwrap().push(bytes[..count].to_vec());
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
