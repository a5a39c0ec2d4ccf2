#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn info(offset: u64, replicas: &[(&str, u64)]) -> String {
    let mut text = "# Replication\r\nrole:master\r\n".to_owned();
    for (n, (state, confirmed)) in replicas.iter().enumerate() {
        text += &format!("slave{n}:ip=10.0.0.{n},port=6379,state={state},offset={confirmed},lag=0\r\n");
    }
    text + &format!("slave_expires_tracked_keys:0\r\nmaster_repl_offset:{offset}\r\n")
}

/// Second, offset, replicas.
type ReplicaAnswer<'a> = (f32, u64, &'a [(&'a str, u64)]);

/// A master with these answers. Returns whether each is under a lease.
fn leases(needed: u64, answers: &[ReplicaAnswer<'_>]) -> Vec<bool> {
    let mut quorum = Quorum::new(needed, 10, 1).unwrap();
    let start = Instant::now();
    let answer = |&(at, offset, replicas): &ReplicaAnswer<'_>| {
        let sent = start + Duration::from_secs_f32(at);
        quorum.heard(&info(offset, replicas), sent, sent + Duration::from_millis(1)).is_ok()
    };
    answers.iter().map(answer).collect()
}

#[test]
fn a_replica_that_confirms_new_bytes_keeps_the_lease() {
    let on = |offset| [("online", offset)];
    let expected = [false, true, true, false];
    let answers: [ReplicaAnswer<'_>; 4] =
        [(0.0, 100, &on(100)), (1.0, 150, &on(101)), (2.9, 200, &on(101)), (3.1, 250, &on(101))];
    assert_eq!(leases(1, &answers), expected);
}

/// What was confirmed before the member asked says nothing about now, however often the master repeats it.
#[test]
fn old_confirmations_are_no_lease() {
    let on = |offset| [("online", offset)];
    let answers: [ReplicaAnswer<'_>; 3] = [(0.0, 100, &on(90)), (0.1, 150, &on(99)), (0.2, 200, &on(100))];
    assert_eq!(leases(1, &answers), [false; 3]);
    // A master that was stopped for a minute reads confirmations from before.
    let answers: [ReplicaAnswer<'_>; 4] =
        [(0.0, 100, &on(100)), (1.0, 150, &on(120)), (61.0, 150, &on(150)), (61.1, 200, &on(150))];
    assert_eq!(leases(1, &answers), [false, true, false, false]);
}

#[test]
fn as_many_replicas_as_the_master_needs() {
    let both = |one, two| [("online", one), ("online", two)];
    let answers: [ReplicaAnswer<'_>; 3] =
        [(0.0, 100, &both(100, 100)), (1.0, 150, &both(140, 100)), (2.0, 200, &both(140, 120))];
    assert_eq!(leases(2, &answers), [false, false, true]);
    let copying = [("send_bulk", 150)];
    let answers: [ReplicaAnswer<'_>; 2] = [(0.0, 100, &copying), (1.0, 150, &copying)];
    assert_eq!(leases(1, &answers), [false, false]);
    assert_eq!(leases(1, &[(0.0, 100, &[]), (1.0, 150, &[])]), [false, false]);
}

/// Two masters with half of the replicas each would both have a lease.
#[test]
fn half_of_all_replicas_are_needed() {
    for (to_write, lag, replicas, fits) in [
        (0, 10, 0, false),
        (1, 0, 1, false),
        (1, 11, 1, false),
        (1, 10, 1, true),
        (1, 10, 2, true),
        (1, 10, 3, false),
        (2, 10, 3, true),
        (2, 5, 5, false),
    ] {
        assert_eq!(Quorum::new(to_write, lag, replicas).is_ok(), fits, "{to_write} of {replicas}, {lag} s");
    }
    let mut quorum = Quorum::new(1, 10, 1).unwrap();
    let now = Instant::now();
    let three = info(1, &[("online", 1); 3]);
    assert!(matches!(quorum.heard(&three, now, now), Err(Failure::MoreReplicas(3))));
    assert!(matches!(quorum.heard("role:master\r\n", now, now), Err(Failure::NoInfo)));
}

#[test]
fn who_joins_changes_the_identity() {
    assert_eq!(joins("sync_full:1\r\nsync_partial_ok:16\r\n").unwrap(), "-1.10");
    assert_eq!(joins("sync_full:1\r\n"), None);
}
