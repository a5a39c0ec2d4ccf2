//! Converts the command line, kernel settings and socket options to the stack's settings.

use crate::socket::{Kind, Socket};
use crate::sysctl::Sysctl;
use crate::world::World;
use firstflight_credential::{CookieKey, CookieKeys, FastOpenPolicy, PendingLimit, Scheme};
use firstflight_stack::{Config, ListenerId};
use firstflight_tcp::congestion::Algorithm;
use firstflight_tcp::{EcnPolicy, Keepalive};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// `tcp_fastopen`: clients may use it.
pub(crate) const CLIENT: u32 = 0x1;
/// `tcp_fastopen`: listeners may use it.
pub(crate) const SERVER: u32 = 0x2;
/// `tcp_fastopen`: clients send data without a cookie.
pub(crate) const CLIENT_NO_COOKIE: u32 = 0x4;
/// `tcp_fastopen`: listeners take data without a cookie.
pub(crate) const SERVER_NO_COOKIE: u32 = 0x200;
/// `tcp_fastopen`: every listener uses it.
pub(crate) const SERVER_ALWAYS: u32 = 0x400;

/// The content of `--so_flags`: `local=ADDRESS,mtu=BYTES,settings=linux`.
#[derive(Debug, Clone)]
pub(crate) struct Flags {
    /// The stack's address.
    pub local: Option<IpAddr>,
    /// The link's MTU, bytes.
    pub mtu: usize,
    /// Behave like Linux where one of the engine's defaults deliberately differs.
    pub as_linux: bool,
    /// The link's queue is `fq`, which paces connections: `tc` said so.
    pub paced: bool,
}

impl Flags {
    /// Parses the flags. Unknown ones are ignored.
    pub(crate) fn parse(text: &str) -> Self {
        let mut flags = Self { local: None, mtu: 1500, as_linux: false, paced: false };
        for (name, value) in text.split(',').filter_map(|word| word.split_once('=')) {
            match name {
                "local" => flags.local = value.parse().ok(),
                "settings" => flags.as_linux = value == "linux",
                "mtu" => flags.mtu = value.parse().unwrap_or(flags.mtu),
                _ => {}
            }
        }
        flags
    }
}

/// Values set with `setsockopt`. `None` means that the kernel's setting applies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// TCP_FASTOPEN: the maximum number of pending first flights.
    pub fast_open: Option<u32>,
    /// TCP_FASTOPEN_CONNECT.
    pub fast_open_connect: bool,
    /// TCP_FASTOPEN_NO_COOKIE.
    pub no_cookie: bool,
    /// TCP_FASTOPEN_KEY: one key, or two.
    pub keys: Option<CookieKeys>,
    /// TCP_MAXSEG, bytes.
    pub max_segment: Option<u16>,
    /// TCP_USER_TIMEOUT.
    pub user_timeout: Option<Duration>,
    /// TCP_SYNCNT.
    pub syn_count: Option<u8>,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
    /// TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT.
    pub probing: Keepalive,
    /// SO_LINGER.
    pub linger: Option<Duration>,
    /// SO_RCVBUF, bytes as set.
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF, bytes as set.
    pub send_buffer: Option<u32>,
    /// TCP_NOTSENT_LOWAT, bytes.
    pub notsent_lowat: Option<u32>,
    /// TCP_LINGER2.
    pub linger2: Option<Duration>,
    /// TCP_INQ.
    pub inq: bool,
    /// TCP_CONGESTION.
    pub congestion: Option<Algorithm>,
    /// SO_RCVLOWAT, bytes.
    pub receive_lowat: Option<u32>,
}

/// Settings of the stack.
pub(crate) fn stack_config(flags: &Flags, sysctl: &Sysctl) -> Config {
    let mut config = Config::new(flags.local.into_iter().collect(), [7; 32]);
    config.mtu = flags.mtu;
    config.answer_echo = false;
    config.simple_credentials = flags.as_linux;
    config.unreachable_ends_handshakes = flags.as_linux;
    config.tcp = tcp_config(sysctl, &Options::default(), flags);
    config
}

/// Settings of one connection.
pub(crate) fn tcp_config(sysctl: &Sysctl, options: &Options, flags: &Flags) -> firstflight_tcp::Config {
    let headers = if flags.local.is_some_and(|ip| ip.is_ipv6()) { 60 } else { 40 };
    let link = flags.mtu.saturating_sub(headers).min(0xffff) as u16;
    firstflight_tcp::Config::default()
        .mss(options.max_segment.unwrap_or(u16::MAX).min(link))
        // The adapter limits what it takes, by the kernel's rules: `buffer`.
        .send_buffer(64 << 20)
        .receive_buffer(options.receive_buffer.unwrap_or(sysctl.rmem[1]))
        .scale(Some(scale(sysctl, options)))
        .window_scaling(sysctl.window_scaling)
        .timestamps(sysctl.timestamps)
        .first_window(flags.as_linux.then_some(1 << 16))
        .retry_refused(!flags.as_linux)
        .push_bursts(Some(sysctl.min_tso_segs))
        .ecn(match sysctl.ecn {
            0 => EcnPolicy::Off,
            1 => EcnPolicy::Ask,
            _ => EcnPolicy::Accept,
        })
        .sack(sysctl.sack)
        .pacing(flags.paced)
        .congestion(options.congestion.unwrap_or(algorithm(&sysctl.congestion).unwrap_or_default()))
        .nodelay(options.nodelay)
        .syn_retries(options.syn_count.unwrap_or(sysctl.syn_retries))
        .max_rto(Duration::from_millis(sysctl.rto_max))
        .user_timeout(options.user_timeout)
        .keepalive(options.keepalive.then_some(options.probing))
        .fin_wait2(options.linger2.unwrap_or(Duration::from_secs(sysctl.fin_timeout)))
}

/// The window scale that Linux offers, computed from the largest possible buffer.
fn scale(sysctl: &Sysctl, options: &Options) -> u8 {
    let most = options.receive_buffer.unwrap_or(sysctl.rmem[2]);
    (u32::BITS - most.leading_zeros()).saturating_sub(16).min(14) as u8
}

/// A congestion control by its name.
pub(crate) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::NewReno),
        _ => None,
    }
}

/// A key in the form of `TCP_FASTOPEN_KEY`: the bytes of the kernel's text form, with each word in reverse byte
/// order.
pub(crate) fn key(bytes: [u8; 16]) -> CookieKey {
    CookieKey::from_bytes(bytes)
}

impl World {
    /// The Fast Open policy of a listener with these options.
    pub(crate) fn fast_open_policy(&self, options: &Options, backlog: usize) -> Option<FastOpenPolicy> {
        let always = self.sysctl.fast_open & SERVER_ALWAYS != 0;
        let places = options.fast_open.or(always.then_some(backlog as u32)).filter(|n| *n > 0)?;
        if self.sysctl.fast_open & SERVER == 0 {
            return None;
        }
        let keys = match &options.keys {
            Some(keys) => keys.clone(),
            None => self.sysctl.fast_open_key.parse().ok()?,
        };
        let pending = PendingLimit::with_clients(places, places);
        let mut policy = FastOpenPolicy::new(Arc::new(keys.ring(Scheme::Linux)), Arc::new(pending));
        policy.no_cookie = self.sysctl.fast_open & SERVER_NO_COOKIE != 0 || options.no_cookie;
        Some(policy)
    }

    /// Applies changed options of a listener, or changed kernel settings.
    pub(crate) fn set_fast_open(&mut self, id: ListenerId) {
        let found = self.sockets().find_map(|(_, socket)| match socket {
            Socket { kind: Kind::Listener { id: own, backlog }, options, .. } if *own == id => {
                Some(self.fast_open_policy(options, *backlog))
            }
            _ => None,
        });
        if let Some(policy) = found {
            self.stack.set_fast_open(id, policy);
        }
    }
}
