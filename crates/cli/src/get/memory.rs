//! What `get` remembers about servers, and for which network.

use crate::error::Error;
use crate::network_id::NetworkChoice;
use crate::output;
use firstflight::credential::NetworkId;
use firstflight::{ClientBuilder, CredentialCache};
use std::path::PathBuf;

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

impl Memory {
    /// The network's id. It is determined only if the cache needs it, or if it `matters` to the caller.
    pub async fn network(&self, matters: bool) -> NetworkId {
        self.network_id.network(self.cache.is_some() || matters).await
    }

    /// Whether the file can be used, if there is one.
    pub fn check(&self) -> Result<(), Error> {
        self.cache.as_ref().map(CredentialCache::open).transpose().map(drop).map_err(Error::Cache)
    }

    /// Gives a client the options, for a host on `network`. Says that the cache is not used, unless the user asked for that.
    pub fn configure(&self, builder: ClientBuilder, network: NetworkId) -> ClientBuilder {
        let builder = builder.network(network);
        let Some(path) = &self.cache else { return builder };
        if network.is_known() {
            return builder.cache(path);
        }
        if self.network_id == NetworkChoice::Auto {
            output::complain(
                &"the local network has no gateway to know it by: --cache is not used; name it with --network-id",
            );
        }
        builder
    }
}
