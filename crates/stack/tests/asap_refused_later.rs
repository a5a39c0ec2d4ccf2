//! A request that a server refused is not accepted later: its data came by the ordinary handshake, and a copy of the
//! SYN would execute it a second time (`docs/spec/asap.md` §10.14).

use crate::certified::{NOW_MS, certificate_with, request, verifier};
use crate::flights::{AFTER, CLIENT, DATA, Server, flight, flight_at, server, server_with, syn, trusting};
use crate::peer::{Seg, seg};
use firstflight_credential::asap::{AsapPolicy, Identity, TrustStore, Trusted};
use firstflight_credential::{GuardKey, JobRequest, RemoteGuard, ReplayTable, Window};
use firstflight_wire::Clock;
use firstflight_wire::asap::{BLOCK_LEN, Status};
use std::sync::Arc;
use std::time::Duration;

const NOW_S: u32 = (NOW_MS / 1000) as u32;
const HOUR: Duration = Duration::from_secs(3600);
/// When the copies arrive, milliseconds after the change. The request is in time by its stamp until the last of them.
const COPIES: [u64; 5] = [0, 100, 9_999, 10_001, 60_000];

/// Another flow: another port, another ISN.
fn next(s: &mut Server) {
    s.p.drain();
    let (port, isn) = (s.p.port + 1, s.p.isn.wrapping_mul(3) + 7);
    s.p.flow(port, isn);
}

/// The first flight is refused, and its data comes by the handshake.
#[track_caller]
fn refused(s: &mut Server, flight: Seg, status: Status) {
    s.refuses(flight, status);
    s.p.send(seg().seq(1).ack(1).data(DATA));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
}

/// A copy on another flow is refused as well, for any reason.
#[track_caller]
fn copy_does_nothing(s: &mut Server, flight: Seg) {
    next(s);
    s.asks(flight).ack(1).empty();
    s.p.nothing_to_accept(s.listener);
    s.p.send(seg().seq(1).ack(1).rst());
    assert_eq!(s.p.stack.counters().first_flights_accepted, 0, "it is executed a second time");
}

/// A new request is accepted.
#[track_caller]
fn new_is_accepted(s: &mut Server, flight: Seg) {
    next(s);
    s.accepts(flight);
    s.p.send(seg().seq(AFTER).ack(1));
}

fn entry() -> Trusted {
    Trusted::new(verifier(1).public())
}

fn store(entries: impl IntoIterator<Item = Trusted>) -> Arc<TrustStore> {
    Arc::new(TrustStore::new(entries).unwrap())
}

impl Server {
    fn set_trust(&mut self, trust: Arc<TrustStore>) {
        assert!(self.p.stack.set_trust(self.listener, trust, self.p.now));
    }

    /// The wall clock is this number of milliseconds off from now on.
    fn differ_by(&mut self, by: i64, uncertainty: Duration) {
        let unix_ms = (NOW_MS + self.p.ms()).checked_add_signed(by).unwrap();
        let clock = Clock { mono: self.p.now, unix_ms, uncertainty };
        self.p.stack.handle_clock(clock);
    }
}

// --- trust ---------------------------------------------------------------------------------------------------

/// A request under a certificate that began `ago` seconds before the start, made `ahead` milliseconds after the start.
fn made(ago: u32, duration: u32, ahead: u64) -> Seg {
    let certificate = certificate_with(1, 2, CLIENT.parse().unwrap(), NOW_S - ago, duration, 1);
    syn(&request(&certificate, 5, DATA, u64::from(ago) * 1000 + ahead))
}

/// Every way in which trust can admit more, and the status before the change.
fn changes() -> Vec<(&'static str, Vec<Trusted>, Status, u32, u32)> {
    let with = |change: &dyn Fn(&mut Trusted)| {
        let mut entry = entry();
        change(&mut entry);
        vec![entry]
    };
    let other = Trusted::new(verifier(2).public());
    let unknown = Status::UnknownVerifier;
    vec![
        ("a file that was empty", vec![], unknown, 0, 1800),
        ("a verifier is added", vec![other], unknown, 0, 1800),
        ("oldest", with(&|e| e.oldest = Duration::from_secs(60)), Status::Expired, 90, 1800),
        ("longest", with(&|e| e.longest = Duration::from_secs(60)), Status::Policy, 0, 1800),
        ("vantage", with(&|e| e.min_vantage = 2), Status::Policy, 0, 1800),
        ("prefixes", with(&|e| e.prefixes = vec!["10.9.0.0/16".parse().unwrap()]), Status::Policy, 0, 1800),
    ]
}

#[test]
fn trust_that_admits_more_takes_nothing_that_was_refused() {
    for (what, before, status, ago, duration) in changes() {
        for ahead in [0, 10_000] {
            eprintln!("{what}, made {ahead} ms ahead");
            let mut s = trusting(|asap| asap.trust = store(before.clone()));
            let flight = || made(ago, duration, ahead);
            refused(&mut s, flight(), status);
            s.p.at(50);
            s.set_trust(store([entry(), Trusted::new(verifier(2).public())]));
            for after in COPIES {
                s.p.at(50 + after);
                copy_does_nothing(&mut s, flight());
            }
            new_is_accepted(&mut s, flight_at(77, 60_000));
        }
    }
}

/// The pause: requests with stamps up to ten seconds after the change are refused, and no others.
#[test]
fn trust_that_admits_more_closes_for_ten_seconds() {
    let less = Trusted { oldest: HOUR, ..entry() };
    let mut s = trusting(|asap| asap.trust = store([less.clone()]));
    s.p.at(1_000);
    s.set_trust(store([entry()]));
    for (id, ms) in [(1, 1_000), (2, 5_000), (3, 11_000)] {
        s.p.at(ms);
        next(&mut s);
        s.refuses(flight_at(id, ms), Status::GuardFloor);
    }
    s.p.at(11_001);
    new_is_accepted(&mut s, flight_at(4, 11_001));
}

#[test]
fn trust_that_admits_no_more_closes_nothing() {
    let all = || [entry(), Trusted::new(verifier(2).public())];
    let tighter = [
        ("a verifier is removed", vec![entry()]),
        ("the same again", all().to_vec()),
        ("oldest", vec![Trusted { oldest: HOUR, ..entry() }]),
        ("longest", vec![Trusted { longest: HOUR, ..entry() }]),
        ("prefixes", vec![Trusted { prefixes: vec!["10.0.0.0/8".parse().unwrap()], ..entry() }]),
        ("before the ACK", vec![Trusted { own: true, times: 9, per_second: Some(9), ..entry() }]),
    ];
    for (what, then) in tighter {
        eprintln!("{what}");
        let mut s = trusting(|asap| asap.trust = store(all()));
        s.set_trust(store(then));
        new_is_accepted(&mut s, flight(5));
    }
}

/// A verifier that is removed and put back counts as an added one.
#[test]
fn trust_that_comes_back_takes_nothing_that_was_refused() {
    let mut s = server();
    s.set_trust(store([]));
    refused(&mut s, flight(5), Status::UnknownVerifier);
    s.set_trust(store([entry()]));
    for after in COPIES {
        s.p.at(after);
        copy_does_nothing(&mut s, flight(5));
    }
}

/// A process that starts with more trust than the previous one has the guard floor of its start.
#[test]
fn a_restart_with_more_trust_takes_nothing_that_was_refused() {
    let mut before = trusting(|asap| asap.trust = store([]));
    refused(&mut before, flight_at(5, 9_000), Status::UnknownVerifier);
    let guard = ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 1 << 20, NOW_MS + 50);
    let mut s = trusting(|asap| asap.guard = Arc::new(guard));
    for after in COPIES {
        s.p.at(50 + after);
        copy_does_nothing(&mut s, flight_at(5, 9_000));
    }
}

/// A member of a farm whose trust grows refuses because of its own floor, and reports to the store what it refuses.
#[test]
fn a_member_whose_trust_grows_refuses_and_tells_the_farm() {
    let guard = || Arc::new(RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS));
    let mut s = trusting(|asap| {
        asap.guard = guard();
        asap.trust = store([]);
    });
    refused(&mut s, flight(5), Status::UnknownVerifier);
    assert!(s.p.stack.poll_job().is_none(), "what nobody vouches for fills no store");
    s.set_trust(store([entry()]));
    for after in COPIES {
        s.p.at(after);
        next(&mut s);
        s.refuses(flight(5), Status::GuardFloor);
        s.p.send(seg().seq(1).ack(1).rst());
        let told = s.p.stack.poll_job().map(|job| job.request);
        // At the end of the window the request is too late everywhere.
        assert_eq!(
            matches!(told, Some(JobRequest::GuardSet { .. })),
            after < 60_000,
            "{told:?} after {after}"
        );
    }
    // Another member, whose verifier may certify more from now on, and one that trusted it as far all the time.
    let mut s = trusting(|asap| {
        asap.guard = guard();
        asap.trust = store([Trusted { oldest: HOUR, ..entry() }]);
    });
    s.set_trust(store([entry()]));
    s.refuses(flight(6), Status::GuardFloor);
    let told = s.p.stack.poll_job().expect("the farm is not told").request;
    let mut other = trusting(|asap| asap.guard = guard());
    other.p.send(flight(6));
    other.verify();
    assert_eq!(other.p.stack.poll_job().unwrap().request, told);
}

/// The floor rises while the signatures are verified, because of another listener's trust or the clock.
#[test]
fn a_floor_that_rises_during_a_verification_refuses() {
    let remote: Arc<dyn firstflight_credential::ReplayGuard> =
        Arc::new(RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS));
    for guard in [remote, crate::certified::policy(&[1]).guard] {
        let mut s = trusting(|asap| asap.guard = guard.clone());
        s.p.send(flight(5));
        guard.raise_floor(NOW_MS + 10_000);
        s.verify();
        let got = s.p.expect().syn_ack().ack(1);
        assert_eq!(crate::flights::reply(&got).unwrap().status, Status::GuardFloor);
        s.p.nothing_to_accept(s.listener);
    }
}

// --- a SYN that waits --------------------------------------------------------------------------------------------

/// While a SYN waits for its verdict, another request comes with its ports and its number. It is dropped, and its
/// data comes by the handshake, so a copy of it must not be accepted.
#[test]
fn what_meets_a_syn_that_waits_is_used_up() {
    let mut s = server();
    // An attacker was faster, with an invalid request.
    let mut wrong = request(&crate::flights::client(), 9, DATA, 0);
    wrong.payload[BLOCK_LEN - 1] ^= 1;
    s.p.send(syn(&wrong));
    s.p.send(flight(5));
    assert_eq!(s.verify(), 1);
    s.p.drain();
    s.p.send(seg().seq(1).ack(1).rst());
    for after in COPIES {
        s.p.at(after);
        copy_does_nothing(&mut s, flight(5));
    }
}

/// The request that waits is forged with the block of the client's, whose SYN was dropped. The client gets no answer that
/// would make it send its data by the handshake: its next SYN is accepted, and nothing else is.
#[test]
fn a_forged_syn_with_the_clients_block_does_not_refuse_the_clients() {
    let mut s = server();
    let mut forged = request(&crate::flights::client(), 5, DATA, 0);
    *forged.payload.last_mut().unwrap() ^= 1;
    s.p.send(syn(&forged));
    s.p.send(flight(5));
    assert_eq!(s.verify(), 1);
    s.p.quiet();
    s.accepts(flight(5));
    next(&mut s);
    s.refuses(flight(5), Status::Replayed);
}

/// A second copy of the waiting SYN uses up nothing, because it is the same request.
#[test]
fn a_copy_of_a_syn_that_waits_changes_nothing() {
    let mut s = server();
    s.p.send(flight(5));
    s.p.send(flight(5));
    // Nor does a copy that was changed behind the block.
    let mut longer = request(&crate::flights::client(), 5, DATA, 0);
    longer.payload.push(0);
    s.p.send(syn(&longer));
    s.accepts(flight(5));
}

// --- another listener ------------------------------------------------------------------------------------------

fn listens_anew(s: &mut Server, policy: AsapPolicy) {
    let now = s.p.now;
    s.p.stack.unlisten(s.listener, now);
    s.p.drain();
    s.differ_by(0, Duration::ZERO);
    s.listener = s.p.listen_with(|config| config.asap = Some(policy));
}

/// Certificates are enabled, or the server gets another name, with a guard that has been open for a long time.
#[test]
fn a_listener_in_anothers_place_takes_nothing_that_was_refused() {
    let other = Identity::name("www.example.net", 80);
    let plain = server_with(|_| {}, |_| {}, |listen| listen.asap = None);
    let named = trusting(|asap| asap.identities = [other].into());
    for (mut s, status) in [(plain, Status::Disabled), (named, Status::WrongIdentity)] {
        refused(&mut s, flight(5), status);
        s.p.at(50);
        listens_anew(&mut s, crate::certified::policy(&[1]));
        for after in COPIES {
            s.p.at(50 + after);
            copy_does_nothing(&mut s, flight(5));
        }
        new_is_accepted(&mut s, flight_at(77, 60_000));
    }
}

/// What a listener can admit less than another one of its port, and the status that it then sends.
fn fewer() -> [(AsapPolicy, Status); 2] {
    let other = Identity::name("www.example.net", 80);
    [
        (AsapPolicy { trust: store([]), ..crate::certified::policy(&[1]) }, Status::UnknownVerifier),
        (AsapPolicy { identities: [other].into(), ..crate::certified::policy(&[1]) }, Status::WrongIdentity),
    ]
}

/// The other listener of the port stays, and takes certificates: fewer, or for another name.
#[test]
fn a_listener_beside_another_one_takes_nothing_that_was_refused() {
    for (less, status) in fewer() {
        let guard = less.guard.clone();
        let all = "0.0.0.0:80".parse().unwrap();
        let mut s = server_with(|_| {}, |asap| *asap = less, |listen| listen.local = all);
        refused(&mut s, flight(5), status);
        s.p.at(50);
        s.differ_by(0, Duration::ZERO);
        let policy = AsapPolicy { guard, ..crate::certified::policy(&[1]) };
        s.listener = s.p.listen_with(|listen| listen.asap = Some(policy));
        for after in COPIES {
            s.p.at(50 + after);
            copy_does_nothing(&mut s, flight(5));
        }
        new_is_accepted(&mut s, flight_at(77, 60_000));
    }
}

/// Two listeners of one port. The one for a single address refuses more. When it is gone, the other one has its
/// address.
#[test]
fn what_one_listener_refuses_another_one_of_its_port_does_not_take() {
    for (less, status) in fewer() {
        let policy = AsapPolicy { guard: less.guard.clone(), ..crate::certified::policy(&[1]) };
        let all = "0.0.0.0:80".parse().unwrap();
        let mut s = server_with(|_| {}, |asap| *asap = policy, |listen| listen.local = all);
        let other = s.listener;
        s.listener = s.p.listen_with(|listen| listen.asap = Some(less));
        // If it has another name, its start has closed the guard.
        s.p.at(20_000);
        refused(&mut s, flight_at(5, 20_000), status);
        let now = s.p.now;
        s.p.stack.unlisten(s.listener, now);
        s.p.drain();
        s.listener = other;
        copy_does_nothing(&mut s, flight_at(5, 20_000));
        new_is_accepted(&mut s, flight_at(6, 20_000));
    }
}

/// The first listeners of a server, for several addresses, close nothing.
#[test]
fn first_listeners_close_nothing() {
    let mut s = server();
    let mut elsewhere = firstflight_stack::ListenConfig::new("0.0.0.0:80".parse().unwrap());
    elsewhere.asap = Some(crate::certified::policy(&[1]));
    s.p.stack.listen(elsewhere).unwrap();
    s.accepts(flight(5));
}

// --- the clock -------------------------------------------------------------------------------------------------

/// A request was accepted, and its entry forgotten; then the clock goes back a little (a leap second, NTP).
#[test]
fn a_clock_set_back_a_little_executes_nothing_twice() {
    for back in [200, 500, 900, 1000, 1001, 5000] {
        let guard = || ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 0, NOW_MS - 600_000);
        let mut s = trusting(|asap| asap.guard = Arc::new(guard()));
        s.accepts(flight(5));
        s.p.send(seg().seq(AFTER).ack(1));
        // Another request of the same client clears the same part of the table.
        s.p.at(60_030);
        new_is_accepted(&mut s, flight_at(6, 60_030));
        s.differ_by(-back, Duration::ZERO);
        next(&mut s);
        s.refuses(flight(5), Status::GuardFloor);
        assert_eq!(s.p.stack.counters().first_flights_accepted, 2, "{back} ms back");
    }
}

/// The request was too late, or its certificate expired or too old. By the clock that went back, it no longer is.
#[test]
fn a_clock_set_back_makes_nothing_timely_again() {
    let short = || certificate_with(1, 2, CLIENT.parse().unwrap(), NOW_S, 30, 1);
    type Late = (u64, Status, fn() -> Trusted, Box<dyn Fn() -> Seg>);
    let late: [Late; 3] = [
        (60_001, Status::OutsideWindow, entry, Box::new(|| flight(5))),
        (31_000, Status::Expired, entry, Box::new(move || syn(&request(&short(), 5, DATA, 29_000)))),
        (
            61_000,
            Status::Expired,
            || Trusted { oldest: Duration::from_secs(60), ..entry() },
            Box::new(|| flight_at(5, 55_000)),
        ),
    ];
    for (at, status, trusted, flight) in late {
        for back in [1, 200, 500, 900, 1000, 1001, 5000] {
            eprintln!("{status:?}, {back} ms back");
            let mut s = trusting(|asap| asap.trust = store([trusted()]));
            s.p.at(at);
            refused(&mut s, flight(), status);
            s.differ_by(-back, Duration::ZERO);
            for after in [0, back as u64 / 2] {
                s.p.at(at + after);
                copy_does_nothing(&mut s, flight());
            }
        }
    }
}

/// For a short time the clock is ten minutes ahead.
#[test]
fn a_clock_that_was_wrong_for_a_moment_makes_nothing_good() {
    let mut s = server();
    s.differ_by(600_000, Duration::ZERO);
    refused(&mut s, flight(5), Status::OutsideWindow);
    s.p.at(100);
    s.differ_by(0, Duration::ZERO);
    for after in COPIES {
        s.p.at(100 + after);
        copy_does_nothing(&mut s, flight(5));
    }
    // New requests are accepted ten seconds after the clock shows the wrong time again.
    s.p.at(610_000);
    next(&mut s);
    s.refuses(flight_at(6, 610_000), Status::GuardFloor);
    s.p.at(610_001);
    new_is_accepted(&mut s, flight_at(7, 610_001));
}

/// The clock goes back by an hour. Before it shows the old time again, a request that was too late is in time by it,
/// and an expired certificate is not over yet.
#[test]
fn a_clock_that_shows_the_same_time_again_makes_nothing_good() {
    for (lasts, made, status) in [(9_000, 39_999, Status::OutsideWindow), (7_101, 60_000, Status::Expired)] {
        let certificate = || certificate_with(1, 2, CLIENT.parse().unwrap(), NOW_S - 7000, lasts, 1);
        let flight = || syn(&request(&certificate(), 5, DATA, 7_000_000 + made));
        let mut s = server();
        s.p.at(102_000);
        refused(&mut s, flight(), status);
        s.differ_by(-3_600_000, Duration::ZERO);
        for ms in [made - 5_000, made, made + 30_000] {
            s.p.at(3_600_000 + ms);
            copy_does_nothing(&mut s, flight());
        }
    }
}

/// While the clock is uncertain everything is refused. When it is certain again, refused requests stay refused.
#[test]
fn a_clock_that_becomes_certain_makes_nothing_good() {
    for wrong in [0, -30_000, 30_000] {
        let mut s = server();
        s.differ_by(wrong, Duration::from_millis(10_001));
        s.asks(flight(5)).ack(1).empty();
        s.p.send(seg().seq(1).ack(1).data(DATA));
        s.p.accept(s.listener);
        s.p.at(100);
        s.differ_by(0, Duration::ZERO);
        for after in COPIES {
            s.p.at(100 + after);
            copy_does_nothing(&mut s, flight(5));
        }
        new_is_accepted(&mut s, flight_at(77, 60_000));
    }
}
