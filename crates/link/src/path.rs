//! The in-memory path: a network in virtual time, sans-IO, deterministic from one seed.

mod config;
mod fate;
mod fragment;
#[cfg(test)]
mod tests;
mod transit;

use std::fmt;
use std::time::Duration;

use firstflight_wire::Instant;

pub use config::{MAX_BURST, MAX_DELAY, MAX_FLIPS, PathConfig, PathError, Probability};
use fate::{Fates, flip_bits, nanos, splitmix64};
pub use fragment::fragment;
use transit::{Bottleneck, Flight, PacketArrival};

/// The most buffers kept for reuse. Further returned buffers are freed, so that a burst does not hold memory
/// for ever.
const MAX_FREE_BUFFERS: usize = 4096;

/// The decision of a filter about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// The packet continues, as the filter left it.
    Forward,
    /// The packet vanishes.
    Drop,
}

/// A middlebox at the entrance of a path: sees every packet, may alter or drop it.
pub type Filter = Box<dyn FnMut(&mut Vec<u8>) -> FilterVerdict + Send>;

/// Counters of a path, in packets.
///
/// `sent + fragments + duplicated` is always `delivered + lost + queue_dropped + too_big + filtered` plus the packets
/// in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets given to the path.
    pub sent: u64,
    /// Fragments made, the first of each packet not counted.
    pub fragments: u64,
    /// Packets taken out at the other end, copies included.
    pub delivered: u64,
    /// Lost at random.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub queue_dropped: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Held back, so that later packets could overtake them.
    pub reordered: u64,
    /// Corrupted by flipped bits.
    pub corrupted: u64,
    /// Dropped because larger than the MTU.
    pub too_big: u64,
    /// Dropped by the filter.
    pub filtered: u64,
}

/// One direction of a network path.
///
/// Call [`send`](Self::send) for each packet at its time of sending. When the clock has reached
/// [`next_arrival`](Self::next_arrival), take packets with [`poll_deliver`](Self::poll_deliver) until it
/// returns `None`, and return each buffer with [`recycle`](Self::recycle). Time must not run backwards. The
/// same seed, settings and calls give the same packets at the same times, on every machine. In the steady
/// state the path allocates no memory.
///
/// ```
/// use std::time::Duration;
/// use firstflight_link::path::{Path, PathConfig};
/// use firstflight_wire::Instant;
///
/// let mut path = Path::new(PathConfig::with_delay(Duration::from_millis(50)), 1)?;
/// path.send(Instant::ZERO, b"packet");
/// let arrival = path.next_arrival().ok_or("nothing in flight")?;
/// assert_eq!(arrival.as_nanos(), 50_000_000);
/// let packet = path.poll_deliver(arrival).ok_or("nothing arrived")?;
/// assert_eq!(packet, b"packet");
/// path.recycle(packet);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Path {
    config: PathConfig,
    /// Whether the settings may have changed since they were last applied to the parts below.
    stale: bool,
    /// ns.
    delay: u64,
    /// ns.
    reorder_delay: u64,
    fates: Fates,
    bottleneck: Bottleneck,
    flight: Flight,
    /// The latest arrival among packets that are not held back, ns. Jitter does not let a packet arrive
    /// before it.
    last_arrival: u64,
    /// Number of the next packet put in flight.
    sequence: u64,
    filter: Option<Filter>,
    free: Vec<Vec<u8>>,
    counters: Counters,
}

impl Path {
    /// A path with the given settings. `seed` decides every random event.
    ///
    /// # Errors
    /// A setting is invalid, see [`PathConfig::validate`].
    pub fn new(config: PathConfig, seed: u64) -> Result<Self, PathError> {
        config.validate()?;
        Ok(Self {
            stale: false,
            delay: nanos(config.delay),
            reorder_delay: nanos(config.reorder_delay),
            fates: Fates::new(&config, seed),
            bottleneck: Bottleneck::new(config.rate_bits_per_s, config.queue_bytes),
            flight: Flight::default(),
            last_arrival: 0,
            sequence: 0,
            filter: None,
            free: Vec::new(),
            counters: Counters::default(),
            config,
        })
    }

    /// Sends a copy of `packet` at `now`.
    pub fn send(&mut self, now: Instant, packet: &[u8]) {
        let mut buffer = self.buffer();
        buffer.extend_from_slice(packet);
        self.send_buffer(now, buffer);
    }

    /// An empty buffer for the packet of [`send_buffer`](Self::send_buffer), a recycled one if there is one.
    #[must_use]
    pub fn buffer(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    /// Sends `packet` at `now` without copying it.
    pub fn send_buffer(&mut self, now: Instant, mut packet: Vec<u8>) {
        let number = self.counters.sent + self.counters.fragments;
        if self.stale {
            self.take_over_settings(number);
        }
        self.counters.sent += 1;
        if let Some(filter) = &mut self.filter
            && filter(&mut packet) == FilterVerdict::Drop
        {
            self.counters.filtered += 1;
            return self.recycle(packet);
        }
        if packet.len() <= self.config.mtu {
            return self.pass(now, number, packet);
        }
        let fragments = self.config.fragments.then(|| fragment(&packet, self.config.mtu, number as u32));
        let Some(fragments) = fragments.flatten() else {
            self.counters.too_big += 1;
            return self.recycle(packet);
        };
        self.recycle(packet);
        self.counters.fragments += fragments.len() as u64 - 1;
        for (number, fragment) in (number..).zip(fragments) {
            self.pass(now, number, fragment);
        }
    }

    /// Sends packet `number` to the bottleneck.
    fn pass(&mut self, now: Instant, number: u64, mut packet: Vec<u8>) {
        let Some(departure) = self.bottleneck.admit(now.as_nanos(), packet.len()) else {
            self.counters.queue_dropped += 1;
            return self.recycle(packet);
        };
        let fate = self.fates.of(number);
        if fate.lost {
            self.counters.lost += 1;
            return self.recycle(packet);
        }
        if let Some(flips) = fate.corruption
            && flip_bits(&mut packet, flips) > 0
        {
            self.counters.corrupted += 1;
        }
        let copy = fate.duplicated.then(|| {
            let mut copy = self.buffer();
            copy.extend_from_slice(&packet);
            copy
        });
        let undisturbed = departure.saturating_add(self.delay);
        let arrival = undisturbed.saturating_add(fate.jitter);
        self.launch(arrival, packet, fate.held_back);
        if let Some(copy) = copy {
            self.counters.duplicated += 1;
            self.launch(undisturbed.saturating_add(fate.copy_jitter), copy, false);
        }
    }

    /// Takes the next packet that has arrived by `now`: ordered by time of arrival, then by order of sending.
    #[must_use]
    pub fn poll_deliver(&mut self, now: Instant) -> Option<Vec<u8>> {
        let arrival = self.flight.pop(now)?;
        self.counters.delivered += 1;
        Some(arrival.packet)
    }

    /// Returns a buffer for reuse.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.free.len() < MAX_FREE_BUFFERS {
            buffer.clear();
            self.free.push(buffer);
        }
    }

    /// When the next packet arrives. `None` if nothing is in flight.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.flight.next_arrival()
    }

    /// Packets in flight, including those that wait in the queue.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// How long a packet sent at `now` would wait for those before it.
    #[must_use]
    pub fn queueing_delay(&self, now: Instant) -> Duration {
        self.bottleneck.idle_at() - now
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &PathConfig {
        &self.config
    }

    /// Changes settings while the path runs, for packets sent from now on. Invalid values are not refused
    /// here but moved to the nearest valid ones (probability 0 to 1, rate at least 1 bit/s, delay at most
    /// [`MAX_DELAY`]). With a shorter delay and no jitter, packets may overtake those sent before the change,
    /// as after a change of route.
    pub fn config_mut(&mut self) -> &mut PathConfig {
        self.stale = true;
        &mut self.config
    }

    /// Puts a middlebox at the entrance of the path, and replaces the previous one.
    pub fn set_filter(&mut self, filter: Filter) {
        self.filter = Some(filter);
    }

    /// Removes the middlebox.
    pub fn clear_filter(&mut self) {
        self.filter = None;
    }

    /// Applies the settings from packet `number` on.
    fn take_over_settings(&mut self, number: u64) {
        self.stale = false;
        self.delay = nanos(self.config.delay);
        self.reorder_delay = nanos(self.config.reorder_delay);
        self.fates.configure(&self.config, number);
        self.bottleneck.configure(self.config.rate_bits_per_s, self.config.queue_bytes);
    }

    /// Puts a packet in flight that would arrive at `at` (ns).
    fn launch(&mut self, mut at: u64, packet: Vec<u8>, held_back: bool) {
        if self.fates.jitters() {
            at = at.max(self.last_arrival);
        }
        if held_back {
            self.counters.reordered += 1;
            at = at.saturating_add(self.reorder_delay);
        } else {
            self.last_arrival = at;
        }
        let sequence = self.sequence;
        self.sequence += 1;
        let arrival = PacketArrival { at: Instant::from_nanos(at), sequence, packet };
        self.flight.push(arrival, held_back);
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Path")
            .field("config", &self.config)
            .field("in_flight", &self.in_flight())
            .field("next_arrival", &self.next_arrival())
            .field("filter", &self.filter.is_some())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Both directions between two ends, A and B.
#[derive(Debug)]
pub struct Duplex {
    /// From A to B.
    pub a_to_b: Path,
    /// From B to A.
    pub b_to_a: Path,
}

impl Duplex {
    /// Two paths with different seeds, both derived from `seed`.
    ///
    /// # Errors
    /// A setting is invalid, see [`PathConfig::validate`].
    pub fn new(config_ab: PathConfig, config_ba: PathConfig, seed: u64) -> Result<Self, PathError> {
        let mut state = seed;
        Ok(Self {
            a_to_b: Path::new(config_ab, splitmix64(&mut state))?,
            b_to_a: Path::new(config_ba, splitmix64(&mut state))?,
        })
    }

    /// Two paths with the same settings and different random events.
    ///
    /// # Errors
    /// A setting is invalid, see [`PathConfig::validate`].
    pub fn symmetric(config: PathConfig, seed: u64) -> Result<Self, PathError> {
        Self::new(config.clone(), config, seed)
    }

    /// When the next packet arrives at either end.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        match (self.a_to_b.next_arrival(), self.b_to_a.next_arrival()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
