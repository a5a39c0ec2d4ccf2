//! `--forward-listen`: the other fronts of the zone.

use firstflight_dns::service::{ForwardKeys, SetUpError, Sockets};
use firstflight_dns::{ForwardConfig, Forwarder, Front};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// The other name servers of the carriage zone. This one is a separate process (`dns`) or a part of the web server
/// (`serve --dns-listen`).
#[derive(clap::Args)]
pub struct Forward {
    /// Address and UDP port for the other name servers of the zone: a resolver may spread the parts of one first
    /// flight over all of them, and they forward the parts to each other. Clients must not reach it
    #[arg(
        long, value_name = "ADDR:PORT", requires_all = ["carriage_zone", "forward_to", "forward_key", "front_id"]
    )]
    forward_listen: Option<SocketAddr>,
    /// --forward-listen of another name server of the zone; may be repeated, up to 15 times
    #[arg(long, value_name = "ADDR:PORT", requires = "forward_listen")]
    forward_to: Vec<SocketAddr>,
    /// File of the key that all name servers of the zone share (dns keygen --relay-key makes one); read again while
    /// running
    #[arg(long, value_name = "FILE", requires = "forward_listen")]
    forward_key: Option<PathBuf>,
    /// Parts of first flights that are handed to the other name servers in a second at most, and taken from them
    #[arg(long, value_name = "N", default_value_t = ForwardConfig::PER_SECOND, requires = "forward_listen")]
    forwards_per_second: NonZeroU32,
}

impl Forward {
    /// The key file, if there are other fronts.
    pub fn key(&self) -> Option<&Path> {
        self.forward_listen.and(self.forward_key.as_deref())
    }

    /// Finds mistakes in the addresses before anything is bound.
    fn check(&self, listen: SocketAddr) -> Result<(), SetUpError> {
        let wrong = |to: &&SocketAddr| {
            to.port() == 0 || to.ip().is_unspecified() || to.is_ipv4() != listen.is_ipv4() || **to == listen
        };
        match self.forward_to.iter().find(wrong) {
            Some(to) => Err(SetUpError::ForwardTo { to: *to, listen }),
            None => Ok(()),
        }
    }

    /// Binds the port for other fronts, if there are any. Returns its address.
    pub async fn bind(&self, sockets: &mut Sockets) -> Result<Option<SocketAddr>, SetUpError> {
        let Some(listen) = self.forward_listen else { return Ok(None) };
        self.check(listen)?;
        let bound = sockets.bind_for_fronts(listen).await;
        Ok(Some(bound?))
    }

    /// Lets `front` forward fragments, with the keys of the key file.
    pub fn set(&self, front: &mut Front, keys: ForwardKeys) -> Result<(), SetUpError> {
        let ForwardKeys { sender: Some(sender), keys } = keys else { return Ok(()) };
        let config = ForwardConfig {
            others: self.forward_to.clone(),
            sender,
            keys,
            per_second: self.forwards_per_second,
        };
        front.forward(Forwarder::new(config).map_err(SetUpError::Forward)?);
        Ok(())
    }
}
