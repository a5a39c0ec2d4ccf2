//! Ethernet frames, and the IP packets in them.

use std::net::IpAddr;

use firstflight_wire::checksum::pseudo_header;

use super::neighbours::Mac;

/// Length of a link-layer header, bytes.
pub(super) const HEADER: usize = 14;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet in a received frame.
pub(super) struct ReceivedPacket<'a> {
    /// The link-layer address that the frame came from.
    pub(super) from: Mac,
    /// Source address.
    pub(super) src: IpAddr,
    /// The packet, without what pads the frame.
    pub(super) packet: &'a mut [u8],
}

/// The packet of a frame. `None` if it is not whole, or longer than `mtu`.
pub(super) fn read(frame: &mut [u8], mtu: usize) -> Option<ReceivedPacket<'_>> {
    let (header, packet) = frame.split_at_mut_checked(HEADER)?;
    let from = *header.get(6..12)?.first_chunk()?;
    let (src, _) = addresses(packet)?;
    let len = |bytes: &[u8], at: usize| {
        Some(usize::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
    };
    let total = if src.is_ipv4() { len(packet, 2)? } else { len(packet, 4)? + 40 };
    let packet = packet.get_mut(..total).filter(|packet| packet.len() <= mtu)?;
    Some(ReceivedPacket { from, src, packet })
}

/// Writes a frame with `packet`, which has the room for it.
pub(super) fn write(frame: &mut [u8], to: Mac, from: Mac, packet: &[u8]) {
    let kind = if packet.first().is_some_and(|first| first >> 4 == 4) { [0x08, 0x00] } else { [0x86, 0xdd] };
    let header = to.into_iter().chain(from).chain(kind);
    for (place, byte) in frame.iter_mut().zip(header) {
        *place = byte;
    }
    if let Some(place) = frame.get_mut(HEADER..HEADER + packet.len()) {
        place.copy_from_slice(packet);
    }
}

/// Source and destination of a packet.
pub(super) fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    match packet.first()? >> 4 {
        4 => Some((v4(12)?, v4(16)?)),
        6 => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}

/// A SYN that opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SynOpening {
    /// Without data.
    Plain,
    /// With data: a first flight.
    WithData,
}

impl SynOpening {
    pub(super) const COUNT: usize = 2;
    /// Where its numbers are in an element of the map: how many were taken, and how many may be.
    pub(super) const PLACES: [i16; Self::COUNT] = [0, 16];

    /// What kind of SYN the packet is, by the rules of the program.
    #[inline]
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let (at, protocol) =
            if packet.first()? >> 4 == 4 { (20, *packet.get(9)?) } else { (40, *packet.get(6)?) };
        let tcp = packet.get(at..).filter(|_| protocol == TCP)?;
        let (header, flags) = (usize::from(tcp.get(12)? >> 4) * 4, tcp.get(13)?);
        (flags & 0x12 == 0x02 && tcp.len() >= 20).then_some(match header < tcp.len() {
            true => Self::WithData,
            false => Self::Plain,
        })
    }
}

/// Completes a checksum that a sender of this machine left to its network card: the field holds the sum of the pseudo-header
/// alone.
pub(super) fn complete(packet: &mut [u8]) -> Option<()> {
    let (src, dst) = addresses(packet)?;
    let (at, protocol) = if src.is_ipv4() { (20, *packet.get(9)?) } else { (40, *packet.get(6)?) };
    let transport = packet.get_mut(at..)?;
    let field = match protocol {
        TCP => transport.get(16..18)?,
        UDP => transport.get(6..8)?,
        _ => return None,
    };
    let bare = !pseudo_header(src, dst, protocol, transport.len() as u32).finish();
    if field != bare.to_be_bytes() {
        return None;
    }
    match protocol {
        TCP => firstflight_wire::tcp::fill_checksum(transport, src, dst),
        _ => firstflight_wire::udp::fill_checksum(transport, src, dst),
    }
    Some(())
}

#[cfg(test)]
mod tests;
