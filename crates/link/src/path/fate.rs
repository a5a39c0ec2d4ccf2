//! The random fate of each packet.
//!
//! Packet number *n* always uses the same eight words of the ChaCha8 key stream (`8 n ..8 n + 8`), whatever the
//! settings are. So its fate depends on the seed, on *n* and on the settings of that moment, never on the
//! history: switching one impairment on changes no draw of another, and a perfect path makes no draws at all.
//!
//! Bursts of losses are a chain of states, one for each packet, which the draws of the packets advance. The
//! state at *n* follows from the draws of all packets before it, including those that were dropped before a
//! loss was decided.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::config::{MAX_BURST, MAX_DELAY, MAX_FLIPS, PathConfig};

const WORDS_PER_PACKET: u128 = 8;

/// What happens to one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacketFate {
    pub lost: bool,
    pub duplicated: bool,
    pub held_back: bool,
    /// The seed that chooses the bits to flip, if any, and the most bits to flip.
    pub corruption: Option<(u64, u8)>,
    /// Extra delay, ns.
    pub jitter: u64,
    /// Extra delay of the copy, ns.
    pub copy_jitter: u64,
}

/// The settings in the form that draws are compared with: probabilities in units of 2⁻³², times in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Thresholds {
    loss: Loss,
    reorder: u64,
    duplicate: u64,
    corrupt: u64,
    flips: u8,
    jitter: u64,
}

/// The thresholds of a loss: after a packet that arrived, and after a packet that was lost.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    begin: u64,
    go_on: u64,
}

impl Loss {
    fn new(config: &PathConfig) -> Self {
        let share = config.loss;
        // Independent losses have runs of 1 / (1 - share). A value that is not a number means no bursts.
        if config.loss_burst * (1.0 - share) > 1.0 {
            let end = 1.0 / config.loss_burst.min(MAX_BURST);
            // With this threshold, the share of the time in the losing state is `share`.
            Self { begin: probability(end * share / (1.0 - share)), go_on: probability(1.0 - end) }
        } else {
            Self { begin: probability(share), go_on: probability(share) }
        }
    }

    /// Whether a loss depends on the fate of the packet before.
    fn remembers(self) -> bool {
        self.begin != self.go_on
    }

    fn is_lost(self, draw: u64, before: bool) -> bool {
        draw < if before { self.go_on } else { self.begin }
    }
}

impl Thresholds {
    fn new(config: &PathConfig) -> Self {
        Self {
            loss: Loss::new(config),
            reorder: probability(config.reorder),
            duplicate: probability(config.duplicate),
            corrupt: probability(config.corrupt),
            flips: config.corrupt_bits.clamp(1, MAX_FLIPS),
            jitter: nanos(config.jitter),
        }
    }

    /// True if the outcome does not depend on any draw.
    fn is_certain(&self) -> bool {
        let Self { loss, reorder, duplicate, corrupt, flips: _, jitter } = *self;
        loss.begin | reorder | duplicate | corrupt | jitter == 0
    }
}

/// The source of fates of one path.
pub(super) struct Fates {
    rng: ChaCha8Rng,
    /// The packet at whose words the generator is.
    position: u64,
    /// The packet whose loss is decided next, and whether the one before it was lost.
    chain: (u64, bool),
    thresholds: Thresholds,
    certain: bool,
}

impl Fates {
    pub(super) fn new(config: &PathConfig, seed: u64) -> Self {
        let thresholds = Thresholds::new(config);
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            position: 0,
            chain: (0, false),
            thresholds,
            certain: thresholds.is_certain(),
        }
    }

    /// Applies settings, from packet `number` on.
    pub(super) fn configure(&mut self, config: &PathConfig, number: u64) {
        self.catch_up(number);
        self.chain.0 = number;
        self.thresholds = Thresholds::new(config);
        self.certain = self.thresholds.is_certain();
    }

    /// Whether packets can be delayed at random.
    pub(super) fn jitters(&self) -> bool {
        self.thresholds.jitter != 0
    }

    /// The fate of packet `number`. The call is cheap if the numbers ascend.
    pub(super) fn of(&mut self, number: u64) -> PacketFate {
        if self.certain {
            return PacketFate::default();
        }
        self.catch_up(number);
        self.go_to(number);
        self.position = number.wrapping_add(1);
        let (loss, corrupt) = halves(self.rng.next_u64());
        let (duplicate, reorder) = halves(self.rng.next_u64());
        let (jitter, copy_jitter) = halves(self.rng.next_u64());
        let corruption_seed = self.rng.next_u64();
        let limit = &self.thresholds;
        let lost = limit.loss.is_lost(loss, self.chain.1);
        self.chain = (number.wrapping_add(1), lost);
        PacketFate {
            lost,
            duplicated: duplicate < limit.duplicate,
            held_back: reorder < limit.reorder,
            corruption: (corrupt < limit.corrupt).then_some((corruption_seed, limit.flips)),
            jitter: scale(limit.jitter, jitter),
            copy_jitter: scale(limit.jitter, copy_jitter),
        }
    }

    /// Advances the chain of losses over packets below `number` whose fate was not asked for, because they
    /// were dropped earlier.
    fn catch_up(&mut self, number: u64) {
        if !self.thresholds.loss.remembers() {
            return;
        }
        while self.chain.0 < number {
            let (next, before) = self.chain;
            self.go_to(next);
            let (draw, _) = halves(self.rng.next_u64());
            // The generator is inside the packet's words.
            self.position = u64::MAX;
            self.chain = (next + 1, self.thresholds.loss.is_lost(draw, before));
        }
    }

    /// Moves the generator to the words of packet `number`.
    fn go_to(&mut self, number: u64) {
        if self.position != number {
            self.rng.set_word_pos(u128::from(number) * WORDS_PER_PACKET);
        }
    }
}

/// Flips one to `most` bits of `packet`, all at different positions that `seed` chooses. Returns how many:
/// zero only for an empty packet. It flips fewer if the packet has fewer bits, or if a position is drawn
/// twice.
pub(super) fn flip_bits(packet: &mut [u8], (seed, most): (u64, u8)) -> usize {
    let bits = packet.len() as u64 * 8;
    if bits == 0 {
        return 0;
    }
    let mut state = seed;
    let wanted = splitmix64(&mut state) % u64::from(most) + 1;
    let mut chosen = [u64::MAX; MAX_FLIPS as usize];
    let mut flipped = 0;
    for slot in 0..wanted as usize {
        let place = splitmix64(&mut state) % bits;
        if chosen.contains(&place) {
            continue;
        }
        if let (Some(slot), Some(byte)) = (chosen.get_mut(slot), packet.get_mut((place / 8) as usize)) {
            *slot = place;
            *byte ^= 1 << (place % 8);
            flipped += 1;
        }
    }
    flipped
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): spreads a 64-bit seed into independent ones.
pub(super) fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Nanoseconds of a delay, at most [`MAX_DELAY`].
pub(super) fn nanos(delay: Duration) -> u64 {
    delay.min(MAX_DELAY).as_nanos() as u64
}

/// A probability in units of 2⁻³². 1 gives 2³², and every draw is below it. A value that is not a number
/// gives 0.
fn probability(value: f64) -> u64 {
    // The float-to-integer conversion saturates and turns NaN into 0.
    (value.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64
}

fn halves(draw: u64) -> (u64, u64) {
    (draw & 0xffff_ffff, draw >> 32)
}

/// `draw` of 32 bits scaled to `0..=limit`.
fn scale(limit: u64, draw: u64) -> u64 {
    (((u128::from(limit) + u128::from(limit != 0)) * u128::from(draw)) >> 32) as u64
}
