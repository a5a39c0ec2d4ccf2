//! The options of a name server that accepts first flights.

use super::DnsError;
use firstflight_dns::front::RateLimit;
use firstflight_dns::service::{DnsPathSettings, FrontSettings, ZoneFile, complete_name};
use firstflight_dns::{DnsPathConfig, Name};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// A DNS-path zone, and what its clients may cost.
#[derive(PartialEq, Eq, clap::Args)]
pub struct DnsPathArgs {
    /// Zone below which the names of first flights are queried
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub dns_path_zone: Option<Name>,
    /// IPv4 address of the server, with which fragments are answered; up to 8
    #[arg(long, value_name = "ADDR", requires = "dns_path_zone")]
    pub(super) dns_path_address: Vec<Ipv4Addr>,
    /// Maximum number of answers of one kind per second to one network (/24, /56) over UDP
    #[arg(long, value_name = "N", default_value_t = RateLimit::default().per_second)]
    pub(super) answers_per_second: NonZeroU32,
    /// Maximum number of first flights opened per second
    #[arg(long, value_name = "N", default_value_t = DnsPathConfig::OPENS_PER_SECOND)]
    pub(super) opens_per_second: NonZeroU32,
}

/// A complete domain name, with or without its final dot.
pub fn name(text: &str) -> Result<Name, &'static str> {
    complete_name(text).ok_or("write a domain name in ASCII, as f.example.com")
}

/// Zone files that begin at `origins`. `options` are the names of the two options, without their dashes.
pub fn zone_files(
    files: &[PathBuf],
    origins: &[Name],
    options: (&'static str, &'static str),
) -> Result<Vec<ZoneFile>, DnsError> {
    let counts = (files.len(), origins.len());
    if counts.0 != counts.1 {
        return Err(DnsError::Origins { options, counts });
    }
    Ok(files.iter().cloned().zip(origins.iter().cloned()).collect())
}

impl DnsPathArgs {
    /// The settings of a front at `listen`, which does not accept first flights yet.
    pub fn front(&self, listen: &[SocketAddr], zones: Vec<ZoneFile>) -> FrontSettings {
        FrontSettings {
            listen: listen.to_vec(),
            zones,
            answers_per_second: self.answers_per_second,
            dns_path: None,
        }
    }

    /// The settings of a DNS-path zone, still without servers and other fronts.
    pub fn carry(&self, zone: &Name, key: &Path) -> DnsPathSettings {
        DnsPathSettings {
            zone: zone.clone(),
            key: key.to_owned(),
            addresses: self.dns_path_address.clone(),
            opens_per_second: self.opens_per_second,
            servers: None,
            others: None,
            front_id: 0,
            state: None,
        }
    }
}
