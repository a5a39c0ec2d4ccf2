//! First flights inside lookups that led to nothing, although the resolver answered their names.
//!
//! When the server's operator has changed the carriage key, the zone or the front, nobody tells a client that holds the
//! old parameter: the front answers every name alike. All that the client sees is that the direct copy is first, each
//! time. That alone proves nothing: with the address in the resolver's cache, the direct copy may win every race. So
//! the count only decides when the parameter is asked for again, which is cheap and harmless.

use super::report::Way;
use super::{DnsPath, Inner};
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::asap::{Carriage, Zone};
use std::collections::VecDeque;
use std::num::NonZeroU8;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Parameters whose losses are counted. When there are more, the one that was used longest ago is forgotten.
const PARAMETERS: usize = 64;

/// What first flights were sealed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    zone: Box<[u8]>,
    key_id: NonZeroU8,
    key: [u8; 32],
}

impl From<&Carriage<'_>> for Parameter {
    fn from(carriage: &Carriage<'_>) -> Self {
        let zone: Zone<'_> = carriage.zone;
        Self { zone: zone.as_bytes().into(), key_id: carriage.key_id, key: carriage.key }
    }
}

/// For each parameter the first flights that were lost in a row; the one used last is the last.
#[derive(Debug, Default)]
pub(super) struct Losses(VecDeque<(Parameter, u32)>);

impl Losses {
    fn set(&mut self, of: Parameter, lost: u32) {
        self.0.retain(|(other, _)| *other != of);
        if self.0.len() >= PARAMETERS {
            self.0.pop_front();
        }
        if lost > 0 {
            self.0.push_back((of, lost));
        }
    }

    fn get(&self, of: &Parameter) -> u32 {
        self.0.iter().find(|(other, _)| other == of).map_or(0, |(_, lost)| *lost)
    }
}

/// What became of a first flight inside a lookup, as far as the client can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// A server had it before the direct copy.
    Arrived,
    /// The direct copy was first.
    Overtaken,
}

impl Fate {
    /// From the connection that came about.
    pub(super) fn of(way: Way, outcome: Outcome) -> Self {
        // The direct copy came to another server, after the other one was executed (status 10).
        let elsewhere = outcome == Outcome::Handshake(Reason::Replay);
        if way == Way::Lookup || elsewhere { Self::Arrived } else { Self::Overtaken }
    }
}

/// A first flight that is under way until this is dropped.
struct Flying(Arc<Inner>);

impl Drop for Flying {
    fn drop(&mut self) {
        self.0.flying.send_modify(|flying| *flying = flying.saturating_sub(1));
    }
}

impl DnsPath {
    /// First flights in a row that were sealed to `carriage` and lost: the resolver answered their names, and the direct
    /// copy was still the first. Ask for the server's HTTPS record again when there are [`DnsPath::ASK_AGAIN_AFTER`];
    /// the parameter may have changed. Do so at most every few minutes, and go on meanwhile: where the address is in the
    /// resolver's cache, the direct copy may be faster each time.
    #[must_use]
    pub fn lost_in_a_row(&self, carriage: &Carriage<'_>) -> u32 {
        self.0.losses().get(&carriage.into())
    }

    /// As many were lost in a row before, as [`DnsPath::lost_in_a_row`] said.
    pub fn recall_lost(&self, carriage: &Carriage<'_>, lost: u32) {
        self.0.losses().set(carriage.into(), lost);
    }

    /// Waits until it is known what became of every first flight inside a lookup: a few milliseconds after its
    /// connection is established, 5 s where the resolver does not answer. At once if none is under way.
    pub async fn settled(&self) {
        // The sender lives as long as this path.
        let _ = self.0.flying.subscribe().wait_for(|flying| *flying == 0).await;
    }

    /// Counts a first flight, when `answered` says whether the resolver has answered its names and what this gives has
    /// been told its fate. It is not counted if that is dropped.
    pub(super) fn follow(&self, of: Parameter, answered: JoinHandle<bool>) -> oneshot::Sender<Fate> {
        let (tell, fate) = oneshot::channel();
        self.0.flying.send_modify(|flying| *flying += 1);
        let flying = Flying(Arc::clone(&self.0));
        tokio::spawn(async move {
            let (answered, fate) = tokio::join!(answered, fate);
            let mut losses = flying.0.losses();
            match fate {
                Ok(Fate::Arrived) => losses.set(of, 0),
                Ok(Fate::Overtaken) if matches!(answered, Ok(true)) => {
                    let lost = losses.get(&of).saturating_add(1);
                    losses.set(of, lost);
                }
                Ok(Fate::Overtaken) | Err(_) => {}
            }
        });
        tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_losses_is_bounded() {
        let parameter = |n: u8| Parameter { zone: Box::new([n, 0]), key_id: NonZeroU8::MIN, key: [n; 32] };
        let mut losses = Losses::default();
        for n in 0..200 {
            losses.set(parameter(n), 1);
            losses.set(parameter(0), u32::from(n) + 1);
        }
        assert_eq!(losses.0.len(), PARAMETERS);
        assert_eq!((losses.get(&parameter(0)), losses.get(&parameter(1))), (200, 0));
        // One that arrived is no longer there.
        losses.set(parameter(0), 0);
        assert_eq!((losses.get(&parameter(0)), losses.0.len()), (0, PARAMETERS - 1));
        let other_key = Parameter { key: [9; 32], ..parameter(199) };
        assert_eq!((losses.get(&parameter(199)), losses.get(&other_key)), (1, 0));
    }

    #[test]
    fn a_copy_that_another_server_executed_is_not_lost() {
        assert_eq!(Fate::of(Way::Lookup, Outcome::Accepted), Fate::Arrived);
        assert_eq!(Fate::of(Way::Direct, Outcome::Accepted), Fate::Overtaken);
        assert_eq!(Fate::of(Way::Direct, Outcome::Handshake(Reason::Replay)), Fate::Arrived);
    }
}
