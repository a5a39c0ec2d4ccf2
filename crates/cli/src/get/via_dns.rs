//! Requests inside the lookup of the server's address: `get --via-dns`.

use super::dns_memory::DnsMemory;
use super::record::{Names, Published};
use crate::error::Error;
use crate::output;
use firstflight::carriage::{DnsPath, Manners, Proof, Report, Server};
use firstflight::credential::NetworkId;
use firstflight::link::UdpLink;
use firstflight::{ConnectConfig, Endpoint, FirstFlight, Stream};
use firstflight_verifier::{Patience, reach};
use firstflight_wire::asap::ServiceParam;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How requests travel by lookups.
#[derive(clap::Args)]
pub struct Options {
    /// Send requests inside the lookup of the server's address, too, if the server takes them (its HTTPS record) and
    /// strangers can answer on this network. Every fetch looks the name up again, as if its address had expired
    #[arg(long, requires_all = ["udp", "verifier", "second_verifier"])]
    via_dns: bool,
    /// Another verifier, that says how it sees this client: what `firstflight reach` asks
    #[arg(long, value_name = "ADDR:PORT", requires = "via_dns")]
    second_verifier: Option<SocketAddr>,
    /// Remember in this file what servers publish, and where requests inside lookups are not liked
    #[arg(long, value_name = "FILE", requires = "via_dns")]
    dns_memory: Option<PathBuf>,
    /// Ask for one name more, so that any one of them may be lost
    #[arg(long, requires = "via_dns")]
    parity: bool,
}

impl Options {
    /// Whether they do.
    pub const fn wanted(&self) -> bool {
        self.via_dns
    }
}

/// A run's way by lookups.
pub struct ViaDns {
    path: DnsPath,
    names: Names,
    memory: Memory,
    /// The family that the socket and its certificates are of.
    v4: bool,
}

/// What is remembered, and where.
pub struct Memory {
    content: Mutex<DnsMemory>,
    file: Option<PathBuf>,
}

impl Memory {
    /// Reads the file, if one is named.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let file = options.dns_memory.clone();
        let content = file.as_deref().map(DnsMemory::open).transpose()?.unwrap_or_default();
        Ok(Self { content: Mutex::new(content), file })
    }

    fn lock(&self) -> MutexGuard<'_, DnsMemory> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a server published when it was visited before.
    pub fn published(&self, name: &str, port: u16) -> Option<Published> {
        Published::read(&self.lock().parameter(name, port, unix_s())?, 0)
    }

    /// A server publishes this.
    pub fn learn(&self, name: &str, port: u16, published: &Published) {
        self.lock().learn(name, port, &published.bytes, published.ttl, unix_s());
    }
}

fn unix_s() -> u64 {
    firstflight::unix_ms() / 1000
}

/// The socket of a run, and whether strangers can answer it.
pub struct Opened {
    /// For the engine.
    pub link: UdpLink,
    proof: Option<Proof>,
    v4: bool,
}

/// Opens a socket towards `verifiers`, and has them find out whether strangers can answer it.
pub async fn open(
    options: &Options,
    memory: &Memory,
    network: NetworkId,
    verifier: SocketAddr,
) -> Result<Opened, Error> {
    let fail = |error| Error::Udp(verifier, error);
    let second = options.second_verifier.ok_or(Error::ReachPair)?;
    if verifier.ip() == second.ip() || verifier.is_ipv4() != second.is_ipv4() {
        return Err(Error::ReachPair);
    }
    let v4 = verifier.is_ipv4();
    let any: IpAddr = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a UDP socket sends nothing: it looks up the route.
    let route = std::net::UdpSocket::bind((any, 0)).map_err(fail)?;
    route.connect(verifier).map_err(fail)?;
    let mut local = route.local_addr().map_err(fail)?;
    local.set_port(0);
    let socket = tokio::net::UdpSocket::bind(local).await.map_err(fail)?;
    let mut proof = None;
    if !memory.lock().is_closed(network, unix_s()) {
        match reach(&socket, [verifier, second], &Patience::default()).await {
            Ok(found) => {
                if found.is_open() {
                    proof = Some(Proof { seen: found.seen, verifier, at: Instant::now() });
                } else {
                    output::complain(&"strangers cannot answer on this network: fetching as ever");
                }
                memory.lock().set_closed(network, !found.is_open(), unix_s());
            }
            Err((at, fault)) => {
                output::complain(&format_args!("verifier {at}: {fault}; fetching as ever"));
            }
        }
    }
    let socket = socket.into_std().map_err(fail)?;
    Ok(Opened { link: UdpLink::adopt(socket).map_err(fail)?, proof, v4 })
}

impl Opened {
    /// The link, and what is known of it.
    pub fn split(self) -> (UdpLink, Found) {
        (self.link, Found { proof: self.proof, v4: self.v4 })
    }
}

/// What is known of a socket.
pub struct Found {
    proof: Option<Proof>,
    v4: bool,
}

impl ViaDns {
    /// The way of `endpoint` by the resolver at `resolver`.
    pub fn new(
        options: &Options,
        endpoint: &Endpoint,
        found: Found,
        resolver: SocketAddr,
        network: NetworkId,
        memory: Memory,
    ) -> Result<Self, Error> {
        let mut manners = Manners::new();
        let now = firstflight::certificate_clock().map_err(Error::Random)?;
        for (network, resolver, left) in memory.lock().stops(unix_s()) {
            let passed = firstflight_dns::manners::STOPPED_FOR.saturating_sub(left);
            manners.handle_refusal(network, resolver, now - passed);
        }
        let path = DnsPath::new(endpoint.clone(), resolver, network, found.proof, manners, options.parity);
        Ok(Self { path, names: Names::at(resolver)?, memory, v4: found.v4 })
    }

    /// Connects to the server of `name` at `port`; see [`DnsPath::connect`].
    pub async fn connect(
        &self,
        name: &str,
        port: u16,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<(Stream, Report)> {
        let parameter = self.memory.lock().parameter(name, port, unix_s());
        let service = parameter.as_deref().and_then(|bytes| ServiceParam::parse(bytes).ok()?.udp().copied());
        let addresses = self.names.addresses(name, self.v4);
        self.path.connect(Server { port, service }, addresses, first, config).await
    }

    /// Keeps what was learnt.
    pub fn save(&self) -> Result<(), Error> {
        let mut memory = self.memory.lock();
        memory.set_stops(&self.path.stops(), unix_s());
        self.memory.file.as_ref().map_or(Ok(()), |file| memory.write(file))
    }
}

/// The resolver that may be asked for such names: the one that was named, or the system's, if that is at a loopback
/// address. Another one is not asked behind the system's back, which may ask it over TLS.
pub fn resolver(named: Option<SocketAddr>) -> Result<SocketAddr, Error> {
    if let Some(named) = named {
        return Ok(named);
    }
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    loopback_stub(&text).map(|ip| SocketAddr::new(ip, 53)).ok_or(Error::NoStub)
}

/// The first name server of a `resolv.conf`, if it is at a loopback address.
fn loopback_stub(text: &str) -> Option<IpAddr> {
    let first = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next())?
    })?;
    first.parse().ok().filter(IpAddr::is_loopback)
}

/// How long the last answers about names are awaited at the end: what they say is remembered.
pub const LAST_ANSWERS: Duration = Duration::from_millis(200);

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
