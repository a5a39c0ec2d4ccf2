//! Fast paths for an undisturbed connection. Each must match its general path: the same variables, timers,
//! answers and packets. A test runs both (`connection/straight_tests.rs`).

#[cfg(test)]
std::thread_local! {
    /// Set by a test to force the general paths.
    pub static LONG: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Whether the fast paths may be used.
#[inline]
pub(crate) fn straight() -> bool {
    #[cfg(test)]
    return !LONG.get();
    #[cfg(not(test))]
    true
}
