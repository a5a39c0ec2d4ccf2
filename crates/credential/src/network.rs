//! The local network that something was learnt on.

/// The local network on which something was learnt: 16 opaque bytes. A cookie that is used on another network
/// would reveal to the server that both addresses belong to the same user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NetworkId(pub [u8; 16]);

impl NetworkId {
    /// All zero: the network is not known.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// The id of this network for TCP in UDP datagrams. How routers treat TCP's options and SYNs with data
    /// says nothing about UDP, so the two memories are separate.
    #[must_use]
    pub fn over_udp(self) -> Self {
        Self(self.0.map(|byte| !byte))
    }

    /// Whether it names a network.
    #[must_use]
    pub fn is_known(&self) -> bool {
        *self != Self::UNKNOWN && *self != Self::UNKNOWN.over_udp()
    }
}
