//! TLS of the demonstration. The key is published, and certifies an address of the documentation (RFC 5737) until 2120.

use super::world::TLS;
use firstflight::credential::NetworkId;
use firstflight::{ConnectConfig, Endpoint, FirstFlight, Stream, Time};
use firstflight_tls::rustls::RootCertStore;
use firstflight_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use firstflight_tls::{Acceptor, ConfigError, Connector, Departure, TlsStream};
use std::io;

const CERTIFICATE: &[u8] = include_bytes!("tls/cert.der");
/// Ed25519, whose signatures all have the same length, so that the same seed gives the same packets.
const KEY: &[u8] = include_bytes!("tls/key.der");

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from(CERTIFICATE)
}

/// The server's end.
pub fn acceptor(time: &Time) -> Result<Acceptor, ConfigError> {
    let key = PrivateKeyDer::Pkcs8(KEY.into());
    Acceptor::builder().certificate(vec![certificate()], key).time(time.clone()).build()
}

/// The client's end.
pub fn connector(time: &Time) -> Result<Connector, ConfigError> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate())?;
    Connector::builder().roots(roots).time(time.clone()).build()
}

/// Connects by TLS, with the ClientHello in the first flight.
pub async fn connect(
    connector: &Connector,
    client: &Endpoint,
    request: FirstFlight<'_>,
    config: &ConnectConfig,
) -> io::Result<TlsStream<Stream>> {
    let hello = connector.hello(&TLS.into(), Departure::in_syn(NetworkId::UNKNOWN), request)?;
    let bytes = hello.bytes().to_vec();
    let stream = client.connect(TLS, FirstFlight::safely_replayable(&bytes), config).await?;
    stream.set_nodelay(true)?;
    Ok(hello.finish(stream).await?)
}
