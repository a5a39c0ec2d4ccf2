//! The header of a relay datagram.

use super::{Boot, HEAD, Kind, MAGIC};

/// The header's fields.
pub(super) struct Head {
    pub(super) key_id: u8,
    pub(super) front: u16,
    pub(super) boot: Boot,
    pub(super) sequence: u64,
    /// Unix milliseconds.
    pub(super) time: u64,
}

impl Head {
    pub(super) fn parse(kind: Kind, bytes: &[u8; HEAD]) -> Option<Self> {
        let &[m, n, version, key_id, f, g, b, c, d, e, s, t, u, v, w, x, i, j, k, l, o, p] = bytes;
        ([m, n] == MAGIC && version == kind.octet()).then(|| Self {
            key_id,
            front: u16::from_be_bytes([f, g]),
            boot: Boot(u32::from_be_bytes([b, c, d, e])),
            sequence: u64::from_be_bytes([0, 0, s, t, u, v, w, x]),
            time: u64::from_be_bytes([0, 0, i, j, k, l, o, p]),
        })
    }
}
