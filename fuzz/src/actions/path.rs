//! Packets under way, and the changes to them.

use arbitrary::Arbitrary;
use firstflight_wire::SeqNum;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Header, Segment, fill_checksum};

/// Maximum number of packets under way. Further ones are lost.
const MAX_WAITING: usize = 400;

/// Changes that an attacker who sees a packet makes to it.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct Forged {
    flags: Option<u8>,
    seq: i8,
    far: bool,
    ack: i8,
    window: Option<u16>,
}

/// A packet under way.
#[derive(Debug, Clone)]
struct Waiting {
    /// The receiving end.
    to: usize,
    bytes: Vec<u8>,
    corrupt: bool,
}

/// The path in both directions.
#[derive(Debug, Default)]
pub struct Path {
    waiting: Vec<Waiting>,
    pub losses: usize,
    perfect: bool,
}

impl Path {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// From now on no packet is lost.
    pub fn perfect(&mut self) {
        self.perfect = true;
    }

    pub fn send(&mut self, to: usize, packet: &[u8]) {
        if self.waiting.len() < MAX_WAITING || self.perfect {
            self.waiting.push(Waiting { to, bytes: packet.to_vec(), corrupt: false });
        } else {
            self.losses += 1;
        }
    }

    fn index(&self, which: usize) -> Option<usize> {
        which.checked_rem(self.waiting.len())
    }

    /// Loses a packet.
    pub fn take(&mut self, which: usize) -> Option<(usize, Vec<u8>)> {
        let taken = self.take_to_deliver(which);
        self.losses += usize::from(taken.is_some());
        taken
    }

    pub fn take_to_deliver(&mut self, which: usize) -> Option<(usize, Vec<u8>)> {
        let Waiting { to, bytes, .. } = self.waiting.remove(self.index(which)?);
        Some((to, bytes))
    }

    /// Delivers a packet once more, after all others.
    pub fn duplicate(&mut self, which: usize) {
        if let Some(at) = self.index(which)
            && self.waiting.len() < MAX_WAITING
        {
            self.waiting.push(self.waiting[at].clone());
        }
    }

    /// Changes one byte of a packet. The checksum detects that, so the packet is as good as lost. Two bytes are never
    /// changed, because two changes can cancel out in the checksum.
    pub fn corrupt(&mut self, which: usize, at: usize, with: u8) {
        let Some(index) = self.index(which).filter(|_| with != 0) else { return };
        let Waiting { bytes, corrupt, .. } = &mut self.waiting[index];
        if !std::mem::replace(corrupt, true) {
            let at = at % bytes.len();
            bytes[at] ^= with;
            self.losses += 1;
        }
    }

    /// A packet without text that resembles one under way, with correct checksums.
    pub fn forge(&self, which: usize, forged: &Forged) -> Option<(usize, Vec<u8>)> {
        let Waiting { to, bytes, .. } = self.waiting.get(self.index(which)?)?;
        let packet = Packet::parse(bytes).ok()?;
        let segment = Segment::parse(packet.payload).ok()?;
        let flags = forged.flags.map_or(segment.flags, Flags::from_bits);
        if flags.contains(Flags::SYN) {
            // An attacker that chooses where a stream begins also chooses its bytes.
            return None;
        }
        let scale = if forged.far { 4_000 } else { 1 };
        let seq = segment.seq.get().wrapping_add((i32::from(forged.seq) * scale) as u32);
        let header = Header {
            src_port: segment.src_port,
            dst_port: segment.dst_port,
            seq: SeqNum::new(seq),
            ack: SeqNum::new(segment.ack.get().wrapping_add(i32::from(forged.ack) as u32)),
            flags,
            window: forged.window.unwrap_or(segment.window),
            urgent: 0,
        };
        let mut out = vec![0; 100];
        let len = header.emit(segment.options.raw, &mut out[20..]).ok()?;
        let head = firstflight_wire::ip::Header {
            src: packet.src,
            dst: packet.dst,
            protocol: packet.protocol,
            hop_limit: 64,
            ecn: firstflight_wire::ip::Ecn::default(),
            dont_fragment: true,
            identification: 0,
        };
        head.emit(len, &mut out).ok()?;
        fill_checksum(&mut out[20..20 + len], packet.src, packet.dst);
        out.truncate(20 + len);
        Some((*to, out))
    }
}
