//! Ethernet frames, and the IP packets in them.

use std::net::IpAddr;

use firstflight_wire::checksum::pseudo_header;

use super::neighbours::Mac;

/// Length of a link-layer header, bytes.
pub(super) const HEADER: usize = 14;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet in a received frame.
pub(super) struct Received<'a> {
    /// The link-layer address that the frame came from.
    pub(super) from: Mac,
    /// Source address.
    pub(super) src: IpAddr,
    /// The packet, without what pads the frame.
    pub(super) packet: &'a mut [u8],
}

/// The packet of a frame. `None` if it is not whole, or longer than `mtu`.
pub(super) fn read(frame: &mut [u8], mtu: usize) -> Option<Received<'_>> {
    let (header, packet) = frame.split_at_mut_checked(HEADER)?;
    let from = *header.get(6..12)?.first_chunk()?;
    let (src, _) = addresses(packet)?;
    let len = |bytes: &[u8], at: usize| {
        Some(usize::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
    };
    let total = if src.is_ipv4() { len(packet, 2)? } else { len(packet, 4)? + 40 };
    let packet = packet.get_mut(..total).filter(|packet| packet.len() <= mtu)?;
    Some(Received { from, src, packet })
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
pub(super) enum Opening {
    /// Without data.
    Plain,
    /// With data: a first flight.
    WithData,
}

impl Opening {
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
mod tests {
    use super::*;
    use firstflight_wire::tcp::{Segment, fill_checksum};

    const SRC: [u8; 4] = [192, 0, 2, 1];
    const DST: [u8; 4] = [192, 0, 2, 2];

    fn packet() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0];
        packet.extend(SRC.into_iter().chain(DST));
        let mut tcp = vec![0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0];
        tcp.extend(b"data");
        fill_checksum(&mut tcp, SRC.into(), DST.into());
        packet.extend(tcp);
        packet
    }

    #[test]
    fn a_frame_is_written_and_read() {
        let packet = packet();
        // A short frame is padded to 60 bytes.
        let mut frame = vec![0; 60];
        write(&mut frame, [1; 6], [2; 6], &packet);
        assert_eq!(frame[12..14], [0x08, 0x00]);
        let read = read(&mut frame, 1500).unwrap();
        assert_eq!((read.from, read.src, &read.packet[..]), ([2; 6], SRC.into(), &packet[..]));
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        let packet = packet();
        let mut frame = vec![0; HEADER + packet.len()];
        write(&mut frame, [1; 6], [2; 6], &packet);
        assert!(read(&mut frame.clone(), packet.len()).is_some());
        assert!(read(&mut frame.clone(), packet.len() - 1).is_none(), "longer than the MTU");
        for len in 0..frame.len() {
            assert!(read(&mut frame[..len], 1500).is_none());
        }
    }

    #[test]
    fn a_checksum_that_was_left_to_the_card_is_completed() {
        let whole = packet();
        let mut left = whole.clone();
        let bare = !pseudo_header(SRC.into(), DST.into(), 6, 24).finish();
        left[36..38].copy_from_slice(&bare.to_be_bytes());
        complete(&mut left).unwrap();
        assert_eq!(left, whole);
        // A wrong one stays wrong.
        let mut wrong = whole.clone();
        wrong[36] ^= 1;
        assert_eq!(complete(&mut wrong), None);
        assert!(Segment::parse_checked(&wrong[20..], SRC.into(), DST.into()).is_err());
    }
}
