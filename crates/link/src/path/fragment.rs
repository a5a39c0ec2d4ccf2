//! Fragmentation of packets that are too large.

use firstflight_wire::ip::{Fragment, Packet};

/// The fragments of a packet, in their order, each of at most `mtu` bytes. The DF flag is ignored. Options
/// and extension headers are not copied.
///
/// `None` if the bytes are not a whole packet with a payload, or if `mtu` has no room for 8 bytes of it.
#[must_use]
pub fn fragment(packet: &[u8], mtu: usize, identification: u32) -> Option<Vec<Vec<u8>>> {
    let Packet { src, dst, protocol, hop_limit, ecn, payload } = Packet::parse(packet).ok()?;
    let headers = if src.is_ipv4() { 20 } else { 48 };
    let room = mtu.checked_sub(headers)? / 8 * 8;
    if room == 0 || payload.is_empty() {
        return None;
    }
    let count = payload.len().div_ceil(room);
    let mut all = Vec::with_capacity(count);
    for (index, part) in payload.chunks(room).enumerate() {
        let fragment = Fragment {
            src,
            dst,
            identification,
            next: protocol,
            transport: None,
            offset: u16::try_from(index * room).ok()?,
            more: index + 1 < count,
            hop_limit,
            ecn,
            payload: part,
        };
        let mut out = vec![0; headers + part.len()];
        fragment.emit(&mut out).ok()?;
        all.push(out);
    }
    Some(all)
}
