//! Servers by address, in the file: cookies, round-trip times, segment sizes, failures.

use super::hex;
use super::row::Row;
use firstflight_credential::store::{CookieSet, Failures, PathMss, PathRtt, Permission};
use firstflight_credential::{Entry, NetworkId};
use firstflight_wire::tcp::{Cookie, FastOpenForm};
use firstflight_wire::{Clock, Instant};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Longest time for which a server is avoided, milliseconds. A file cannot ask for more.
const LONGEST_PAUSE: u64 = 24 * 60 * 60 * 1000;
/// Smallest segment size that is read, bytes. Every path carries it.
const MIN_PATH_MSS: u16 = 88;

/// What is remembered about one server on one network. Times are Unix times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedServer {
    /// The local network on which all of it was learnt.
    #[serde(with = "hex::network")]
    pub network: NetworkId,
    /// Its address.
    pub server: IpAddr,
    /// Its cookies, newest first.
    pub cookies: Vec<CachedCookie>,
    /// Whether its cookies are valid for one use each, or seem to be.
    pub one_time: bool,
    /// The MSS that it announced, bytes.
    pub mss: Option<u16>,
    /// Round-trip times.
    pub rtt: Option<CachedRtt>,
    /// The largest segment that the path carries, if it is smaller than the link's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mss: Option<CachedPathMss>,
    /// First flights that failed in a row.
    pub failures: u32,
    /// First flights that got no answer since one was accepted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u8,
    /// When the latest of these was noted. 0 in a file of an older program, which is now.
    #[serde(default, skip_serializing_if = "is_none")]
    pub lost_at: u64,
    /// Set while the server is avoided.
    pub avoided: Option<Avoided>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_none(time: &u64) -> bool {
    *time == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u8) -> bool {
    *count == 0
}

/// A cookie in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedCookie {
    /// The cookie.
    #[serde(with = "hex::cookie")]
    pub cookie: Cookie,
    /// Whether it came in the experimental form of the option (kind 254).
    pub experimental: bool,
    /// When it was granted.
    pub granted: u64,
}

/// Round-trip times in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedRtt {
    /// Smoothed round-trip time, microseconds.
    pub srtt_us: u64,
    /// Round-trip time variation, microseconds.
    pub rttvar_us: u64,
    /// When it was last measured.
    pub at: u64,
}

/// A path's largest segment in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedPathMss {
    /// Bytes of payload, options not counted.
    pub mss: u16,
    /// When it was learnt.
    pub at: u64,
}

/// A server that is avoided for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Avoided {
    /// When the pause ends.
    pub until: u64,
    /// Whether a cookie may still be requested.
    pub asking: bool,
}

impl CachedServer {
    pub(super) fn of(network: NetworkId, server: IpAddr, entry: &Entry, clock: &Clock) -> Self {
        let unix = |at: Instant| clock.unix_ms.saturating_sub((clock.mono - at).as_millis() as u64);
        let failures = &entry.failures;
        let left = failures.retry_at.saturating_since(clock.mono).as_millis() as u64;
        Self {
            network,
            server,
            cookies: (entry.cookies.as_slice().iter())
                .map(|held| CachedCookie {
                    cookie: held.cookie,
                    experimental: held.form == FastOpenForm::Experimental,
                    granted: unix(held.granted_at),
                })
                .collect(),
            one_time: entry.cookies.is_rotating(),
            mss: entry.mss,
            rtt: entry.rtt.map(|rtt| CachedRtt {
                srtt_us: rtt.srtt().as_micros() as u64,
                rttvar_us: rtt.rttvar().as_micros() as u64,
                at: unix(rtt.at()),
            }),
            path_mss: entry.path_mss.map(|path| CachedPathMss { mss: path.mss(), at: unix(path.at()) }),
            failures: failures.count,
            lost: failures.lost(),
            lost_at: if failures.lost() > 0 { unix(failures.lost_at()) } else { 0 },
            avoided: (left > 0).then(|| Avoided {
                until: clock.unix_ms.saturating_add(left),
                asking: failures.permits == Permission::Request,
            }),
        }
    }

    pub(super) fn entry(&self, clock: &Clock) -> Entry {
        let mono = |unix: u64| clock.mono - Duration::from_millis(clock.unix_ms.saturating_sub(unix));
        let cookies: Vec<_> = (self.cookies.iter())
            .map(|held| {
                let form =
                    if held.experimental { FastOpenForm::Experimental } else { FastOpenForm::Standard };
                (held.cookie, form, mono(held.granted))
            })
            .collect();
        let mut entry = Entry::new();
        entry.cookies = CookieSet::restore(&cookies, self.one_time);
        entry.mss = self.mss.filter(|mss| *mss > 0);
        entry.rtt = self.rtt.as_ref().map(|rtt| {
            let [srtt, rttvar] = [rtt.srtt_us, rtt.rttvar_us].map(Duration::from_micros);
            PathRtt::new(srtt, rttvar, mono(rtt.at))
        });
        entry.path_mss =
            self.path_mss.as_ref().map(|path| PathMss::new(path.mss.max(MIN_PATH_MSS), mono(path.at)));
        let (permits, left) = match &self.avoided {
            Some(avoided) if avoided.asking => (Permission::Request, avoided.until),
            Some(avoided) => (Permission::Nothing, avoided.until),
            None => (Permission::Everything, 0),
        };
        let left = left.saturating_sub(clock.unix_ms).min(LONGEST_PAUSE);
        let lost_at = if self.lost_at == 0 { clock.mono } else { mono(self.lost_at) };
        let retry_at = clock.mono + Duration::from_millis(left);
        entry.failures = Failures::restore(self.failures, permits, retry_at, self.lost, lost_at);
        entry
    }
}

impl Row for CachedServer {
    type Key = (NetworkId, IpAddr);
    const MOST: usize = 4096;

    fn key(&self) -> Self::Key {
        (self.network, self.server)
    }

    fn network(&self) -> NetworkId {
        self.network
    }

    fn ip(&self) -> Option<IpAddr> {
        Some(self.server)
    }

    fn until(&self) -> Option<u64> {
        None
    }
}
