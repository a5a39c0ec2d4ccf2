//! Answers to SYNs for which no state is kept, and the ACKs that bring the missing state back.

use crate::event::Drop;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::{Beginning, Owner};
use crate::output::{Reply, header};
use crate::server::Server;
use crate::server::admission::Room;
use crate::server::syn::Syn;
use crate::server::syn_cookies::LIFE;
use crate::server::syn_cookies::{decode_ts, encode_ts};
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::tcp::{Flags, OptionBytes, Options, Segment, SynOptions, Timestamps};
use firstflight_wire::{Instant, SeqNum};

impl Server {
    /// Answers without keeping state (RFC 4987 §3.6).
    pub(crate) fn answer_with_cookie(&mut self, flows: &mut Flows, syn: &Syn<'_>) {
        let Syn { listener: index, key, segment, now, .. } = *syn;
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.last_cookie = Some(now);
            listener.last_stateless = Some(now);
        }
        // A pending verdict would cause a second answer to the same SYN.
        if let Some((job, _)) = self.parked.find(&key)
            && !self.overtaken(flows, job, now)
        {
            return flows.env.journal.drop_packet(Drop::Unreported);
        }
        self.send_cookie(flows, index, key, segment, &OptionBytes::EMPTY, now);
    }

    /// Answers a wrong block with a SYN cookie, without SYN pressure.
    pub(crate) fn answer_once(&mut self, flows: &mut Flows, syn: &Syn<'_>, options: &OptionBytes) {
        let Syn { listener: index, key, hash, segment, now, .. } = *syn;
        let Some(cookie) = self.send_cookie(flows, index, key, segment, options, now) else { return };
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if !listener.answered.note(hash, cookie, now) {
            // Too many to remember: this is a flood. Accept any valid cookie.
            listener.last_stateless = Some(now);
        }
    }

    /// Sends a SYN cookie and returns it.
    fn send_cookie(
        &mut self,
        flows: &mut Flows,
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
        flows.env.journal.counters.syn_cookies_sent += 1;
        let mss = tcp.mss.min(flows.env.path_mss(&key).max(flows.env.probe_sizes(&key)[2]));
        let numbers =
            CookieNumbers { isn: cookie, ts_offset: flows.env.isn.initial(&key, now).ts_offset, mss };
        let reply = cookie_reply(key, &tcp, segment, numbers, options, now);
        flows.env.reply(reply);
        Some(cookie)
    }

    /// Whether `segment` opens a connection because it acknowledges a SYN cookie.
    pub(crate) fn opens_from_cookie(
        &self,
        flows: &Flows,
        key: &FlowKey,
        segment: &Segment<'_>,
        now: Instant,
    ) -> bool {
        let hash = flows.table.hasher.hash(key);
        let opens = |listener| self.cookie_of(listener, key, hash, segment, now).is_some();
        self.listeners.find(key).is_some_and(opens)
    }

    /// The MSS in the SYN cookie of listener `index` that a segment acknowledges; `None` if it acknowledges none.
    fn cookie_of(
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
        flows: &mut Flows,
        index: u32,
        key: FlowKey,
        hash: u64,
        segment: &Segment<'_>,
        now: Instant,
    ) -> bool {
        let Some(listener) = self.listeners.at(index) else { return false };
        let full = Room::of(listener, flows, now).full;
        let Some(mss) = self.cookie_of(index, &key, hash, segment, now) else { return false };
        let (peer_isn, cookie) = (segment.seq - 1, segment.ack - 1);
        if full.is_some() {
            flows.env.journal.drop_packet(Drop::AcceptQueueFull);
            return true;
        }
        flows.env.journal.counters.syn_cookies_good += 1;
        let mut ends = flows.env.endpoints(&key, None, now);
        ends.isn = cookie;
        let mut options = Options::parse(&[], true);
        options.mss = Some(mss);
        if let Some(ts) = segment.options.timestamps {
            let echo = ts.echo.wrapping_sub(ends.ts_offset);
            let (scale, sack) = decode_ts(echo);
            options.timestamps = Some(ts);
            options.window_scale = scale;
            options.sack_permitted = sack;
        }
        flows.env.journal.counters.passive_opens += 1;
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.syn_queue += 1;
        }
        let outcome = Outcome::Handshake(Reason::SynCookie);
        let with = Beginning { ends, key: &key, hash, owner: Owner::SynQueue(index), outcome, now };
        let tcp = self.listeners.at(index).map(|listener| &listener.tcp);
        let child = flows.insert(tcp, with, |slot, _| {
            slot.conn.open_from_cookie(peer_isn, &options, now);
        });
        if flows.deliver(child, segment, now) {
            flows.table.note(child);
        }
        true
    }
}

/// The numbers of a SYN-ACK that is a SYN cookie.
struct CookieNumbers {
    /// The cookie.
    isn: SeqNum,
    /// What the timestamp clock of the flow is ahead by.
    ts_offset: u32,
    /// Largest payload of a segment that we take.
    mss: u16,
}

/// A SYN-ACK whose sequence number is a SYN cookie. The cookie has no room for the window scale and SACK, so
/// they ride in the timestamp if the client sent one.
fn cookie_reply(
    key: FlowKey,
    tcp: &firstflight_tcp::Config,
    syn: &Segment<'_>,
    cookie: CookieNumbers,
    extra: &OptionBytes,
    now: Instant,
) -> Reply {
    let CookieNumbers { isn, ts_offset, mss } = cookie;
    let ts = syn.options.timestamps.filter(|_| tcp.timestamps).map(|ts| {
        let coded = encode_ts(now.as_millis() as u32, syn.options.window_scale, syn.options.sack_permitted);
        Timestamps { value: coded.wrapping_add(ts_offset), echo: ts.value }
    });
    let scale = (ts.is_some() && tcp.window_scaling && syn.options.window_scale.is_some())
        .then(|| tcp.window_scale());
    let sack = ts.is_some() && tcp.sack && syn.options.sack_permitted;
    let options = SynOptions {
        mss,
        sack_permitted: sack,
        timestamps: ts,
        window_scale: scale,
        extra: extra.as_slice(),
    };
    let options = options.to_buf();
    let window = tcp.receive_buffer.min(0xffff) as u16;
    let flags = Flags::SYN.union(Flags::ACK);
    let header = header(&key, isn, syn.seq + 1, flags, window);
    Reply::Segment { key, header, options }
}
