//! Memory that a server keeps.

use stats_alloc::INSTRUMENTED_SYSTEM;

/// First flights in one measurement.
pub const FLIGHTS: u16 = 512;

/// Heap bytes in use. Only one thread may allocate meanwhile.
pub fn live() -> usize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}
