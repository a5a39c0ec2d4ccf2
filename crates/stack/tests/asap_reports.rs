//! What a member of a farm does with requests that it refuses, and of which it can tell the store no more, because anybody
//! can make blocks whose signatures were not verified (`docs/spec/asap.md` §7.4).

use crate::certified::{NOW_MS, request};
use crate::flights::{CLIENT, DATA, Server, client, flight, flight_at, reply, server_with, syn};
use crate::peer::seg;
use firstflight_credential::asap::AsapPolicy;
use firstflight_credential::{
    GuardKey, Guarded, JobRequest, JobResult, PendingLimit, RemoteGuard, ReplayGuard, Window,
};
use firstflight_stack::{ListenConfig, PacketDrop};
use firstflight_wire::asap::{BLOCK_LEN, Status};
use std::sync::Arc;

/// Another flow: another port, another ISN.
fn next(s: &mut Server) {
    s.p.drain();
    let (port, isn) = (s.p.port + 1, s.p.isn.wrapping_mul(3) + 7);
    s.p.flow(port, isn);
}

fn member(
    asap: impl FnOnce(&mut AsapPolicy),
    listen: impl FnOnce(&mut ListenConfig),
) -> (Server, Arc<RemoteGuard>) {
    let guard = Arc::new(RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS));
    let with = |policy: &mut AsapPolicy| {
        policy.guard = guard.clone();
        asap(policy);
    };
    (server_with(|_| {}, with, listen), guard)
}

/// A stranger uses up what the member may report of blocks from the client's network.
fn use_up(guard: &RemoteGuard) {
    let id = guard.id_of(CLIENT.parse().unwrap(), b"a stranger's");
    while let Ok(Guarded::Ask(_)) = guard.report(id, NOW_MS, NOW_MS) {}
}

/// The questions to the store that wait, and whether each is of a request with right signatures.
fn told(s: &mut Server) -> Vec<bool> {
    let jobs = std::iter::from_fn(|| s.p.stack.poll_job());
    jobs.map(|job| match job.request {
        JobRequest::GuardSet { checked, .. } => checked,
        other => panic!("{other:?}"),
    })
    .collect()
}

/// 300 blocks that nobody signed: the store hears of some, and the clients of the others that their requests may run
/// elsewhere. A client then does not send data again that must not run twice.
#[test]
fn a_flood_of_unsigned_blocks_is_not_a_flood_of_questions() {
    let (mut s, _) = member(|asap| asap.pending = Arc::new(PendingLimit::new(0)), |_| {});
    let (mut reports, mut unreported) = (0, 0);
    for id in 0..=255 {
        s.p.send(flight(id));
        let status = reply(&s.p.expect().syn_ack().ack(1).empty()).unwrap().status;
        let asked = told(&mut s);
        match status {
            Status::Overloaded => assert_eq!(asked, [false]),
            Status::Replayed => assert_eq!(asked, []),
            other => panic!("{other:?}"),
        }
        (reports, unreported) = (reports + asked.len(), unreported + u64::from(asked.is_empty()));
        s.p.send(seg().seq(1).ack(1).rst());
        next(&mut s);
    }
    assert_eq!((reports, unreported), (32, 224));
    assert_eq!(s.p.stack.counters().blocks_unreported, unreported);
}

/// After a start every honest request is below the floor. The signatures of each are verified, and the store hears of all.
#[test]
fn what_is_below_the_floor_is_verified_and_then_reported() {
    let (mut s, guard) = member(|_| {}, |_| {});
    use_up(&guard);
    guard.raise_floor(NOW_MS + 10_000);
    for id in 0..100 {
        s.refuses(flight(id), Status::GuardFloor);
        assert_eq!(told(&mut s), [true], "{id}");
        s.p.send(seg().seq(1).ack(1).rst());
        next(&mut s);
    }
    // A stranger's are not right, and the store does not hear of them.
    let mut forged = request(&client(), 200, DATA, 0);
    forged.payload[BLOCK_LEN - 1] ^= 1;
    s.refuses(syn(&forged), Status::BadSignature);
    assert_eq!(told(&mut s), []);
    // Each verification has its price as always.
    assert!(s.signatures() >= 100);
}

/// A SYN without block, and a RST, end the wait for signatures only if the store hears of the request.
#[test]
fn what_would_overtake_a_verification_waits_for_it() {
    for reset in [false, true] {
        let (mut s, guard) = member(|_| {}, |_| {});
        use_up(&guard);
        s.p.send(flight(5));
        s.p.pass(6);
        s.p.send(if reset { seg().seq(0).rst() } else { seg().syn().mss(1460) });
        s.p.quiet();
        assert_eq!(s.p.stack.counters().dropped(PacketDrop::Unreported), 1, "reset: {reset}");
        assert_eq!(s.verify(), 1);
        let job = s.p.stack.poll_job().expect("the request is right, so the store is asked");
        let now = s.p.now;
        s.p.stack.handle_job(job.id, JobResult::Accept, now);
        s.p.pump();
        assert_eq!(reply(&s.p.expect().syn_ack()).unwrap().status, Status::Accepted);
    }
    // With a report left, the wait ends as ever.
    let (mut s, _) = member(|_| {}, |_| {});
    s.p.send(flight(5));
    s.p.pass(6);
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack().ack(1);
    assert_eq!(told(&mut s), [false]);
}

/// A verification that takes too long.
#[test]
fn what_waits_too_long_may_run_elsewhere() {
    let (mut s, guard) = member(|_| {}, |_| {});
    use_up(&guard);
    s.p.send(flight(5));
    s.p.at(30);
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((Status::Replayed, [5, 5])));
    assert_eq!(told(&mut s), []);
    // If the store was asked already, it knows.
    let (mut s, guard) = member(|_| {}, |_| {});
    s.p.send(flight(5));
    assert_eq!(s.verify(), 1);
    assert_eq!(told(&mut s), [true]);
    use_up(&guard);
    s.p.at(30);
    assert_eq!(reply(&s.p.expect().syn_ack().ack(1)).unwrap().status, Status::Overloaded);
}

/// A SYN cookie has a reply as well, or the client would send data again that must not run twice.
#[test]
fn under_pressure_the_cookie_says_what_is_not_reported() {
    let (mut s, guard) = member(|_| {}, |listen| listen.syn_backlog = 0);
    s.refuses(flight(5), Status::Overloaded);
    assert_eq!(told(&mut s), [false]);
    use_up(&guard);
    next(&mut s);
    s.refuses(flight(6), Status::Replayed);
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 2);
    // Others have their cookies.
    next(&mut s);
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack().ack(1);
}

/// The bound is of a time: later the member reports again.
#[test]
fn reports_come_back_with_time() {
    let (mut s, guard) = member(|asap| asap.pending = Arc::new(PendingLimit::new(0)), |_| {});
    use_up(&guard);
    s.refuses(flight(5), Status::Replayed);
    s.p.send(seg().seq(1).ack(1).rst());
    next(&mut s);
    s.p.at(100);
    s.refuses(flight_at(6, 100), Status::Overloaded);
    assert_eq!(told(&mut s), [false]);
}
