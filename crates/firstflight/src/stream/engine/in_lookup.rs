//! Streams whose first flight is also in a lookup.

use super::EngineStream;
use crate::shared::{Interest, io_error};
use firstflight_stack::{ConnId, IoError};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;

impl EngineStream {
    /// Accepts an answer to the first flight in a lookup from any address that proves with `key` that it received the
    /// flight.
    pub(crate) fn expect_answer(&self, id: ConnId, key: firstflight_credential::asap::ReplyKey) {
        self.shared.lock().stack.expect_answer(id, key);
    }

    /// Waits until the direct copy of connection `id`, whose first flight is also in a lookup, is refused. Returns
    /// why.
    pub(crate) async fn direct_refused(&self, id: ConnId) -> io::Error {
        poll_fn(|cx| {
            let mut inner = self.shared.lock();
            if let Some(reason) = inner.stack.direct_refused(id) {
                return Poll::Ready(io_error(IoError::Closed(reason)));
            }
            inner.wait(id, Interest::Connected, cx);
            Poll::Pending
        })
        .await
    }

    /// Sets the peer's address, which was not known before.
    pub(crate) fn set_peer(&mut self, remote: SocketAddr) {
        self.remote = remote;
    }
}
