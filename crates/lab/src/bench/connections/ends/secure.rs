//! The settings of TLS 1.3 for TCP and for QUIC: one key exchange (X25519) and one cipher (AES-128-GCM), a certificate
//! with ECDSA P-256, no resumption unless it is the subject.

use super::invalid;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ServerSessionMemoryCache;
use rustls::version::TLS13;
use rustls::{ClientConfig, NamedGroup, RootCertStore, ServerConfig};
use serde_json::Value;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The server's name.
pub const NAME: &str = "localhost";
/// Sessions that a server remembers for 0-RTT.
const SESSIONS: usize = 1 << 18;
/// Tickets that a client remembers in one place.
const TICKETS: usize = 8;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..aws_lc_rs::default_provider()
    })
}

/// A server's settings, and its certificate as hexadecimal digits. Only a server with `early` sends tickets.
pub fn server(early: bool) -> io::Result<(ServerConfig, String)> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
    let certificate = made.cert.der().clone();
    let hex = certificate.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(io::Error::other)?;
    config.send_tls13_tickets = usize::from(early);
    if early {
        config.max_early_data_size = u32::MAX;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    }
    Ok((config, hex))
}

/// A client's settings for the server that said `server`.
pub fn client(server: &Value) -> io::Result<ClientConfig> {
    let hex = server.get("certificate").and_then(Value::as_str).unwrap_or_default();
    let pairs = (0..hex.len() / 2).map(|at| hex.get(2 * at..2 * at + 2));
    let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    let der =
        CertificateDer::from(bytes.ok_or_else(|| invalid("the server's certificate is no hexadecimal"))?);
    let mut roots = RootCertStore::empty();
    roots.add(der).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// The tickets of one task, which waits for one before it closes a connection: a server takes each once.
#[derive(Debug, Default)]
pub struct Tickets {
    tickets: Mutex<Vec<Tls13ClientSessionValue>>,
    more: Notify,
}

impl Tickets {
    /// Waits until there is a ticket.
    pub async fn wait(&self) {
        loop {
            let more = self.more.notified();
            if !self.tickets.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                return;
            }
            more.await;
        }
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() < TICKETS {
            tickets.push(value);
        }
        drop(tickets);
        self.more.notify_one();
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}
