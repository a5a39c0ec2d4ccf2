//! Sizes that a seal, its fragments and relay datagrams share.

use crate::ReplyKey;

/// The largest number of fragments, without the parity.
pub const MAX_FRAGMENTS: usize = 8;

/// How many bytes of (length ‖ sealed) a fragment carries.
pub(crate) const BODY: usize = 50;

/// The encrypted bytes before the connection information.
pub(crate) const INNER_HEAD: usize = 20 + ReplyKey::LEN;
/// How many bytes the seal adds: key id, encapsulated key, tag.
pub(crate) const SEAL_OVERHEAD: usize = 1 + 32 + 16;
/// The longest sealed bytes that fit into eight fragments after the length, bytes.
pub(crate) const MAX_SEALED: usize = MAX_FRAGMENTS * BODY - 2;
