//! Streams whose first flight is also in a lookup.

use super::EngineStream;
use crate::shared::Interest;
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
