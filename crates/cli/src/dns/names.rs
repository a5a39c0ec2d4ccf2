//! The options of a name server that accepts first flights. It is a separate process (`dns`) or a part of the web
//! server (`serve --dns-listen`).

use super::DnsError;
use firstflight_dns::front::RateLimit;
use firstflight_dns::service::{SetUpError, ZoneFiles, secure_rng};
use firstflight_dns::{CarriageConfig, CarriageKeys, Destination, Front, Name, ReassemblyLimits, ZoneData};
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// A carriage zone, and what its clients may cost.
#[derive(clap::Args)]
pub struct Carriage {
    /// Zone below which the names of first flights are queried
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub carriage_zone: Option<Name>,
    /// IPv4 address of the server, with which fragments are answered; up to 8
    #[arg(long, value_name = "ADDR", requires = "carriage_zone")]
    pub carriage_address: Vec<Ipv4Addr>,
    /// Maximum number of answers of one kind per second to one network (/24, /56) over UDP
    #[arg(long, value_name = "N", default_value_t = RateLimit::default().per_second)]
    answers_per_second: NonZeroU32,
    /// Maximum number of first flights opened per second
    #[arg(long, value_name = "N", default_value_t = CarriageConfig::OPENS_PER_SECOND)]
    opens_per_second: NonZeroU32,
}

/// A complete domain name, with or without its final dot.
pub fn name(text: &str) -> Result<Name, &'static str> {
    let mut name =
        Name::from_ascii(text).map_err(|_| "write a domain name in ASCII, as f.example.com")?.to_lowercase();
    name.set_fqdn(true);
    Ok(name)
}

/// Zone files that begin at `origins`. `options` are the names of the two options, without their dashes.
pub fn zone_files(
    files: &[PathBuf],
    origins: &[Name],
    options: (&'static str, &'static str),
) -> Result<ZoneFiles, DnsError> {
    let counts = (files.len(), origins.len());
    if counts.0 != counts.1 {
        return Err(DnsError::Origins { options, counts });
    }
    Ok(ZoneFiles::new(files.iter().cloned().zip(origins.iter().cloned()).collect()))
}

impl Carriage {
    /// A front of `zones`, which does not accept first flights yet.
    pub fn front(&self, zones: Vec<ZoneData>) -> Result<Front, DnsError> {
        let rate = RateLimit { per_second: self.answers_per_second, ..RateLimit::default() };
        Front::new(zones, rate).map_err(|error| SetUpError::Front(Box::new(error)).into())
    }

    /// Lets `front` accept first flights below `zone`.
    pub fn carry(
        &self,
        front: &mut Front,
        zone: &Name,
        addresses: &[Ipv4Addr],
        keys: CarriageKeys,
        to: Destination,
    ) -> Result<(), DnsError> {
        let config = CarriageConfig {
            zone: zone.clone(),
            addresses: addresses.to_vec(),
            keys,
            to,
            limits: ReassemblyLimits::default(),
            opens_per_second: self.opens_per_second,
        };
        let mut rng = secure_rng().map_err(DnsError::Random)?;
        front.carry(config, &mut rng).map_err(|error| SetUpError::Front(Box::new(error)).into())
    }
}
