//! SEGMENT ARRIVES (RFC 9293 §3.10.7) as a function: its input is a connection's variables and a segment, its output
//! the allowed answers and the new variables. It is written from the RFC and from RFC 5961 and 7323, not from the
//! engine: with plain numbers, and with the RFC's order and names.
//!
//! Where the RFCs leave a choice, or the engine differs on purpose, the answer is a set ([`Allowed`]), and a comment
//! marked DELIBERATE says why.

use super::state::{Allowed, Arriving, State, Tcb};

/// How long a timestamp is valid (RFC 7323 §5.5), milliseconds.
const TS_VALID_MS: u64 = 24 * 86_400_000;

/// `a < b` modulo 2³² (RFC 9293 §3.4).
pub fn lt(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// `low =< x =< high` modulo 2³², where `high` is not before `low`.
fn between(low: u32, x: u32, high: u32) -> bool {
    x.wrapping_sub(low) <= high.wrapping_sub(low)
}

/// §3.10.7.1: no connection.
fn closed(seg: &Arriving) -> Allowed {
    match seg.ack {
        _ if seg.rst => Allowed::nothing(),
        Some(ack) => Allowed::reset(ack, None),
        None => Allowed::reset(0, Some(seg.seq.wrapping_add(seg.len()))),
    }
}

impl Tcb {
    /// A segment arrives at `now_ms`.
    pub fn arrives(&mut self, seg: &Arriving, now_ms: u64) -> Allowed {
        match self.state {
            State::Closed => closed(seg),
            State::Listen => self.in_listen(seg, now_ms),
            State::SynSent => self.in_syn_sent(seg, now_ms),
            State::TimeWait => self.in_time_wait(seg, now_ms),
            _ => self.in_other_states(seg, now_ms),
        }
    }

    /// §3.10.7.2.
    fn in_listen(&mut self, seg: &Arriving, now_ms: u64) -> Allowed {
        if seg.rst {
            return Allowed::nothing();
        }
        if let Some(ack) = seg.ack {
            return Allowed::reset(ack, None);
        }
        // DELIBERATE: a SYN with FIN is dropped. Its FIN could be queued as the RFC says, but such segments are sent
        // only to probe filters.
        if !seg.syn || seg.fin {
            return Allowed::nothing();
        }
        self.begin(seg, now_ms);
        self.simultaneous = false;
        self.state = State::SynReceived;
        Allowed::syn_ack()
    }

    /// The peer's SYN: its number, its options and its window, which is never scaled (RFC 7323 §2.2).
    fn begin(&mut self, seg: &Arriving, now_ms: u64) {
        self.irs = seg.seq;
        self.rcv_nxt = seg.seq.wrapping_add(1);
        self.last_ack_sent = self.rcv_nxt;
        self.rcv_wnd = self.offered;
        self.held.clear();
        self.fin_held = None;
        self.max_wnd = 0;
        self.set_window(seg, u32::from(seg.window));
        self.timestamps = self.wants_timestamps && seg.stamp.is_some();
        self.ts_recent = seg.stamp.unwrap_or(0);
        self.ts_recent_at = now_ms;
        self.peer_scales = self.wants_scale && seg.scale.is_some();
        self.snd_scale = if self.wants_scale { seg.scale.unwrap_or(0).min(14) } else { 0 };
    }

    /// SND.WND, SND.WL1 and SND.WL2; MAX.SND.WND is the largest window ever received (RFC 5961 §5.2).
    fn set_window(&mut self, seg: &Arriving, window: u32) {
        self.snd_wnd = window;
        self.snd_wl1 = seg.seq;
        self.snd_wl2 = seg.ack.unwrap_or(self.iss);
        self.max_wnd = self.max_wnd.max(window);
    }

    /// §3.10.7.3.
    fn in_syn_sent(&mut self, seg: &Arriving, now_ms: u64) -> Allowed {
        if let Some(ack) = seg.ack {
            let acceptable = between(self.iss.wrapping_add(1), ack, self.snd_nxt);
            if !acceptable || self.snd_nxt == self.iss {
                if seg.rst {
                    return Allowed::nothing();
                }
                // DELIBERATE: the SYN follows the first RST at once, as in the example of §3.5.1. The text of
                // §3.10.7.3 leaves that to the retransmission timer.
                let again = !core::mem::replace(&mut self.met_old, true);
                let reset = Allowed::reset(ack, None);
                return if again { reset.and_syn_again() } else { reset };
            }
        }
        if seg.rst {
            if seg.ack.is_some() {
                self.state = State::Closed;
            }
            return Allowed::nothing();
        }
        if !seg.syn {
            return Allowed::nothing();
        }
        self.begin(seg, now_ms);
        let Some(ack) = seg.ack else {
            // DELIBERATE: other content of the SYN is not queued; the peer sends it again.
            self.simultaneous = true;
            self.state = State::SynReceived;
            return Allowed::syn_ack();
        };
        self.snd_una = ack;
        self.enter_established();
        let text = self.rcv_nxt;
        self.take_text(text, seg.payload);
        self.take_fin(seg, text);
        Allowed::ack()
    }

    /// A CLOSE that waited for the handshake happens now (§3.10.4, SYN-RECEIVED). DELIBERATE: also a CLOSE in
    /// SYN-SENT, where the RFC deletes the connection; our close applies to one direction only.
    fn enter_established(&mut self) {
        self.state = if self.close_queued { State::FinWait1 } else { State::Established };
    }

    /// §3.10.7.4: the states from SYN-RECEIVED on, except TIME-WAIT.
    fn in_other_states(&mut self, seg: &Arriving, now_ms: u64) -> Allowed {
        let seg = &self.trimmed(seg);
        if self.state == State::SynReceived && seg.syn && seg.seq == self.irs && !seg.rst && seg.ack.is_none()
        {
            // DELIBERATE: the RFC answers a repeated SYN with an ACK. A SYN-ACK contains the same and more: the first
            // one may have been lost with its options. The engine sends it at most twice a second.
            return Allowed::ack().or_syn_ack().or_nothing();
        }
        // RFC 7323 §5.3 R1, and §3.2: a segment without the option is dropped silently. DELIBERATE: only if this is
        // configured. A SYN is answered like any other.
        if self.timestamps && !seg.rst {
            let valid = now_ms.saturating_sub(self.ts_recent_at) < TS_VALID_MS;
            match seg.stamp {
                Some(stamp) if valid && lt(stamp, self.ts_recent) => return Allowed::challenge(),
                None if !seg.syn && self.requires_timestamps => return Allowed::nothing(),
                _ => {}
            }
        }
        if seg.rst {
            return self.take_rst(seg);
        }
        if !self.acceptable(seg) {
            if let Some(ack) = seg.ack.filter(|_| self.is_probe(seg))
                && self.check_ack(seg, ack).is_none()
            {
                self.take_stamp(seg, now_ms);
                self.take_ack(seg, ack);
            }
            return Allowed::challenge();
        }
        if seg.syn {
            // DELIBERATE: in SYN-RECEIVED after a passive open the RFC returns to LISTEN. Then an attacker that
            // guesses a number in the window could end a handshake. RFC 5961 §4 applies to all states, including this
            // one.
            return Allowed::challenge();
        }
        let Some(ack) = seg.ack else { return Allowed::nothing() };
        if let Some(answer) = self.check_ack(seg, ack) {
            return answer;
        }
        self.take_stamp(seg, now_ms);
        self.take_ack(seg, ack);
        let allowed = self.text_and_fin(seg);
        // DELIBERATE: a SYN-ACK that crosses ours repeats a known SYN, and is answered like any repeated segment.
        // Linux does so too.
        if seg.was_syn { allowed.or_ack() } else { allowed }
    }

    /// RFC 7323 §4.3 (2), R3. DELIBERATE: only after the ACK field was checked. Otherwise a blind segment could make PAWS drop
    /// everything that follows.
    fn take_stamp(&mut self, seg: &Arriving, now_ms: u64) {
        let Some(stamp) = seg.stamp.filter(|_| self.timestamps) else { return };
        let valid = now_ms.saturating_sub(self.ts_recent_at) < TS_VALID_MS;
        if !lt(self.last_ack_sent, seg.seq) && (!valid || !lt(stamp, self.ts_recent)) {
            self.ts_recent = stamp;
            self.ts_recent_at = now_ms;
        }
    }

    /// "Trimming off any portions that lie outside the window (including SYN and FIN)": in a simultaneous open the
    /// peer's SYN-ACK repeats its SYN; the rest is valid.
    fn trimmed(&self, seg: &Arriving) -> Arriving {
        let again = self.state == State::SynReceived && self.simultaneous && seg.seq == self.irs;
        if again && seg.syn && seg.ack.is_some() && !seg.rst {
            let seq = seg.seq.wrapping_add(1);
            return Arriving { syn: false, was_syn: true, seq, ..*seg };
        }
        *seg
    }

    /// First step, table 6.
    fn acceptable(&self, seg: &Arriving) -> bool {
        let inside = |number: u32| number.wrapping_sub(self.rcv_nxt) < self.rcv_wnd;
        let edge = self.rcv_nxt.wrapping_add(self.rcv_wnd);
        let last = |len: u32| seg.seq.wrapping_add(len - 1);
        match (seg.len(), self.rcv_wnd) {
            (0, 0) => seg.seq == self.rcv_nxt,
            (0, _) => inside(seg.seq),
            // The "special allowance" for a closed window: its acknowledgement is taken, and nothing of its text.
            (_, 0) if seg.seq == self.rcv_nxt && seg.payload > 0 => true,
            // DELIBERATE: a FIN may have the number just after the window, even a closed one, because it needs no
            // space.
            (len, _) => inside(seg.seq) || inside(last(len)) || seg.fin && last(len) == edge,
        }
    }

    /// DELIBERATE: a probe (RFC 9293 §3.8.4) acknowledges our SYN, although its number is old. The peer's ACK was lost, and our
    /// answer to the probe gives it no reason to repeat it.
    fn is_probe(&self, seg: &Arriving) -> bool {
        let empty = !seg.syn && !seg.fin && seg.payload == 0;
        self.state == State::SynReceived && empty && seg.seq.wrapping_add(1) == self.rcv_nxt
    }

    /// Second step, RFC 5961 §3.2: only the number counts, whatever else the segment contains.
    fn take_rst(&mut self, seg: &Arriving) -> Allowed {
        if seg.seq == self.rcv_nxt {
            let passive = self.state == State::SynReceived && !self.simultaneous;
            self.state = if passive { State::Listen } else { State::Closed };
            return Allowed::nothing();
        }
        if seg.seq.wrapping_sub(self.rcv_nxt) < self.rcv_wnd {
            return Allowed::challenge();
        }
        Allowed::nothing()
    }

    /// Fifth step: RFC 5961 §5.2, then SYN-RECEIVED. Returns the answer if processing ends here.
    fn check_ack(&mut self, seg: &Arriving, ack: u32) -> Option<Allowed> {
        let in_range = between(self.snd_una.wrapping_sub(self.max_wnd), ack, self.snd_nxt);
        if self.state == State::SynReceived {
            if !between(self.snd_una.wrapping_add(1), ack, self.snd_nxt) {
                // The RFC does not say which of the two checks comes first.
                let reset = Allowed::reset(ack, None);
                return Some(if in_range { reset } else { reset.or_ack() });
            }
            self.enter_established();
            self.set_window(seg, self.window_of(seg));
            return None;
        }
        (!in_range).then(Allowed::challenge)
    }

    /// The window of a segment. In a segment with SYN it is not scaled (RFC 7323 §2.2).
    fn window_of(&self, seg: &Arriving) -> u32 {
        u32::from(seg.window) << if seg.was_syn { 0 } else { self.snd_scale }
    }

    /// Fifth step, ESTABLISHED and after.
    fn take_ack(&mut self, seg: &Arriving, ack: u32) {
        if lt(ack, self.snd_una) {
            return;
        }
        self.snd_una = ack;
        // DELIBERATE: also with a lower number if it acknowledges more, as repeated data of the peer does.
        let repeated = lt(seg.seq, self.snd_wl1) && lt(self.snd_wl2, ack);
        if !lt(seg.seq, self.snd_wl1) || repeated {
            let wl1 = if repeated { self.snd_wl1 } else { seg.seq };
            self.set_window(seg, self.window_of(seg));
            self.snd_wl1 = wl1;
        }
        let fin_acked = self.fin_sent.is_some_and(|fin| lt(fin, ack));
        self.state = match self.state {
            State::FinWait1 if fin_acked => State::FinWait2,
            State::Closing if fin_acked => State::TimeWait,
            State::LastAck if fin_acked => State::Closed,
            other => other,
        };
    }

    /// Seventh and eighth step.
    fn text_and_fin(&mut self, seg: &Arriving) -> Allowed {
        if seg.payload == 0 && !seg.fin {
            return Allowed::nothing();
        }
        match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => {}
            // The last ACK has arrived, so the rest does not matter.
            State::Closed => return Allowed::nothing().or_ack(),
            // "This should not occur": ignored. DELIBERATE: an ACK tells the peer our state.
            _ => return Allowed::nothing().or_ack(),
        }
        let had_holes = !self.held.is_empty() || self.fin_held.is_some();
        let before = self.rcv_nxt;
        self.take_text(seg.seq, seg.payload);
        self.take_fin(seg, seg.seq);
        // RFC 5681 §4.2: at once if there is or was a gap, or nothing of it was new. Otherwise it may wait (RFC 9293
        // §3.8.6.3). A FIN is acknowledged at once (§3.10.7.4, eighth step).
        if had_holes || seg.fin || self.rcv_nxt == before { Allowed::ack() } else { Allowed::ack_later() }
    }

    /// Text whose first number is `seq`: the part that is new and in the window is accepted or held (SHLD-31).
    fn take_text(&mut self, seq: u32, len: u32) {
        let edge = self.rcv_nxt.wrapping_add(self.rcv_wnd);
        let last = self.fin_held.filter(|fin| lt(*fin, edge)).unwrap_or(edge);
        // Offsets from RCV.NXT.
        let offset = |number: u32| i64::from(number.wrapping_sub(self.rcv_nxt) as i32);
        let (start, end) = (offset(seq).max(0), (offset(seq) + i64::from(len)).min(offset(last)));
        if start < end {
            let number = |offset: i64| self.rcv_nxt.wrapping_add(offset as u32);
            self.held.push((number(start), number(end)));
        }
        self.advance();
    }

    /// RCV.NXT advances over all contiguous data. RCV.NXT + RCV.WND stays.
    fn advance(&mut self) {
        while let Some(&(_, end)) =
            self.held.iter().find(|(start, end)| !lt(self.rcv_nxt, *start) && lt(self.rcv_nxt, *end))
        {
            self.rcv_wnd = self.rcv_wnd.saturating_sub(end.wrapping_sub(self.rcv_nxt));
            self.rcv_nxt = end;
        }
        let nxt = self.rcv_nxt;
        self.held.retain(|(_, end)| lt(nxt, *end));
        if self.fin_held == Some(self.rcv_nxt) {
            self.fin_held = None;
            self.held.clear();
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
            self.rcv_wnd = self.rcv_wnd.saturating_sub(1);
            self.state = match self.state {
                State::FinWait1 => State::Closing,
                State::FinWait2 => State::TimeWait,
                State::Established => State::CloseWait,
                other => other,
            };
        }
    }

    /// Eighth step. `text` is the number of the first byte before the FIN.
    fn take_fin(&mut self, seg: &Arriving, text: u32) {
        if !seg.fin || !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            return;
        }
        let fin = text.wrapping_add(seg.payload);
        // DELIBERATE: a FIN just after the window is also accepted, because it needs no space in a buffer.
        let inside = fin.wrapping_sub(self.rcv_nxt) <= self.rcv_wnd;
        // A FIN inside known text, or a second FIN at another number, is the peer's error. The RFC does not mention
        // it.
        let contradicted = self.held.iter().any(|(start, end)| !lt(fin, *start) && lt(fin, *end));
        if inside && !contradicted && self.fin_held.is_none() {
            self.fin_held = Some(fin);
            self.advance();
        }
    }

    /// TIME-WAIT. DELIBERATE: a RST does not end it (RFC 1337 §3). After a SYN that was answered with RCV.NXT and a
    /// RST with that number (§3.5.1), any SYN without data may open a connection. Only the peer's own FIN restarts
    /// TIME-WAIT, although it is outside the window by the first step. Empty segments need no answer.
    fn in_time_wait(&mut self, seg: &Arriving, now_ms: u64) -> Allowed {
        if seg.rst {
            self.reset_seen |= self.challenged == Some(seg.seq) && seg.seq == self.rcv_nxt;
            return Allowed::nothing();
        }
        if seg.syn && seg.ack.is_none() && !seg.fin {
            // RFC 6191 §2, RFC 9293 §3.6.1: the SYN may reopen the connection. If it does not, the answer is an ACK
            // or nothing.
            let newer = match seg.stamp.filter(|stamp| self.timestamps && *stamp != self.ts_recent) {
                Some(stamp) => lt(self.ts_recent, stamp),
                None => lt(self.rcv_nxt, seg.seq),
            };
            let allowed = Allowed::ack().or_nothing();
            if !newer {
                self.challenged = Some(self.rcv_nxt);
            }
            let reset_seen = self.reset_seen && self.passive && seg.payload == 0;
            return match newer || reset_seen {
                true if self.passive => allowed.or_syn_ack(),
                // Without a listener, the client that wants to connect gets an answer.
                true => Allowed { ack: true, ..closed(seg) },
                false => allowed,
            };
        }
        let own = seg.ack.is_some() && seg.seq.wrapping_add(seg.len()) == self.rcv_nxt;
        let timely = !self.timestamps || seg.stamp.is_some_and(|stamp| !lt(stamp, self.ts_recent));
        if seg.fin && own && timely {
            self.time_wait_since = now_ms;
        }
        if seg.len() > 0 { Allowed::ack() } else { Allowed::ack().or_nothing() }
    }
}
