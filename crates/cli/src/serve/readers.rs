//! Limits for clients that read or send slowly, or not at all.

use crate::span::{self, SECONDS};
use firstflight::Config;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes of a response that the engine buffers before the client has acknowledged any of it: four initial windows.
/// The buffer grows as the client acknowledges.
const FIRST_SEND_BUFFER: u32 = 64 * 1024;
/// Bytes that HTTP buffers for one connection: of a request's head, and of a response for which the engine has no
/// space.
pub(super) const HTTP_BUFFER: usize = 64 * 1024;
const ANY: RangeInclusive<Duration> = Duration::ZERO..=span::LONGEST;

/// The limits that the user can set.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Readers {
    /// Reset a connection when its client accepts less than a full segment of waiting data in this time; 0 is no limit,
    /// and a number without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span::or_bare(SECONDS, ANY))]
    send_timeout: Duration,
    /// Give up a request when less than a full segment of its body arrives in this time; 0 is no limit, and a number
    /// without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span::or_bare(SECONDS, ANY))]
    body_timeout: Duration,
    /// Connections of one client (an IPv4 address, an IPv6 /64). One more replaces a connection whose client reads
    /// nothing; if there is none, the new one is reset. 0 is no limit: use it behind a proxy, where all clients have
    /// one address. The kernel's TCP has no such limit. With several --threads it is approximate: a client may have
    /// some more
    #[arg(long, value_name = "N", default_value_t = 512)]
    connections_per_client: usize,
}

impl Readers {
    /// How long a client may take for each full segment of a request's body.
    pub fn body_timeout(&self) -> Option<Duration> {
        limit(self.body_timeout)
    }

    /// How long a client may accept nothing of waiting data.
    pub fn send_timeout(&self) -> Option<Duration> {
        limit(self.send_timeout)
    }

    /// Sets the engine's limits.
    pub fn configure(&self, config: &mut Config) {
        config.tcp.user_timeout = limit(self.send_timeout);
        config.tcp.first_send_buffer = FIRST_SEND_BUFFER;
        let most = self.connections_per_client;
        config.limits.connections_per_client = (most > 0).then_some(most);
    }
}

/// 0 is no limit.
fn limit(time: Duration) -> Option<Duration> {
    (!time.is_zero()).then_some(time)
}
