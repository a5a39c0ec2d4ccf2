//! QUIC by quinn, for comparison: one round trip for the handshake, and none with a ticket.

use super::client::{ms, unix};
use super::{Failure, NAME};
use firstflight_tls::rustls::crypto::aws_lc_rs;
use firstflight_tls::rustls::pki_types::pem::PemObject;
use firstflight_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use firstflight_tls::rustls::{self, RootCertStore};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, ServerConfig};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ALPN: &[u8] = b"hq";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n";
const ANSWER: [u8; 1000] = [b'r'; 1000];

pub fn serve(files: &Path, at: SocketAddr) -> Result<Endpoint, Failure> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(files.join("chain.pem"))?.collect();
    let key = PrivateKeyDer::from_pem_file(files.join("key.pem"))?;
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain?, key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // QUIC knows no other number (RFC 9001 §4.6.1).
    config.max_early_data_size = u32::MAX;
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(config)?));
    let endpoint = Endpoint::server(config, at)?;
    let accepting = endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(async move {
                if let Err(error) = answer(incoming).await {
                    crate::output::complain(&format_args!("QUIC: {error}"));
                }
            });
        }
    });
    Ok(endpoint)
}

/// Answers one request, before the client's Finished if it came as early data.
async fn answer(incoming: Incoming) -> Result<(), Failure> {
    let connection = match incoming.accept()?.into_0rtt() {
        Ok((connection, _)) => connection,
        Err(connecting) => connecting.await?,
    };
    let (mut send, mut receive) = connection.accept_bi().await?;
    receive.read_to_end(REQUEST.len()).await?;
    send.write_all(&ANSWER).await?;
    send.finish()?;
    connection.closed().await;
    Ok(())
}

/// A visit; with a ticket its request is early data.
pub async fn visit(files: &Path, server: SocketAddr, ticket: bool) -> Result<Value, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(files.join("ca.pem"))? {
        roots.add(certificate?)?;
    }
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_early_data = true;
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config)?));
    let endpoint = Endpoint::client(SocketAddr::from(([0, 0, 0, 0], 0)))?;
    if ticket {
        let connection = endpoint.connect_with(config.clone(), server, NAME)?.await?;
        ask(&connection).await?;
        // Tickets come behind the client's Finished.
        tokio::time::sleep(Duration::from_millis(300)).await;
        connection.close(0u8.into(), b"");
    }
    let (began, start) = (unix(), Instant::now());
    let connecting = endpoint.connect_with(config, server, NAME)?;
    let (connection, early) = match (ticket, connecting) {
        (true, connecting) => match connecting.into_0rtt() {
            Ok((connection, accepted)) => (connection, Some(accepted)),
            Err(_) => return Err("QUIC: no ticket".into()),
        },
        (false, connecting) => (connecting.await?, None),
    };
    ask(&connection).await?;
    let first_byte = start.elapsed();
    let early = match early {
        Some(accepted) => Some(accepted.await),
        None => None,
    };
    let ended = unix();
    connection.close(0u8.into(), b"");
    endpoint.wait_idle().await;
    let early = match early {
        Some(true) => "accepted",
        Some(false) => "refused",
        None => "none",
    };
    Ok(json!({ "ms": ms(first_byte), "early_data": early, "began": began, "ended": ended }))
}

/// Resolves at the first byte of the answer.
async fn ask(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(REQUEST).await?;
    send.finish()?;
    receive.read_exact(&mut [0]).await?;
    Ok(())
}
