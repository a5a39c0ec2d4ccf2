//! The settings of a path, and their checks.

use firstflight_wire::setters;
use std::time::Duration;

/// The settings of one direction of a path. The default is a perfect wire: no delay, no rate limit, no loss.
///
/// Order along the path: filter, MTU, queue and rate, loss, corruption, duplication, delay with jitter, holding back.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathConfig {
    /// Propagation delay of this direction (one way, not a round trip).
    pub delay: Duration,
    /// The longest extra delay. Each packet draws one uniformly from zero to this. Jitter alone does not
    /// reorder packets: like a varying queue, it keeps their order.
    pub jitter: Duration,
    /// Rate of the bottleneck in bits per second, counted over the IP packet. `None`: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait in front of the bottleneck, without the packet in transmission. A packet that does
    /// not fit completely is dropped (tail drop). It has no effect without a rate.
    pub queue_bytes: usize,
    /// Probability that a packet is lost after the bottleneck, 0 to 1.
    pub loss: f64,
    /// Mean number of consecutive lost packets, at least 1. Losses follow a Markov chain of two states
    /// (Gilbert, 1960): in one of them every packet is lost, and `loss` is still the share of lost packets.
    /// Independent losses have a mean of 1 / (1 − `loss`). Up to this value, losses are independent.
    pub loss_burst: f64,
    /// Probability that a packet is held back by `reorder_delay`, so that later ones overtake it, 0 to 1.
    pub reorder: f64,
    /// The extra delay of a packet that is held back.
    pub reorder_delay: Duration,
    /// Probability that a second copy arrives, 0 to 1. The copy has a jitter of its own and is never held back.
    pub duplicate: f64,
    /// Probability that one to `corrupt_bits` random bits of the packet, headers included, are flipped, 0 to 1.
    pub corrupt: f64,
    /// The most bits flipped in a packet, at least 1 and at most [`MAX_FLIPS`]. The Internet checksum detects
    /// every single flip, but not every pair.
    pub corrupt_bits: u8,
    /// The largest packet carried, in bytes. Larger packets vanish without an ICMP error (a black hole).
    pub mtu: usize,
    /// If set, packets larger than `mtu` are fragmented instead, whatever their DF flag says: IPv4 packets as
    /// a router does it, IPv6 packets as their sender would do it.
    pub fragments: bool,
}

setters! {
    PathConfig {
        delay: Duration,
        jitter: Duration,
        rate_bits_per_s: Option<u64>,
        queue_bytes: usize,
        loss: f64,
        loss_burst: f64,
        reorder: f64,
        reorder_delay: Duration,
        duplicate: f64,
        corrupt: f64,
        corrupt_bits: u8,
        mtu: usize,
        fragments: bool,
    }
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

    /// Checks that every setting is valid.
    ///
    /// # Errors
    /// The first setting that is invalid, see [`PathError`].
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

/// The longest delay that a path accepts. It is far above any real delay, and small enough that sums of
/// delays do not overflow 64-bit time.
pub const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);

/// The most bits that a path flips in a packet.
pub const MAX_FLIPS: u8 = 8;

/// The longest mean burst that a path accepts, packets.
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

/// An invalid setting of [`PathConfig`]. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// A probability is outside 0 to 1 or not a number.
    #[error("path setting {name:?} is {value}, not a probability from 0 to 1")]
    NotAProbability {
        /// Which one.
        name: Probability,
        /// Its value.
        value: f64,
    },
    /// The mean number of consecutive lost packets is below 1, above [`MAX_BURST`] or not a number.
    #[error("path loses {packets} packets in a row on average, not 1 to {MAX_BURST}")]
    NotABurst {
        /// Its value.
        packets: f64,
    },
    /// The most bits flipped in a packet are 0, or more than [`MAX_FLIPS`].
    #[error("path flips up to {bits} bits of a packet, not 1 to {MAX_FLIPS}")]
    FlipsOutOfRange {
        /// Its value.
        bits: u8,
    },
    /// The rate is zero, which would never deliver a packet. `None` means unlimited.
    #[error("path rate is 0 bit/s; use None for an unlimited rate")]
    ZeroRate,
    /// The MTU is zero, which would carry no packet.
    #[error("path MTU is 0 bytes; nothing could pass")]
    ZeroMtu,
    /// A delay is longer than [`MAX_DELAY`].
    #[error("path delay {delay:?} is longer than a day ({MAX_DELAY:?})")]
    DelayTooLong {
        /// Its value.
        delay: Duration,
    },
}
