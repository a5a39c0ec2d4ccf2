//! Settings of a server's UDP.

use super::Port;
use crate::server::ServerBuilder;

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

    /// The settings of the engine that serves UDP.
    pub fn engine(mut self, config: crate::Config) -> Self {
        self.udp.engine = Some(config);
        self
    }
}
