//! What is known of a server before a connect.

use super::{Authority, Client};
use crate::stream::Way;
use std::net::SocketAddr;

/// What is known of a server before a connect ([`Client::outlook`]). A program that must answer for the connect before it
/// knows how it ends, such as a proxy, does so only if the outlook is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerKnowledge {
    /// The way by which a first flight that may run twice would leave now, because there is a credential for the server: a
    /// cookie of the kernel, or a certificate. Without one the data waits for the handshake.
    pub credential: Option<Way>,
    /// The server was asked for a cookie by this client, or a clone of it, on this network, and granted none, as far as is known.
    pub grants_none: bool,
    /// The last connect to the server by this client, or a clone of it, succeeded, and it was on this network.
    pub answered: bool,
}

impl ServerKnowledge {
    /// Whether there is a credential, and the last connect succeeded.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.credential.is_some() && self.answered
    }
}

impl Client {
    /// What is known of `server` before a connect to `addresses`, best one first. Nothing is sent to the server.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn outlook(&self, server: &Authority, addresses: &[SocketAddr]) -> ServerKnowledge {
        let shared = &self.shared;
        shared.networks.refresh(shared).await;
        shared.follow_engine();
        let answered = shared.kernel.answered(server);
        let certified = self.asap().and_then(|asap| asap.has_credential(server, addresses));
        let cookie = || shared.cookie(addresses).filter(|_| self.fast_open());
        let credential = certified.or_else(cookie);
        let grants_none = credential.is_none() && shared.kernel.grants_none(addresses);
        ServerKnowledge { credential, grants_none, answered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_needed() {
        let all = [(None, false), (None, true), (Some(Way::Kernel), false), (Some(Way::Udp), true)];
        let good = all.map(|(credential, answered)| {
            ServerKnowledge { credential, answered, ..ServerKnowledge::default() }.is_good()
        });
        assert_eq!(good, [false, false, false, true]);
    }
}
