//! The source of time: the system's clocks, or virtual time.

use crate::clock::{self, BEGINNING, Monotonic};
use firstflight_link::VirtualTime;
use firstflight_link::virtual_time::VirtualSleep;
use firstflight_wire::Instant;
use nix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// The clock that is monotonic and also runs while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// The same on systems whose monotonic clock runs while the machine sleeps, as macOS' does.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// The clocks of an [`Endpoint`](crate::Endpoint). Clones show the same time.
#[derive(Debug, Clone)]
pub struct Time(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The system's clocks. Monotonic time counts from this moment.
    System(Monotonic),
    Virtual(VirtualTime),
}

impl Default for Time {
    fn default() -> Self {
        Self::system()
    }
}

/// Virtual time, for an emulated path ([`virtual_time_pair`](crate::link::virtual_time_pair)).
impl From<VirtualTime> for Time {
    fn from(time: VirtualTime) -> Self {
        Self(Source::Virtual(time))
    }
}

impl Time {
    /// The system's clocks.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System(Monotonic::begin()))
    }

    /// Monotonic time. It begins ten years after zero, so that times before the start can be expressed.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System(monotonic) => monotonic.now(),
            Source::Virtual(time) => BEGINNING + (time.now() - Instant::ZERO),
        }
    }

    /// A cheap reading that changes with time, every few milliseconds for the system's clock: as long as it is the same,
    /// an earlier result of [`Time::now`] is not older than that. `None` if the system has none.
    pub(crate) fn tick(&self) -> Option<Duration> {
        match &self.0 {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Source::System(_) => clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).ok().map(Duration::from),
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            Source::System(_) => None,
            Source::Virtual(time) => Some(time.now() - Instant::ZERO),
        }
    }

    /// The wall clock: time since 1970-01-01 00:00 UTC, or zero if the clock shows an earlier time.
    #[must_use]
    pub fn unix(&self) -> Duration {
        match &self.0 {
            Source::System(_) => clock::unix(),
            Source::Virtual(time) => time.unix(),
        }
    }

    /// The clock of certificates. The system's clock is `CLOCK_BOOTTIME`, which also runs while the machine sleeps,
    /// so that certificates age during that time too.
    ///
    /// # Errors
    /// When the kernel does not have this clock.
    pub fn certificate_clock(&self) -> io::Result<Instant> {
        match &self.0 {
            Source::System(_) => {
                let now = Duration::from(clock_gettime(BOOT_CLOCK)?);
                Ok(Instant::ZERO + now)
            }
            Source::Virtual(_) => Ok(self.now()),
        }
    }

    /// Waits until `duration` has passed.
    pub async fn sleep(&self, duration: Duration) {
        match &self.0 {
            Source::System(_) => tokio::time::sleep(duration).await,
            Source::Virtual(time) => time.sleep(duration).await,
        }
    }

    /// The output of `work`, or `None` if it takes longer than `duration`.
    pub async fn timeout<F: Future>(&self, duration: Duration, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let mut late = pin!(self.sleep(duration));
        std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => late.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// A timer for the driver.
    pub(crate) fn timer(&self) -> Timer {
        match &self.0 {
            Source::System(monotonic) => {
                Timer::System(monotonic.origin(), Box::pin(tokio::time::sleep(Duration::ZERO)))
            }
            Source::Virtual(time) => Timer::Virtual(time.sleep(Duration::ZERO)),
        }
    }
}

/// Runs `work` to completion in virtual time: when every task waits, `time` advances to the next timer.
///
/// The runtime has one thread and no timers or I/O of its own, so the result does not depend on the load of the
/// machine. Work that waits for anything except virtual time and other tasks never ends.
///
/// # Errors
/// When the runtime cannot be created.
///
/// ```
/// use firstflight::link::VirtualTime;
/// use firstflight::{Time, block_on_virtual};
/// use std::time::Duration;
///
/// let time = VirtualTime::new(Duration::ZERO);
/// // An hour passes at once.
/// block_on_virtual(&time, Time::from(time.clone()).sleep(Duration::from_secs(3600)))?;
/// assert_eq!(time.unix(), Duration::from_secs(3600));
/// # std::io::Result::Ok(())
/// ```
pub fn block_on_virtual<F: Future>(time: &VirtualTime, work: F) -> io::Result<F::Output> {
    let clock = time.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || {
            // Not every timer wakes a task: a waker may be that of a task that has ended, or of a link that nobody receives
            // from. With a task to run the thread does not park, but comes here again, until no timer is left.
            if clock.advance() {
                tokio::spawn(async {});
            }
        })
        .build()?;
    Ok(runtime.block_on(work))
}

/// A timer that can be reset.
pub(crate) enum Timer {
    /// With the moment at which monotonic time began.
    System(std::time::Instant, Pin<Box<Sleep>>),
    Virtual(VirtualSleep),
}

impl Timer {
    /// Waits until `at`.
    pub(crate) fn reset(&mut self, at: Instant) {
        match self {
            Self::System(origin, sleep) => sleep.as_mut().reset((*origin + (at - BEGINNING)).into()),
            Self::Virtual(sleep) => sleep.reset(Instant::ZERO + (at - BEGINNING)),
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::System(_, sleep) => sleep.as_mut().poll(cx),
            Self::Virtual(sleep) => Pin::new(sleep).poll(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::sync::mpsc;
    use std::task::Waker;

    #[test]
    fn time_goes_on_behind_a_timer_that_wakes_no_task() {
        let (said, hear) = mpsc::channel();
        std::thread::spawn(move || {
            let clock = VirtualTime::new(Duration::ZERO);
            let mut nobody = clock.sleep(Duration::from_secs(1));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut nobody).poll(&mut cx).is_pending());
            block_on_virtual(&clock, clock.sleep(Duration::from_secs(2))).unwrap();
            said.send(clock.unix()).unwrap();
        });
        assert_eq!(hear.recv_timeout(Duration::from_secs(60)), Ok(Duration::from_secs(2)));
    }
}
