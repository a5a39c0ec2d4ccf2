//! Requests inside the lookup of the server's address: `get --via-dns`.

use super::GetError;
use firstflight::InsideLookups;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The options for requests inside lookups.
#[derive(clap::Args)]
pub struct Options {
    /// Also send requests inside the lookup of the server's address, if the server accepts that (its HTTPS record)
    /// and unknown servers can reach this client. Every fetch looks the name up again, as if its address had expired.
    /// Nothing waits for the verifiers: the first fetches go the ordinary way (but see --verify-first)
    #[arg(long, requires_all = ["udp", "verifier", "second_verifier"])]
    via_dns: bool,
    /// Another verifier, which reports how it sees this client, as for `firstflight reach`
    #[arg(long, value_name = "ADDR:PORT", requires = "via_dns")]
    second_verifier: Option<SocketAddr>,
    /// It is gone.
    #[arg(long = "dns-memory", hide = true, value_parser = gone)]
    _dns_memory: Option<PathBuf>,
    /// Ask for one name more, so that any one of them may be lost
    #[arg(long, requires = "via_dns")]
    parity: bool,
}

fn gone(_: &str) -> Result<PathBuf, &'static str> {
    Err("there is one file now: name it with --cache")
}

impl Options {
    /// Whether the options ask for it.
    pub const fn wanted(&self) -> bool {
        self.via_dns
    }

    /// Requests inside lookups by these options. `verifier` is the first of the two verifiers that find out whether unknown
    /// servers can reach this client, and `dns` the resolver that the user named.
    ///
    /// # Errors
    /// When both verifiers have the same address, or addresses of different families, or there is no resolver.
    pub fn inside(&self, verifier: SocketAddr, dns: Option<SocketAddr>) -> Result<InsideLookups, GetError> {
        let second = self.second_verifier.ok_or(GetError::ReachPair)?;
        if verifier.ip() == second.ip() || verifier.is_ipv4() != second.is_ipv4() {
            return Err(GetError::ReachPair);
        }
        let resolver = resolver(dns)?;
        let inside = InsideLookups::new(resolver, [verifier, second])
            .map_err(|error| GetError::Resolver(resolver, error))?;
        Ok(inside.parity(self.parity))
    }
}

/// The resolver that may get such names: the one that the user named, or the system's resolver if it is at a loopback
/// address. Another resolver is not asked directly, because the system may ask it over TLS.
pub fn resolver(named: Option<SocketAddr>) -> Result<SocketAddr, GetError> {
    if let Some(named) = named {
        return Ok(named);
    }
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    loopback_stub(&text).map(|ip| SocketAddr::new(ip, 53)).ok_or(GetError::NoStub)
}

/// The first name server of a `resolv.conf`, if it is at a loopback address.
fn loopback_stub(text: &str) -> Option<IpAddr> {
    let first = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next())?
    })?;
    first.parse().ok().filter(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stub_of_this_host_is_asked_unnamed() {
        let stub = |text| loopback_stub(text);
        assert_eq!(stub("# a\nsearch x\nnameserver 127.0.0.53\noptions edns0\n"), "127.0.0.53".parse().ok());
        assert_eq!(stub("nameserver ::1\nnameserver 192.0.2.1\n"), "::1".parse().ok());
        assert_eq!(stub("nameserver 192.0.2.1\nnameserver 127.0.0.1\n"), None);
        assert_eq!(stub(""), None);
        let named = "192.0.2.1:53".parse().unwrap();
        assert_eq!(resolver(Some(named)).unwrap(), named);
    }
}
