//! The traffic with the other fronts of the zone: sends fragments to the fronts that own them, and receives
//! fragments from them.

use super::Shared;
use crate::forward::{ForwardRefused, MAX_FORWARD, Presence};
use crate::relay::{ClockReport, RelayRefused};
use core::time::Duration;
use std::net::SocketAddr;
use tokio::net::UdpSocket;

/// Pause after an error of the socket, because the cause may be a lack of memory.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two checks of which fronts are alive.
const LONGEST: Duration = Duration::from_secs(1);

impl Shared {
    /// Sends the datagrams for other fronts that are due.
    pub(super) fn forward(&self) {
        let Some(socket) = &self.fronts else { return };
        loop {
            let Some(due) = self.lock().0.poll_forward(&self.clock()) else { return };
            if let Err(error) = socket.try_send_to(&due.datagram, due.to) {
                tracing::debug!(to = %due.to, %error, "nothing was sent to another front");
            }
        }
    }

    /// Receives datagrams from other fronts, and sends them datagrams which say that this front is alive. It
    /// does not end.
    pub(super) async fn meet_fronts(&self) {
        match &self.fronts {
            Some(socket) => self.meet_fronts_at(socket).await,
            None => std::future::pending().await,
        }
    }

    async fn meet_fronts_at(&self, socket: &UdpSocket) {
        let mut bytes = [0; MAX_FORWARD + 1];
        let mut warned = None;
        loop {
            self.forward();
            self.log_changes();
            let next = self.lock().0.next_forward_timeout();
            let pause = next.map_or(LONGEST, |next| (next - self.now()).min(LONGEST));
            let received = tokio::select! {
                received = socket.recv_from(&mut bytes) => received,
                () = tokio::time::sleep(pause) => continue,
            };
            match received {
                Ok((len, from)) => {
                    let refused = self.take(from, bytes.get(..len).unwrap_or_default());
                    if let Some(refused) = refused {
                        log_refused(from, refused, &mut warned);
                    }
                }
                // The cause is an ICMP error about a sent datagram, or a lack of memory.
                Err(error) => {
                    tracing::debug!(%error, "nothing was received from other fronts");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn take(&self, from: SocketAddr, datagram: &[u8]) -> Option<ForwardRefused> {
        let (taken, report) = {
            let (front, rng) = &mut *self.lock();
            let taken = front.handle_forward(&self.clock(), from, datagram, rng);
            (taken, front.poll_front_clock())
        };
        if let Some(report) = report {
            log_clock(from, &report);
        }
        self.hand_over();
        taken.err()
    }

    fn log_changes(&self) {
        loop {
            let Some(change) = self.lock().0.poll_front_change(self.now()) else { return };
            let (address, front) = (change.address, change.front);
            match change.presence {
                Presence::Came => tracing::info!(%address, front, "another front of the zone is alive"),
                Presence::Went => {
                    tracing::warn!(%address, front, "another front of the zone is not heard any more")
                }
            }
        }
    }
}

/// Logs how the clock of the front at `from` differs from this front's clock.
fn log_clock(from: SocketAddr, report: &ClockReport) {
    let front = format_args!("front {} at {from}", report.front);
    let Some((seconds, direction)) = report.clock.apart() else {
        tracing::warn!("the clock of {front} agrees with this one's again: its fragments are taken");
        return;
    };
    tracing::warn!(
        "the clock of {front} is {seconds:.1} s {direction} this one's, so its fragments are dropped (5 s are allowed): \
         one of the two clocks is wrong, run NTP on both machines"
    );
}

/// Warns once of each fault that only another front can cause and that the operator must fix. Other faults,
/// which any host can cause, are logged only for debugging.
fn log_refused(from: SocketAddr, refused: ForwardRefused, warned: &mut Option<ForwardRefused>) {
    match refused {
        ForwardRefused::Address(_)
        | ForwardRefused::SameNumber(_)
        | ForwardRefused::Datagram(RelayRefused::Content(_)) => {
            if warned.replace(refused) != Some(refused) {
                tracing::warn!(%from, "a datagram of another front was dropped: {refused}");
            }
        }
        _ => tracing::debug!(%from, %refused, "a datagram at the port for other fronts was dropped"),
    }
}
