//! Counters of one stack.

use crate::event::PacketDrop;
use core::ops::AddAssign;
use firstflight_credential::{Outcome, Reason};

/// Everything a stack counts. All fields only grow.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Packets given in, and packets reassembled from fragments. Those from other shards count there.
    pub packets_in: u64,
    /// Packets given in that belong to other shards ([`crate::Config::shard`]), and were kept for them.
    pub handed_over: u64,
    /// Packets given out.
    pub packets_out: u64,
    /// Fragments among the packets given in.
    pub fragments_in: u64,
    /// Packets reassembled from fragments.
    pub packets_reassembled: u64,
    /// Packets given up because a fragment did not come in time.
    pub reassembly_timeouts: u64,
    /// Packets given up because the memory for fragments was used up.
    pub reassembly_evicted: u64,
    /// Connects begun.
    pub active_opens: u64,
    /// Children made.
    pub passive_opens: u64,
    /// Handshakes completed, either side.
    pub established: u64,
    /// Cookies granted in SYN-ACKs.
    pub cookies_granted: u64,
    /// First flights accepted, server side.
    pub first_flights_accepted: u64,
    /// First flights that fell back to the ordinary handshake, server side.
    pub first_flights_refused: u64,
    /// Connections reset after their handshake because their first flight was accepted before, perhaps at another server.
    pub repeats_reset: u64,
    /// Connects whose first flight the server accepted.
    pub first_flights_taken: u64,
    /// Second attempts of connects, from another port.
    pub second_attempts: u64,
    /// Times that a limit of pending first flights sent a listener back to ordinary handshakes.
    pub fast_open_suspended: u64,
    /// Ends of connections remembered for 2 MSL although the peer closed first.
    pub last_acks_held: u64,
    /// First flights that fronts delivered.
    pub relayed: u64,
    /// Of those, silently dropped.
    pub relayed_dropped: u64,
    /// Connects carried in a lookup that were answered by a server that was not contacted.
    pub in_lookup_answered: u64,
    /// Credential blocks with a wrong signature or encoding.
    pub blocks_forged: u64,
    /// Credential blocks that were refused and not reported to the store of the farm, because too many were: their clients
    /// were told that the request may have run, or got no answer.
    pub blocks_unreported: u64,
    /// Signatures of first flights verified: two for a certificate not seen before, if it is right.
    pub signatures_verified: u64,
    /// SYN cookies sent.
    pub syn_cookies_sent: u64,
    /// Valid SYN cookies that came back.
    pub syn_cookies_good: u64,
    /// RSTs sent for segments of no connection.
    pub resets_sent: u64,
    /// Keep-alive datagrams sent for connections in UDP.
    pub keep_alives_sent: u64,
    /// Keep-alive datagrams that came for ports without a connection, and were answered with a reset.
    pub encapsulation_resets_sent: u64,
    /// Such resets that answered our own keep-alives, and made connections send a probe.
    pub encapsulation_resets_believed: u64,
    /// Checks of another UDP port of a connection's client. A repeated check counts again.
    pub encapsulation_paths_checked: u64,
    /// Connections that moved to another UDP port of their client, or back.
    pub encapsulation_paths_moved: u64,
    /// Connections that entered TIME-WAIT.
    pub time_waits: u64,
    /// Connections reset because their client had reached its limit
    /// ([`crate::Limits::connections_per_client`]).
    pub clients_limited: u64,
    /// Connections reset to free memory, because their peers accepted nothing ([`crate::Limits::buffer_bytes`]).
    pub stuck_reset: u64,
    /// TIME-WAIT records evicted before their time.
    pub time_waits_evicted: u64,
    /// Segments dropped by their connection.
    pub segments_dropped: u64,
    /// What became of the first flights of connections we opened.
    pub client: Outcomes,
    /// What became of the first flights of a listener's children.
    pub server: Outcomes,
    /// Packets that never reached a connection: see [`Counters::dropped`].
    drops: [u64; PacketDrop::ALL.len()],
}

impl Counters {
    /// Packets dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: PacketDrop) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or_default()
    }

    pub(crate) fn drop(&mut self, reason: PacketDrop) {
        if let Some(n) = self.drops.get_mut(reason as usize) {
            *n += 1;
        }
    }

    /// Every reason, with the packets dropped for it.
    pub fn drops(&self) -> impl Iterator<Item = (PacketDrop, u64)> {
        PacketDrop::ALL.iter().copied().zip(self.drops)
    }

    /// Every packet that never reached a connection.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum()
    }
}

/// Connections of one side by the outcome of their first flight. Each is counted once, as soon as its
/// outcome is known: a client's ordinary handshake when it begins, a first flight when it is answered or
/// has failed, a child when it is made. One that ends before (a request for a cookie that nobody answered)
/// is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    accepted: u64,
    /// Accepted, but something on the path removed the server's reply.
    stripped: u64,
    handshake: [u64; Reason::ALL.len()],
}

impl Default for Outcomes {
    fn default() -> Self {
        Self { accepted: 0, stripped: 0, handshake: [0; Reason::ALL.len()] }
    }
}

impl Outcomes {
    /// Connections with this outcome; 0 for [`Outcome::Undecided`].
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Accepted => self.accepted,
            Outcome::AcceptedReplyStripped => self.stripped,
            Outcome::Handshake(reason) => self.handshake.get(reason.index()).copied().unwrap_or_default(),
            _ => 0,
        }
    }

    /// Every outcome that can be counted, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> {
        let accepted =
            [(Outcome::Accepted, self.accepted), (Outcome::AcceptedReplyStripped, self.stripped)].into_iter();
        let by_handshake = Reason::ALL.iter().map(|reason| Outcome::Handshake(*reason));
        accepted.chain(by_handshake.zip(self.handshake))
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Accepted => self.accepted += 1,
            Outcome::AcceptedReplyStripped => self.stripped += 1,
            Outcome::Handshake(reason) => {
                if let Some(n) = self.handshake.get_mut(reason.index()) {
                    *n += 1;
                }
            }
            _ => {}
        }
    }
}

/// The counts of several stacks together.
impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        // Everything by name, so that no count is forgotten.
        let Self {
            packets_in,
            handed_over,
            packets_out,
            fragments_in,
            packets_reassembled,
            reassembly_timeouts,
            reassembly_evicted,
            active_opens,
            passive_opens,
            established,
            cookies_granted,
            first_flights_accepted,
            first_flights_refused,
            repeats_reset,
            first_flights_taken,
            second_attempts,
            fast_open_suspended,
            last_acks_held,
            relayed,
            relayed_dropped,
            in_lookup_answered,
            blocks_forged,
            blocks_unreported,
            signatures_verified,
            syn_cookies_sent,
            syn_cookies_good,
            resets_sent,
            keep_alives_sent,
            encapsulation_resets_sent,
            encapsulation_resets_believed,
            encapsulation_paths_checked,
            encapsulation_paths_moved,
            time_waits,
            clients_limited,
            stuck_reset,
            time_waits_evicted,
            segments_dropped,
            client,
            server,
            drops,
        } = other;
        for (sum, more) in [
            (&mut self.packets_in, packets_in),
            (&mut self.handed_over, handed_over),
            (&mut self.packets_out, packets_out),
            (&mut self.fragments_in, fragments_in),
            (&mut self.packets_reassembled, packets_reassembled),
            (&mut self.reassembly_timeouts, reassembly_timeouts),
            (&mut self.reassembly_evicted, reassembly_evicted),
            (&mut self.active_opens, active_opens),
            (&mut self.passive_opens, passive_opens),
            (&mut self.established, established),
            (&mut self.cookies_granted, cookies_granted),
            (&mut self.first_flights_accepted, first_flights_accepted),
            (&mut self.first_flights_refused, first_flights_refused),
            (&mut self.repeats_reset, repeats_reset),
            (&mut self.first_flights_taken, first_flights_taken),
            (&mut self.second_attempts, second_attempts),
            (&mut self.fast_open_suspended, fast_open_suspended),
            (&mut self.last_acks_held, last_acks_held),
            (&mut self.relayed, relayed),
            (&mut self.relayed_dropped, relayed_dropped),
            (&mut self.in_lookup_answered, in_lookup_answered),
            (&mut self.blocks_forged, blocks_forged),
            (&mut self.blocks_unreported, blocks_unreported),
            (&mut self.signatures_verified, signatures_verified),
            (&mut self.syn_cookies_sent, syn_cookies_sent),
            (&mut self.syn_cookies_good, syn_cookies_good),
            (&mut self.resets_sent, resets_sent),
            (&mut self.keep_alives_sent, keep_alives_sent),
            (&mut self.encapsulation_resets_sent, encapsulation_resets_sent),
            (&mut self.encapsulation_resets_believed, encapsulation_resets_believed),
            (&mut self.encapsulation_paths_checked, encapsulation_paths_checked),
            (&mut self.encapsulation_paths_moved, encapsulation_paths_moved),
            (&mut self.time_waits, time_waits),
            (&mut self.clients_limited, clients_limited),
            (&mut self.stuck_reset, stuck_reset),
            (&mut self.time_waits_evicted, time_waits_evicted),
            (&mut self.segments_dropped, segments_dropped),
        ] {
            *sum += more;
        }
        self.client += client;
        self.server += server;
        for (sum, more) in self.drops.iter_mut().zip(drops) {
            *sum += more;
        }
    }
}

impl AddAssign<&Self> for Outcomes {
    fn add_assign(&mut self, other: &Self) {
        let Self { accepted, stripped, handshake } = other;
        self.accepted += accepted;
        self.stripped += stripped;
        for (sum, more) in self.handshake.iter_mut().zip(handshake) {
            *sum += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_to_drop_is_counted() {
        let mut counters = Counters::default();
        for reason in PacketDrop::ALL {
            counters.drop(*reason);
        }
        assert!(counters.drops().eq(PacketDrop::ALL.iter().map(|reason| (*reason, 1))));
        assert!(PacketDrop::ALL.iter().all(|reason| counters.dropped(*reason) == 1));
        assert_eq!(counters.dropped_in_all(), PacketDrop::ALL.len() as u64);
    }

    #[test]
    fn labels_are_distinct() {
        let labels: BTreeSet<_> = PacketDrop::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(labels.len(), PacketDrop::ALL.len());
    }
}
