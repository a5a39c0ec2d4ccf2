//! Sends the segments of a handshake: the SYN, the segments that directly follow it, and the SYN-ACK.

use super::Connection;
use super::transmit::HEADER;
use crate::buffer::Pool;
use crate::chunk::{Chunk, Kind, Small};
use crate::congestion::CongestionControl;
use crate::receive::AckNeed;
use crate::state::{Hedge, State, SynSent};
use crate::timers::Timer;
use firstflight_wire::hint::{likely, unlikely};
use firstflight_wire::tcp::{Flags, Header, SynOptions};
use firstflight_wire::{Instant, SeqNum};

impl Connection {
    pub(super) fn transmit_syn(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        let State::SynSent(syn) = &mut self.state else { return None };
        syn.pending = false;
        let first = syn.retransmits == 0;
        // A retransmission has neither extra options nor data, unless the plan says otherwise.
        //= rfc7413 4.2.2-b
        let full = first || (syn.timeouts == syn.retransmits && syn.timeouts <= syn.repeats);
        let State::SynSent(syn) = &self.state else { return None };
        let len = self.emit_syn(syn, full, now, out)?;
        let carried = if full { syn.carried } else { 0 };
        if let State::SynSent(syn) = &mut self.state
            && first
        {
            syn.first_sent = now;
            if let Some(timeout) = syn.first_timeout {
                self.timers.set(Timer::Retransmit, now + timeout);
            }
            if syn.hedge == Hedge::Due {
                (syn.hedge, syn.pending, syn.retransmits) = (Hedge::Sent, true, 1);
            }
        }
        // A SYN without data must not lower NXT: the first SYN sent the data.
        self.snd.nxt = self.snd.nxt.max(self.snd.iss + 1 + carried);
        self.last_sent = now;
        if unlikely(self.push.is_used()) {
            self.stamp_sent(now);
        }
        if !self.timers.runs(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        self.arm_user_timeout(now);
        Some(len)
    }

    /// Writes a SYN; with `full`, it has all its options, preamble and data.
    pub(super) fn emit_syn(&self, syn: &SynSent, full: bool, now: Instant, out: &mut [u8]) -> Option<usize> {
        let ts = self.config.timestamps.then(|| firstflight_wire::tcp::Timestamps {
            value: self.ts_now(now).wrapping_sub((syn.hedge == Hedge::Due).into()),
            //= rfc7323 3.2-a
            echo: 0,
        });
        //= rfc7323 2.2-a 2.3-b
        let scale = self.config.window_scaling.then_some(self.rcv.scale);
        let extra = if full { syn.options.as_slice() } else { &[] };
        let options = SynOptions {
            mss: self.announced_mss(),
            sack_permitted: self.config.sack,
            timestamps: ts,
            window_scale: scale,
            extra,
        };
        // Never set PSH: middleboxes know Linux's SYNs, which do not have it.
        let flags = Flags::SYN.union(self.ecn_of_syn(syn.retransmits));
        let preamble = syn.preamble.len();
        let carried = if full { syn.carried as usize } else { 0 };
        let header = Header {
            src_port: self.ends.local_port,
            dst_port: self.ends.remote_port,
            seq: self.snd.iss,
            ack: SeqNum::new(0),
            flags,
            //= rfc7323 2.2-d
            window: self.config.window_at_first().min(0xffff) as u16,
            urgent: 0,
        };
        let at = header.emit_syn(&options, out).ok()?;
        if carried == 0 {
            return Some(at);
        }
        let body = out.get_mut(at..at + carried)?;
        // Most SYNs have no preamble.
        let data = if likely(preamble == 0) {
            body
        } else {
            let (front, data) = body.split_at_mut(preamble.min(carried));
            front.copy_from_slice(&syn.preamble[..front.len()]);
            data
        };
        let seq = self.snd.iss + 1 + preamble as u32;
        self.snd.copy(Chunk { seq, len: data.len() as u32, kind: Kind::Fresh }, data);
        Some(at + carried)
    }

    /// Sends the data that directly follows the SYN, without ACK and options, because there is nothing to
    /// acknowledge and nothing was agreed. Once the SYN is sent again, the rest of this data is no longer sent,
    /// and nothing of it is repeated.
    pub(super) fn transmit_follower(
        &mut self,
        now: Instant,
        out: &mut [u8],
        pool: &mut Pool,
    ) -> Option<usize> {
        let State::SynSent(syn) = &self.state else { return None };
        let end = syn.follow_end(self.snd.iss).filter(|end| self.snd.nxt.lt(*end))?;
        let seq = self.snd.nxt;
        let len = end.distance_from(seq).min(u32::from(syn.segment));
        let header = Header {
            src_port: self.ends.local_port,
            dst_port: self.ends.remote_port,
            seq,
            ack: SeqNum::new(0),
            flags: if seq + len == end { Flags::PSH } else { Flags::EMPTY },
            window: self.config.window_at_first().min(0xffff) as u16,
            urgent: 0,
        };
        let at = header.emit(&[], out).ok()?;
        let chunk = Chunk { seq, len, kind: Kind::Fresh };
        self.snd.copy(chunk, out.get_mut(at..at + len as usize)?);
        self.snd.sent(chunk, now, pool);
        self.last_sent = now;
        if unlikely(self.push.is_used()) {
            self.stamp_sent(now);
        }
        Some(at + len as usize)
    }

    pub(super) fn transmit_syn_ack(
        &mut self,
        now: Instant,
        out: &mut [u8],
        pool: &mut Pool,
    ) -> Option<usize> {
        let window = self.rcv.window(true);
        let flags = Flags::SYN.union(Flags::ACK).union(self.ecn_of_syn_ack());
        let ts = self.facts.timestamps.then(|| self.timestamps(now));
        let State::SynRcvd(syn) = &mut self.state else { return None };
        syn.pending = false;
        let first = syn.last_sent.is_none();
        syn.last_sent = Some(now);
        syn.again = !first;
        let data_now = first && syn.early && self.config.data_in_syn_ack;
        let (budget, overhead) = (syn.budget, syn.overhead);
        let scale = self.peer_offered_scale().then_some(self.rcv.scale);
        let State::SynRcvd(syn) = &self.state else { return None };
        let mss = self.announced_mss();
        let extra = syn.options.as_slice();
        //= rfc7413 4.2.2-d
        let again = extra.get(..extra.len().saturating_sub(syn.once.into())).unwrap_or_default();
        let extra = if first { extra } else { again };
        let options =
            SynOptions { mss, sack_permitted: self.facts.sack, timestamps: ts, window_scale: scale, extra };
        let mut header = Header {
            src_port: self.ends.local_port,
            dst_port: self.ends.remote_port,
            seq: self.snd.iss,
            ack: self.rcv.nxt,
            flags,
            window,
            urgent: 0,
        };
        if first {
            // In a simultaneous open our SYN may have used more numbers.
            self.snd.nxt = self.snd.nxt.max(self.snd.iss + 1);
        }
        let chunk = if data_now {
            let options = options.len() as u32;
            let room = u32::from(self.snd.mss).saturating_sub(options);
            let data_budget = budget.saturating_sub(overhead + HEADER + options);
            self.snd.next(room, self.control.window().min(data_budget), Small::Leave)
        } else {
            None
        };
        if let Some(chunk) = chunk {
            header.flags |= Flags::PSH;
            if chunk.fin() {
                header.flags |= Flags::FIN;
            }
        }
        let at = header.emit_syn(&options, out).ok()?;
        let len = chunk.map_or(0, |c| c.len as usize);
        self.spend_budget(overhead + (at + len) as u32);
        if let Some(chunk) = chunk {
            self.snd.copy(chunk, out.get_mut(at..at + len)?);
            self.snd.sent(chunk, now, pool);
            if unlikely(self.push.is_used()) {
                self.stamp_sent(now);
            }
        }
        self.left(now);
        if self.rcv.has_holes() {
            // A part of the data that followed the SYN is missing, and a SYN-ACK has no SACK blocks to report
            // that.
            self.rcv.need = AckNeed::Now;
        }
        if !self.timers.runs(Timer::Retransmit) {
            self.arm_retransmit(now);
        }
        Some(at + len)
    }

    /// Whether the peer's SYN had a window scale: only then ours may (RFC 7323 §2.2).
    //= rfc7323 2.2-b 2.3-a
    fn peer_offered_scale(&self) -> bool {
        // `take_syn_options` sets our scale to 0 if it had none; a scale of 0 needs no option.
        self.rcv.scale > 0 || self.snd.scale > 0
    }
}
