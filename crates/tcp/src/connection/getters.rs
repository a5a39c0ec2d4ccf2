//! The state of a connection that can be read without changing it.

use super::{Connection, Totals};
use crate::config::Config;
use crate::congestion::CongestionControl;
use crate::error::CloseReason;
use crate::recovery::Recovery;
use crate::state::{Hedge, State};
use crate::transition::StateName;
use alloc::sync::Arc;
use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// The state of congestion control, named as in Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionState {
    /// No segment is known to be lost.
    Open,
    /// A segment arrived out of order.
    Disorder,
    /// The window shrinks, because the path marks packets (ECN).
    Reducing,
    /// A segment was lost, as the acknowledgements show.
    Recovery,
    /// The retransmission timer expired.
    Loss,
}

/// Detailed state of a connection, for diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// Timestamps were agreed.
    pub timestamps: bool,
    /// SACK was agreed.
    pub sack: bool,
    /// Window scaling was agreed.
    pub scaled: bool,
    /// Shift of the windows the peer offers.
    pub send_scale: u8,
    /// Shift of the windows we offer.
    pub receive_scale: u8,
    /// Probes in a row without an answer.
    pub probes: u8,
    /// The retransmission timeout.
    pub rto: Duration,
    /// Smallest round-trip time, once measured.
    pub min_rtt: Option<Duration>,
    /// Numbers sent and not acknowledged.
    pub in_flight: u32,
    /// The state of congestion control.
    pub congestion: CongestionState,
    /// The slow-start threshold, bytes.
    pub threshold: u32,
    /// The window during recovery, or else the congestion window, bytes.
    pub window: u32,
    /// Segments sent and not acknowledged.
    pub segments: u32,
    /// How many of these segments the peer has beyond the data that it misses.
    pub sacked: u32,
    /// Bytes of these segments that are marked as lost.
    pub lost: u32,
    /// Bytes of these segments that were sent again and are under way.
    pub again: u32,
    /// The largest reordering seen on the path, in segments; at least three.
    pub reordering: u32,
    /// Largest size of the peer's segments, bytes.
    pub peer_segment: u32,
    /// The peer's window, bytes.
    pub peer_window: u32,
    /// The largest window that the peer ever offered, bytes.
    pub largest_window: u32,
    /// Segments that leave together, as [`Config::push_bursts`] counts them.
    pub burst: u32,
}

impl Connection {
    /// The settings.
    #[inline]
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The state's name.
    #[inline]
    #[must_use]
    pub fn state(&self) -> StateName {
        self.state.name()
    }

    /// Why the connection is closed, once it is.
    //= rfc9293 MUST-12
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        match &self.state {
            State::Closed(closed) => Some(closed.reason),
            State::TimeWait(_) => Some(CloseReason::Finished),
            _ => None,
        }
    }

    /// Whether the handshake is complete, so that the peer's address is proved.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.facts.connected
    }

    /// Whether it was admitted with data, and the handshake is not complete yet (server side).
    #[must_use]
    pub fn is_early(&self) -> bool {
        matches!(&self.state, State::SynRcvd(s) if s.early)
    }

    /// The smoothed round-trip time and its variation, once measured.
    #[must_use]
    pub fn rtt(&self) -> Option<(Duration, Duration)> {
        Some((self.rtt.srtt()?, self.rtt.rttvar()))
    }

    /// The retransmission timeout with the current backoff.
    #[must_use]
    pub fn rto(&self) -> Duration {
        self.timeout()
    }

    /// Congestion window, bytes.
    #[must_use]
    pub fn cwnd(&self) -> u32 {
        self.control.window()
    }

    /// Largest payload of a segment, without options, bytes.
    #[must_use]
    pub fn mss(&self) -> u16 {
        self.snd.mss
    }

    /// The largest reordering seen on the path, in segments; at least three.
    #[must_use]
    pub fn reordering(&self) -> u32 {
        self.rack.reordering(u32::from(self.snd.mss))
    }

    /// The counters.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// SYNs or SYN-ACKs sent again so far.
    #[must_use]
    pub fn handshake_retransmits(&self) -> u8 {
        match &self.state {
            State::SynSent(s) => s.retransmits - u8::from(s.hedge == Hedge::Sent),
            State::SynRcvd(s) => s.retransmits,
            _ => self.handshake_retransmits,
        }
    }

    /// Bytes of the stream that our first SYN carries, while it is not answered.
    #[must_use]
    pub fn first_flight_len(&self) -> usize {
        match &self.state {
            State::SynSent(s) => (s.carried as usize).saturating_sub(s.preamble.len()),
            _ => 0,
        }
    }

    /// The segment size in use, bytes, if larger segments were lost on this path without an ICMP message (RFC
    /// 4821) and smaller ones arrived.
    #[must_use]
    pub fn narrowed_mss(&self) -> Option<u16> {
        let smaller = self.snd.mss < self.ends.path_mss.min(self.config.mss);
        (self.facts.narrowed && self.backoffs == 0 && smaller).then_some(self.snd.mss)
    }

    /// When the last segment from the peer arrived.
    #[must_use]
    pub fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// When data was last sent.
    #[must_use]
    pub fn last_data(&self) -> Instant {
        self.last_data
    }

    /// Whether an acknowledgement or a FIN without data had a number beyond what was received: the peer has
    /// sent data that did not arrive.
    #[must_use]
    pub fn peer_is_ahead(&self) -> bool {
        self.facts.peer_ahead
    }

    /// Whether the path dropped the peer's data: no data arrived, although the number of a FIN, an
    /// acknowledgement or a RST shows that the peer had sent some. A FIN or an acknowledgement is enough by
    /// itself ([`Connection::peer_is_ahead`]). A RST counts only if the connection ended with the RST that
    /// answered our challenge ACK, because an off-path attacker only has to guess any number in the window to
    /// forge the first one.
    #[must_use]
    pub fn is_swallowed(&self) -> bool {
        let reset = self.facts.reset_ahead && self.close_reason() == Some(CloseReason::Reset);
        !self.has_heard_data() && !self.facts.early_data && (self.facts.peer_ahead || reset)
    }

    /// Whether any data of the peer arrived behind its SYN-ACK, in order or not. Then the path passes it.
    #[must_use]
    pub fn has_heard_data(&self) -> bool {
        self.totals.bytes_received > 0 || self.facts.other_data
    }

    /// Whether a RST ended the connection in SYN-RECEIVED, and acknowledged our SYN: our SYN-ACK has arrived, and if its
    /// receiver is the client, the RST has overtaken the ACK of the handshake. A host that knows no connection should
    /// answer a SYN-ACK with a RST that acknowledges nothing (RFC 9293 §3.10.7.1), but some firewalls acknowledge
    /// the SYN. So this does not prove that the client wanted the connection.
    #[must_use]
    pub fn has_reset_acknowledged_syn(&self) -> bool {
        self.facts.reset_acknowledged_syn
    }

    /// Retransmission timeouts in a row without progress.
    #[must_use]
    pub fn timeouts(&self) -> u8 {
        self.backoffs
    }

    /// Bytes that can be read now.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.rcv.readable()
    }

    /// Whether an acknowledgement is due at once.
    #[inline]
    #[must_use]
    pub fn owes_ack(&self) -> bool {
        self.rcv.need == crate::receive::AckNeed::Now
    }

    /// Whether the peer has closed its direction and everything was received.
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.rcv.finished()
    }

    /// Bytes written by the application that the peer has not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        self.snd.buffered()
    }

    /// Whether the peer must act before the rest of the written data can leave: acknowledge what is under way,
    /// or open its window.
    #[must_use]
    pub fn waits_for_peer(&self) -> bool {
        self.snd.buffered() > 0 && (self.snd.outstanding() || self.snd.wnd < u32::from(self.snd.mss))
    }

    /// Bytes written by the application that were never sent.
    #[must_use]
    pub fn unsent(&self) -> usize {
        let sent = self.snd.nxt.max(self.snd.start());
        self.snd.end().distance_from(sent.min(self.snd.end())) as usize
    }

    fn congestion_state(&self) -> CongestionState {
        match &self.snd.recovery {
            Recovery::Reducing(_) => CongestionState::Reducing,
            Recovery::Fast(_) => CongestionState::Recovery,
            Recovery::Loss(_) => CongestionState::Loss,
            Recovery::Open if self.snd.flight.sacked_segments() > 0 || self.snd.dup_acks > 0 => {
                CongestionState::Disorder
            }
            Recovery::Open => CongestionState::Open,
        }
    }

    /// Detailed state for diagnosis.
    #[must_use]
    pub fn facts(&self) -> ConnectionFacts {
        ConnectionFacts {
            timestamps: self.facts.timestamps,
            sack: self.facts.sack,
            scaled: self.rcv.scale > 0 || self.snd.scale > 0,
            send_scale: self.snd.scale,
            receive_scale: self.rcv.scale,
            probes: self.probes,
            rto: self.timeout(),
            min_rtt: self.rtt.min_rtt(),
            in_flight: self.snd.nxt.distance_from(self.snd.una),
            congestion: self.congestion_state(),
            threshold: self.control.slow_start_threshold(),
            window: self.window(),
            segments: self.snd.flight.len() as u32,
            sacked: self.snd.flight.sacked_segments(),
            lost: self.snd.flight.lost(),
            again: self.snd.flight.again() + self.snd.first_flight_again(),
            reordering: self.rack.reordering(u32::from(self.snd.mss)),
            peer_segment: self.rcv.segment_size(),
            peer_window: self.snd.wnd,
            largest_window: self.snd.max_wnd,
            burst: self.burst(),
        }
    }

    fn burst(&self) -> u32 {
        let options = if self.facts.timestamps { 12 } else { 0 };
        let room = u32::from(self.snd.mss).saturating_sub(options).max(1);
        let least = self.config.push_bursts.unwrap_or(1);
        crate::push::burst(room, self.window(), least, self.rtt.srtt(), self.rtt.min_rtt())
    }

    /// The number of the peer's SYN, once one came.
    #[must_use]
    pub fn peer_isn(&self) -> SeqNum {
        self.rcv.irs
    }

    /// The options that each SYN-ACK carries, beside those of TCP. `None` outside SYN-RECEIVED, and if the SYN's data was delivered.
    #[must_use]
    pub fn syn_ack_options(&self) -> Option<&[u8]> {
        match &self.state {
            State::SynRcvd(syn) if !syn.early => Some(syn.options.as_slice()),
            _ => None,
        }
    }

    /// The record that outlives the connection in TIME-WAIT.
    #[must_use]
    pub fn time_wait(&self) -> crate::time_wait::TimeWait {
        crate::time_wait::TimeWait {
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            timestamps: self.facts.timestamps,
            ts_recent: self.rcv.ts_recent,
        }
    }
}
