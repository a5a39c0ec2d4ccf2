//! Settings of listeners.

use super::schema::ForwardedNames;
use super::{Engine, Period, Replays, Seal, Xdp};
use firstflight_http::forwarded::Forwarded;
use firstflight_http::label::Labels;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use toml::Spanned;

/// A port at which clients connect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Listener {
    /// Its name in the log and the metrics.
    #[schemars(with = "String")]
    pub name: Spanned<String>,
    /// Addresses, all with one port.
    #[serde(default = "no_address")]
    #[schemars(with = "Vec<String>")]
    pub address: Spanned<Vec<SocketAddr>>,
    /// What it does with connections.
    #[schemars(with = "Mode")]
    pub mode: Spanned<Mode>,
    /// The service of what no route takes.
    #[schemars(with = "Option<String>")]
    pub service: Option<Spanned<String>>,
    /// UDP port of ASAP; 0 serves none. The default is the port of TCP, if it is free; with `[listener.xdp]` it is 0.
    pub udp_port: Option<u16>,
    /// Whether other processes may listen at the same port of TCP (`SO_REUSEPORT`), as a second gateway that replaces this one.
    #[serde(default)]
    pub reuse_port: bool,
    /// Whether first flights are taken at all.
    #[serde(default = "yes")]
    pub fast_open: bool,
    /// First flights that may wait for their client's ACK.
    #[serde(default = "pending")]
    pub pending: u32,
    /// File with the keys of cookies.
    pub key_file: Option<PathBuf>,
    /// File with a farm's secret, from which keys are derived by the clock, in place of `key_file`.
    pub key_schedule: Option<PathBuf>,
    /// How long a key of the schedule grants: 12h to 8784h, whole hours. The same on all members.
    #[serde(default = "key_period")]
    pub key_period: Period,
    /// How often the data of one SYN may be executed before its client is confirmed.
    #[serde(default = "replays")]
    #[schemars(with = "Replays")]
    pub replays: Spanned<Replays>,
    /// Memory of `no-duplicates` without a store, MiB.
    #[serde(default = "replay_memory")]
    pub replay_memory: NonZeroU16,
    /// Whether cookies are valid for one connection each.
    #[serde(default = "no")]
    #[schemars(with = "bool")]
    pub one_time: Spanned<bool>,
    /// File with the verifiers whose certificates are taken in UDP.
    pub trust: Option<PathBuf>,
    /// The listener is its own verifier: it certifies clients in its UDP port, and takes their certificates.
    #[schemars(with = "Option<Verifier>")]
    pub verifier: Option<Spanned<Verifier>>,
    /// Names of this server in certificates.
    #[serde(default)]
    pub identity: Vec<String>,
    /// Whether other servers answer to the same names and do not know what this one took.
    #[serde(default)]
    pub per_site: bool,
    /// Whether nothing ran before at a server of these names and seal keys.
    #[serde(default)]
    pub first_start: bool,
    /// Connections at one time. Further ones wait in the kernel's queue.
    pub max_connections: Option<NonZeroUsize>,
    /// Connections of one client (IPv4 address, IPv6 /64) at one time. Further ones are reset.
    pub max_connections_per_client: Option<NonZeroUsize>,
    /// HTTP mode: requests of one client under way at one time. Further ones wait. 0: no limit.
    #[serde(default = "max_requests_per_client")]
    pub max_requests_per_client: usize,
    /// HTTP mode: bytes of bodies of all HTTP/2 connections of one client that may wait for slow backends.
    #[serde(default = "max_buffered_per_client")]
    pub max_buffered_per_client: u64,
    /// Networks whose connections begin with a header of the PROXY protocol, version 2.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub proxy_protocol_from: Vec<IpNet>,
    /// Networks whose `Forwarded` and `X-Forwarded-*` headers are kept.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub trusted: Vec<IpNet>,
    /// Which of these headers backends get.
    #[serde(default)]
    #[schemars(with = "ForwardedNames")]
    pub forwarded: Forwarded,
    /// Whether fields pass whose names have other characters than letters, digits and hyphens. CGI and WSGI make the same
    /// variables of `X_Real_IP` and of `X-Real-IP`.
    #[serde(default)]
    pub odd_field_names: bool,
    /// URLs that clients may ask for by a short label.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub short: Labels,
    /// What becomes of `traceparent` in requests.
    #[serde(default)]
    pub traceparent: Traceparent,
    /// What runs before the client is confirmed, where no route says otherwise.
    #[serde(default)]
    pub early: Early,
    /// TLS is terminated.
    #[schemars(with = "Option<TlsSettings>")]
    pub tls: Option<Spanned<TlsSettings>>,
    /// Settings of its engines, in UDP and on a device.
    #[schemars(with = "Option<Engine>")]
    pub engine: Option<Spanned<Engine>>,
    /// An engine on a TUN device serves the port, too.
    #[schemars(with = "Option<Tun>")]
    pub tun: Option<Spanned<Tun>>,
    /// An engine on a network card serves one port of the host's addresses.
    #[schemars(with = "Option<Xdp>")]
    pub xdp: Option<Spanned<Xdp>>,
    /// Sealed first flights are taken.
    #[schemars(with = "Option<Seal>")]
    pub seal: Option<Spanned<Seal>>,
    /// Which service takes what.
    #[serde(default, rename = "route")]
    #[schemars(with = "Vec<Route>")]
    pub routes: Vec<Spanned<Route>>,
    /// Nothing in either direction for this long ends a connection.
    pub idle_timeout: Option<Period>,
    /// Nothing in either direction for this long ends a connection of which one direction has ended.
    #[serde(default = "half_closed_timeout")]
    pub half_closed_timeout: Period,
    /// Idle time of an upgraded connection (WebSocket).
    #[serde(default = "tunnel_timeout")]
    pub tunnel_timeout: Period,
    /// How long a client may take for a PROXY header, a ClientHello, the TLS handshake, or the head of a request.
    #[serde(default = "header_timeout")]
    pub header_timeout: Period,
    /// Pause in a body, in either direction, that ends its request.
    #[serde(default = "body_timeout")]
    pub body_timeout: Period,
    /// Longest body of a request, bytes. Without it there is no limit.
    pub max_body: Option<u64>,
    /// Size of the head of a request, bytes.
    #[serde(default = "max_header_bytes")]
    #[schemars(with = "u32")]
    pub max_header_bytes: Spanned<u32>,
    /// Header lines of a request (HTTP/1.1).
    #[serde(default = "max_headers")]
    pub max_headers: usize,
    /// Requests of one HTTP/2 connection at one time.
    #[serde(default = "max_streams")]
    pub max_streams: NonZeroU32,
    /// How much of one request's body may wait for a slow backend, bytes (HTTP/2). One upload is not faster than this
    /// in a round trip.
    #[serde(default = "stream_window")]
    #[schemars(with = "u32")]
    pub stream_window: Spanned<u32>,
    /// How much of all bodies of one HTTP/2 connection may wait for slow backends, bytes.
    #[serde(default = "connection_window")]
    #[schemars(with = "u32")]
    pub connection_window: Spanned<u32>,
}

defaults! {
    yes: bool = true;
    key_period: Period = Period::seconds(24 * 3600);
    no_address: Spanned<Vec<SocketAddr>> = Spanned::new(0..0, Vec::new());
    no: Spanned<bool> = Spanned::new(0..0, false);
    replays: Spanned<Replays> = Spanned::new(0..0, Replays::default());
    // For 14,000 first flights a second.
    replay_memory: NonZeroU16 = NonZeroU16::MIN.saturating_add(15);
    max_requests_per_client: usize = 256;
    max_buffered_per_client: u64 = 64 << 20;
    pending: u32 = 1024;
    tunnel_timeout: Period = Period::seconds(3600);
    half_closed_timeout: Period = Period::seconds(30);
    header_timeout: Period = Period::seconds(30);
    body_timeout: Period = Period::seconds(60);
    max_header_bytes: Spanned<u32> = Spanned::new(0..0, 32 * 1024);
    max_headers: usize = 100;
    max_streams: NonZeroU32 = NonZeroU32::MIN.saturating_add(127);
    // 160 Mbit/s at a round-trip time of 100 ms.
    stream_window: Spanned<u32> = Spanned::new(0..0, 2 << 20);
    // Room for seven uploads that wait, and for one that goes on.
    connection_window: Spanned<u32> = Spanned::new(0..0, 16 << 20);
}

/// What becomes of the field `traceparent` of a request (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Traceparent {
    /// A valid one is passed on. Without one a trace begins here, marked as sampled.
    #[default]
    Make,
    /// It is passed on as it is.
    Pass,
    /// It is removed, and `tracestate` too.
    Remove,
}

/// What a listener does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mode {
    /// Forwards bytes.
    Tcp,
    /// Forwards TLS without opening it. The service is chosen by the name in the ClientHello.
    TlsPassthrough,
    /// Forwards requests of HTTP/1.1 and HTTP/2.
    Http,
}

/// What runs before the client is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Early {
    /// Nothing.
    Never,
    /// GET and HEAD without body and without query.
    #[default]
    Safe,
    /// GET and HEAD without body.
    Query,
    /// Every request without body.
    Any,
}

/// An engine on a TUN device of its own, beside the kernel's sockets or alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Tun {
    /// Name of the device, which is made.
    pub device: String,
    /// The kernel's addresses on it with their prefixes, as `10.9.0.1/24`.
    #[schemars(with = "Vec<String>")]
    pub host: Vec<IpNet>,
    /// The engine's addresses, in the same networks.
    pub address: Vec<IpAddr>,
    /// Its port. The default is the listener's.
    pub port: Option<u16>,
    /// Largest IP packet on the device, bytes.
    #[serde(default = "mtu")]
    pub mtu: u16,
    /// Whether the kernel and the engine hand over many segments in one call. Without it a capture sees single packets.
    #[serde(default = "yes")]
    pub offload: bool,
}

fn mtu() -> u16 {
    1500
}

/// A verifier in a listener.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Verifier {
    /// File with its key, mode 0600.
    pub key: PathBuf,
    /// Networks whose addresses it certifies although they are not global.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<IpNet>,
    /// Number of the farm's members that have the key. Each takes its part of the limits. The default is 1.
    pub members: Option<NonZeroU16>,
}

/// TLS at a listener.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Certificates, in the order in which they are tried for a name.
    #[schemars(with = "Vec<Certificate>")]
    pub certificate: Spanned<Vec<Certificate>>,
    /// Whether HTTP/2 is offered.
    #[serde(default = "yes")]
    pub http2: bool,
    /// Whether early data is taken.
    #[serde(default = "yes")]
    pub early_data: bool,
    /// File with the authorities of client certificates, which are then required.
    pub client_ca: Option<PathBuf>,
}

/// A certificate in files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Certificate {
    /// The chain, PEM.
    pub chain: PathBuf,
    /// The key, PEM, mode 0600.
    pub key: PathBuf,
}

/// Which requests or connections go to a service. All that it names must match.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Route {
    /// Names in the ClientHello, or hosts of requests: `www.example.com` or `*.example.com`.
    #[serde(default)]
    pub host: Vec<String>,
    /// Beginning of the path.
    pub path: Option<String>,
    /// Methods.
    #[serde(default)]
    pub method: Vec<String>,
    /// The service.
    #[schemars(with = "String")]
    pub service: Spanned<String>,
    /// What runs before the client is confirmed.
    pub early: Option<Early>,
}

impl Route {
    /// Whether the host matches. `host` is in lower case, without port.
    pub(crate) fn takes_host(&self, host: Option<&str>) -> bool {
        let matches = |pattern: &String, host: &str| match pattern.strip_prefix("*.") {
            Some(domain) => host
                .len()
                .checked_sub(domain.len() + 1)
                .is_some_and(|at| at > 0 && host.get(at..at + 1) == Some(".") && host.ends_with(domain)),
            None => pattern == host,
        };
        self.host.is_empty()
            || host.is_some_and(|host| self.host.iter().any(|pattern| matches(pattern, host)))
    }
}

impl Listener {
    /// Where an engine on a device serves it.
    pub(crate) fn engine_addresses(&self) -> Vec<SocketAddr> {
        let Some(tun) = self.tun.as_ref().map(Spanned::get_ref) else { return Vec::new() };
        let port = tun.port.or(self.address.get_ref().first().map(SocketAddr::port)).unwrap_or_default();
        tun.address.iter().map(|ip| SocketAddr::new(*ip, port)).collect()
    }

    /// The settings of its engines.
    pub(crate) fn engine(&self) -> Engine {
        self.engine.as_ref().map(|engine| engine.get_ref().clone()).unwrap_or_default()
    }

    /// Whether an engine serves it on a device.
    pub(crate) const fn has_device(&self) -> bool {
        self.tun.is_some() || self.xdp.is_some()
    }

    pub(crate) const fn takes_certificates(&self) -> bool {
        self.trust.is_some() || self.verifier.is_some()
    }

    /// Whether the memory of a farm is asked about its first flights.
    pub(crate) fn asks_store(&self) -> bool {
        *self.one_time.get_ref()
            || self.replays.get_ref() == &Replays::NoDuplicates
            || self.seal.is_some()
            || (self.takes_certificates() && !self.per_site)
    }

    /// Idle time of a connection: by default that of HAProxy's examples for HTTP, and that of nginx for streams.
    pub(crate) fn idle(&self) -> std::time::Duration {
        let default = match self.mode.get_ref() {
            Mode::Http => Period::seconds(60),
            Mode::Tcp | Mode::TlsPassthrough => Period::seconds(600),
        };
        self.idle_timeout.unwrap_or(default).0
    }

    /// How long a client may take nothing of what waits for it. A connection that nobody serves any more may have such a client,
    /// too.
    pub(crate) fn patience(&self) -> std::time::Duration {
        match self.mode.get_ref() {
            Mode::Http => self.body_timeout.0,
            Mode::Tcp | Mode::TlsPassthrough => self.idle(),
        }
    }

    /// When a connection whose bytes are copied ends without progress. `idle` counts while both directions are open.
    pub(crate) fn pump(&self, idle: std::time::Duration) -> firstflight_http::pump::Limits {
        firstflight_http::pump::Limits { idle, half_closed: self.half_closed_timeout.0 }
    }

    /// Whether connections from this address begin with a PROXY header.
    pub(crate) fn expects_proxy_header(&self, peer: IpAddr) -> bool {
        contains(&self.proxy_protocol_from, peer)
    }

    /// Whether this address may say who the client is.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        contains(&self.trusted, peer)
    }

    /// The first keys in which `other` differs, of those that a reload cannot change: other sockets, or another memory, would be needed.
    pub(crate) fn needs_restart(&self, other: &Self) -> Option<&'static str> {
        let verifier = |l: &Self| l.verifier.as_ref().map(|verifier| verifier.get_ref().clone());
        let cookies = |l: &Self| (l.key_file.clone(), l.key_schedule.clone(), l.key_period);
        let once = |l: &Self| (*l.replays.get_ref(), l.replay_memory, *l.one_time.get_ref(), l.per_site);
        let seal = |l: &Self| l.seal.as_ref().map(|seal| seal.get_ref().clone());
        let tun = |l: &Self| l.tun.as_ref().map(|tun| tun.get_ref().clone());
        let xdp = |l: &Self| l.xdp.as_ref().map(|xdp| xdp.get_ref().clone());
        let same = [
            ("address", self.address.get_ref() == other.address.get_ref()),
            ("udp_port", self.udp_port == other.udp_port),
            ("reuse_port", self.reuse_port == other.reuse_port),
            ("fast_open", self.fast_open == other.fast_open),
            ("pending", self.pending == other.pending),
            ("key_file, key_schedule or key_period", cookies(self) == cookies(other)),
            ("trust", self.trust == other.trust),
            ("verifier", verifier(self) == verifier(other)),
            ("identity", self.identity == other.identity),
            ("replays, replay_memory, one_time or per_site", once(self) == once(other)),
            ("seal", seal(self) == seal(other)),
            ("tun", tun(self) == tun(other)),
            ("xdp", xdp(self) == xdp(other)),
            ("engine", self.engine() == other.engine()),
        ];
        same.into_iter().find_map(|(keys, same)| (!same).then_some(keys))
    }
}

fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address.to_canonical()))
}
