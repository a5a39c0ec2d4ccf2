//! The rings that a socket shares with the kernel (`linux/if_xdp.h`): one side produces, the other consumes. Both count
//! what they did with 32 bits, which wrap.
//!
//! Why not a crate: `xdp` 0.8 adds and subtracts these counters without wrapping, so that a build with overflow checks
//! panics after 2³² packets, and has one pool of frames for both directions; `netring` 0.29 wraps, but keeps its rings
//! private below 73,000 lines of monitoring, and attaches by aya.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::libc;

use super::sys::Map;

/// The shared part of a ring with entries of type `T`.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// One less than the number of entries, which is a power of two.
    mask: u32,
    _map: Map,
}

// SAFETY: the memory belongs to this ring alone on this side, and methods that change it take `&mut self`.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// The ring in `map`, at these offsets.
    fn within(map: Map, size: u32, at: &libc::xdp_ring_offset) -> io::Result<Self> {
        let need = at.desc as usize + size as usize * size_of::<T>();
        let fields = [at.producer, at.consumer, at.flags];
        let inside = |offset: u64| offset.is_multiple_of(4) && offset as usize + 4 <= map.len();
        if !size.is_power_of_two()
            || need > map.len()
            || !(at.desc as usize).is_multiple_of(align_of::<T>())
            || !fields.into_iter().all(inside)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = map.start().cast::<u8>();
        // SAFETY: the offsets lie in the mapping (checked above).
        let field = |offset: u64| unsafe { start.add(offset as usize) };
        Ok(Self {
            producer: field(at.producer).cast(),
            consumer: field(at.consumer).cast(),
            flags: field(at.flags).cast(),
            entries: field(at.desc).cast(),
            mask: size - 1,
            _map: map,
        })
    }

    /// Maps one of the rings of a socket.
    fn map(
        socket: BorrowedFd<'_>,
        size: u32,
        at: &libc::xdp_ring_offset,
        which: libc::off_t,
    ) -> io::Result<Self> {
        let len = NonZeroUsize::new(at.desc as usize + size as usize * size_of::<T>());
        let map = Map::of(socket, len.ok_or(io::ErrorKind::InvalidInput)?, which, true)?;
        Self::within(map, size, at)
    }

    fn counter(&self, which: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: it points into the mapping, which lives as long as `self`.
        unsafe { which.as_ref() }
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is smaller than the number of entries.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }

    /// Whether the kernel waits for a system call.
    fn wants_call(&self) -> bool {
        self.counter(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring into which this process puts entries: free frames, or packets to send.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Entries that were put, with those that the kernel cannot see yet.
    put: u32,
    /// What the kernel had taken when it was last asked.
    taken: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        size: u32,
        at: &libc::xdp_ring_offset,
        which: libc::off_t,
    ) -> io::Result<Self> {
        Ok(Self::new(Ring::map(socket, size, at, which)?))
    }

    fn new(ring: Ring<T>) -> Self {
        let put = ring.counter(ring.producer).load(Ordering::Relaxed);
        let taken = ring.counter(ring.consumer).load(Ordering::Acquire);
        Self { ring, put, taken }
    }

    /// Puts an entry, which the kernel sees after [`Producer::publish`]. Returns false if the ring is full.
    pub(super) fn put(&mut self, entry: T) -> bool {
        if self.put.wrapping_sub(self.taken) > self.ring.mask {
            self.taken = self.ring.counter(self.ring.consumer).load(Ordering::Acquire);
            if self.put.wrapping_sub(self.taken) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: the kernel has taken the last entry of this slot, and does not read it before `publish`.
        unsafe { self.ring.slot(self.put).write(entry) };
        self.put = self.put.wrapping_add(1);
        true
    }

    /// Shows the kernel all entries.
    pub(super) fn publish(&mut self) {
        self.ring.counter(self.ring.producer).store(self.put, Ordering::Release);
    }

    /// How many entries the kernel has not taken.
    pub(super) fn waiting(&mut self) -> u32 {
        self.taken = self.ring.counter(self.ring.consumer).load(Ordering::Acquire);
        self.put.wrapping_sub(self.taken)
    }

    /// Whether the kernel takes entries only after a system call.
    pub(super) fn wants_call(&self) -> bool {
        self.ring.wants_call()
    }
}

/// A ring from which this process takes entries: packets that came, or frames that were sent.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Entries that were taken, with those that the kernel does not know of yet.
    taken: u32,
    /// What the kernel had put when it was last asked.
    put: u32,
    /// What the kernel knows to be taken.
    released: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        size: u32,
        at: &libc::xdp_ring_offset,
        which: libc::off_t,
    ) -> io::Result<Self> {
        Ok(Self::new(Ring::map(socket, size, at, which)?))
    }

    fn new(ring: Ring<T>) -> Self {
        let taken = ring.counter(ring.consumer).load(Ordering::Relaxed);
        let put = ring.counter(ring.producer).load(Ordering::Acquire);
        Self { ring, taken, put, released: taken }
    }

    /// Takes an entry. Its slot is the kernel's again after [`Consumer::release`].
    pub(super) fn take(&mut self) -> Option<T> {
        if self.put == self.taken {
            self.put = self.ring.counter(self.ring.producer).load(Ordering::Acquire);
            if self.put == self.taken {
                return None;
            }
        }
        // SAFETY: the kernel has put this entry, and does not write to the slot before `release`.
        let entry = unsafe { self.ring.slot(self.taken).read() };
        self.taken = self.taken.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of taken entries back.
    pub(super) fn release(&mut self) {
        self.released = self.taken;
        self.ring.counter(self.ring.consumer).store(self.taken, Ordering::Release);
    }

    /// How many entries were taken whose slots are not released.
    pub(super) const fn unreleased(&self) -> u32 {
        self.taken.wrapping_sub(self.released)
    }
}

#[cfg(test)]
mod tests;
