//! What became of first flights inside lookups, and how many had no effect: see [`memory::lookups::losses`](crate::memory::lookups::losses).

pub(super) use crate::memory::lookups::losses::{Losses, Parameter};

use super::report::LookupWay;
use super::{DnsPath, Inner};
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::Instant as Moment;
use firstflight_wire::asap::DnsPathParam;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What became of a first flight inside a lookup, as seen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupFate {
    /// A server got it before the direct copy.
    Arrived,
    /// The direct copy was first. The time is the earliest at which it can have reached the server, if known.
    Overtaken(Option<Moment>),
}

impl LookupFate {
    /// The fate of a first flight whose connection was established at `now`. `sent` is when its direct copy was sent,
    /// if known.
    pub(super) fn of(way: LookupWay, outcome: Outcome, sent: Option<Moment>, now: Moment) -> Self {
        // Status 10: the direct copy reached another server after this copy was executed.
        let elsewhere = outcome == Outcome::Handshake(Reason::Replay);
        if way == LookupWay::Lookup || elsewhere {
            return Self::Arrived;
        }
        Self::Overtaken(sent.map(|sent| sent + (now - sent) / 2))
    }
}

/// Counts a first flight as under way until this is dropped.
struct Flying(Arc<Inner>);

impl Drop for Flying {
    fn drop(&mut self) {
        self.0.flying.send_modify(|flying| *flying = flying.saturating_sub(1));
    }
}

impl DnsPath {
    /// The number of first flights in a row that were sealed to `dns_path` and lost: the resolver answered their
    /// names, but the direct copy was first. When it reaches [`DnsPath::ASK_AGAIN_AFTER`], query the server's HTTPS
    /// record again, because the parameter may have changed. Do so at most every few minutes, and keep using the old
    /// parameter in the meantime: if the address is in the resolver's cache, the direct copy may be faster each time.
    pub(crate) fn lost_in_a_row(&self, dns_path: &DnsPathParam<'_>) -> u32 {
        self.0.losses().lost(&dns_path.into())
    }

    /// Restores the count that [`DnsPath::lost_in_a_row`] returned in an earlier run.
    pub(crate) fn recall_lost(&self, dns_path: &DnsPathParam<'_>, lost: u32) {
        let (of, mut losses) = (dns_path.into(), self.0.losses());
        match lost {
            0 => losses.end(&of),
            lost => losses.recall(&of, lost),
        }
    }

    /// Forgets what was lost, for another network.
    pub(crate) fn forget_losses(&self) {
        *self.0.losses() = Losses::default();
    }

    /// Waits until the outcome of every first flight inside a lookup is known. That takes a few milliseconds after
    /// its connection is established, or 5 s if the resolver does not answer. Returns at once if none is under way.
    pub(crate) async fn settled(&self) {
        // The sender lives as long as this path.
        let _ = self.0.flying.subscribe().wait_for(|flying| *flying == 0).await;
    }

    /// Counts a first flight once two things are known: when the resolver had answered its names (`answered`), and
    /// its fate (sent through the returned sender). If the sender is dropped, the first flight is not counted.
    pub(super) fn follow(
        &self,
        of: Parameter,
        answered: JoinHandle<Option<Moment>>,
    ) -> oneshot::Sender<LookupFate> {
        let (tell, fate) = oneshot::channel();
        self.0.flying.send_modify(|flying| *flying += 1);
        let flying = Flying(Arc::clone(&self.0));
        tokio::spawn(async move {
            let (answered, fate) = tokio::join!(answered, fate);
            let (mut losses, now) = (flying.0.losses(), flying.0.time.now());
            match (fate, answered) {
                (Ok(LookupFate::Arrived), _) => losses.end(&of),
                (Ok(LookupFate::Overtaken(at)), Ok(Some(answered))) => {
                    losses.count(&of, at.is_some_and(|at| answered <= at), now);
                }
                (Ok(LookupFate::Overtaken(_)), _) | (Err(_), _) => {}
            }
        });
        tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Moment = Moment::from_secs(1000);

    #[test]
    fn a_copy_that_another_server_executed_is_not_lost() {
        let later = NOW + Duration::from_millis(100);
        let of = |way, outcome| LookupFate::of(way, outcome, Some(NOW), later);
        assert_eq!(of(LookupWay::Lookup, Outcome::Accepted), LookupFate::Arrived);
        assert_eq!(of(LookupWay::Direct, Outcome::Handshake(Reason::Replay)), LookupFate::Arrived);
        let halfway = Some(NOW + Duration::from_millis(50));
        assert_eq!(of(LookupWay::Direct, Outcome::Accepted), LookupFate::Overtaken(halfway));
        assert_eq!(
            LookupFate::of(LookupWay::Direct, Outcome::Accepted, None, later),
            LookupFate::Overtaken(None)
        );
    }
}
