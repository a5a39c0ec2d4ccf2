//! How questions reach the resolver, where it is no UDP socket of their own.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

/// An answer under way.
pub(super) type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// Carries one question to the resolver, and resolves to its answer: both whole DNS messages without a length in front
/// of them. A question that is never answered may wait for ever; it is dropped after 5 s.
#[derive(Clone)]
pub struct Exchange(Arc<dyn Fn(Vec<u8>) -> Answer + Send + Sync>);

impl Exchange {
    /// By `ask`.
    pub fn new<F>(ask: impl Fn(Vec<u8>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<u8>>> + Send + 'static,
    {
        Self(Arc::new(move |query| Box::pin(ask(query))))
    }

    /// Asks.
    pub(super) fn ask(&self, query: &[u8]) -> Answer {
        (self.0)(query.to_vec())
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}
