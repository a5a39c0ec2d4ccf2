//! Which addresses a proxy may connect to.
//!
//! A name of an attacker's may resolve to any address, so what counts is the address that is connected to, not the name.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Which addresses may be connected to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    /// Private networks, too.
    pub private: bool,
    /// Networks that may be connected to, whatever they are.
    pub allowed: Vec<IpNet>,
    /// The proxy's own addresses.
    pub own: Vec<SocketAddr>,
}

/// Why an address is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.as_str())]
#[non_exhaustive]
pub enum Forbidden {
    /// This machine: a loopback address, one of its interfaces', or the address of no machine.
    Loopback,
    /// The local link, where cloud services have their metadata, too.
    LinkLocal,
    /// A service that gives a cloud machine its credentials.
    Metadata,
    /// A private network.
    Private,
    /// Several machines, or an address that is reserved.
    NoHost,
    /// The proxy itself.
    Itself,
}

impl Forbidden {
    /// What the address is, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "an address of the proxy's own machine: --allow-net allows it",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata service",
            Self::Private => {
                "an address of a private network: --allow-private allows them, and --allow-net one of them"
            }
            Self::NoHost => "not the address of a host",
            Self::Itself => "the proxy's own address",
        }
    }
}

impl Policy {
    /// Whether `remote` may be connected to.
    pub(crate) fn check(&self, remote: SocketAddr) -> Result<(), Forbidden> {
        self.check_with(remote, is_local)
    }

    /// The same, by what `is_local` says about this machine's interfaces.
    fn check_with(&self, remote: SocketAddr, is_local: impl Fn(IpAddr) -> bool) -> Result<(), Forbidden> {
        let ip = innermost(remote.ip());
        let readings: Vec<_> = [ip].into_iter().chain(embedded(ip)).collect();
        let own = |own: &SocketAddr| {
            let is_own = |ip: IpAddr| own.ip() == ip || own.ip().is_unspecified() && class(ip).is_some();
            own.port() == remote.port() && readings.iter().copied().any(is_own)
        };
        if self.own.iter().any(own) {
            return Err(Forbidden::Itself);
        }
        if self.allowed.iter().any(|net| net.contains(&ip)) {
            return Ok(());
        }
        for reading in &readings {
            match class(*reading) {
                Some(Forbidden::Private) if self.private => {}
                Some(forbidden) => return Err(forbidden),
                None => {}
            }
        }
        // Services of this machine that trust it may listen on any of its addresses.
        let outer = Some(remote.ip()).filter(|outer| *outer != ip);
        match readings.into_iter().chain(outer).any(is_local) {
            true => Err(Forbidden::Loopback),
            false => Ok(()),
        }
    }

    /// The addresses that may be connected to, or why none may.
    pub(crate) fn filter(&self, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, Forbidden> {
        let mut why = None;
        let allowed: Vec<_> = found
            .iter()
            .copied()
            .filter(|remote| self.check(*remote).map_err(|forbidden| why = Some(forbidden)).is_ok())
            .collect();
        match (allowed.is_empty(), why) {
            (true, Some(forbidden)) => Err(forbidden),
            _ => Ok(allowed),
        }
    }
}

/// Whether this machine has the address now, on any interface. The kernel chooses a destination that is its own as the source,
/// too. No packet is sent.
fn is_local(ip: IpAddr) -> bool {
    let any: SocketAddr = match ip {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let source = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    // An address without a route is not this machine's.
    source.is_ok_and(|source| source.ip() == ip)
}

/// What an address is, if it is not one of the public internet.
fn class(ip: IpAddr) -> Option<Forbidden> {
    match ip {
        IpAddr::V4(ip) => class_v4(ip),
        IpAddr::V6(ip) => class_v6(ip),
    }
}

/// The addresses of AWS, Google and most others are link-local. These are not: Alibaba, Oracle, and Azure's WireServer.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];
/// AWS.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

fn class_v4(ip: Ipv4Addr) -> Option<Forbidden> {
    let [a, b, c, _] = ip.octets();
    if METADATA_V4.contains(&ip) {
        return Some(Forbidden::Metadata);
    }
    // RFC 6890. Linux connects to 0.0.0.0 as to itself.
    match (a, b, c) {
        (0 | 127, ..) => Some(Forbidden::Loopback),
        (169, 254, _) => Some(Forbidden::LinkLocal),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some(Forbidden::Private),
        // Shared addresses of providers (RFC 6598), and networks of benchmarks (RFC 2544).
        (100, 64..=127, _) | (198, 18..=19, _) => Some(Forbidden::Private),
        (192, 0, 0) | (224.., ..) => Some(Forbidden::NoHost),
        _ => None,
    }
}

fn class_v6(ip: Ipv6Addr) -> Option<Forbidden> {
    if ip == METADATA_V6 {
        return Some(Forbidden::Metadata);
    }
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Some(Forbidden::Loopback),
        [0xfe80..=0xfebf, ..] => Some(Forbidden::LinkLocal),
        // Unique local addresses, site-local ones of old, and NAT64 with a prefix of the network's own (RFC 8215).
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => Some(Forbidden::Private),
        // What is not assigned (only 2000::/3 is), multicast, and the prefix of discarded packets.
        [0x2000..=0x3fff, ..] => None,
        _ => Some(Forbidden::NoHost),
    }
}

/// The IPv4 address that an IPv6 address stands for, or that its packets are sent on to: mapped (`::ffff:0:0/96`),
/// compatible (`::/96`), NAT64 (`64:ff9b::/96`, RFC 6052), 6to4 (RFC 3056) and Teredo (RFC 4380).
fn innermost(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let two = |high: u16, low: u16| IpAddr::from(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => ip,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => two(high, low),
        [0x2002, high, low, ..] => two(high, low),
        [0x2001, 0, .., high, low] => two(!high, !low),
        _ => ip,
    }
}

/// IPv4 addresses that an IPv6 address may have in it besides, so that its packets may be sent on to one of them: ISATAP (RFC
/// 5214), and NAT64 with a prefix of the network's own in `64:ff9b:1::/48` (RFC 8215), whose length nobody tells, so each that
/// RFC 6052 §2.2 has is one.
fn embedded(ip: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = ip else { return Vec::new() };
    let bytes = v6.octets();
    let at = |[a, b, c, d]: [usize; 4]| {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
        Ipv4Addr::new(byte(a), byte(b), byte(c), byte(d))
    };
    const LAST: [usize; 4] = [12, 13, 14, 15];
    let found: Vec<Ipv4Addr> = match v6.segments() {
        // Octet 8 has no bit of the address. A shorter address is zero in the others' places, and 0.0.0.0/8 is sent on by
        // no translator.
        [0x64, 0xff9b, 1, ..] => [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], LAST]
            .into_iter()
            .map(at)
            .filter(|found| found.octets().first() != Some(&0))
            .collect(),
        // The bits of the group and of the local administration do not matter.
        [.., high, 0x5efe, _, _] if high & !0x300 == 0 => vec![at(LAST)],
        _ => Vec::new(),
    };
    found.into_iter().map(IpAddr::from).collect()
}

#[cfg(test)]
mod tests;
