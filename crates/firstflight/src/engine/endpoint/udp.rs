//! Endpoints over UDP.

use super::Endpoint;
use super::shards::Sharding;
use firstflight_link::UdpLink;
use firstflight_link::udp::SharedUdp;
use firstflight_stack::Config;
use std::io;

impl Endpoint {
    /// Starts an engine that carries TCP in UDP datagrams through the operating system's sockets, which needs no
    /// privileges. The encapsulation uses the link's port. Its datagrams count as checked
    /// ([`firstflight_stack::EncapsulationConfig::from_socket`]). The link's own addresses are added to those of
    /// `config`, which may be empty. The other settings of [`Config::encapsulation`] are kept. Connect with [`ConnectConfig::encapsulation`](crate::ConnectConfig::encapsulation). If the socket is bound to all addresses
    /// ([`UdpLink::bind_all`]), a connect uses the source address that the kernel's routes choose for the server.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    ///
    /// ```
    /// use firstflight::{ConnectConfig, Endpoint, FirstFlight, Stream, link::UdpLink};
    /// async fn ask() -> std::io::Result<Stream> {
    ///     // The server's UDP port is 4433; its TCP port is 80.
    ///     let link = UdpLink::towards("192.0.2.1:4433".parse().unwrap())?;
    ///     let endpoint = Endpoint::over_udp(firstflight::config(Vec::new())?, link);
    ///     let config = ConnectConfig::default().encapsulation(Some(4433));
    ///     endpoint.connect("192.0.2.1:80".parse().unwrap(), FirstFlight::empty(), &config).await
    /// }
    /// ```
    pub fn over_udp(mut config: Config, link: UdpLink) -> Self {
        Self::prepare_udp(&mut config, &link);
        Self::new(config, link)
    }

    /// Adapts `config` to `link`, as [`Endpoint::over_udp`] does. Use it when the link is wrapped, for example to
    /// record packets.
    pub fn prepare_udp(config: &mut Config, link: &UdpLink) {
        let encapsulation =
            config.encapsulation.unwrap_or(firstflight_stack::EncapsulationConfig::new(link.port()));
        config.encapsulation = Some(encapsulation.port(link.port()).from_socket(true));
        for ip in link.local_ips() {
            if !config.addresses.contains(&ip) {
                config.addresses.push(ip);
            }
        }
    }

    /// Like [`Endpoint::sharded`] with `count` sockets at one UDP address, and what [`Endpoint::over_udp`] says.
    ///
    /// # Errors
    /// As [`Endpoint::sharded`].
    pub fn sharded_over_udp(
        config: &Config,
        sharding: &Sharding,
        address: SharedUdp,
        count: usize,
    ) -> io::Result<Self> {
        let mut config = config.clone();
        Self::prepare_shared_udp(&mut config, address);
        Self::sharded(&config, sharding, (0..count).map(|_| move || address.link()).collect())
    }

    /// Adapts `config` to `address`, as [`Endpoint::sharded_over_udp`] does. Use it when the links are wrapped, for
    /// example to record packets.
    pub fn prepare_shared_udp(config: &mut Config, address: SharedUdp) {
        let local = address.local_addr();
        let encapsulation =
            config.encapsulation.unwrap_or(firstflight_stack::EncapsulationConfig::new(local.port()));
        config.encapsulation = Some(encapsulation.port(local.port()).from_socket(true));
        if !config.addresses.contains(&local.ip()) {
            config.addresses.push(local.ip());
        }
    }
}
