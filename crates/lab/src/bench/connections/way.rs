//! The ways to open a connection that `bench connections` compares.

/// A way to open a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum ConnectWay {
    /// Our engine in UDP, an ordinary handshake.
    UdpHandshake,
    /// The same on network cards at both ends.
    UdpCard,
    /// Our engine in UDP, with a cookie.
    FastOpen,
    /// Our engine in UDP, with a certificate.
    Asap,
    /// The kernel's TCP.
    Tcp,
    /// The kernel's TCP with Fast Open.
    TcpFastOpen,
    /// TLS 1.3 on the kernel's TCP.
    Tls,
    /// QUIC with a full handshake.
    Quic,
    /// QUIC whose request is 0-RTT data.
    QuicZeroRtt,
}

impl ConnectWay {
    pub const ALL: [Self; 9] = [
        Self::UdpHandshake,
        Self::UdpCard,
        Self::FastOpen,
        Self::Asap,
        Self::Tcp,
        Self::TcpFastOpen,
        Self::Tls,
        Self::Quic,
        Self::QuicZeroRtt,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UdpHandshake => "ours in UDP, handshake",
            Self::UdpCard => "ours in UDP on cards, handshake",
            Self::FastOpen => "ours in UDP, Fast Open",
            Self::Asap => "ours in UDP, ASAP",
            Self::Tcp => "kernel TCP",
            Self::TcpFastOpen => "kernel TCP, Fast Open",
            Self::Tls => "kernel TCP + rustls",
            Self::Quic => "quinn, 1-RTT",
            Self::QuicZeroRtt => "quinn, 0-RTT",
        }
    }

    /// The name on command lines and in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::UdpHandshake => "udp-handshake",
            Self::UdpCard => "udp-card",
            Self::FastOpen => "fast-open",
            Self::Asap => "asap",
            Self::Tcp => "tcp",
            Self::TcpFastOpen => "tcp-fast-open",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::QuicZeroRtt => "quic-zero-rtt",
        }
    }

    /// Whether it encrypts the request and the response.
    pub const fn encrypts(self) -> bool {
        matches!(self, Self::Tls | Self::Quic | Self::QuicZeroRtt)
    }

    /// Whether it is our engine in UDP.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::UdpHandshake | Self::UdpCard | Self::FastOpen | Self::Asap)
    }

    /// Whether each connection takes a file descriptor at either end.
    pub const fn takes_descriptors(self) -> bool {
        matches!(self, Self::Tcp | Self::TcpFastOpen | Self::Tls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn labels_are_those_of_the_command_line() {
        for way in ConnectWay::ALL {
            assert_eq!(way.to_possible_value().unwrap().get_name(), way.label());
        }
        assert_eq!(ConnectWay::value_variants(), ConnectWay::ALL);
    }
}
