//! Copies bytes between a client and a server, in both directions, until both have closed.

use crate::client_end::Near;
use crate::shared::{Shared, Stopping};
use bytes::Bytes;
use firstflight::Stream;
use firstflight_http::pump::{self, Limits, PumpEnd, Start, Traffic};
use std::io;
use std::task::Poll;

/// Copies until both ends have closed, beginning with `first` for the server. One that closes its direction (half-close)
/// still gets what the other one sends. If one fails, is idle for too long, or the proxy ends, both are reset: a connection
/// that was cut must not look like one that has ended.
/// Errors: why it was reset.
pub(crate) async fn relay(
    shared: &Shared,
    near: &mut Near,
    far: &mut Stream,
    first: Bytes,
    traffic: &Traffic,
) -> io::Result<()> {
    let limits = Limits { idle: shared.limits.idle_timeout, half_closed: shared.limits.half_closed_timeout };
    let start = Start { bytes: first.into(), passes: None };
    let pumping = pump::run(near, far, start, limits, traffic, |_, _| Poll::Ready(Ok(())));
    let timed_out = |text| Err(io::Error::new(io::ErrorKind::TimedOut, text));
    let result = tokio::select! {
        end = pumping => match end {
            PumpEnd::Closed => Ok(()),
            PumpEnd::Idle => timed_out("nothing passed for too long"),
            PumpEnd::HalfClosed => timed_out("nothing passed for too long after one direction had ended"),
            PumpEnd::Client(error) | PumpEnd::Backend(error) => Err(error),
        },
        () = shared.stopping(Stopping::Now) => Err(io::Error::other("the proxy was stopped")),
    };
    if result.is_err() {
        far.abort();
        near.reset();
    }
    result
}
