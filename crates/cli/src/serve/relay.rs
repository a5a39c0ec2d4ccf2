//! First flights from fronts: name servers that found them in resolvers' queries (`firstflight dns`), or the name
//! server in this server (`--dns-listen`).

use super::ServeError;
use crate::dns::DnsError;
use crate::error::Error;
use firstflight::credential::asap::AsapPolicy;
use firstflight::{RelayTarget, RelayTargetError};
use firstflight_dns::service::RelaySocket;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options for what is accepted from fronts.
#[derive(clap::Args)]
pub struct Relay {
    /// Accept first flights that name servers found in lookups (firstflight dns), at this address and port, which
    /// clients must not reach
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["udp", "trust", "relay_key"])]
    relay_listen: Option<SocketAddr>,
    /// File of the keys shared with the name servers; read again while running
    #[arg(long, value_name = "FILE", requires = "relay_listen")]
    relay_key: Option<PathBuf>,
    /// This server's address and UDP port as clients see them [default: those of --udp]
    #[arg(long, value_name = "ADDR:PORT", requires = "fronts")]
    relay_seen_as: Option<SocketAddr>,
}

impl Relay {
    /// Where they are accepted.
    pub fn address(&self) -> Option<SocketAddr> {
        self.relay_listen
    }

    /// Whether first flights are accepted from external fronts.
    pub fn wanted(&self) -> bool {
        self.relay_listen.is_some()
    }

    /// Where this server gets first flights from fronts, internal or external. Lets `asap` accept them.
    pub fn target(&self, udp: SocketAddr, asap: &mut AsapPolicy) -> Result<RelayTarget, Error> {
        let target =
            RelayTarget::new(&[udp], self.relay_seen_as.as_slice()).map_err(|error| match error {
                RelayTargetError::NotSeen(udp) => ServeError::RelaySeenAs(udp),
                error => ServeError::RelayTarget(error),
            })?;
        RelayTarget::admit(asap);
        Ok(target)
    }

    /// Binds the socket and reads the key file that the options name.
    pub async fn prepare(&self) -> Result<Option<RelaySocket>, Error> {
        let (Some(at), Some(path)) = (self.relay_listen, &self.relay_key) else { return Ok(None) };
        let socket = RelaySocket::bind(at, path.clone()).await.map_err(DnsError::from)?;
        Ok(Some(socket))
    }
}
