//! Requests inside the lookup of the server's address: `get --via-dns`.

use super::GetError;
use firstflight::InsideLookups;
use firstflight::record::Names;
use firstflight_verifier::is_pair;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The options for requests inside lookups.
#[derive(clap::Args)]
pub struct Options {
    /// Also send requests inside the lookup of the server's address, if the server accepts that (its HTTPS record)
    /// and unknown servers can reach this client. Every fetch looks the name up again, as if its address had expired.
    /// Nothing waits for the verifiers: the first fetches go the ordinary way (but see --verify-first)
    #[arg(long, requires_all = ["udp", "verifier", "second_verifier"])]
    pub via_dns: bool,
    /// Another verifier, which reports how it sees this client, as for `firstflight reach`
    #[arg(long, value_name = "ADDR:PORT", requires = "via_dns")]
    second_verifier: Option<SocketAddr>,
    /// It is gone.
    #[arg(long = "dns-memory", hide = true, value_parser = gone)]
    _dns_memory: Option<PathBuf>,
    /// Ask for one name more, so that any one of them may be lost
    #[arg(long, requires = "via_dns")]
    parity: bool,
    /// Send the first line of requests that are too long for a lookup: servers that prepare then answer sooner
    #[arg(long, requires = "via_dns")]
    first_line: bool,
}

fn gone(_: &str) -> Result<PathBuf, &'static str> {
    Err("there is one file now: name it with --cache")
}

impl Options {
    /// Requests inside lookups by these options. `verifier` is the first of the two verifiers that find out whether unknown
    /// servers can reach this client, and `dns` the resolver that the user named.
    /// Errors: when both verifiers have the same address, or addresses of different families, or there is no resolver.
    pub fn inside(&self, verifier: SocketAddr, dns: Option<SocketAddr>) -> Result<InsideLookups, GetError> {
        let second = self.second_verifier.ok_or(GetError::ReachPair)?;
        if !is_pair([verifier, second]) {
            return Err(GetError::ReachPair);
        }
        // It gets the names of the requests.
        let resolver = dns.or_else(Names::system_stub).ok_or(GetError::NoStub)?;
        let inside = InsideLookups::new(resolver, [verifier, second])
            .map_err(|error| GetError::Resolver(resolver, error))?;
        Ok(inside.parity(self.parity).first_lines(self.first_line))
    }
}
