//! Connections whose bytes are forwarded as they are: TCP, and TLS that is passed through.

use crate::backend::Service;
use crate::client::{Client, ClientFacts};
use crate::config::Mode;
use crate::log::{Entry, Event};
use crate::metrics;
use crate::site::Site;
use firstflight_http::hello::{self, FirstRead};
use firstflight_http::patience::timeout;
use firstflight_http::proxy_header;
use firstflight_http::pump::{self, PumpEnd, Start, Traffic};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A fatal alert of TLS: there is no such name (RFC 6066 §3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
/// How much is read at first, bytes.
const PIECE: usize = 4096;

/// What the first bytes say.
struct FirstBytes {
    service: Arc<Service>,
    bytes: Vec<u8>,
    /// How many of the bytes run nothing, whoever sent them.
    harmless: usize,
    name: Option<String>,
}

/// Why a connection does not reach a service.
enum Refusal {
    /// The client left, or sent nothing.
    Nothing,
    /// With this reason.
    Because(&'static str),
}

/// Serves a connection to its end.
pub(crate) async fn serve(mut client: Client, site: &Arc<Site>) {
    let opening = match open(&mut client, site).await {
        Ok(opening) => opening,
        Err(Refusal::Nothing) => {
            tracing::debug!(listener = site.name(), peer = %client.about().peer, "a connection without data");
            return;
        }
        Err(Refusal::Because(reason)) => {
            tracing::debug!(listener = site.name(), peer = %client.about().peer, reason, "a connection is refused");
            metrics::refused(site.name(), reason);
            return;
        }
    };
    let about = client.about();
    let mut entry = Entry::new(site, Event::Connection, about);
    entry.service = Some(Arc::clone(&opening.service));
    entry.host.clone_from(&opening.name);
    let service = Arc::clone(&opening.service);
    let (start, header) = match start(&client, &about, opening, &mut entry) {
        Ok(start) => start,
        Err(_) => {
            entry.end = Some("proxy-header");
            return client.abort();
        }
    };
    let said = !start.bytes.is_empty();
    let connected = tokio::select! {
        connected = service.connect(header.as_deref()) => connected,
        () = client.left(said) => {
            entry.end = Some("client-left");
            return;
        }
    };
    let (mut backend, lease) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            tracing::warn!(listener = site.name(), service = service.name(), %error, "no backend was reached");
            entry.end = Some("no-backend");
            return client.abort();
        }
    };
    entry.backend = Some(Arc::clone(lease.backend()));
    let confirmed = |client: &Client, cx: &mut std::task::Context<'_>| client.poll_confirmed(cx);
    let (limits, traffic) = (site.config.pump(site.config.idle()), Traffic::default());
    let end = pump::run(&mut client, &mut backend, start, limits, &traffic, confirmed).await;
    let copied = traffic.copied();
    (entry.bytes_in, entry.bytes_out) = (copied.up, copied.down);
    entry.end = Some(end.as_str());
    match end {
        PumpEnd::Closed => {}
        PumpEnd::Client(error) => {
            tracing::debug!(peer = %about.peer, %error, "the client's connection failed");
            backend.abort();
            client.abort();
        }
        PumpEnd::Backend(error) => {
            tracing::debug!(backend = lease.backend().label, %error, "the backend's connection failed");
            client.abort();
        }
        PumpEnd::Idle | PumpEnd::HalfClosed => {
            backend.abort();
            client.abort();
        }
    }
}

/// Reads what is needed to know the service.
async fn open(client: &mut Client, site: &Site) -> Result<FirstBytes, Refusal> {
    match *site.config.mode.get_ref() {
        Mode::TlsPassthrough => {
            let reading = timeout(site.config.header_timeout.0, open_tls(client, site));
            reading.await.unwrap_or(Err(Refusal::Because("hello-timeout")))
        }
        _ => open_tcp(client, site).await,
    }
}

async fn open_tcp(client: &mut Client, site: &Site) -> Result<FirstBytes, Refusal> {
    let service = Arc::clone(site.default_service().ok_or(Refusal::Because("no-service"))?);
    let mut bytes = Vec::new();
    if !service.config.server_first {
        read(client, &mut bytes, site.config.idle()).await?;
    }
    Ok(FirstBytes { service, bytes, harmless: 0, name: None })
}

async fn open_tls(client: &mut Client, site: &Site) -> Result<FirstBytes, Refusal> {
    let mut bytes = Vec::new();
    let (harmless, name) = loop {
        read(client, &mut bytes, site.config.header_timeout.0).await?;
        match hello::look(&bytes) {
            FirstRead::More => {}
            FirstRead::Hello { length, name } => break (length, name),
            // Not TLS. It may still have a service, but none of it passes before the client is confirmed.
            FirstRead::Other => {
                let service = site.default_service().ok_or(Refusal::Because("not-tls"))?;
                return Ok(FirstBytes { service: Arc::clone(service), bytes, harmless: 0, name: None });
            }
        }
    };
    match site.service_for_name(name.as_deref()) {
        Some(service) => Ok(FirstBytes { service: Arc::clone(service), bytes, harmless, name }),
        None => {
            let _ = client.write_all(&UNRECOGNIZED_NAME).await;
            let _ = client.shutdown().await;
            Err(Refusal::Because("no-service-for-name"))
        }
    }
}

async fn read(client: &mut Client, bytes: &mut Vec<u8>, within: Duration) -> Result<(), Refusal> {
    bytes.reserve(PIECE);
    match timeout(within, client.read_buf(bytes)).await {
        Ok(Ok(1..)) => Ok(()),
        _ => Err(Refusal::Nothing),
    }
}

/// What goes to the backend at once, behind the PROXY header if there is one.
fn start(
    client: &Client,
    about: &ClientFacts,
    opening: FirstBytes,
    entry: &mut Entry,
) -> io::Result<(Start, Option<Vec<u8>>)> {
    let config = &opening.service.config;
    let early = client.is_early();
    // With a header its mark says exactly which bytes may be a copy, so no others pass either.
    let passes = match (early, config.replay_safe, config.proxy_protocol) {
        (false, ..) | (true, true, false) => None,
        (true, true, true) => Some(opening.bytes.len()),
        (true, false, _) => Some(opening.harmless),
    };
    if early {
        let forwarded = passes.is_none_or(|count| count > 0);
        entry.early = Some(if forwarded { "forwarded" } else { "waited" });
    }
    let header = match config.proxy_protocol {
        true => {
            let marked = passes.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX));
            let name = opening.name.as_deref();
            Some(proxy_header::about(about.peer, about.local, name, marked.max(about.marked))?)
        }
        false => None,
    };
    Ok((Start { bytes: opening.bytes, passes }, header))
}

#[cfg(test)]
mod tests;
