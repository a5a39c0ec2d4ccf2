//! How long the other end may take.
//!
//! A program that stood still (a suspended machine, a frozen container, SIGSTOP) did not look, so its timers say nothing
//! about the other end, whose bytes may wait in a socket or a queue. A timer that fires much too late starts again.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A timer that fires this much too late shows that the program stood still.
const LATE: Duration = Duration::from_millis(500);
/// Time to take what came while the program stood still.
const GRACE: Duration = Duration::from_secs(1);

/// Ready when the time is over. A timer that fires much too late has another second.
pub fn poll_over(mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        ready!(timer.as_mut().poll(cx));
        let now = Instant::now();
        if now.saturating_duration_since(timer.deadline()) < LATE {
            return Poll::Ready(());
        }
        timer.as_mut().reset(now + GRACE);
    }
}

/// The time was over first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it took too long")]
pub struct TooLate;

/// Waits for `work` for this long, and a second more if the program stood still meanwhile.
///
/// # Errors
/// When the time is over.
pub async fn timeout<F: Future>(time: Duration, work: F) -> Result<F::Output, TooLate> {
    let mut work = pin!(work);
    let mut timer = pin!(sleep(time));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        poll_over(timer.as_mut(), cx).map(|()| Err(TooLate))
    })
    .await
}

#[cfg(test)]
mod tests;
