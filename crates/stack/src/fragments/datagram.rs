//! One packet of which fragments are missing.

use crate::event::PacketDrop;
use alloc::vec;
use alloc::vec::Vec;
use firstflight_wire::Instant;
use firstflight_wire::ip::{Ecn, Fragment, Header, Protocol};

/// Where a fragment lies in the payload, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct FragmentSpan {
    start: u16,
    end: u16,
    /// Where its payload begins in [`Datagram::bytes`].
    at: u16,
}

/// What the first fragment says about the whole packet.
#[derive(Debug, Clone, Copy)]
struct FirstFragment {
    next: Protocol,
    hop_limit: u8,
    ecn: Ecn,
}

/// The fragments of one packet that have arrived.
#[derive(Debug)]
pub(super) struct Datagram {
    pub expires: Instant,
    /// The payloads of the fragments, in the order of their arrival, so that gaps need no memory.
    bytes: Vec<u8>,
    /// In the order of their offsets; none overlaps another.
    parts: Vec<FragmentSpan>,
    first: Option<FirstFragment>,
    /// Length of the whole payload, once the last fragment has arrived.
    total: Option<u16>,
    received: u16,
    header_len: u8,
    /// A bit for each ECN codepoint of the fragments.
    marks: u8,
    /// The packet was given up because of a bad fragment. Its later fragments are dropped too (RFC 5722 §4).
    ended: bool,
}

impl Datagram {
    /// A packet without any fragment yet.
    pub(super) fn new(v4: bool, expires: Instant) -> Self {
        Self {
            expires,
            bytes: Vec::new(),
            parts: Vec::new(),
            first: None,
            total: None,
            received: 0,
            header_len: if v4 { 20 } else { 40 },
            marks: 0,
            ended: false,
        }
    }

    /// Bytes on the heap, without the struct itself.
    pub(super) fn heap(&self) -> usize {
        self.bytes.capacity() + self.parts.capacity() * size_of::<FragmentSpan>()
    }

    /// Length of the whole packet if it ends with this fragment, bytes.
    pub(super) fn reach(fragment: &Fragment<'_>) -> usize {
        fragment.end() + if fragment.src.is_ipv4() { 20 } else { 40 }
    }

    /// Adds a fragment; true if the packet is complete. At most `most` fragments are taken.
    pub(super) fn add(&mut self, fragment: &Fragment<'_>, most: usize) -> Result<bool, PacketDrop> {
        if self.ended {
            return Err(PacketDrop::FragmentOverlap);
        }
        let (start, end) = (fragment.offset, fragment.end() as u16);
        let at = self.parts.partition_point(|part| part.start < start);
        if self.is_duplicate(at, fragment) {
            return Err(PacketDrop::FragmentDuplicate);
        }
        let refused = if self.contradicts(at, start, end, fragment.more) {
            Some(PacketDrop::FragmentOverlap)
        } else if self.mixes(fragment.ecn) {
            Some(PacketDrop::FragmentEcn)
        } else if self.parts.len() >= most {
            Some(PacketDrop::TooManyFragments)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.end();
            return Err(reason);
        }
        let part = FragmentSpan { start, end, at: self.received };
        self.bytes.reserve_exact(fragment.payload.len());
        self.bytes.extend_from_slice(fragment.payload);
        self.parts.insert(at, part);
        self.received += end - start;
        self.marks |= 1 << fragment.ecn.bits();
        if !fragment.more {
            self.total = Some(end);
        }
        if start == 0 {
            let Fragment { next, hop_limit, ecn, .. } = *fragment;
            self.first = Some(FirstFragment { next, hop_limit, ecn });
        }
        Ok(self.total == Some(self.received))
    }

    /// Whether an exact copy of the fragment arrived before. Networks duplicate packets; a copy does no harm (RFC 8200
    /// §4.5).
    fn is_duplicate(&self, at: usize, fragment: &Fragment<'_>) -> bool {
        let (start, end) = (fragment.offset, fragment.end() as u16);
        let same = self.parts.get(at).filter(|part| (part.start, part.end) == (start, end));
        let last = self.total == Some(end);
        last != fragment.more && same.and_then(|part| self.kept(part)) == Some(fragment.payload)
    }

    /// Whether another fragment covers a part of the same bytes, or ends the packet elsewhere.
    fn contradicts(&self, at: usize, start: u16, end: u16, more: bool) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.parts.get(before));
        let overlaps = before.is_some_and(|part| part.end > start)
            || self.parts.get(at).is_some_and(|part| part.start < end);
        let length = match self.total {
            Some(total) => end > total || !more,
            None => !more && self.parts.last().is_some_and(|part| part.end > end),
        };
        overlaps || length
    }

    /// Whether some fragments say that their sender uses ECN, and others that it does not (RFC 3168 §5.3). Then a mark
    /// may have been lost.
    fn mixes(&self, ecn: Ecn) -> bool {
        let marks = self.marks | 1 << ecn.bits();
        marks & 1 != 0 && marks != 1
    }

    /// The bytes of a fragment.
    fn kept(&self, part: &FragmentSpan) -> Option<&[u8]> {
        self.bytes.get(usize::from(part.at)..)?.get(..usize::from(part.end - part.start))
    }

    fn end(&mut self) {
        self.ended = true;
        self.bytes = Vec::new();
        self.parts = Vec::new();
    }

    /// The whole packet with a new header, without IP options and without the extension headers that stood in front of
    /// the Fragment header. Those were checked when the fragments arrived.
    pub(super) fn finish(self, of: &Fragment<'_>) -> Option<Vec<u8>> {
        let FirstFragment { next, hop_limit, ecn } = self.first?;
        // RFC 3168 §5.3: one mark marks the packet.
        let ecn = if self.marks & 1 << Ecn::Ce.bits() != 0 { Ecn::Ce } else { ecn };
        let header = Header {
            src: of.src,
            dst: of.dst,
            protocol: next,
            hop_limit,
            ecn,
            dont_fragment: false,
            identification: 0,
        };
        let total = usize::from(self.total?);
        let mut whole = vec![0; usize::from(self.header_len) + total];
        let at = header.emit(total, &mut whole).ok()?;
        for part in &self.parts {
            let place = whole.get_mut(at..)?.get_mut(part.start.into()..part.end.into())?;
            place.copy_from_slice(self.kept(part)?);
        }
        Some(whole)
    }
}
