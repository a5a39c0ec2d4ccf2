//! SYN cookies: a listener under attack keeps no half-open connection. What it needs to know comes back in the
//! client's acknowledgement (RFC 4987 §3.6).
//!
//! The cookie is the SYN-ACK's sequence number:
//!
//! ```text
//!  31        27 26     24 23                         0
//! +------------+---------+----------------------------+
//! | time mod 32| MSS     | keyed hash                 |
//! +------------+---------+----------------------------+
//! ```
//!
//! The time is in units of 64 s, and the MSS is an index into a table. The upper 8 bits are masked with a second
//! hash of the flow, so that an attacker must guess them, too.

use crate::env::Env;
use crate::flow::FlowKey;
use crate::isn::{Purpose, keyed, write_socket};
use crate::output::{Reply, header};
use crate::server::syn::Syn;
use alloc::collections::VecDeque;
use core::fmt;
use core::hash::Hasher;
use core::time::Duration;
use firstflight_wire::tcp::{Flags, OptionBytes, Segment, SynOptions, Timestamps};
use firstflight_wire::{Instant, SeqNum};
use zeroize::Zeroize;

/// One unit of the cookie's clock, in ns.
const PERIOD_NS: u64 = 64_000_000_000;
/// A cookie is valid in the unit in which it was made and for this number of further units: 64 to 128 s.
const MAX_AGE: u32 = 1;
const HASH_MASK: u32 = 0x00ff_ffff;

/// Segment sizes that a cookie can carry over IPv4, ascending: the smallest size that is accepted, the default of
/// RFC 9293 §3.7.1, tunnels, PPPoE, Ethernet.
const MSS_V4: [u16; 8] = [88, 536, 1200, 1360, 1400, 1440, 1452, 1460];
/// Like [`MSS_V4`], over IPv6: 1220 fits its minimum MTU (RFC 8200 §5); the last is for jumbo frames.
const MSS_V6: [u16; 8] = [88, 536, 1220, 1340, 1380, 1432, 1440, 8940];
/// Like [`MSS_V4`], in UDP: the base datagram, and the room on some links (last: Ethernet with IPv6 and IPv4).
const MSS_CARRIED: [u16; 8] = [88, 536, 1176, 1232, 1336, 1376, 1428, 1448];

/// Makes and checks SYN cookies under one secret.
///
/// `Debug` does not show the secret; dropping erases it.
pub(crate) struct SynCookies {
    secret: [u8; 16],
}

impl SynCookies {
    /// Cookies under 16 unpredictable bytes.
    #[must_use]
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// The sequence number of the SYN-ACK that answers a SYN with number `peer_isn` and the MSS
    /// option `mss` (bytes). The cookie carries the largest size of its table that is not above
    /// `mss`, or the smallest of the table.
    #[must_use]
    pub(crate) fn make(&self, key: &FlowKey, peer_isn: SeqNum, mss: u16, now: Instant) -> SeqNum {
        let above = table(key).iter().filter(|&&size| size <= mss).count();
        let index = above.saturating_sub(1) as u32;
        let period = now.as_nanos() / PERIOD_NS;
        let flow = self.flow(key, peer_isn);
        let open = ((period as u32 & 31) << 3) | index;
        SeqNum::new(((open ^ mask(flow)) << 24) | self.tag(flow, period, index))
    }

    /// The MSS in bytes if `cookie` was made for this flow and `peer_isn` in this or the previous
    /// period of 64 s. For a client's ACK, `cookie` is its acknowledgement number minus one and
    /// `peer_isn` its sequence number minus one.
    ///
    /// A guess succeeds with probability 2⁻²⁸: the caller should check only while cookies are in use
    /// or were so recently.
    #[must_use]
    pub(crate) fn check(&self, key: &FlowKey, peer_isn: SeqNum, cookie: SeqNum, now: Instant) -> Option<u16> {
        let flow = self.flow(key, peer_isn);
        let open = (cookie.get() >> 24) ^ mask(flow);
        let (made, index) = (open >> 3, open & 7);
        let current = now.as_nanos() / PERIOD_NS;
        let age = (current as u32).wrapping_sub(made) & 31;
        if age > MAX_AGE {
            return None;
        }
        let period = current.checked_sub(u64::from(age))?;
        // Numbers on the wire are no secret, and a difference of 24 bits has no early exit.
        let difference = (cookie.get() & HASH_MASK) ^ self.tag(flow, period, index);
        if difference != 0 {
            return None;
        }
        table(key).get(index as usize).copied()
    }

    /// Answers a SYN without keeping state (RFC 4987 §3.6). `tcp` are the settings of the listener's connections. Returns
    /// the cookie.
    pub(crate) fn send(
        &self,
        env: &mut Env,
        tcp: &firstflight_tcp::Config,
        syn: &Syn<'_>,
        options: &OptionBytes,
    ) -> SeqNum {
        let Syn { key, segment, now, .. } = *syn;
        let peer_mss = segment.options.mss.unwrap_or(key.default_mss());
        let cookie = self.make(&key, segment.seq, peer_mss, now);
        env.journal.counters.syn_cookies_sent += 1;
        let mss = tcp.largest_segment().min(env.path_mss(&key).max(env.probe_sizes(&key)[2]));
        let numbers = CookieNumbers { isn: cookie, ts_offset: env.isn.initial(&key, now).ts_offset, mss };
        env.reply(cookie_reply(key, tcp, segment, numbers, options, now));
        cookie
    }

    /// The MSS in the SYN cookie that a segment acknowledges; `None` if it acknowledges none that a listener has sent.
    pub(crate) fn acknowledged(
        &self,
        sent: &CookiesSent,
        key: &FlowKey,
        hash: u64,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Option<u16> {
        let recent = sent.may_have_sent(hash, segment.ack - 1, now);
        let wanted =
            segment.flags.contains(Flags::ACK) && !segment.flags.intersects(Flags::SYN.union(Flags::RST));
        if !recent || !wanted {
            return None;
        }
        self.check(key, segment.seq - 1, segment.ack - 1, now)
    }

    /// The peer's UDP port is part of the hash: a cookie is not valid for another port.
    fn flow(&self, key: &FlowKey, peer_isn: SeqNum) -> u64 {
        let mut hasher = keyed(&self.secret, Purpose::CookieFlow);
        write_socket(&mut hasher, key.local());
        write_socket(&mut hasher, key.remote());
        hasher.write(&key.outer_remote().to_be_bytes());
        hasher.write(&peer_isn.get().to_be_bytes());
        hasher.finish()
    }

    /// The 24 bits that nobody can compute without the secret.
    fn tag(&self, flow: u64, period: u64, index: u32) -> u32 {
        let mut hasher = keyed(&self.secret, Purpose::CookieCheck);
        hasher.write(&flow.to_be_bytes());
        hasher.write(&period.to_be_bytes());
        hasher.write(&index.to_be_bytes());
        hasher.finish() as u32 & HASH_MASK
    }
}

impl fmt::Debug for SynCookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SynCookies(secret)")
    }
}

impl Drop for SynCookies {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

fn table(key: &FlowKey) -> &'static [u16; 8] {
    match key {
        _ if key.is_carried() => &MSS_CARRIED,
        _ if key.local_ip().is_ipv4() => &MSS_V4,
        _ => &MSS_V6,
    }
}

/// The mask of time and MSS: 8 bits of the flow's hash.
fn mask(flow: u64) -> u32 {
    (flow >> 56) as u32
}

/// Low bits of a SYN-ACK's timestamp that carry options, as in Linux: 4 window scale, 1 SACK, 1
/// reserved (zero).
const TS_BITS: u32 = 6;
const TS_MASK: u32 = (1 << TS_BITS) - 1;
/// "No window scale option."
const NO_SCALE: u32 = 15;
const SACK: u32 = 1 << 4;

/// The timestamp of a SYN-ACK that carries a cookie: `ts` with the peer's window scale (0–14,
/// larger counts as 14, RFC 7323 §2.3) and SACK-permitted in its low 6 bits.
///
/// It is less than 64 ticks older than `ts` and never newer, so later timestamps do not run backwards (RFC 7323
/// §5.2 would drop them).
#[must_use]
pub(crate) fn encode_ts(ts: u32, wscale: Option<u8>, sack: bool) -> u32 {
    let scale = wscale.map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
    let options = scale | if sack { SACK } else { 0 };
    let with = (ts & !TS_MASK) | options;
    if options > ts & TS_MASK { with.wrapping_sub(1 << TS_BITS) } else { with }
}

/// Window scale and SACK-permitted from the echo of a timestamp of [`encode_ts`]. Trust it only together with a
/// valid cookie: the echo itself is not authenticated, but a client that alters it harms only its own connection.
#[must_use]
pub(crate) fn decode_ts(echo: u32) -> (Option<u8>, bool) {
    let scale = echo & 15;
    ((scale != NO_SCALE).then_some(scale as u8), echo & SACK != 0)
}

/// The SYN cookies that a listener has sent.
#[derive(Debug, Default)]
pub(crate) struct CookiesSent {
    /// When one was last sent because of SYN pressure.
    under_pressure: Option<Instant>,
    /// When the last one was sent that `answered` does not hold.
    untold: Option<Instant>,
    /// Those that were sent without SYN pressure.
    answered: CookieAnswered,
}

impl CookiesSent {
    /// A cookie is sent because of SYN pressure.
    pub(crate) fn press(&mut self, now: Instant) {
        (self.under_pressure, self.untold) = (Some(now), Some(now));
    }

    /// This cookie was sent to the flow with this hash, without SYN pressure.
    pub(crate) fn answer(&mut self, hash: u64, cookie: SeqNum, now: Instant) {
        if !self.answered.note(hash, cookie, now) {
            // Too many to remember: this is a flood. Accept any valid cookie.
            self.untold = Some(now);
        }
    }

    /// Whether one was sent because of SYN pressure a moment ago, so that no first flight is accepted (see
    /// [`COOKIE_TAIL`]).
    pub(crate) fn is_in_tail(&self, now: Instant) -> bool {
        self.under_pressure.is_some_and(|at| now - at < COOKIE_TAIL)
    }

    /// Whether this cookie may have been sent to the flow with this hash.
    fn may_have_sent(&self, hash: u64, cookie: SeqNum, now: Instant) -> bool {
        self.untold.is_some_and(|t| now - t < LIFE) || self.answered.has(hash, cookie, now)
    }
}

/// No first flight is accepted while SYN cookies are sent, nor for this long after the last one. A stateless cookie
/// and a later child have different ISNs, so the client's ACK of the cookie would reset its own executed request.
const COOKIE_TAIL: Duration = Duration::from_secs(10);

/// Most cookies remembered. More wrong blocks within a cookie's lifetime are a flood.
const MOST_ANSWERED: usize = 64;

/// Longest lifetime of a cookie: two periods of its clock.
const LIFE: Duration = Duration::from_secs(128);

/// Which flow got which cookie. A wrong block costs its sender nothing, so one wrong block must not make the listener
/// check every ACK for a cookie, of which sixteen in 2^32 are valid for a flow. A flow that got a cookie has to return
/// exactly that one.
#[derive(Debug, Default)]
struct CookieAnswered {
    sent: VecDeque<(u64, SeqNum, Instant)>,
}

impl CookieAnswered {
    /// Remembers the cookie that was sent to the flow with this hash. False if that removed one that is still valid.
    fn note(&mut self, hash: u64, cookie: SeqNum, now: Instant) -> bool {
        while self.sent.front().is_some_and(|(_, _, at)| now - *at >= LIFE) {
            self.sent.pop_front();
        }
        let full = self.sent.len() >= MOST_ANSWERED;
        if full {
            self.sent.pop_front();
        }
        self.sent.push_back((hash, cookie, now));
        !full
    }

    /// Whether this cookie was sent to this flow, and is still valid.
    fn has(&self, hash: u64, cookie: SeqNum, now: Instant) -> bool {
        self.sent.iter().any(|(to, what, at)| *to == hash && *what == cookie && now - *at < LIFE)
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
    let ts = syn.options.timestamps.filter(|_| tcp.offers_timestamps()).map(|ts| {
        let coded = encode_ts(now.as_millis() as u32, syn.options.window_scale, syn.options.sack_permitted);
        Timestamps { value: coded.wrapping_add(ts_offset), echo: ts.value }
    });
    let scale = (ts.is_some() && tcp.offers_window_scaling() && syn.options.window_scale.is_some())
        .then(|| tcp.window_scale());
    let sack = ts.is_some() && tcp.offers_sack() && syn.options.sack_permitted;
    let options = SynOptions {
        mss,
        sack_permitted: sack,
        timestamps: ts,
        window_scale: scale,
        extra: extra.as_slice(),
    };
    let options = options.to_buf();
    let window = tcp.most_to_read().min(0xffff) as u16;
    let flags = Flags::SYN.union(Flags::ACK);
    let header = header(&key, isn, syn.seq + 1, flags, window);
    Reply::Segment { key, header, options }
}

#[cfg(test)]
mod tests;
