//! hickory's resolver: DNS over TCP, and over TLS, in one round trip.
//!
//! `cargo run -p firstflight-adapters --features hickory,tls --example hickory_resolver -- 9.9.9.9 dns.quad9.net`

use firstflight::{BadAuthority, Client};
use firstflight_adapters::HickoryProvider;
use firstflight_tls::Connector;
use hickory_resolver::Resolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

/// A resolver that asks one server by TCP, and what connects is `provider`.
pub fn resolver(
    server: SocketAddr,
    provider: HickoryProvider,
) -> Result<Resolver<HickoryProvider>, NetError> {
    let mut tcp = ConnectionConfig::tcp();
    tcp.port = server.port();
    let server = NameServerConfig::new(server.ip(), true, vec![tcp]);
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    Resolver::builder_with_config(config, provider).build()
}

/// DNS over TLS.
pub fn over_tls(
    client: Client,
    server: SocketAddr,
    name: &str,
    tls: Connector,
) -> Result<HickoryProvider, BadAuthority> {
    HickoryProvider::new(client).over_tls(server, name, tls)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let server: IpAddr = arguments.next().ok_or("say which server to ask: ADDRESS [NAME]")?.parse()?;
    let client = Client::new();
    let (port, provider) = match arguments.next() {
        Some(name) => (853, over_tls(client, SocketAddr::new(server, 853), &name, Connector::new()?)?),
        None => (53, HickoryProvider::new(client)),
    };
    let resolver = resolver(SocketAddr::new(server, port), provider)?;
    for name in ["www.example.com.", "www.example.org."] {
        println!("{name} {:?}", resolver.lookup_ip(name).await?.iter().collect::<Vec<_>>());
    }
    Ok(())
}
