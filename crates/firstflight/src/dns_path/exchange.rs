//! The application's own transport to the resolver, instead of a UDP socket.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

/// The future that resolves to an answer.
pub(super) type AnswerFuture = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// Carries one question to the resolver and resolves to its answer. Both are whole DNS messages without a length
/// prefix. The future of a question that is not answered may stay pending; it is dropped after 5 s.
#[derive(Clone)]
pub struct Exchange(Arc<dyn Fn(Vec<u8>) -> AnswerFuture + Send + Sync>);

impl Exchange {
    /// Asks each question with `ask`.
    pub fn new<F>(ask: impl Fn(Vec<u8>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<Vec<u8>>> + Send + 'static,
    {
        Self(Arc::new(move |query| Box::pin(ask(query))))
    }

    /// Asks one question.
    pub(super) fn ask(&self, query: &[u8]) -> AnswerFuture {
        (self.0)(query.to_vec())
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}
