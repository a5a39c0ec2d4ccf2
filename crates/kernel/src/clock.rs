//! What the kernel says of its clock.

use crate::sys;
use std::io;
use std::time::Duration;

/// The state of the system's clock (`adjtimex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemClock {
    /// A time service keeps the clock. The kernel takes this back when the service has not spoken for some hours.
    pub synchronised: bool,
    /// The largest error, as far as the time service knows.
    pub max_error: Duration,
}

impl SystemClock {
    /// The state now. Needs no privileges.
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::Unsupported`] on other systems than Linux.
    pub fn read() -> io::Result<Self> {
        let (synchronised, max_error) = sys::clock_state()?;
        Ok(Self { synchronised, max_error: Duration::from_micros(max_error) })
    }
}
