//! Serial numbers of one-time cookies: given out once, activated, used once; two bits for each.

use alloc::boxed::Box;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const COUNTER_BITS: u32 = 48;
const COUNTER: u64 = (1 << COUNTER_BITS) - 1;
/// Serials whose bits share a word.
const PER_WORD: u64 = 32;

const ACTIVE: u64 = 1;
const USED: u64 = 2;

/// A one-time cookie's number: who granted it (16 bits) and a counter (48 bits, from 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(NonZeroU64);

impl Serial {
    /// The number of an issuer's counter; `None` if it is 0 or needs more than 48 bits.
    #[must_use]
    pub fn new(issuer: u16, counter: u64) -> Option<Self> {
        if counter > COUNTER {
            return None;
        }
        Self::from_u64(u64::from(issuer) << COUNTER_BITS | counter)
    }

    /// The serial in 64 bits; `None` if its counter is 0.
    #[must_use]
    pub fn from_u64(value: u64) -> Option<Self> {
        if value & COUNTER == 0 { None } else { NonZeroU64::new(value).map(Self) }
    }

    /// In 64 bits.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Who granted it: a server, or a shard of one.
    #[must_use]
    pub const fn issuer(self) -> u16 {
        (self.get() >> COUNTER_BITS) as u16
    }

    /// The counter.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.get() & COUNTER
    }
}

/// What became of an attempt to use a serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redeemed {
    /// It is used now.
    Now,
    /// It was used before.
    Before,
    /// The handshake in which it was granted is not complete. It is used up all the same.
    NotActive,
    /// Outside of the table's memory.
    Forgotten,
}

/// The serials of one issuer: which were activated and which used, of the last `capacity`.
///
/// For G grants a second, each good for T seconds, that takes G·T/4 bytes (1,000/s and a day: 21.6 MB).
///
/// # Restarts
/// The bits are lost with the process, so no serial from before may be taken, and none may be given out
/// again. The owner therefore keeps a mark on disk that is always ahead: [`SerialTable::wants`] says how
/// far to write, [`SerialTable::extend`] that it is written, and the next process starts at the mark.
/// Serials beyond the mark are neither given out nor taken.
#[derive(Debug)]
pub struct SerialTable {
    issuer: u16,
    /// Serials of another issuer: nobody here knows of handshakes there, so all count as active.
    foreign: bool,
    first: u64,
    next: AtomicU64,
    mark: AtomicU64,
    words: Box<[AtomicU64]>,
    lock: AtomicBool,
}

impl SerialTable {
    /// Serials that this process gives out, from `mark` (as it stands on disk; 1 at the very first start).
    /// Nothing is given out before [`SerialTable::extend`].
    #[must_use]
    pub fn own(issuer: u16, mark: u64, capacity: usize) -> Self {
        Self::new(issuer, mark, capacity, false)
    }

    /// Serials that another process gives out and that may be used here once.
    #[must_use]
    pub fn foreign(issuer: u16, mark: u64, capacity: usize) -> Self {
        Self::new(issuer, mark, capacity, true)
    }

    fn new(issuer: u16, mark: u64, capacity: usize, foreign: bool) -> Self {
        // One word more than the window needs: the place to be cleared next is outside of it.
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

    /// Whose serials they are.
    #[must_use]
    pub const fn issuer(&self) -> u16 {
        self.issuer
    }

    /// The next counter: one more than the highest given out, or seen.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// How far the mark on disk should be now, if it should be further: `reserve` ahead of the next serial
    /// once less than half of that is left.
    #[must_use]
    pub fn wants(&self, reserve: u64) -> Option<u64> {
        let (next, mark) = (self.next(), self.mark.load(Ordering::Acquire));
        (mark.saturating_sub(next) <= reserve / 2).then(|| next.saturating_add(reserve).min(COUNTER))
    }

    /// The mark on disk is `mark` now.
    pub fn extend(&self, mark: u64) {
        self.mark.fetch_max(mark.min(COUNTER), Ordering::AcqRel);
    }

    /// How many of the last serials are remembered.
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

    /// Gives out a serial; `None` when the mark is reached, until it is extended.
    pub fn issue(&self) -> Option<Serial> {
        if self.foreign {
            return None;
        }
        let _lock = self.window();
        let counter = self.next();
        if counter >= self.mark.load(Ordering::Acquire) {
            return None;
        }
        // Whoever had this place is outside of the window already. It is cleared before the serial is known
        // to anybody: cleared later, it would forget a use.
        let (word, shift) = self.slot(counter)?;
        word.fetch_and(!(3 << shift), Ordering::AcqRel);
        self.next.store(counter + 1, Ordering::Release);
        Serial::new(self.issuer, counter)
    }

    /// Holds the window where it is: it is moved by one at a time, and by nobody while a serial of another
    /// issuer is used.
    fn window(&self) -> WindowLock<'_> {
        while self.lock.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
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
                // The place was given to a newer serial meanwhile, whose handshake may not be complete: that one
                // is lost.
                word.fetch_or(USED << shift, Ordering::AcqRel);
            }
        }
    }

    /// Uses `serial`, in one step: of all who try, at most one is told [`Redeemed::Now`].
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
            // The place may have been given to a newer serial meanwhile, which has lost it now.
            Ok(_) if !self.remembers(counter) => Redeemed::Forgotten,
            Ok(bits) if self.foreign || bits >> shift & ACTIVE != 0 => Redeemed::Now,
            // What came with it goes by the ordinary handshake: a copy of that SYN must find nothing good later.
            Ok(_) => Redeemed::NotActive,
            Err(_) => Redeemed::Before,
        }
    }

    /// Another issuer has reached `counter`, below the mark: only who has the farm's keys makes serials, so
    /// it is so. Clears the places of what comes into the window. Called with the lock held.
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

/// The window stands still until this is dropped.
struct WindowLock<'a>(&'a AtomicBool);

impl Drop for WindowLock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
