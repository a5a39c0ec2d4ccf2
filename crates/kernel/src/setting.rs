//! The namespace's settings of Fast Open.

use std::io;

const PATH: &str = "/proc/sys/net/ipv4/tcp_fastopen";
const BLACKHOLE: &str = "/proc/sys/net/ipv4/tcp_fastopen_blackhole_timeout_sec";

/// What this network namespace lets TCP do (`net.ipv4.tcp_fastopen`). It also covers IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Connects may ask for cookies and send data in SYNs (bit 0).
    pub client: bool,
    /// Listeners may grant cookies and take data in SYNs (bit 1). Linux' default is off.
    pub server: bool,
    /// Connects send data without a cookie (bit 2).
    pub without_cookie: bool,
    /// For how long Linux switches Fast Open off at first, when it believes to have met a black hole, in seconds. 0:
    /// never.
    pub blackhole_secs: u64,
}

impl Setting {
    /// The setting of this process' namespace.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or the kernel has no Fast Open.
    pub fn read() -> io::Result<Self> {
        let bits = number(&std::fs::read_to_string(PATH)?)?;
        let blackhole_secs = number(&std::fs::read_to_string(BLACKHOLE)?)?;
        Ok(Self::of(bits, blackhole_secs))
    }

    const fn of(bits: u64, blackhole_secs: u64) -> Self {
        Self { client: bits & 1 != 0, server: bits & 2 != 0, without_cookie: bits & 4 != 0, blackhole_secs }
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_have_their_meaning() {
        let default = Setting::of(1, 0);
        assert!(default.client && !default.server && !default.without_cookie);
        let both = Setting::of(0x403, 3600);
        assert!(both.client && both.server && !both.without_cookie);
        assert_eq!(both.blackhole_secs, 3600);
        assert!(number("3\n").is_ok() && number("x").is_err());
    }
}
