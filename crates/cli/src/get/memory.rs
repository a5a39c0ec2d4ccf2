//! What `get` remembers about servers, and for which network.

use crate::error::Error;
use crate::output;
use firstflight::credential::NetworkId;
use firstflight::{ClientBuilder, CredentialCache};
use firstflight_files::from_hex;
use std::path::PathBuf;
use std::str::FromStr;

/// Options for where what is learnt is kept.
#[derive(clap::Args)]
pub struct Memory {
    /// Keep what is learnt in this file for later runs: cookies and round-trip times of servers, where first flights
    /// failed or lost races, what servers publish, and which resolvers refuse, change or lose names of requests
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// The local network that they belong to: 32 hexadecimal digits of your choice, auto (from the default
    /// route's gateway), or none (nothing is read from the file or written into it)
    #[arg(long, value_name = "HEX|auto|none", default_value = "auto")]
    network_id: NetworkChoice,
}

/// Which network this host is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkChoice {
    /// That of the default route's gateway.
    Auto,
    /// The one with this id.
    Id(NetworkId),
}

impl NetworkChoice {
    /// The network's id. It is determined only if it `matters`.
    pub async fn network(self, matters: bool) -> NetworkId {
        match self {
            Self::Id(id) => id,
            Self::Auto if !matters => NetworkId::UNKNOWN,
            Self::Auto => {
                let found = tokio::task::spawn_blocking(firstflight::network_id).await;
                found.ok().flatten().unwrap_or(NetworkId::UNKNOWN)
            }
        }
    }
}

impl FromStr for NetworkChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "give 32 hexadecimal digits (not all 0), auto or none";
        match text {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::Id(NetworkId::UNKNOWN)),
            _ => {}
        }
        let id = from_hex(text).map(|id| NetworkId(*id)).filter(|id| *id != NetworkId::UNKNOWN);
        id.map(Self::Id).ok_or(WRONG)
    }
}

impl Memory {
    /// The network's id. It is determined only if the cache needs it, or if it `matters` to the caller. Right after
    /// joining a network this may take a fraction of a second.
    pub async fn network(&self, matters: bool) -> NetworkId {
        self.network_id.network(self.cache.is_some() || matters).await
    }

    /// Whether the file can be used, if there is one.
    ///
    /// # Errors
    /// As [`CredentialCache::open`].
    pub fn check(&self) -> Result<(), Error> {
        self.cache.as_ref().map(CredentialCache::open).transpose().map(drop).map_err(Error::Cache)
    }

    /// Gives a client the options, for a host on `network`.
    pub fn configure(&self, builder: ClientBuilder, network: NetworkId) -> ClientBuilder {
        let builder = builder.network(network);
        match &self.cache {
            Some(_) if !network.is_known() => {
                self.complain();
                builder
            }
            Some(path) => builder.cache(path),
            None => builder,
        }
    }

    /// Says that the cache is not used, unless the user asked for that.
    fn complain(&self) {
        if self.network_id == NetworkChoice::Auto {
            output::complain(
                &"the local network has no gateway to know it by: --cache is not used; name it with --network-id",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_ids() {
        let id = NetworkChoice::Id(NetworkId(*b"0123456789abcdef"));
        assert_eq!("30313233343536373839616263646566".parse(), Ok(id));
        assert_eq!("auto".parse(), Ok(NetworkChoice::Auto));
        assert_eq!("none".parse(), Ok(NetworkChoice::Id(NetworkId::UNKNOWN)));
        for wrong in ["", "3031", "+3031323334353637383961626364656", "00000000000000000000000000000000"] {
            assert!(wrong.parse::<NetworkChoice>().is_err(), "{wrong}");
        }
    }
}
