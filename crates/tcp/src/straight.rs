//! Fast paths for an undisturbed connection. Each must match its general path: the same variables, timers,
//! answers and packets. A test runs both (`connection/straight_tests.rs`).
//!
//! Each is here for what it saves. Without it, a short connection with Fast Open takes more instructions by
//! (`docs/performance.md`, "Where a connection's time goes", says how they are counted):
//!
//! | fast path | |
//! |---|---|
//! | `Connection::take_plain_ack` | 5.6 % |
//! | `Connection::is_undisturbed`, in front of `transmit_unusual` | 3.2 % |
//! | `Connection::is_next`, in front of `check` | 1.9 % |

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
