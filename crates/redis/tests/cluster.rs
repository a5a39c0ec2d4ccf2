//! A Redis Cluster whose masters fail and whose slots move: `docs/farm-masters.md`. Real servers.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::questions::{ACCEPTED, activate, redeem, refused};
use crate::server;
use crate::server::Redis;
use crate::server::cluster::Cluster;
use crate::server::shown::{Shown, member, options};
use firstflight::SharedStore;
use firstflight::credential::Reason;
use firstflight_redis::{ConnectError, RedisStore};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Two members of a farm with a cluster of three masters.
async fn farm() -> Option<(Cluster, RedisStore, RedisStore)> {
    let cluster = Cluster::start(3)?;
    let one = member(&cluster.url()).await;
    let other = member(&cluster.url()).await;
    // The second member has begun a new memory in each cell. The first member meets it without losing a question.
    for cookie in 0..20_000 {
        assert_eq!(one.ask(activate(1 << 24 | cookie)).await, ACCEPTED, "{cookie}");
    }
    assert!(one.is_connected());
    Some((cluster, one, other))
}

/// Prints the figures of a row in `docs/farm-masters.md`.
fn row(event: &str, shown: &Shown) {
    let accepted = shown.by_one + shown.by_other;
    println!("| {event} | {} | {accepted} | {} | {} |", shown.next, shown.copies, shown.twice);
    assert_eq!(shown.twice, 0, "{event}");
}

async fn warm_up(shown: &mut Shown, one: &RedisStore, other: &RedisStore) {
    // Floors are 9.5 s above the beginnings.
    shown.until(one, other, |shown| shown.by_one + shown.by_other > 200).await;
}

#[tokio::test]
async fn a_cookie_is_good_at_another_member_once_in_each_cell() {
    let Some((_cluster, one, other)) = farm().await else { return };
    for counter in 1..3000 {
        assert_eq!(one.ask(activate(counter)).await, ACCEPTED, "{counter}");
        assert_eq!(other.ask(redeem(counter)).await, ACCEPTED, "{counter}");
        assert_eq!(one.ask(redeem(counter)).await, refused(Reason::Replay), "{counter}");
    }
}

#[tokio::test]
async fn one_master_that_is_killed_stops_its_share_only() {
    let Some((mut cluster, one, other)) = farm().await else { return };
    let mut shown = Shown::default();
    warm_up(&mut shown, &one, &other).await;
    cluster.all[0].kill();
    // Its replica is promoted, but has no replica that confirms anything.
    shown.for_a_while(&one, &other, 5).await;
    let (before, accepted) = (shown.next, shown.by_one + shown.by_other);
    shown.until(&one, &other, |shown| shown.next > before + 200).await;
    let share = f64::from(shown.by_one + shown.by_other - accepted) / f64::from(shown.next - before);
    println!("one of three masters is down: {:.0} % are accepted", 100.0 * share);
    assert!((0.5..0.85).contains(&share), "{share}");
    assert!(!one.is_connected());
    // It comes back as a replica.
    cluster.all[0].restart();
    all_accept(&mut shown, &one, &other).await;
    row("cluster: a master killed (kill -9)", &shown);
}

/// Shows first flights until all cells accept again.
async fn all_accept(shown: &mut Shown, one: &RedisStore, other: &RedisStore) {
    loop {
        let (before, accepted) = (shown.next, shown.by_one + shown.by_other);
        shown.until(one, other, |shown| shown.next > before + 100).await;
        if shown.by_one + shown.by_other - accepted > 97 && one.is_connected() && other.is_connected() {
            return;
        }
    }
}

/// A master that does not know that it was replaced goes on.
#[tokio::test]
async fn a_master_that_is_stopped_and_continues() {
    let Some((cluster, one, other)) = farm().await else { return };
    let mut shown = Shown::default();
    warm_up(&mut shown, &one, &other).await;
    let signal = |signal| kill(Pid::from_raw(cluster.all[0].pid()), signal).unwrap();
    signal(Signal::SIGSTOP);
    shown.for_a_while(&one, &other, 8).await;
    signal(Signal::SIGCONT);
    all_accept(&mut shown, &one, &other).await;
    row("cluster: a master stopped, replaced, and continued (SIGCONT)", &shown);
}

/// An operator has a replica take over without asking anyone.
#[tokio::test]
async fn a_replica_takes_over_by_force() {
    let Some((cluster, one, other)) = farm().await else { return };
    let mut shown = Shown::default();
    warm_up(&mut shown, &one, &other).await;
    cluster.all[3].cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    shown.for_a_while(&one, &other, 3).await;
    all_accept(&mut shown, &one, &other).await;
    row("cluster: `CLUSTER FAILOVER TAKEOVER`", &shown);
}

/// Moves the first 320 slots, while first flights are shown.
async fn move_slots(
    cluster: Cluster,
    from: usize,
    to: usize,
    shown: &mut Shown,
    one: &RedisStore,
    other: &RedisStore,
) -> Cluster {
    let mover = std::thread::spawn(move || {
        (0..320).for_each(|slot| cluster.move_slot(slot, from, to));
        cluster
    });
    shown.until(one, other, |_| mover.is_finished()).await;
    mover.join().unwrap()
}

/// Slots are moved to another master and back, with their keys, while both members ask. Only what is in those slots is
/// forgotten.
#[tokio::test]
async fn slots_that_move_begin_anew_and_only_those() {
    let Some((cluster, one, other)) = farm().await else { return };
    for counter in 1..3000 {
        assert_eq!(one.ask(activate(counter)).await, ACCEPTED, "{counter}");
    }
    let mut shown = Shown::default();
    warm_up(&mut shown, &one, &other).await;
    // The first 320 slots have 20 of 1,024 cells.
    let cluster = move_slots(cluster, 0, 1, &mut shown, &one, &other).await;
    cluster.agreed();
    all_accept(&mut shown, &one, &other).await;
    let mut good = 0;
    for counter in 1..3000 {
        good += u32::from(other.ask(redeem(counter)).await == ACCEPTED);
    }
    println!("{good} of 2999 cookies are good");
    assert!((2880..2999).contains(&good), "{good}");
    let _cluster = move_slots(cluster, 1, 0, &mut shown, &one, &other).await;
    all_accept(&mut shown, &one, &other).await;
    row("cluster: 320 slots moved, and moved back", &shown);
}

/// A slot is given to another master by force: for a moment both think that they have it.
#[tokio::test]
async fn a_slot_that_is_given_to_two_masters() {
    let Some((cluster, one, other)) = farm().await else { return };
    let mut shown = Shown::default();
    warm_up(&mut shown, &one, &other).await;
    let id = cluster.id(1);
    for slot in 0..1000 {
        let slot = slot.to_string();
        cluster.all[1].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &cluster.id(0)]);
        cluster.all[1].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    }
    shown.for_a_while(&one, &other, 3).await;
    all_accept(&mut shown, &one, &other).await;
    row("cluster: 1,000 slots taken by force, without their keys", &shown);
}

#[tokio::test]
async fn emptied_and_evicted_masters_begin_anew() {
    let Some((cluster, one, other)) = farm().await else { return };
    let mut shown = Shown::default();
    warm_up(&mut shown, &one, &other).await;
    cluster.all[0].cli(&["FLUSHALL"]);
    shown.for_a_while(&one, &other, 1).await;
    cluster.all[1].evict();
    assert!(cluster.all[1].evicted() > 0);
    shown.for_a_while(&one, &other, 1).await;
    all_accept(&mut shown, &one, &other).await;
    row("cluster: one master emptied, keys of another evicted", &shown);
}

/// A cluster whose configuration does not exclude two masters is refused.
#[tokio::test]
async fn what_a_cluster_must_be() {
    let Some(cluster) = Cluster::start(3) else { return };
    for (name, wrong, right) in
        [("min-replicas-to-write", "0", "1"), ("cluster-allow-replica-migration", "yes", "no")]
    {
        cluster.all[2].cli(&["CONFIG", "SET", name, wrong]);
        let error = RedisStore::connect(&cluster.url(), options()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Replicas(_)) && error.to_string().contains(name), "{error}");
        cluster.all[2].cli(&["CONFIG", "SET", name, right]);
    }
    let Some(alone) = Redis::start(&["--port", &server::process::free_port().to_string()]) else { return };
    let port = alone.list(&["CONFIG", "GET", "port"]).remove(1);
    let store = RedisStore::connect(&format!("redis+cluster://127.0.0.1:{port}"), options()).await.unwrap();
    assert!(!store.is_connected(), "it is no cluster");
}
