//! Shorter ways for what an undisturbed connection does. Each comes to what the long one comes to: the same variables,
//! timers, answers and packets. A test walks both (`connection/straight_tests.rs`).

#[cfg(test)]
std::thread_local! {
    /// A test takes the long ways.
    pub static LONG: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Whether there are shorter ways.
#[inline(always)]
pub fn straight() -> bool {
    #[cfg(test)]
    return !LONG.get();
    #[cfg(not(test))]
    true
}
