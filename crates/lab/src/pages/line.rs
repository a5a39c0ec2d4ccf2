//! A client's access line.

use firstflight_link::path::{Path, PathConfig, PathError};
use std::time::Duration;

/// The settings of a line: a rate, a delay and a buffer in each direction.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// Round-trip time without queues.
    pub rtt: Duration,
    /// Rate to the client, bit/s.
    pub down: u64,
    /// Rate from the client, bit/s.
    pub up: u64,
    /// Bytes that may wait in each direction.
    pub buffer: usize,
    /// Largest packet, bytes.
    pub mtu: usize,
    /// Share of the packets that are lost in each direction, from 0 to 1.
    pub loss: f64,
}

impl Line {
    /// The path from the client and the path to it. `seed` decides random events, if the line has any.
    /// Errors: a setting of the line is invalid.
    pub fn paths(&self, seed: u64) -> Result<(Path, Path), PathError> {
        let path = |rate: u64| {
            PathConfig::with_delay(self.rtt / 2)
                .rate_bits_per_s(Some(rate))
                .queue_bytes(self.buffer)
                .mtu(self.mtu)
                .loss(self.loss)
        };
        Ok((Path::new(path(self.up), seed)?, Path::new(path(self.down), !seed)?))
    }
}
