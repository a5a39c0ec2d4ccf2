//! First flights longer than one datagram, in UDP: segments without ACK that follow the SYN at once
//! (`docs/spec/asap.md` section 8).
//!
//! Such segments share the fate of their SYN. A child that accepts the SYN's data accepts them, too
//! ([`Connection::handle_segment`]). If the SYN waits, they wait with it. If the SYN is refused or unknown, they
//! are dropped. The client keeps them until they are acknowledged.
//!
//! [`Connection::handle_segment`]: firstflight_tcp::Connection::handle_segment

use alloc::vec::Vec;
use firstflight_wire::tcp::{Header, Segment};

/// The bytes of `segment`; `None` if its options are not whole words.
pub(crate) fn copy_of(segment: &Segment<'_>) -> Option<Vec<u8>> {
    let mut bytes = alloc::vec![0; 60 + segment.payload.len()];
    let header = Header {
        src_port: segment.src_port,
        dst_port: segment.dst_port,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: segment.urgent,
    };
    let at = header.emit(segment.options.raw, &mut bytes).ok()?;
    bytes.truncate(at + segment.payload.len());
    bytes.get_mut(at..)?.copy_from_slice(segment.payload);
    Some(bytes)
}
