//! First flights that wait for an external verdict: the limits hold when it comes.

use crate::pair::{Pair, key, policy};
use firstflight_credential::{
    FastOpenPolicy, FirstFlight, JobRequest, JobResult, Reason, Verifier, VerifierVerdict,
};
use firstflight_stack::{Counters, JobId, ListenerId, PacketDrop};
use firstflight_wire::Clock;
use std::sync::Arc;
use std::time::Duration;

/// Asks an external verifier about every first flight.
struct Defers;

impl Verifier for Defers {
    fn verify(&self, _first: &FirstFlight<'_>, _clock: &Clock) -> VerifierVerdict {
        VerifierVerdict::Pending { job: JobRequest::Verify { key: 0 }, grant: None }
    }
}

fn deferral() -> FastOpenPolicy {
    let mut policy = policy(key(1), 10);
    policy.verifier = Some(Arc::new(Defers));
    policy
}

/// A pair with `n` first flights that wait at the server, whose settings `tune` may change.
fn waiting(n: usize, connections: usize, backlog: (usize, usize)) -> (Pair, ListenerId, Vec<JobId>) {
    let delay = Duration::from_millis(1);
    let mut pair =
        Pair::new(firstflight_link::path::PathConfig::with_delay(delay), 1, false, |config, end| {
            if end == crate::pair::End::Server {
                config.limits.connections = connections;
            }
        });
    let listener = pair.listen_with(|config| {
        config.fast_open = Some(deferral());
        (config.backlog, config.syn_backlog) = backlog;
    });
    for _ in 0..n {
        pair.connect(b"", true);
    }
    pair.idle(delay);
    let jobs: Vec<JobId> = std::iter::from_fn(|| pair.server.poll_job()).map(|job| job.id).collect();
    assert_eq!(jobs.len(), n);
    (pair, listener, jobs)
}

fn answer(pair: &mut Pair, jobs: &[JobId], result: JobResult) -> Counters {
    for id in jobs {
        pair.server.handle_job(*id, result, pair.now);
    }
    *pair.server.counters()
}

#[test]
fn verdicts_do_not_exceed_the_connection_limit() {
    for result in [JobResult::Accept, JobResult::Refuse(Reason::Policy)] {
        let (mut pair, _, jobs) = waiting(3, 2, (10, 10));
        let counters = answer(&mut pair, &jobs, result);
        assert_eq!(pair.server.connections(), 2);
        assert_eq!(counters.dropped(PacketDrop::TooManyConnections), 1);
    }
}

#[test]
fn verdicts_do_not_exceed_the_accept_queue() {
    let (mut pair, listener, jobs) = waiting(3, 10, (2, 10));
    let counters = answer(&mut pair, &jobs, JobResult::Accept);
    assert_eq!(pair.server.queues(listener), Some((2, 0)));
    assert_eq!(counters.dropped(PacketDrop::AcceptQueueFull), 1);
}

#[test]
fn refusals_beyond_the_syn_queue_are_answered_with_cookies() {
    let (mut pair, listener, jobs) = waiting(3, 10, (10, 2));
    let counters = answer(&mut pair, &jobs, JobResult::Refuse(Reason::Policy));
    assert_eq!(pair.server.queues(listener), Some((0, 2)));
    assert_eq!(counters.syn_cookies_sent, 1);
}

#[test]
fn a_verdict_is_not_for_the_next_listener() {
    let (mut pair, listener, jobs) = waiting(1, 10, (10, 10));
    pair.server.unlisten(listener, pair.now);
    let next = pair.listen(Some(deferral()));
    answer(&mut pair, &jobs, JobResult::Accept);
    assert_eq!((pair.server.connections(), pair.server.queues(next)), (0, Some((0, 0))));
}
