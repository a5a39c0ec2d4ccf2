//! The background tasks of `get`: they obtain certificates, and with `--via-dns` find out whether servers that this
//! client never contacted can reach it.

use super::place::{Lookups, Place};
use super::supply::{First, Supply};
use super::target::Host;
use super::verification::Verification;
use super::via_dns::ViaDns;
use crate::output;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long the first fetch waits for verifiers, with `--verify-first`.
pub const VERIFY_FIRST: Duration = Duration::from_secs(5);

/// What the background tasks share with the fetches.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    pub places: &'a Arc<[Place]>,
    pub lookups: &'a Arc<Lookups>,
    pub via: Option<&'a Arc<ViaDns>>,
}

/// Tasks that run until they are dropped, and a signal when each of them has had its first result.
pub struct Background {
    tasks: JoinSet<()>,
    first: mpsc::Receiver<()>,
    supply: Option<Arc<Supply>>,
}

impl Background {
    /// Starts to keep a certificate for each site of `places`, if there is a `supply`, and to verify the path for
    /// lookups, if that is wanted. With `records`, queries what servers publish, if that is unknown.
    pub fn begin(
        supply: Option<Arc<Supply>>,
        verification: Option<Verification>,
        beside: Beside<'_>,
        records: bool,
    ) -> Self {
        // Nothing is sent through this channel. It closes when every task has dropped its sender.
        let (sender, first) = mpsc::channel(1);
        let mut this = Self { tasks: JoinSet::new(), first, supply };
        let mut sites = HashSet::new();
        for (number, place) in beside.places.iter().enumerate() {
            if sites.insert(place.target().site()) {
                this.keep(number, beside, sender.clone());
            }
            if let (Some(via), Host::Name(name), true) = (beside.via, &place.target().host, records)
                && via.published(name, place.target().port).is_none()
            {
                let (mut answered, sender) = (via.ask(name, place.target().port), sender.clone());
                this.tasks.spawn(async move {
                    // The sender is dropped if there is no answer.
                    let _ = answered.wait_for(|answered| *answered).await;
                    drop(sender);
                });
            }
        }
        if let Some(verification) = verification {
            this.tasks.spawn(verification.run(sender));
        }
        this
    }

    /// Keeps a certificate for the place with this number.
    fn keep(&mut self, number: usize, beside: Beside<'_>, first: First) {
        let (Some(supply), Some(place)) = (self.supply.clone(), beside.places.get(number)) else { return };
        let target = place.target().clone();
        let (places, lookups) = (Arc::clone(beside.places), Arc::clone(beside.lookups));
        let known = match (beside.via, &target.host) {
            (Some(via), Host::Name(name)) => via.published(name, target.port),
            _ => None,
        };
        let published = async move {
            match places.get(number) {
                // The record is queried together with the addresses.
                Some(place) if lookups.publish() => place.published(&lookups).await,
                _ => known,
            }
        };
        self.tasks.spawn(supply.keep(target, published, first));
    }

    /// Waits until every task has had its first result, for five seconds at most.
    pub async fn first_results(&mut self) {
        if tokio::time::timeout(VERIFY_FIRST, self.first.recv()).await.is_err() {
            let late =
                format!("no answer of the verifiers within {} s: fetching without", VERIFY_FIRST.as_secs());
            match &self.supply {
                Some(supply) => supply.tell(&late),
                None => output::complain(&late),
            }
        }
    }

    /// Stops all tasks.
    pub async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}
