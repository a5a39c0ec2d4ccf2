//! Streams whose first flight is also in a lookup.

use super::report::Report;
use crate::shared::Interest;
use crate::stream::{EngineStream, Stream};
use firstflight_stack::ConnId;
use std::net::SocketAddr;
use std::task::{Context, Poll};

impl EngineStream {
    /// Accepts an answer to the first flight in a lookup from any address that proves with `key` that it received the
    /// flight.
    pub(crate) fn expect_answer(&self, id: ConnId, key: firstflight_credential::asap::ReplyKey) {
        self.shared.lock().stack.expect_answer(id, key);
    }

    /// Whether the direct copy of connection `id`, whose first flight is also in a lookup, was refused.
    pub(crate) fn poll_direct_refused(&self, id: ConnId, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.shared.lock();
        if inner.stack.direct_refused(id).is_some() {
            return Poll::Ready(());
        }
        inner.wait(id, Interest::Connected, cx);
        Poll::Pending
    }

    /// Sets the peer's address, which was not known before.
    pub(crate) fn set_peer(&mut self, remote: SocketAddr) {
        self.remote = remote;
    }
}

impl Stream {
    /// What became of the first flight in the lookup of the server's address, if a client sends requests so
    /// ([`ClientBuilder::inside_lookups`](crate::ClientBuilder::inside_lookups)).
    #[must_use]
    pub fn inside_lookup(&self) -> Option<&Report> {
        self.report.as_deref()
    }
}
