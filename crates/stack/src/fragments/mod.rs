//! Reassembly of IPv4 fragments (RFC 791 §3.2) and IPv6 fragments (RFC 8200 §4.5) in bounded memory.
//!
//! Routers fragment IPv4 packets without the DF flag. IPv6 senders fragment packets when the path's MTU gets smaller.
//! Whole packets do not pass through this module. A reassembled packet is handled like one that arrived whole.

mod datagram;
mod limits;
mod table;
#[cfg(test)]
mod tests;

use crate::addresses::is_mapped;
use crate::event::PacketDrop;
use crate::journal::counters::Counters;
use crate::random::Random;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use firstflight_wire::ip::{Fragment, Protocol};
use firstflight_wire::{Instant, ParseError};
pub use limits::FragmentLimits;
use table::Table;

/// IPv6 hosts accept fragmented packets of 1,500 bytes, whatever the MTU of their link (RFC 8200 §5).
const LEAST_LONGEST: usize = 1500;

/// A stack's incomplete packets. Without any, no memory is allocated.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    table: Option<Box<Table>>,
}

impl Fragments {
    /// Bytes of the incomplete packets.
    pub(crate) fn bytes(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.bytes())
    }

    /// Number of incomplete packets.
    pub(crate) fn packets(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.len())
    }

    /// When [`Fragments::expire`] is to be called.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.table.as_ref().and_then(|table| table.next_deadline())
    }

    /// Takes a fragment of a packet for us. Returns the whole packet if this fragment completes it, or why the fragment is
    /// dropped; `None` if fragments are missing. A table that is made gets its hash key from `random`.
    pub(crate) fn handle(
        &mut self,
        fragment: &Fragment<'_>,
        rules: &Rules,
        now: Instant,
        random: &mut Random,
        counters: &mut Counters,
    ) -> Option<Result<Vec<u8>, PacketDrop>> {
        if !rules.takes(fragment) {
            return Some(Err(PacketDrop::Protocol));
        }
        if datagram::Datagram::reach(fragment) > rules.mtu.max(LEAST_LONGEST) {
            return Some(Err(PacketDrop::FragmentTooLong));
        }
        let table = self.table.get_or_insert_with(|| Box::new(Table::new(random.next_u64())));
        let whole = table.handle(fragment, &rules.limits, now);
        counters.reassembly_evicted += table.take_evicted();
        if table.is_spent() {
            self.table = None;
        }
        whole.transpose()
    }

    /// Gives up packets whose lifetime is over.
    #[inline]
    pub(crate) fn expire(&mut self, now: Instant, counters: &mut Counters) {
        if self.table.is_some() {
            self.expire_some(now, counters);
        }
    }

    fn expire_some(&mut self, now: Instant, counters: &mut Counters) {
        let Some(table) = &mut self.table else { return };
        counters.reassembly_timeouts += table.expire(now);
        if table.len() == 0 {
            self.table = None;
        }
    }
}

/// Which fragments a stack takes.
pub(crate) struct Rules {
    pub limits: FragmentLimits,
    /// The link's MTU.
    pub mtu: usize,
    /// Whether it takes UDP.
    pub udp: bool,
}

impl Rules {
    /// Reads a packet that is a fragment.
    /// Errors: why the packet is dropped.
    pub(crate) fn parse<'a>(&self, packet: &'a [u8]) -> Result<Fragment<'a>, PacketDrop> {
        if self.limits.bytes == 0 {
            return Err(PacketDrop::FragmentsOff);
        }
        let fragment = Fragment::parse(packet).map_err(|error| match error {
            ParseError::BadFragment => PacketDrop::BadFragment,
            _ => PacketDrop::BadIp,
        })?;
        let mapped = |ip| matches!(ip, IpAddr::V6(ip) if is_mapped(ip));
        if mapped(fragment.src) || mapped(fragment.dst) {
            return Err(PacketDrop::BadSource);
        }
        Ok(fragment)
    }

    /// Whether the fragment is of a protocol that the stack takes.
    fn takes(&self, fragment: &Fragment<'_>) -> bool {
        match fragment.transport {
            Some(Protocol::Tcp) => true,
            Some(Protocol::Udp) => self.udp,
            Some(Protocol::Icmp) => fragment.src.is_ipv4(),
            Some(Protocol::Icmpv6) => fragment.src.is_ipv6(),
            Some(Protocol::Other(_)) => false,
            // Only the first fragment contains the transport protocol (RFC 8200 §4.5).
            None => true,
        }
    }
}
