//! Asks the sentinels for the master. Their answer need not be true: `docs/farm-masters.md`.

use crate::address::StorePlace;
use crate::dial::{Dialer, Server};
use crate::error::Failure;
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time limit for one sentinel.
const WITHIN: Duration = Duration::from_millis(500);
/// The most replicas of one master that are counted.
const MOST_REPLICAS: usize = 1024;

/// What the sentinels know.
pub(crate) struct SentinelView {
    /// The masters that they name, the one that most of them name first.
    pub masters: Vec<StorePlace>,
    /// The number of the master's replicas, as the sentinel says that knows most.
    pub replicas: usize,
}

/// Asks all sentinels at `places` for the master `name`.
pub(crate) async fn ask(
    dialer: &Arc<Dialer>,
    places: &[StorePlace],
    name: &str,
) -> Result<SentinelView, Failure> {
    let mut asked = JoinSet::new();
    for place in places {
        let (dialer, place, name) = (Arc::clone(dialer), place.clone(), name.to_owned());
        asked.spawn(async move {
            timeout(WITHIN, ask_one(&dialer, &place, &name)).await.unwrap_or(Err(Failure::TimedOut))
        });
    }
    let mut votes: Vec<(StorePlace, usize)> = Vec::new();
    let (mut replicas, mut last) = (0, Failure::NoMaster);
    while let Some(answer) = asked.join_next().await {
        match answer.unwrap_or(Err(Failure::TimedOut)) {
            Ok((master, count)) => {
                replicas = replicas.max(count);
                match votes.iter_mut().find(|(place, _)| *place == master) {
                    Some((_, votes)) => *votes += 1,
                    None => votes.push((master, 1)),
                }
            }
            Err(failure) => last = failure,
        }
    }
    if votes.is_empty() {
        return Err(last);
    }
    votes.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
    Ok(SentinelView { masters: votes.into_iter().map(|(place, _)| place).collect(), replicas })
}

async fn ask_one(dialer: &Dialer, place: &StorePlace, name: &str) -> Result<(StorePlace, usize), Failure> {
    let mut link = dialer.connect(place, Server::Sentinel).await?;
    let mut pipeline = redis::pipe();
    pipeline.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    pipeline.cmd("SENTINEL").arg("REPLICAS").arg(name);
    let (address, replicas): (Option<(String, u16)>, Vec<Value>) = pipeline.query_async(&mut link).await?;
    let (host, port) = address.ok_or(Failure::NoMaster)?;
    Ok((StorePlace::Tcp(host, port), replicas.len().min(MOST_REPLICAS)))
}
