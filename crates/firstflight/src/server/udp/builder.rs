//! Settings of a server's UDP.

use super::Port;
use crate::credential::asap::{AsapPolicy, TrustStore};
use crate::server::{Server, ServerBuilder};
use firstflight_link::Link;
use std::io;
use std::sync::Arc;

impl ServerBuilder {
    /// Serves UDP in this port, and fails if it is not free. By default it is the TCP port, if that is free: 443 may
    /// belong to HTTP/3. Clients learn the port from the server's record.
    pub const fn udp_port(mut self, port: u16) -> Self {
        self.udp.port = Port::Number(port);
        self
    }

    /// Serves the kernel's TCP only.
    pub const fn tcp_only(mut self) -> Self {
        self.udp.port = Port::None;
        self
    }

    /// Takes certificates of these verifiers in UDP, and executes each request once. For ten seconds after the start,
    /// and some twenty more for certificates that began before they were made, none is taken: the server does not know
    /// what it took before.
    pub fn trust(mut self, trust: Arc<TrustStore>) -> Self {
        self.udp.trust = Some(trust);
        self
    }

    /// A name that clients use for this server, as `www.example.com`; call it again for further ones. The default are
    /// the server's addresses.
    pub fn identity(mut self, name: impl Into<String>) -> Self {
        self.udp.identities.push(name.into());
        self
    }

    /// How certificates are treated, in place of [`ServerBuilder::trust`] and [`ServerBuilder::identity`].
    pub fn asap(mut self, policy: AsapPolicy) -> Self {
        self.udp.policy = Some(policy);
        self
    }

    /// The settings of the engine that serves UDP.
    pub fn engine(mut self, config: crate::Config) -> Self {
        self.udp.engine = Some(config);
        self
    }

    /// The settings of the listeners in UDP. Their address is set by [`ServerBuilder::address`]. Policies in it have
    /// precedence over the other settings here.
    pub fn listen(mut self, config: crate::ListenConfig) -> Self {
        self.udp.listen = Some(config);
        self
    }

    /// Like [`ServerBuilder::bind`]. `start` starts the engine that serves UDP: to record its packets, or to give it a
    /// shared store.
    ///
    /// # Errors
    /// As [`ServerBuilder::bind`].
    ///
    /// # Panics
    /// As [`ServerBuilder::bind`].
    pub fn bind_with(
        self,
        start: impl FnOnce(crate::Config, Box<dyn Link>) -> crate::Endpoint,
    ) -> io::Result<Server> {
        self.bind_by(start)
    }
}
