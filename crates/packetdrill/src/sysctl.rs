//! The settings that scripts change: the kernel's settings in packetdrill's network namespace.

use std::fs;
use std::str::FromStr;

/// The settings that the stack follows. They are read again before every call that they affect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sysctl {
    /// `tcp_fastopen`, a set of bits.
    pub fast_open: u32,
    /// `tcp_fastopen_key`: one key or two.
    pub fast_open_key: String,
    /// `tcp_timestamps`.
    pub timestamps: bool,
    /// `tcp_sack`.
    pub sack: bool,
    /// `tcp_window_scaling`.
    pub window_scaling: bool,
    /// `tcp_ecn`: 0 off, 1 on, 2 if the client asks.
    pub ecn: u8,
    /// `tcp_syn_retries`.
    pub syn_retries: u8,
    /// `tcp_synack_retries`.
    pub syn_ack_retries: u8,
    /// `tcp_fin_timeout`, s.
    pub fin_timeout: u64,
    /// `tcp_rmem`: smallest, usual and largest receive buffer, bytes.
    pub rmem: [u32; 3],
    /// `tcp_wmem`: smallest, usual and largest send buffer, bytes.
    pub wmem: [u32; 3],
    /// `tcp_notsent_lowat`, bytes.
    pub notsent_lowat: u32,
    /// `tcp_congestion_control`.
    pub congestion: String,
    /// `tcp_slow_start_after_idle`.
    pub slow_start_after_idle: bool,
    /// `tcp_mtu_probing`.
    pub mtu_probing: u8,
    /// `tcp_min_tso_segs`.
    pub min_tso_segs: u32,
    /// `tcp_rto_max_ms`, ms.
    pub rto_max: u64,
    /// `tcp_syncookies`: 2, always.
    pub syn_cookies: u8,
    /// `tcp_base_mss`, bytes.
    pub base_mss: u16,
}

fn text(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok().map(|text| text.trim().to_owned())
}

fn number<T: FromStr>(name: &str, otherwise: T) -> T {
    text(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn three(name: &str, otherwise: [u32; 3]) -> [u32; 3] {
    let Some(text) = text(name) else { return otherwise };
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(a), Some(b), Some(c)) => [a, b, c],
        _ => otherwise,
    }
}

impl Sysctl {
    /// Reads the present settings.
    pub(crate) fn read() -> Self {
        Self {
            fast_open: number("tcp_fastopen", 1),
            fast_open_key: text("tcp_fastopen_key").unwrap_or_default(),
            timestamps: number("tcp_timestamps", 1u8) != 0,
            sack: number("tcp_sack", 1u8) != 0,
            window_scaling: number("tcp_window_scaling", 1u8) != 0,
            ecn: number("tcp_ecn", 2),
            syn_retries: number("tcp_syn_retries", 6),
            syn_ack_retries: number("tcp_synack_retries", 5),
            fin_timeout: number("tcp_fin_timeout", 60),
            rmem: three("tcp_rmem", [4096, 131_072, 6 << 20]),
            wmem: three("tcp_wmem", [4096, 16_384, 4 << 20]),
            notsent_lowat: number("tcp_notsent_lowat", u32::MAX),
            congestion: text("tcp_congestion_control").unwrap_or_default(),
            slow_start_after_idle: number("tcp_slow_start_after_idle", 1u8) != 0,
            mtu_probing: number("tcp_mtu_probing", 0),
            rto_max: number("tcp_rto_max_ms", 120_000),
            syn_cookies: number("tcp_syncookies", 1),
            base_mss: number("tcp_base_mss", 1024),
            min_tso_segs: number("tcp_min_tso_segs", 2),
        }
    }
}
