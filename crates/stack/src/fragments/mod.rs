//! Reassembly of IPv4 fragments (RFC 791 §3.2) and IPv6 fragments (RFC 8200 §4.5) in bounded memory.
//!
//! Routers fragment IPv4 packets without the DF flag. IPv6 senders fragment packets when the path's MTU gets smaller.
//! Whole packets do not pass through this module. A reassembled packet is handled like one that arrived whole.

mod datagram;
mod table;
#[cfg(test)]
mod tests;

use crate::event::Drop;
use crate::ingress::is_mapped;
use crate::stack::Stack;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::ip::{Fragment, Protocol};
use firstflight_wire::{Instant, ParseError};
use table::Table;

/// IPv6 hosts accept fragmented packets of 1,500 bytes, whatever the MTU of their link (RFC 8200 §5).
const LEAST_LONGEST: usize = 1500;

/// How much memory incomplete packets may take, and for how long they are kept.
///
/// Anyone can send fragments, from any address. When the memory is used up, the oldest packet is given up: the
/// fragments of an honest packet arrive close together, so it is complete before it becomes the oldest. Packets longer
/// than the link's MTU and longer than 1,500 bytes are refused; a peer that keeps to the announced MSS sends none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Bytes of all incomplete packets together, including what is needed to keep track of them. 0 drops all fragments.
    pub bytes: usize,
    /// Bytes of the incomplete packets of one source (an IPv4 address, an IPv6 /64). Beyond this the source's own
    /// oldest packet is given up.
    pub bytes_per_source: usize,
    /// Fragments of one packet. A packet with more fragments is given up. On a path of the smallest MTU that is legal
    /// in IPv4, 68 bytes, a packet of 1,500 bytes has 31.
    pub per_packet: usize,
    /// How long after its first fragment a packet is given up. RFC 791 §3.2 says 15 s, RFC 8200 §4.5 at most 60 s;
    /// Linux takes 30 s and 60 s. The shorter it is, the fewer old fragments meet an identification that is used again
    /// (RFC 4963).
    pub lifetime: Duration,
}

impl FragmentLimits {
    /// Drops all fragments.
    pub const OFF: Self = Self { bytes: 0, bytes_per_source: 0, per_packet: 0, lifetime: Duration::ZERO };
}

impl Default for FragmentLimits {
    /// 4 MiB, as Linux' `ipfrag_high_thresh`; a sixteenth of it for each source; 64 fragments; 15 s.
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            bytes_per_source: 256 << 10,
            per_packet: 64,
            lifetime: Duration::from_secs(15),
        }
    }
}

/// A stack's incomplete packets. Without any, no memory is allocated.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    table: Option<Box<Table>>,
}

impl Fragments {
    /// Bytes of the incomplete packets.
    pub fn bytes(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.bytes())
    }

    /// Number of incomplete packets.
    pub fn packets(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.len())
    }

    /// When [`Stack::expire_fragments`] is to be called.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.table.as_ref().and_then(|table| table.next_deadline())
    }
}

impl Stack {
    /// Takes a packet that is a fragment.
    #[cold]
    #[inline(never)]
    pub(crate) fn handle_fragment(&mut self, packet: &[u8], now: Instant) {
        self.journal.counters.fragments_in += 1;
        match self.put_together(packet, now) {
            // The whole packet is not a fragment itself: its header is new, and the headers behind it were checked with
            // the first fragment.
            Some(Ok(whole)) => {
                self.journal.counters.packets_reassembled += 1;
                self.handle_packet(now, &whole);
            }
            Some(Err(reason)) => self.journal.drop_packet(reason),
            None => {}
        }
    }

    /// The whole packet if this fragment completes it, or why the fragment is dropped. `None` if fragments are missing,
    /// or if the drop is counted already.
    fn put_together(&mut self, packet: &[u8], now: Instant) -> Option<Result<Vec<u8>, Drop>> {
        let limits = self.config.limits.fragments;
        if limits.bytes == 0 {
            return Some(Err(Drop::FragmentsOff));
        }
        let fragment = match Fragment::parse(packet) {
            Ok(fragment) => fragment,
            Err(ParseError::BadFragment) => return Some(Err(Drop::BadFragment)),
            Err(_) => return Some(Err(Drop::BadIp)),
        };
        let mapped = |ip| matches!(ip, IpAddr::V6(ip) if is_mapped(ip));
        if mapped(fragment.src) || mapped(fragment.dst) {
            return Some(Err(Drop::BadSource));
        }
        if !self.concerns_us(fragment.src, fragment.dst) {
            return None;
        }
        let spoken = match fragment.transport {
            Some(Protocol::Tcp) => true,
            Some(Protocol::Udp) => self.carrier.is_some(),
            Some(Protocol::Icmp) => fragment.src.is_ipv4(),
            Some(Protocol::Icmpv6) => fragment.src.is_ipv6(),
            Some(Protocol::Other(_)) => false,
            // Only the first fragment contains the transport protocol (RFC 8200 §4.5).
            None => true,
        };
        if !spoken {
            return Some(Err(Drop::Protocol));
        }
        if datagram::Datagram::reach(&fragment) > self.config.mtu.max(LEAST_LONGEST) {
            return Some(Err(Drop::FragmentTooLong));
        }
        let random = &mut self.random;
        let table = self.fragments.table.get_or_insert_with(|| Box::new(Table::new(random.next_u64())));
        let whole = table.handle(&fragment, &limits, now);
        self.journal.counters.reassembly_evicted += table.take_evicted();
        if table.is_spent() {
            self.fragments.table = None;
        }
        whole.transpose()
    }

    /// Gives up packets whose lifetime is over.
    #[inline]
    pub(crate) fn expire_fragments(&mut self, now: Instant) {
        if self.fragments.table.is_some() {
            self.expire_some(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn expire_some(&mut self, now: Instant) {
        let Some(table) = &mut self.fragments.table else { return };
        self.journal.counters.reassembly_timeouts += table.expire(now);
        if table.len() == 0 {
            self.fragments.table = None;
        }
    }
}
