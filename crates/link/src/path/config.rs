//! What a path does to packets, and which settings make no sense.

use std::fmt;
use std::time::Duration;

/// What one direction of a path does to packets. The default is a perfect wire: no delay, no rate, nothing lost.
///
/// Order along the path: filter, MTU, queue and rate, loss, corruption, duplication, delay with jitter, holding back.
#[derive(Clone, Debug, PartialEq)]
pub struct PathConfig {
    /// Propagation delay of this direction (one way, not a round trip).
    pub delay: Duration,
    /// Added to `delay`, uniformly from zero to this, drawn for each packet. Jitter alone does not reorder: like a
    /// varying queue, it keeps packets in order.
    pub jitter: Duration,
    /// Rate of the bottleneck in bits per second, counted over the IP packet. `None`: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait in front of the bottleneck, the packet in transmission not counted. A packet that does
    /// not fit whole is dropped (tail drop). Without effect if there is no rate.
    pub queue_bytes: usize,
    /// Probability that a packet is lost behind the bottleneck, 0 to 1.
    pub loss: f64,
    /// Mean number of packets lost in a row, at least 1: a Markov chain of two states (Gilbert, 1960), in one of
    /// which every packet is lost, so that `loss` stays the share. Chance alone loses 1 / (1 − `loss`) in a row; up to
    /// that, each packet is lost by itself.
    pub loss_burst: f64,
    /// Probability that a packet is held back by `reorder_delay`, so that later ones overtake it, 0 to 1.
    pub reorder: f64,
    /// How long a held-back packet is late.
    pub reorder_delay: Duration,
    /// Probability that a second copy arrives, 0 to 1. The copy has a jitter of its own and is never held back.
    pub duplicate: f64,
    /// Probability that one to `corrupt_bits` random bits of the packet, headers included, are flipped, 0 to 1.
    pub corrupt: f64,
    /// Most bits flipped in a packet, at least 1 and at most [`MAX_FLIPS`]. The Internet checksum finds every single
    /// flip, but not every pair.
    pub corrupt_bits: u8,
    /// Largest packet carried, in bytes; larger ones vanish (no ICMP: a path with a black hole).
    pub mtu: usize,
    /// Fragment packets larger than `mtu` instead, whatever their DF flag says: IPv4 packets as a router does, IPv6
    /// packets as their sender would.
    pub fragments: bool,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate_bits_per_s: None,
            queue_bytes: 256 * 1024,
            loss: 0.0,
            loss_burst: 1.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(1),
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_bits: MAX_FLIPS,
            mtu: 1500,
            fragments: false,
        }
    }
}

impl PathConfig {
    /// A path without loss whose only property is its one-way delay.
    #[must_use]
    pub fn with_delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Checks that every setting makes sense.
    ///
    /// # Errors
    /// The first setting that does not, see [`PathError`].
    pub fn validate(&self) -> Result<(), PathError> {
        let probabilities = [
            (Probability::Loss, self.loss),
            (Probability::Reorder, self.reorder),
            (Probability::Duplicate, self.duplicate),
            (Probability::Corrupt, self.corrupt),
        ];
        for (name, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(PathError::NotAProbability { name, value });
            }
        }
        if !(1.0..=MAX_BURST).contains(&self.loss_burst) {
            return Err(PathError::NotABurst { packets: self.loss_burst });
        }
        if !(1..=MAX_FLIPS).contains(&self.corrupt_bits) {
            return Err(PathError::FlipsOutOfRange { bits: self.corrupt_bits });
        }
        if self.rate_bits_per_s == Some(0) {
            return Err(PathError::ZeroRate);
        }
        if self.mtu == 0 {
            return Err(PathError::ZeroMtu);
        }
        for delay in [self.delay, self.jitter, self.reorder_delay] {
            if delay > MAX_DELAY {
                return Err(PathError::DelayTooLong { delay });
            }
        }
        Ok(())
    }
}

/// Longest delay that a path accepts. Far above any real one; keeps sums of delays far from the end of 64-bit time.
pub const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);

/// Most bits that a path flips in a packet.
pub const MAX_FLIPS: u8 = 8;

/// Longest mean burst that a path accepts, packets.
pub const MAX_BURST: f64 = 1e6;

/// Names the probability that was out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Probability {
    /// [`PathConfig::loss`].
    Loss,
    /// [`PathConfig::reorder`].
    Reorder,
    /// [`PathConfig::duplicate`].
    Duplicate,
    /// [`PathConfig::corrupt`].
    Corrupt,
}

/// A setting of [`PathConfig`] that makes no sense. The caller's fault.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PathError {
    /// A probability is outside 0 to 1 or not a number.
    NotAProbability {
        /// Which one.
        name: Probability,
        /// What it was set to.
        value: f64,
    },
    /// The mean number of packets lost in a row is below 1, above [`MAX_BURST`] or not a number.
    NotABurst {
        /// What it was set to.
        packets: f64,
    },
    /// The most bits flipped in a packet are none, or more than [`MAX_FLIPS`].
    FlipsOutOfRange {
        /// What it was set to.
        bits: u8,
    },
    /// A rate of zero would never deliver; `None` means unlimited.
    ZeroRate,
    /// An MTU of zero carries nothing.
    ZeroMtu,
    /// A delay is longer than [`MAX_DELAY`].
    DelayTooLong {
        /// What it was set to.
        delay: Duration,
    },
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAProbability { name, value } => {
                write!(f, "path setting {name:?} is {value}, not a probability from 0 to 1")
            }
            Self::NotABurst { packets } => {
                write!(f, "path loses {packets} packets in a row on average, not 1 to {MAX_BURST}")
            }
            Self::FlipsOutOfRange { bits } => {
                write!(f, "path flips up to {bits} bits of a packet, not 1 to {MAX_FLIPS}")
            }
            Self::ZeroRate => f.write_str("path rate is 0 bit/s; use None for an unlimited rate"),
            Self::ZeroMtu => f.write_str("path MTU is 0 bytes; nothing could pass"),
            Self::DelayTooLong { delay } => {
                write!(f, "path delay {delay:?} is longer than a day ({MAX_DELAY:?})")
            }
        }
    }
}

impl std::error::Error for PathError {}
