//! Serial numbers of one-time cookies. Each is issued once, activated, and used once. A serial takes two
//! bits.

use crate::serial::{COUNTER, Serial};
use crate::sync::{AtomicBool, AtomicU64, Ordering, spin_loop};
use alloc::boxed::Box;

/// Serials for each word of bits.
const PER_WORD: u64 = 32;

const ACTIVE: u64 = 1;
const USED: u64 = 2;

/// The result of an attempt to use a serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redeemed {
    /// It is used now.
    Now,
    /// It was used before.
    Before,
    /// The handshake in which it was granted is not complete. The serial is used up nevertheless.
    NotActive,
    /// The serial is outside the table's memory.
    Forgotten,
}

/// The last `capacity` serials of one issuer: which were activated, and which were used.
///
/// For G grants a second, each valid for T seconds, the table takes G·T/4 bytes (1,000/s and a day: 21.6 MB).
///
/// # Restarts
/// The bits are lost with the process, so the next process may not accept the serials of the one before, and
/// may not issue them again. The owner therefore keeps a mark on disk that is always ahead of the counter.
/// [`SerialTable::wants`] says which mark to write, [`SerialTable::extend`] tells the table that the mark is
/// written, and the next process starts at the mark. Serials beyond the mark are neither issued nor accepted.
#[derive(Debug)]
pub struct SerialTable {
    issuer: u16,
    /// The table is for another issuer. The handshakes there are not known here, so all serials count as
    /// active.
    foreign: bool,
    first: u64,
    next: AtomicU64,
    mark: AtomicU64,
    words: Box<[AtomicU64]>,
    lock: AtomicBool,
}

impl SerialTable {
    /// The serials that this process issues, from `mark` (the value on disk; 1 at the very first start). No
    /// serial is issued before [`SerialTable::extend`].
    #[must_use]
    pub fn own(issuer: u16, mark: u64, capacity: usize) -> Self {
        Self::new(issuer, mark, capacity, false)
    }

    /// The serials that another process issues, each of which may be used here once.
    #[must_use]
    pub fn foreign(issuer: u16, mark: u64, capacity: usize) -> Self {
        Self::new(issuer, mark, capacity, true)
    }

    fn new(issuer: u16, mark: u64, capacity: usize, foreign: bool) -> Self {
        // One word more than the window needs, so that the place to clear next is outside the window.
        let words = capacity.div_ceil(PER_WORD as usize).max(1) + 1;
        let first = mark.max(1);
        Self {
            issuer,
            foreign,
            first,
            next: AtomicU64::new(first),
            mark: AtomicU64::new(first),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            lock: AtomicBool::new(false),
        }
    }

    /// The issuer of the serials.
    #[must_use]
    pub const fn issuer(&self) -> u16 {
        self.issuer
    }

    /// The next counter: one more than the highest that was issued, or seen of another issuer.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// The new mark to write to disk, if one is due: `reserve` ahead of the next serial, when at most half of
    /// `reserve` is left.
    #[must_use]
    pub fn wants(&self, reserve: u64) -> Option<u64> {
        let (next, mark) = (self.next(), self.mark.load(Ordering::Acquire));
        (mark.saturating_sub(next) <= reserve / 2).then(|| next.saturating_add(reserve).min(COUNTER))
    }

    /// The mark on disk is `mark` now.
    pub fn extend(&self, mark: u64) {
        self.mark.fetch_max(mark.min(COUNTER), Ordering::AcqRel);
    }

    /// How many serials are remembered.
    fn capacity(&self) -> u64 {
        self.places() - PER_WORD
    }

    fn places(&self) -> u64 {
        self.words.len() as u64 * PER_WORD
    }

    fn slot(&self, counter: u64) -> Option<(&AtomicU64, u32)> {
        let at = counter % self.places();
        let word = self.words.get((at / PER_WORD) as usize)?;
        Some((word, (at % PER_WORD) as u32 * 2))
    }

    /// Issues a serial. `None` when the mark is reached, until it is extended.
    pub fn issue(&self) -> Option<Serial> {
        if self.foreign {
            return None;
        }
        let _lock = self.window();
        let counter = self.next();
        if counter >= self.mark.load(Ordering::Acquire) {
            return None;
        }
        // The serial that had this place is outside the window already. Clear the place before anybody knows
        // the new serial: clearing it later could forget a use.
        let (word, shift) = self.slot(counter)?;
        word.fetch_and(!(3 << shift), Ordering::AcqRel);
        self.next.store(counter + 1, Ordering::Release);
        Serial::new(self.issuer, counter)
    }

    /// Locks the window. Only one thread at a time may move it, and none while another thread redeems a
    /// serial of another issuer.
    fn window(&self) -> WindowLock<'_> {
        while self.lock.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        WindowLock(&self.lock)
    }

    /// Whether the table has bits for `counter`.
    fn remembers(&self, counter: u64) -> bool {
        let next = self.next();
        counter >= self.first && counter < next && next - counter <= self.capacity()
    }

    /// The handshake in which `serial` was granted is complete.
    pub fn activate(&self, serial: Serial) {
        if serial.issuer() != self.issuer || !self.remembers(serial.counter()) {
            return;
        }
        if let Some((word, shift)) = self.slot(serial.counter()) {
            word.fetch_or(ACTIVE << shift, Ordering::AcqRel);
            if !self.remembers(serial.counter()) {
                // The place has gone to a newer serial in the meantime, whose handshake may not be complete.
                // Mark that serial as used, so that it cannot be used without a handshake.
                word.fetch_or(USED << shift, Ordering::AcqRel);
            }
        }
    }

    /// Whether `serial` was issued here, and the handshake in which it was granted is complete. For whom
    /// [`SerialTable::redeem`] said [`Redeemed::NotActive`], and for nobody else, it is good then.
    #[must_use]
    pub fn is_active(&self, serial: Serial) -> bool {
        let bits = self.slot(serial.counter()).map(|(word, shift)| word.load(Ordering::Acquire) >> shift);
        !self.foreign
            && serial.issuer() == self.issuer
            && bits.is_some_and(|bits| bits & ACTIVE != 0)
            && self.remembers(serial.counter())
    }

    /// Redeems `serial` atomically: of all attempts, at most one gets [`Redeemed::Now`].
    pub fn redeem(&self, serial: Serial) -> Redeemed {
        if serial.issuer() != self.issuer {
            return Redeemed::Forgotten;
        }
        if !self.foreign {
            return self.redeem_here(serial.counter());
        }
        let _lock = self.window();
        self.move_on(serial.counter());
        self.redeem_here(serial.counter())
    }

    fn redeem_here(&self, counter: u64) -> Redeemed {
        if !self.remembers(counter) {
            return Redeemed::Forgotten;
        }
        let Some((word, shift)) = self.slot(counter) else { return Redeemed::Forgotten };
        let change = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
            (bits >> shift & USED == 0).then_some(bits | USED << shift)
        });
        match change {
            // The place may have gone to a newer serial in the meantime. That serial is now lost.
            Ok(_) if !self.remembers(counter) => Redeemed::Forgotten,
            Ok(bits) if self.foreign || bits >> shift & ACTIVE != 0 => Redeemed::Now,
            // The data goes by the ordinary handshake, so a copy of that SYN must not be accepted later.
            Ok(_) => Redeemed::NotActive,
            Err(_) => Redeemed::Before,
        }
    }

    /// Another issuer has reached `counter`, below the mark. This can be trusted, because only members with
    /// the farm's keys can make cookies. Clears the places of the serials that enter the window. Call it with
    /// the lock held.
    fn move_on(&self, counter: u64) {
        let next = self.next();
        if counter < next || counter >= self.mark.load(Ordering::Acquire) {
            return;
        }
        if counter - next >= self.places() {
            self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        } else {
            for cleared in next..=counter {
                if let Some((word, shift)) = self.slot(cleared) {
                    word.fetch_and(!(3 << shift), Ordering::Relaxed);
                }
            }
        }
        self.next.store(counter + 1, Ordering::Release);
    }
}

/// The lock on the window, released on drop.
struct WindowLock<'a>(&'a AtomicBool);

impl Drop for WindowLock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
