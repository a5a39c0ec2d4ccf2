//! Compares the stack with the model: its state, its variables, and what it sends.

use super::rules::lt;
use super::state::{Allowed, Arriving, State, Tcb};
use super::wire::Sent;
use super::{World, byte};
use firstflight_stack::{StateName, Variables};

impl World {
    /// The stack's state of the connection.
    pub(super) fn engine(&self) -> State {
        let name = self.id.and_then(|id| self.stack.info(id)).map_or(StateName::Closed, |info| info.state);
        match name {
            StateName::SynSent => State::SynSent,
            StateName::SynRcvd => State::SynReceived,
            StateName::Established => State::Established,
            StateName::FinWait1 => State::FinWait1,
            StateName::FinWait2 => State::FinWait2,
            StateName::CloseWait => State::CloseWait,
            StateName::Closing => State::Closing,
            StateName::LastAck => State::LastAck,
            // The connection is over. A TIME-WAIT record of it may be left.
            StateName::Closed | StateName::Listen | StateName::TimeWait if self.stack.time_waits() > 0 => {
                State::TimeWait
            }
            _ if self.model.passive => State::Listen,
            _ => State::Closed,
        }
    }

    pub(super) fn variables(&self) -> Variables {
        self.id.and_then(|id| self.stack.variables(id)).expect("there is a connection")
    }

    /// Checks that state and variables are the model's.
    pub(super) fn compare(&mut self) {
        if self.model.state == State::TimeWait {
            self.ack_due = None;
        }
        // Without a connection, LISTEN and CLOSED are equal for a model that does not know the listener.
        if self.model.state == State::Closed {
            self.model.gone();
        }
        let engine = self.engine();
        assert_eq!(engine, self.model.state, "the engine's state and the model's: {:?}", self.model);
        if !self.model.synchronized() {
            self.ack_due = None;
            return;
        }
        let v = self.variables();
        let m = &self.model;
        let theirs = (v.snd_una.get(), v.snd_nxt.get(), v.snd_wnd, v.rcv_nxt.get());
        let ours = (m.snd_una, m.snd_nxt, m.snd_wnd, m.rcv_nxt);
        assert_eq!(theirs, ours, "SND.UNA, SND.NXT, SND.WND, RCV.NXT of engine and model: {m:?}");
        let recent = m.timestamps.then_some(m.ts_recent);
        assert_eq!(v.ts_recent, recent, "TS.Recent of engine and model");
        assert!(v.rcv_wnd >= m.rcv_wnd, "RCV.NXT + RCV.WND went back from {} to {}", m.rcv_wnd, v.rcv_wnd);
        let room = self.receive_buffer - self.unread().min(self.receive_buffer);
        // What was offered stays offered, although the scale cannot say it exactly (RFC 7323 §2.4).
        let step = if m.wants_scale { 1 << self.shift() } else { 1 };
        let kept = m.rcv_wnd.next_multiple_of(step);
        assert!(v.rcv_wnd <= room.max(kept), "a window of {} for {room} bytes, {kept} kept", v.rcv_wnd);
        let most = self.receive_buffer + self.receive_buffer / 2 + step;
        assert!(v.rcv_wnd <= most, "a window of {} of a buffer of {}", v.rcv_wnd, self.receive_buffer);
        // The receiver decides how far the window opens.
        self.model.rcv_wnd = v.rcv_wnd;
        let waits = m_waits(&self.model);
        assert!(!waits || self.stack.poll_timeout().is_some(), "something is outstanding, and no timer runs");
    }

    /// Bytes that arrived in order and were not read.
    fn unread(&self) -> u32 {
        let m = &self.model;
        let closed =
            !matches!(m.state, State::SynReceived | State::Established | State::FinWait1 | State::FinWait2);
        m.rcv_nxt.wrapping_sub(m.irs).wrapping_sub(1 + u32::from(closed)).wrapping_sub(self.read)
    }

    /// Takes everything that the stack sends now. Checks each segment and reports it to the model.
    pub(super) fn drain(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(len) = self.stack.poll_transmit(self.now, &mut self.out) {
            let segment = Sent::read(&self.out[..len]);
            self.note(&segment);
            sent.push(segment);
            assert!(sent.len() < 1_000, "segments without end");
        }
        self.traces();
        sent
    }

    fn note(&mut self, sent: &Sent) {
        if sent.rst {
            return;
        }
        if sent.is_syn() {
            assert_eq!((self.model.state, sent.seq), (State::SynSent, self.model.iss), "{sent:?}");
            assert_eq!(sent.stamps.is_some(), self.model.wants_timestamps);
            self.model.snd_nxt = self.model.iss.wrapping_add(1);
            return self.learn_clock(sent);
        }
        let m = &self.model;
        let live = m.synchronized() || m.state == State::TimeWait;
        // The last ACK may be sent when the connection is over.
        assert!(live || m.state == State::Closed || m.state == State::Listen, "{sent:?} in {:?}", m.state);
        assert_eq!(sent.ack, Some(m.rcv_nxt), "ACK is not RCV.NXT: {sent:?}");
        if m.timestamps {
            assert_eq!(sent.stamps.map(|ts| ts.1), Some(m.ts_recent), "the echo is not TS.Recent: {sent:?}");
        } else {
            assert_eq!(sent.stamps, None, "timestamps were not agreed: {sent:?}");
        }
        if sent.syn {
            assert_eq!((m.state, sent.seq), (State::SynReceived, m.iss), "{sent:?}");
            assert!(!sent.fin && sent.text.is_empty());
            self.model.snd_nxt = self.model.iss.wrapping_add(1);
            self.syn_ack_at = Some(self.now);
        } else {
            self.note_numbers(sent);
        }
        self.learn_clock(sent);
        self.model.last_ack_sent = self.model.rcv_nxt;
        self.ack_due = None;
        self.note_window(sent);
    }

    /// Checks that the timestamp follows the clock.
    fn learn_clock(&mut self, sent: &Sent) {
        let Some((value, _)) = sent.stamps else { return };
        let offset = value.wrapping_sub(self.now_ms() as u32);
        assert_eq!(*self.ts_offset.get_or_insert(offset), offset, "our clock jumps");
        self.last_ts = value;
    }

    /// Checks the numbers and bytes of a segment without SYN.
    fn note_numbers(&mut self, sent: &Sent) {
        let m = &self.model;
        let probe = m.snd_una.wrapping_sub(1);
        if sent.is_bare() {
            assert!(sent.seq == m.snd_nxt || sent.seq == probe, "{sent:?}: SND.NXT is {}", m.snd_nxt);
            return;
        }
        assert!(
            !lt(sent.seq, m.snd_una) && !lt(m.snd_nxt, sent.seq),
            "{sent:?}: outside of what is outstanding"
        );
        let first = m.iss.wrapping_add(1);
        let fin = first.wrapping_add(self.written);
        assert!(!lt(fin, sent.end().wrapping_sub(u32::from(sent.fin))), "{sent:?}: more than was written");
        if sent.fin {
            assert!(
                self.model.close_queued && sent.end() == fin.wrapping_add(1),
                "{sent:?}: FIN out of place"
            );
        }
        for (i, got) in (sent.seq.wrapping_sub(first)..).zip(&sent.text) {
            assert_eq!(*got, byte(i), "byte {i} of the stack");
        }
        if lt(m.snd_nxt, sent.end()) {
            // SND.UNA + SND.WND limits new data (§3.4).
            let edge = m.snd_una.wrapping_add(m.snd_wnd);
            assert!(!lt(edge, sent.end()), "{sent:?}: beyond the peer's window");
            self.model.snd_nxt = sent.end();
        }
    }

    /// Checks that the window field gives the receive window, as precisely as its bits permit.
    fn note_window(&mut self, sent: &Sent) {
        if !self.model.synchronized() {
            return;
        }
        let v = self.variables();
        let scaled = !sent.syn && self.model.wants_scale;
        let shift = if scaled { self.shift() } else { 0 };
        let said = u32::from(sent.window) << shift;
        let cap = 0xffff << shift;
        let exact = (v.rcv_wnd >> shift << shift).min(cap);
        assert_eq!(said, exact, "the window said, and the one kept ({}): {sent:?}", v.rcv_wnd);
    }

    /// The shift of our windows; 0 if the peer offered none.
    fn shift(&self) -> u32 {
        let bits = u32::BITS - self.receive_buffer.leading_zeros();
        if self.model.peer_scales { bits.saturating_sub(16).min(14) } else { 0 }
    }

    /// Checks that the answer to `seg` is one of the allowed ones.
    pub(super) fn check_answer(&mut self, seg: &Arriving, before: &Tcb, allowed: Allowed, sent: &[Sent]) {
        let what = || format!("{seg:?} in {before:?}\n allows {allowed:?}, and {sent:?} was sent");
        let resets: Vec<_> = sent.iter().filter(|s| s.rst).collect();
        if let Some(reset) = resets.first() {
            assert_eq!(Some((reset.seq, reset.ack)), allowed.reset, "{}", what());
            let syns = sent.iter().skip(1).filter(|s| s.is_syn()).count();
            assert_eq!((sent.len(), syns), (1 + syns, usize::from(allowed.syn_again)), "{}", what());
            return;
        }
        if sent.iter().any(|s| s.syn) {
            assert!(allowed.syn_ack, "{}", what());
            assert!(allowed.ack || sent.len() == 1, "{}", what());
            return;
        }
        if sent.iter().any(Sent::is_bare) {
            assert!(allowed.ack, "{}", what());
        }
        if sent.is_empty() {
            let silent = allowed.throttled && self.throttled() || allowed.syn_ack && self.syn_ack_recent();
            assert!(allowed.nothing || silent, "{}", what());
            if allowed.later {
                self.ack_due.get_or_insert(self.now);
            }
        } else {
            // Segments with text also acknowledge.
            assert!(allowed.ack || allowed.nothing, "{}", what());
            self.note_challenge(allowed);
        }
    }
}

/// Whether something has to be acknowledged, so that a timer must run.
fn m_waits(m: &Tcb) -> bool {
    m.snd_una != m.snd_nxt
}
