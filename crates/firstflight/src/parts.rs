//! What a program needs of the crates below this one.

/// Credentials of first flights, and what became of them ([`firstflight_credential`]).
pub mod credential {
    pub use firstflight_credential::{
        AcceptedBlock, Identity, NetworkId, Outcome, Permission, Reason, Serial,
    };
    #[cfg(feature = "engine")]
    pub use firstflight_credential::{
        ClockError, CookieKey, CookieKeys, Current, Farm, FarmSecret, FarmSecrets, FastOpenPolicy,
        Fingerprint, Fixed, FlightId, GuardKey, Guarded, JobRequest, JobResult, KeyParseError, KeyRing,
        KeySource, LearntOfServer, OneTimeCookies, OneTimeKeys, PendingLimit, PolicyError, Quarantine,
        RemoteGuard, ReplayGuard, ReplayTable, Replays, Schedule, ScheduleError, Scheme, SecretFileError,
        SerialTable, Window,
    };

    /// Certificates ([`firstflight_credential::asap`]).
    #[cfg(feature = "engine")]
    pub mod asap {
        pub use firstflight_credential::asap::{
            AcceptedBlock, AsapPolicy, BeforeAck, BudgetConfig, CertificateDigest, ClientCertificate,
            GuardDomain, Identity, NotAKey, PrivateKey, PublicKey, TrustError, TrustStore, Trusted,
            address_tag, certify, is_certified, reason,
        };
    }
}

/// Times and words of the wire ([`firstflight_wire`]).
pub mod wire {
    pub use firstflight_wire::{Clock, Instant};

    /// Words of certificates ([`firstflight_wire::asap`]).
    pub mod asap {
        pub use firstflight_wire::asap::{CertificateFlags, VerifierId};
    }
}

/// Links for an [`Endpoint`](crate::Endpoint) ([`firstflight_link`]).
#[cfg(feature = "engine")]
pub mod link {
    #[cfg(any(feature = "tun", feature = "udp", feature = "xdp"))]
    pub use firstflight_link::BusyPoll;
    pub use firstflight_link::memory::MemoryLinkError;
    pub use firstflight_link::{
        ComesHere, Duplex, Link, MemoryLink, Path, PathConfig, PathError, VirtualTime, real_time_pair,
        virtual_time_pair,
    };
    #[cfg(feature = "pcap")]
    pub use firstflight_link::{PcapTap, PcapWriter, PcapWriterError, Tapped};
    #[cfg(feature = "udp")]
    pub use firstflight_link::{SharedUdp, UdpLink};
    #[cfg(all(feature = "tun", target_os = "linux"))]
    pub use firstflight_link::{Tun, TunConfig, TunDevice, TunError, TunQueue};

    /// A network card beside the kernel ([`firstflight_link::xdp`]).
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub mod xdp {
        pub use firstflight_link::xdp::{
            Allow, Joined, LateDevice, LateQueue, Mode, PortHolder, Prefix, PrefixError, Transport, Xdp,
            XdpConfig, XdpCounters, XdpDevice, XdpError, XdpQueue, XdpStatus, give_up_privileges,
        };
    }
}

/// Settings of an engine's connections ([`firstflight_tcp`]).
#[cfg(feature = "engine")]
pub mod tcp {
    pub use firstflight_tcp::{Config, EcnPolicy, Keepalive};

    /// Congestion control ([`firstflight_tcp::congestion`]).
    pub mod congestion {
        pub use firstflight_tcp::congestion::{Algorithm, InitialWindow, NoInitialWindow, UnknownAlgorithm};
    }
}

/// Verifiers: as a client of them, and as one ([`firstflight_verifier`]).
#[cfg(feature = "asap")]
pub mod verifier {
    #[cfg(feature = "metrics")]
    pub use firstflight_verifier::metrics;
    pub use firstflight_verifier::{
        CertificatePool, Config, CounterHandle, Issuer, IssuerAddress, KeptCertificate, KeptError,
        LearntVerifier, Limits, NotUsed, ObtainError, Patience, PoolConfig, PoolSite, Rate, Service,
        StreamLimits, VerifierKeys, Wanted, obtain, secure_rng,
    };
}
