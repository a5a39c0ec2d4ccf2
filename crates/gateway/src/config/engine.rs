//! Settings of a listener's engines.

use super::Period;
use firstflight::tcp::congestion::{Algorithm, InitialWindow};
use firstflight::{Config, ListenConfig, ResponsePolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// How long the thread of an engine may stay awake.
const BUSY: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(1);
/// Bytes of a response that an engine keeps before the client has acknowledged any of it: four initial windows. The buffer grows
/// as the client acknowledges.
const FIRST_SEND_BUFFER: u32 = 64 * 1024;

/// Settings of the engines that serve a listener: the one in UDP, and those on a device. The kernel's TCP has its own, in sysctl.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Engine {
    /// Congestion control of what is sent: `cubic`, `newreno` or `bbr` (version 3).
    #[serde(deserialize_with = "from_text")]
    #[schemars(with = "String")]
    pub congestion: Algorithm,
    /// Connections of one client (an IPv4 address, an IPv6 /64) at an engine. One more replaces a connection whose client reads
    /// nothing; if there is none, it is reset. 0: no limit.
    pub connections_per_client: usize,
    /// Initial window of what is sent, segments, 1 to 64. The default is 10 (RFC 6928).
    #[serde(deserialize_with = "initial_window")]
    #[schemars(with = "Option<u8>")]
    pub initial_window: Option<InitialWindow>,
    /// How long the thread of an engine on a device stays awake after a packet, 1us to 1s. The default is not at all.
    pub busy_poll: Option<Period>,
    /// First flights of one client that may wait for its ACK. The default is 4 to 8, and half of those that are free.
    pub pending_per_client: Option<u32>,
    /// Whether connections that a RST ended count as pending for 60 s even if they had not been accepted.
    pub strict_quarantine: bool,
    /// What may be sent before the client's ACK: `immediately`, `after-handshake`, or so many times the bytes received, as `3x`.
    #[serde(deserialize_with = "from_text")]
    #[schemars(with = "String")]
    pub response: ResponsePolicy,
    /// Whether connections that the client closed first are remembered for 2 MSL, so that a late copy of their SYN is not executed.
    pub hold_last_ack: bool,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            congestion: Algorithm::default(),
            connections_per_client: 512,
            initial_window: None,
            busy_poll: None,
            pending_per_client: None,
            strict_quarantine: false,
            response: ResponsePolicy::default(),
            hold_last_ack: false,
        }
    }
}

impl Engine {
    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self.busy_poll {
            Some(Period(time)) if !BUSY.contains(&time) => Err("busy_poll is a time from 1us to 1s"),
            _ => Ok(()),
        }
    }

    /// Sets what concerns a whole engine.
    pub(crate) fn configure(&self, engine: &mut Config) {
        // HTTP writes whole messages, and the end of one must not wait for an acknowledgement.
        engine.tcp.set_nodelay(true);
        engine.tcp.set_first_send_buffer(FIRST_SEND_BUFFER);
        engine.tcp.set_congestion(self.congestion);
        let most = self.connections_per_client;
        engine.limits.connections_per_client = (most > 0).then_some(most);
        if let Some(window) = self.initial_window {
            engine.tcp.set_initial_window(window);
        }
    }

    /// Sets what concerns the listeners of engines.
    pub(crate) const fn configure_listener(&self, listener: &mut ListenConfig) {
        listener.response = self.response;
        listener.hold_last_ack = self.hold_last_ack;
    }
}

fn from_text<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn initial_window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<InitialWindow>, D::Error> {
    let segments = u8::deserialize(deserializer)?;
    let window = (1..=64).contains(&segments).then(|| InitialWindow::segments(segments.into())).flatten();
    window.map(Some).ok_or_else(|| de::Error::custom("an initial window has 1 to 64 segments"))
}
