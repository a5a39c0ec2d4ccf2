//! Answers to SYNs for which no state is kept, and the ACKs that bring the missing state back.

use crate::answered::LIFE;
use crate::event::Drop;
use crate::flow::FlowKey;
use crate::lifecycle::Settings;
use crate::listener::Syn;
use crate::output::{CookieNumbers, Reply};
use crate::slot::{Beginning, Owner};
use crate::stack::Stack;
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::tcp::{Flags, OptionBytes, Options, Segment};
use firstflight_wire::{Instant, SeqNum};

impl Stack {
    /// Answers without keeping state (RFC 4987 §3.6).
    pub(crate) fn answer_with_cookie(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        now: Instant,
    ) {
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.last_cookie = Some(now);
            listener.last_stateless = Some(now);
        }
        // A pending verdict would cause a second answer to the same SYN.
        if let Some((job, _)) = self.parked.find(&key) {
            self.overtaken(job, now);
        }
        self.send_cookie(index, key, segment, &OptionBytes::EMPTY, now);
    }

    /// Answers a wrong block with a SYN cookie, without SYN pressure.
    pub(crate) fn answer_once(&mut self, syn: &Syn<'_>, options: &OptionBytes) {
        let Syn { listener: index, key, hash, segment, now, .. } = *syn;
        let Some(cookie) = self.send_cookie(index, key, segment, options, now) else { return };
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if !listener.answered.note(hash, cookie, now) {
            // Too many to remember: this is a flood. Accept any valid cookie.
            listener.last_stateless = Some(now);
        }
    }

    /// Sends a SYN cookie and returns it.
    fn send_cookie(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        options: &OptionBytes,
        now: Instant,
    ) -> Option<SeqNum> {
        let listener = self.listeners.at(index)?;
        let tcp = listener.tcp.clone();
        let peer_mss = segment.options.mss.unwrap_or(key.default_mss());
        let cookie = self.cookies.make(&key, segment.seq, peer_mss, now);
        self.journal.counters.syn_cookies_sent += 1;
        let mss = tcp.mss.min(self.path_mss(&key).max(self.probe_sizes(&key)[2]));
        let numbers = CookieNumbers { isn: cookie, ts_offset: self.isn.initial(&key, now).ts_offset, mss };
        let reply = Reply::syn_cookie(key, &tcp, segment, numbers, options, now);
        self.outbox.reply(reply, &mut self.journal);
        Some(cookie)
    }

    /// The MSS in the SYN cookie of listener `index` that a segment acknowledges; `None` if it acknowledges none.
    pub(crate) fn cookie_of(
        &self,
        index: u32,
        key: &FlowKey,
        hash: u64,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Option<u16> {
        let listener = self.listeners.at(index)?;
        let recent = listener.last_stateless.is_some_and(|t| now - t < LIFE)
            || listener.answered.has(hash, segment.ack - 1, now);
        let wanted =
            segment.flags.contains(Flags::ACK) && !segment.flags.intersects(Flags::SYN.union(Flags::RST));
        if !recent || !wanted {
            return None;
        }
        self.cookies.check(key, segment.seq - 1, segment.ack - 1, now)
    }

    /// Handles an ACK for a listener, which may answer a SYN cookie. False if it does not.
    pub(crate) fn handle_cookie_ack(
        &mut self,
        index: u32,
        key: FlowKey,
        hash: u64,
        segment: &Segment<'_>,
        now: Instant,
    ) -> bool {
        let Some(listener) = self.listeners.at(index) else { return false };
        let full = listener.accept_queue.len() >= listener.config.backlog
            || self.slots.len() >= self.config.limits.connections;
        let Some(mss) = self.cookie_of(index, &key, hash, segment, now) else { return false };
        let (peer_isn, cookie) = (segment.seq - 1, segment.ack - 1);
        if full {
            self.journal.drop_packet(Drop::AcceptQueueFull);
            return true;
        }
        self.journal.counters.syn_cookies_good += 1;
        let mut ends = self.endpoints(&key, None, now);
        ends.isn = cookie;
        let mut options = Options::parse(&[], true);
        options.mss = Some(mss);
        if let Some(ts) = segment.options.timestamps {
            let echo = ts.echo.wrapping_sub(ends.ts_offset);
            let (scale, sack) = crate::syn_cookie::decode_ts(echo);
            options.timestamps = Some(ts);
            options.window_scale = scale;
            options.sack_permitted = sack;
        }
        self.journal.counters.passive_opens += 1;
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.syn_queue += 1;
        }
        let outcome = Outcome::Handshake(Reason::SynCookie);
        let with = Beginning { ends, key: &key, hash, owner: Owner::SynQueue(index), outcome, now };
        let child = self.insert(Settings::Listener(index), with, |slot, _| {
            slot.conn.open_from_cookie(peer_isn, &options, now);
        });
        self.deliver(child, segment, now);
        true
    }
}
