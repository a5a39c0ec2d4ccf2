//! The demonstration's servers. Each serves one object, by cookie or by certificate.

use super::DemoError;
use super::certified::{CERTIFIER, SITES_OWN, identity};
use super::world::{CERTIFICATES, COOKIES, PIECE, SITE, UNKNOWN, engine, find_blank_line};
use crate::error::Error;
use firstflight::credential::asap::{AsapPolicy, GuardDomain, Identity, TrustStore, Trusted};
use firstflight::credential::{
    CookieKey, FastOpenPolicy, GuardKey, KeyRing, PendingLimit, Quarantine, ReplayTable, Scheme, Window,
};
use firstflight::link::Link;
use firstflight::{Endpoint, ListenConfig, Listener, Time};
use rand_chacha::ChaCha20Rng;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest request that the server reads, bytes.
const MAX_REQUEST: usize = 4096;
/// Bytes of a replay guard's memory. A demonstration has few requests.
const GUARD: usize = 64 << 10;

/// All servers.
pub struct DemoSite {
    executed: Arc<AtomicU64>,
    server: Endpoint,
}

impl DemoSite {
    /// Opens all servers on one engine.
    pub fn open<L: Link + 'static>(
        link: L,
        size: u64,
        time: &Time,
        seeds: &mut ChaCha20Rng,
    ) -> Result<Self, Error> {
        let all = [CERTIFICATES, UNKNOWN, super::world::TLS, SITE[0], SITE[1], COOKIES];
        let addresses = all.map(|at| at.ip());
        let server = Endpoint::in_time(engine(addresses.to_vec(), seeds)?, link, time);
        let executed = Arc::new(AtomicU64::new(0));
        let key = CookieKey::from_bytes(super::world::draw(seeds));
        let cookies = FastOpenPolicy::new(
            Arc::new(KeyRing::new(Scheme::default(), key)),
            Arc::new(PendingLimit::new(16)),
        );
        // The listener without certificates comes last. Otherwise those with certificates would close for ten seconds
        // (`docs/spec/asap.md` §7.5).
        for at in all {
            let mut config = ListenConfig::new(at);
            if at == COOKIES {
                config.fast_open = Some(cookies.clone());
            } else {
                config.asap = Some(certificates(at, time, seeds)?);
            }
            let listener = server.listen(config).map_err(|error| Error::Listen(at, error))?;
            let executed = Arc::clone(&executed);
            if at == super::world::TLS {
                let acceptor = super::tls::acceptor(time).map_err(DemoError::Tls)?;
                tokio::spawn(serve_by_tls(listener, acceptor, size, executed));
                continue;
            }
            tokio::spawn(serve(listener, size, executed));
        }
        Ok(Self { executed, server })
    }

    /// The servers' endpoint.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.server
    }

    /// Number of requests answered.
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }
}

/// A policy that trusts one verifier, as the server operator's own.
fn certificates(at: SocketAddr, time: &Time, seeds: &mut ChaCha20Rng) -> Result<AsapPolicy, Error> {
    let verifier = if SITE.contains(&at) { SITES_OWN } else { CERTIFIER };
    let trusted = Trusted { own: true, ..Trusted::new(verifier.key().public()) };
    let key = GuardKey::from_bytes(super::world::draw(seeds));
    // A new guard refuses what an earlier server may have accepted. There was none, so it begins in the past.
    let began = super::world::unix_ms(time).saturating_sub(60_000);
    Ok(AsapPolicy {
        trust: Arc::new(TrustStore::new([trusted]).map_err(DemoError::Trust)?),
        identities: [identity(at), Identity::name(super::lookup::NAME, at.port())].into(),
        guard: Arc::new(ReplayTable::new(key, Window::REQUESTS, GUARD, began)),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::new(16)),
        relayed: Some(Arc::new(PendingLimit::with_clients(16, 4))),
        quarantine: Quarantine::default(),
    })
}

async fn serve(listener: Listener, size: u64, executed: Arc<AtomicU64>) {
    while let Ok(stream) = listener.accept().await {
        let executed = Arc::clone(&executed);
        tokio::spawn(async move {
            // The client's side reports errors.
            let _ = answer(stream, size, &executed).await;
        });
    }
}

async fn serve_by_tls(
    listener: Listener,
    acceptor: firstflight_tls::Acceptor,
    size: u64,
    executed: Arc<AtomicU64>,
) {
    while let Ok(stream) = listener.accept().await {
        let (acceptor, executed) = (acceptor.clone(), Arc::clone(&executed));
        tokio::spawn(async move {
            // The client's side reports errors.
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = answer(stream, size, &executed).await;
            }
        });
    }
}

async fn answer<S>(mut stream: S, size: u64, executed: &AtomicU64) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = Vec::new();
    while find_blank_line(&request).is_none() {
        if request.len() > MAX_REQUEST || stream.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    executed.fetch_add(1, Ordering::Relaxed);
    let mut piece =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n").into_bytes();
    let head = piece.len();
    let mut left = size;
    loop {
        let body = usize::try_from(left).unwrap_or(PIECE).min(PIECE - head);
        piece.resize(piece.len() + body, b'.');
        stream.write_all(&piece).await?;
        left -= body as u64;
        if left == 0 {
            break;
        }
        piece.clear();
    }
    stream.shutdown().await
}
