//! Obtains certificates from the verifier in the background. No fetch waits for it.

use super::certificates::{Certificates, Certifieds};
use super::target::Target;
use crate::error::Error;
use crate::output;
use firstflight::credential::asap::{ClientCertificate, PrivateKey};
use firstflight::record::Published;
use firstflight::{ConnectConfig, Endpoint, FirstFlight};
use firstflight_verifier::client::{Dial, Dialled, Duplex, Route, obtain_by};
use firstflight_verifier::{IssuerAddress, ObtainError, Patience, Wanted, boot_clock, secure_rng};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

/// Maximum number of certificates requested at the same time.
const AT_ONCE: usize = 8;
/// Pauses after failures.
pub(super) const FAILURES: Pauses = Pauses::new(Duration::from_secs(5), Duration::from_secs(600));
/// Pauses between certificates for one site that are obtained because its server sees another address.
const REPLACEMENTS: Pauses = Pauses::new(Duration::from_secs(60), Duration::from_secs(3600));
/// Minimum time between a certificate and its successor.
const SHORTEST: Duration = Duration::from_secs(60);

/// The sender is dropped when the first result is available.
pub type First = mpsc::Sender<()>;

/// Obtains certificates and stores them.
pub struct Supply {
    issuer: IssuerAddress,
    route: Route,
    wished: u32,
    certified: Arc<Certifieds>,
    failures: Pauses,
    replacements: Pauses,
    at_once: Semaphore,
    /// Whether the user was told that the verifier gives no certificates.
    told: AtomicBool,
}

impl Supply {
    /// Obtains certificates as the options say and stores them in `certified`: over UDP from the system's address, or
    /// by TCP from the engine's own address. `None` if the options name no verifier.
    ///
    /// # Errors
    /// When the options are not valid.
    pub fn new(
        options: &Certificates,
        endpoint: &Endpoint,
        udp: bool,
        certified: Arc<Certifieds>,
    ) -> Result<Option<Arc<Self>>, Error> {
        let Some(issuer) = options.issuer()? else { return Ok(None) };
        let route = if udp { Route::System } else { Route::Streams(Arc::new(Through(endpoint.clone()))) };
        Ok(Some(Arc::new(Self {
            issuer,
            route,
            wished: options.wished(),
            certified,
            failures: FAILURES,
            replacements: REPLACEMENTS,
            at_once: Semaphore::new(AT_ONCE),
            told: AtomicBool::new(false),
        })))
    }

    /// Keeps a certificate for `target`'s site: obtains one, tries again with growing pauses after a failure, and
    /// replaces it before it expires and when its server sees another address. Ends when the server does not trust
    /// the verifier, or does not see the address that the verifier sees. `first` is dropped with the first result.
    pub async fn keep(
        self: Arc<Self>,
        target: Target,
        published: impl Future<Output = Option<Published>>,
        first: First,
    ) {
        if !self.certified.is_trusted_by(&target, published.await.as_ref()) {
            return;
        }
        let site = target.site();
        let mut first = Some(first);
        let (mut failures, mut replacements) = (self.failures, self.replacements);
        let mut replace_at = Instant::now();
        loop {
            match self.obtain().await {
                Ok(certificate) => {
                    failures = self.failures;
                    self.told.store(false, Ordering::Relaxed);
                    let (due, address) = (due(&certificate), certificate.address());
                    if !self.certified.take(&site, certificate) {
                        output::complain(&format_args!(
                            "{} sees another address than {address}, which the verifier sees: going without a certificate",
                            target.authority
                        ));
                        return;
                    }
                    drop(first.take());
                    tokio::select! {
                        () = self.certified.refused(&site) => {
                            sleep_until(replace_at).await;
                            replace_at = Instant::now() + replacements.next();
                        }
                        () = sleep(due) => {}
                    }
                }
                Err(error) => {
                    self.tell(&format_args!("no certificate: {error}; fetching without"));
                    drop(first.take());
                    let asked_for = error.refused().map_or(0, |refused| refused.retry_after);
                    sleep(failures.next().max(Duration::from_secs(asked_for.into()))).await;
                }
            }
        }
    }

    /// Tells the user once that the verifier gives no certificates.
    pub fn tell(&self, problem: &dyn std::fmt::Display) {
        if !self.told.swap(true, Ordering::Relaxed) {
            output::complain(problem);
        }
    }

    async fn obtain(&self) -> Result<ClientCertificate, ObtainError> {
        // The semaphore is never closed.
        let _turn = self.at_once.acquire().await;
        let key = PrivateKey::generate(&mut secure_rng().map_err(ObtainError::System)?);
        let wanted = Wanted { key, wished: self.wished, old: None };
        obtain_by(&self.route, &self.issuer, wanted, &Patience::default()).await
    }
}

/// When to obtain the next certificate.
fn due(certificate: &ClientCertificate) -> Duration {
    let lasts = boot_clock().map_or(Duration::ZERO, |now| certificate.remaining(now));
    let margin = (lasts / 20).clamp(Duration::from_secs(90), Duration::from_secs(600)).min(lasts / 2);
    // This limits the requests to a verifier whose certificates expire immediately.
    (lasts - margin).max(SHORTEST)
}

/// Pauses, each twice as long as the previous one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    const fn new(next: Duration, longest: Duration) -> Self {
        Self { next, longest }
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

/// Connects to a verifier from the engine's own address.
struct Through(Endpoint);

impl Dial for Through {
    fn dial(&self, to: SocketAddr) -> Dialled<'_> {
        Box::pin(async move {
            let stream = self.0.connect(to, FirstFlight::empty(), &ConnectConfig::default()).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

#[cfg(test)]
mod tests;
