//! Verifiers that have a name. Their addresses are looked up each time that they are asked.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// The addresses of a name, while they are looked up.
pub type Looked<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Looks up names of verifiers.
pub trait LookUp: Send + Sync {
    /// The addresses of one family of a name.
    fn addresses<'a>(&'a self, name: &'a str, v4: bool) -> Looked<'a>;
}

/// The system's resolver (`getaddrinfo`).
#[derive(Debug, Clone, Copy, Default)]
pub struct BySystem;

impl LookUp for BySystem {
    fn addresses<'a>(&'a self, name: &'a str, v4: bool) -> Looked<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|at| at.ip()).filter(|ip| ip.is_ipv4() == v4).collect())
        })
    }
}

/// The name of a verifier, and what looks it up.
#[derive(Clone)]
pub struct IssuerName {
    name: String,
    look_up: Arc<dyn LookUp>,
}

impl IssuerName {
    pub(super) const fn new(name: String, look_up: Arc<dyn LookUp>) -> Self {
        Self { name, look_up }
    }

    /// Its addresses of one family.
    pub(super) async fn addresses(&self, v4: bool) -> io::Result<Vec<IpAddr>> {
        let mut found = self.look_up.addresses(&self.name, v4).await?;
        found.retain(|ip| ip.is_ipv4() == v4);
        if found.is_empty() { Err(io::Error::other("it has no such address")) } else { Ok(found) }
    }
}

impl PartialEq for IssuerName {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for IssuerName {}

impl fmt::Debug for IssuerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IssuerName").field(&self.name).finish()
    }
}
