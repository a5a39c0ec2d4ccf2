//! Key exchange: which groups a client offers.

use rustls::NamedGroup;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use std::sync::Arc;

/// Whether a client offers the hybrid key exchange X25519MLKEM768. What is recorded today can be decrypted by a quantum
/// computer later if the key exchange was X25519 alone.
///
/// The hybrid makes the ClientHello 1,184 bytes longer. Then it does not fit into a SYN. In UDP the rest follows at once; on
/// TCP it waits for the handshake, which costs a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Hybrid {
    /// Where it costs nothing: in UDP, and on streams that are connected already. The ClientHello in a TCP SYN offers X25519,
    /// and no hybrid at all: a server that prefers hybrids would ask for another ClientHello, which costs the round trip
    /// that was saved.
    #[default]
    Prefer,
    /// Always, and nothing else: a server without it refuses.
    Require,
    /// Never.
    Never,
}

/// How the groups of a ClientHello are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Groups {
    /// The hybrid first, with an X25519 share beside it.
    HybridFirst,
    HybridOnly,
    Classical,
}

impl Hybrid {
    /// `in_syn`: whether a SYN must hold the ClientHello.
    pub(crate) const fn groups(self, in_syn: bool) -> Groups {
        match self {
            Self::Require => Groups::HybridOnly,
            Self::Never => Groups::Classical,
            Self::Prefer if in_syn => Groups::Classical,
            Self::Prefer => Groups::HybridFirst,
        }
    }
}

impl Groups {
    /// The provider with these groups.
    pub(crate) fn provider(self) -> Arc<CryptoProvider> {
        use aws_lc_rs::kx_group::{SECP256R1, SECP384R1, X25519, X25519MLKEM768};
        let groups: Vec<&'static dyn SupportedKxGroup> = match self {
            Self::HybridFirst => vec![X25519MLKEM768, X25519, SECP256R1, SECP384R1],
            Self::HybridOnly => vec![X25519MLKEM768],
            Self::Classical => vec![X25519, SECP256R1, SECP384R1],
        };
        Arc::new(CryptoProvider { kx_groups: groups, ..aws_lc_rs::default_provider() })
    }
}

/// Whether a group is a hybrid with ML-KEM.
pub(crate) fn is_hybrid(group: NamedGroup) -> bool {
    matches!(group, NamedGroup::X25519MLKEM768 | NamedGroup::secp256r1MLKEM768)
}
