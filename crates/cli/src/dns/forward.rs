//! `--forward-listen`: the other fronts of the zone.

use firstflight_dns::ForwardConfig;
use firstflight_dns::service::OtherFronts;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// The other name servers of the DNS-path zone.
#[derive(PartialEq, Eq, clap::Args)]
pub struct Forward {
    /// Address and UDP port for the other name servers of the zone: a resolver may spread the parts of one first
    /// flight over all of them, and they forward the parts to each other. Clients must not reach it
    #[arg(
        long, value_name = "ADDR:PORT", requires_all = ["dns_path_zone", "forward_to", "forward_key", "front_id"]
    )]
    pub(super) forward_listen: Option<SocketAddr>,
    /// --forward-listen of another name server of the zone; may be repeated, up to 15 times
    #[arg(long, value_name = "ADDR:PORT", requires = "forward_listen")]
    pub(super) forward_to: Vec<SocketAddr>,
    /// File of the key that all name servers of the zone share (dns keygen --relay -o makes one); read again while
    /// running
    #[arg(long, value_name = "FILE", requires = "forward_listen")]
    pub(super) forward_key: Option<PathBuf>,
    /// Parts of first flights that are handed to the other name servers in a second at most, and taken from them
    #[arg(long, value_name = "N", default_value_t = ForwardConfig::PER_SECOND, requires = "forward_listen")]
    pub(super) forwards_per_second: NonZeroU32,
}

impl Forward {
    /// The other name servers of the zone, if there are any.
    pub fn others(&self) -> Option<OtherFronts> {
        Some(OtherFronts {
            listen: self.forward_listen?,
            others: self.forward_to.clone(),
            key: self.forward_key.clone()?,
            per_second: self.forwards_per_second,
        })
    }
}
