//! Tests of the admission table, row by row.

use super::*;
use crate::cookie::Scheme;
use crate::cookie_key::CookieKey;
use crate::flight::{Claim, Flow, Verifier};
use crate::key::Check;
use crate::key::KeyRing;
use crate::pending::PendingLimit;
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::SeqNum;
use firstflight_wire::tcp::FastOpenForm;
use std::format;

const FLOW: Flow = Flow {
    client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    server: IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
};
const CLOCK: Clock = Clock { mono: Instant::ZERO, unix_ms: 0, uncertainty: Duration::ZERO };
const LIMIT: u32 = 2;
const BYTES: [u8; 100] = [b'x'; 100];

fn ring(byte: u8) -> KeyRing {
    KeyRing::new(Scheme::Linux, CookieKey::from_bytes([byte; 16]))
}

fn policy() -> FastOpenPolicy {
    let keys = ring(1).with_backup(CookieKey::from_bytes([2; 16]));
    FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(LIMIT)))
}

/// What a SYN carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carries {
    Nothing,
    Request,
    Primary,
    Backup,
    Wrong,
}
use Carries::{Backup, Nothing, Primary, Request, Wrong};

const ALL: [Carries; 5] = [Nothing, Request, Primary, Backup, Wrong];

/// The decision. A grant is checked against the ring and then dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decided {
    Accept { grant: bool },
    Fallback { reason: Reason, grant: bool },
    Pending(JobRequest),
}

const ACCEPT: Decided = Decided::Accept { grant: false };
const ACCEPT_GRANT: Decided = Decided::Accept { grant: true };

const fn fallback(reason: Reason) -> Decided {
    Decided::Fallback { reason, grant: false }
}

const fn fallback_grant(reason: Reason) -> Decided {
    Decided::Fallback { reason, grant: true }
}

fn option(carries: Carries, form: FastOpenForm) -> Option<FastOpen> {
    match carries {
        Nothing => None,
        Request => Some(FastOpen::Request(form)),
        Primary => Some(FastOpen::Cookie(form, ring(1).grant(&FLOW))),
        Backup => Some(FastOpen::Cookie(form, ring(2).grant(&FLOW))),
        Wrong => Some(FastOpen::Cookie(form, ring(9).grant(&FLOW))),
    }
}

/// Whether a cookie was granted. It must be one of the primary key for this flow.
fn granted(grant: Option<Grant>) -> bool {
    if let Some(Grant { cookie, .. }) = grant {
        assert_eq!(ring(1).check(&FLOW, &cookie), Check::Primary);
    }
    grant.is_some()
}

fn asked(policy: Option<&FastOpenPolicy>, first: &FirstFlight<'_>) -> Admission {
    let policies = Policies { fast_open: policy, asap: None };
    admit(policies, first, &mut AsapShard::new(crate::asap::BudgetConfig::default()), &CLOCK)
}

fn decide(policy: Option<&FastOpenPolicy>, first: &FirstFlight<'_>) -> Decided {
    match asked(policy, first) {
        Admission::Accept(Accepted { grant, .. }) => Decided::Accept { grant: granted(grant) },
        Admission::Refuse(Refusal { reason, grant, .. }) => {
            Decided::Fallback { reason, grant: granted(grant) }
        }
        Admission::Ask(Question { work: Work::Ask(job), .. }) => Decided::Pending(job),
        Admission::Ask(Question { work: Work::Verify(_), .. }) => panic!("there is no certificate"),
    }
}

/// Decides about a SYN in both option forms, and checks that the decisions are equal and that no permit is
/// lost.
fn decision(policy: Option<&FastOpenPolicy>, carries: Carries, data_len: usize) -> Decided {
    decision_with(policy, carries, data_len, |_| {})
}

fn decision_with(
    policy: Option<&FastOpenPolicy>,
    carries: Carries,
    data_len: usize,
    change: impl Fn(&mut FirstFlight<'_>),
) -> Decided {
    let before = policy.map(|policy| policy.pending.pending());
    let [standard, experimental] = [FastOpenForm::Standard, FastOpenForm::Experimental].map(|form| {
        let option = option(carries, form);
        let presented = option.as_ref().map_or(Presented::None, Presented::FastOpen);
        let mut first = FirstFlight {
            flow: FLOW,
            ports: (4000, 80),
            isn: SeqNum::new(1),
            presented,
            claim: Claim::None,
            offered: Offered::Nothing,
            payload: &BYTES[..data_len],
            relayed: false,
            syn_cookie_pressure: false,
        };
        change(&mut first);
        decide(policy, &first)
    });
    assert_eq!(standard, experimental, "{carries:?}");
    assert_eq!(before, policy.map(|policy| policy.pending.pending()));
    standard
}

#[test]
fn table_of_a_listener_with_fast_open() {
    let policy = policy();
    let rows = [
        (Nothing, 0, fallback(Reason::NotRequested)),
        (Nothing, 100, fallback(Reason::NoCredential)),
        (Request, 0, fallback_grant(Reason::NoCredential)),
        (Request, 100, fallback_grant(Reason::NoCredential)),
        (Primary, 0, ACCEPT),
        (Primary, 100, ACCEPT),
        (Backup, 0, ACCEPT_GRANT),
        (Backup, 100, ACCEPT_GRANT),
        (Wrong, 0, fallback_grant(Reason::StaleOrWrongCredential)),
        (Wrong, 100, fallback_grant(Reason::StaleOrWrongCredential)),
    ];
    for (carries, data_len, expected) in rows {
        assert_eq!(decision(Some(&policy), carries, data_len), expected, "{carries:?} {data_len}");
    }
}

//= rfc7413 4.2-b test
#[test]
fn table_of_a_listener_without_fast_open() {
    for carries in ALL {
        for data_len in [0, 100] {
            let expected = match (carries, data_len) {
                (Nothing, 0) => fallback(Reason::NotRequested),
                (Nothing, _) => fallback(Reason::NoCredential),
                _ => fallback(Reason::Policy),
            };
            assert_eq!(decision(None, carries, data_len), expected, "{carries:?} {data_len}");
        }
    }
}

#[test]
fn table_of_a_listener_in_no_cookie_mode() {
    let policy = FastOpenPolicy { no_cookie: true, ..policy() };
    let rows = [
        (Nothing, 0, fallback(Reason::NotRequested)),
        (Nothing, 100, ACCEPT),
        (Request, 0, fallback_grant(Reason::NoCredential)),
        (Request, 100, ACCEPT_GRANT),
        (Primary, 0, ACCEPT),
        (Primary, 100, ACCEPT),
        (Backup, 100, ACCEPT_GRANT),
        (Wrong, 0, fallback_grant(Reason::StaleOrWrongCredential)),
        (Wrong, 100, ACCEPT_GRANT),
    ];
    for (carries, data_len, expected) in rows {
        assert_eq!(decision(Some(&policy), carries, data_len), expected, "{carries:?} {data_len}");
    }
}

/// At the limit and with limit 0 the listener behaves as if Fast Open were off, so it grants no cookie
/// either.
//= rfc7413 4.2-c test
#[test]
fn table_at_the_pending_limit() {
    for no_cookie in [false, true] {
        let policy = FastOpenPolicy { no_cookie, ..policy() };
        let permits =
            [policy.pending.reserve(FLOW.client).unwrap(), policy.pending.reserve(FLOW.client).unwrap()];
        let at_limit = |carries, data_len| match (carries, data_len) {
            (Nothing, 0) => fallback(Reason::NotRequested),
            (Nothing, _) if !no_cookie => fallback(Reason::NoCredential),
            _ => fallback(Reason::PendingLimit),
        };
        for carries in ALL {
            for data_len in [0, 100] {
                assert_eq!(decision(Some(&policy), carries, data_len), at_limit(carries, data_len));
            }
        }
        drop(permits);
        assert_eq!(decision(Some(&policy), Primary, 100), ACCEPT);
        policy.pending.set_limit(0);
        for carries in ALL {
            assert_eq!(decision(Some(&policy), carries, 100), at_limit(carries, 100));
        }
    }
}

#[test]
fn pressure_comes_before_everything() {
    let policy = policy();
    policy.pending.set_limit(0);
    for policy in [None, Some(&policy)] {
        for carries in ALL {
            let pressed = decision_with(policy, carries, 100, |first| first.syn_cookie_pressure = true);
            assert_eq!(pressed, fallback(Reason::SynCookie));
        }
    }
}

#[test]
fn accepted_first_flights_hold_their_permits() {
    let policy = policy();
    let option = option(Primary, FastOpenForm::Standard).unwrap();
    let first = FirstFlight {
        flow: FLOW,
        ports: (4000, 80),
        isn: SeqNum::new(1),
        presented: Presented::FastOpen(&option),
        claim: Claim::None,
        offered: Offered::Nothing,
        payload: &BYTES[..1],
        relayed: false,
        syn_cookie_pressure: false,
    };
    let held: [_; 2] = core::array::from_fn(|_| asked(Some(&policy), &first));
    assert!(held.iter().all(|admission| matches!(admission, Admission::Accept(_))));
    assert_eq!(policy.pending.pending(), LIMIT);
    assert_eq!(decide(Some(&policy), &first), fallback(Reason::PendingLimit));
    let [Admission::Accept(Accepted { permit, .. }), other] = held else { panic!("both were accepted") };
    permit.release();
    assert_eq!(decide(Some(&policy), &first), ACCEPT);
    drop(other);
    assert_eq!(policy.pending.pending(), 0);
}

/// Always gives the same verdict, and counts the questions.
struct Scripted {
    verdict: VerifierVerdict,
    asked: AtomicU32,
}

impl Verifier for Scripted {
    fn verify(&self, _first: &FirstFlight<'_>, _clock: &Clock) -> VerifierVerdict {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.verdict
    }
}

fn scripted(verdict: VerifierVerdict) -> (FastOpenPolicy, Arc<Scripted>) {
    let verifier = Arc::new(Scripted { verdict, asked: AtomicU32::new(0) });
    (FastOpenPolicy { verifier: Some(verifier.clone()), ..policy() }, verifier)
}

#[test]
fn a_verifier_is_asked_instead_of_the_keys() {
    let grant = Some(Grant { cookie: ring(1).grant(&FLOW), serial: None });
    let job = JobRequest::Verify { key: 7 };
    let rows = [
        (VerifierVerdict::Valid { grant: None, once: None }, ACCEPT),
        (VerifierVerdict::Valid { grant, once: None }, ACCEPT_GRANT),
        (VerifierVerdict::Invalid { reason: Reason::Replay, grant: None }, fallback(Reason::Replay)),
        (VerifierVerdict::Invalid { reason: Reason::Expired, grant }, fallback_grant(Reason::Expired)),
        (VerifierVerdict::Pending { job, grant: None }, Decided::Pending(job)),
    ];
    for (verdict, expected) in rows {
        let (policy, _) = scripted(verdict);
        for carries in [Request, Primary, Backup, Wrong] {
            assert_eq!(decision(Some(&policy), carries, 100), expected, "{carries:?}");
        }
    }
}

#[test]
fn a_verifier_is_not_asked_in_vain() {
    let (mut policy, verifier) = scripted(VerifierVerdict::Valid { grant: None, once: None });
    assert_eq!(decision(Some(&policy), Nothing, 100), fallback(Reason::NoCredential));
    policy.no_cookie = true;
    assert_eq!(decision(Some(&policy), Wrong, 100), ACCEPT);
    assert_eq!(verifier.asked.load(Ordering::Relaxed), 0);
}

/// A first flight that is refused for lack of room is executed after the ordinary handshake, so its
/// credential is used up.
#[test]
fn what_is_refused_is_used_up() {
    let job = JobRequest::GuardSet {
        key: [0; 16],
        keep_ms: 1,
        ahead_ms: 0,
        reach_ms: 1,
        unix_ms: None,
        checked: true,
    };
    type Change = fn(&FastOpenPolicy, &mut FirstFlight<'_>);
    let reasons: [(Reason, Change); 3] = [
        (Reason::PendingLimit, |policy, _| policy.pending.set_limit(0)),
        (Reason::ClientLimit, |policy, _| policy.pending.set_client_limit(0)),
        (Reason::SynCookie, |_, first| first.syn_cookie_pressure = true),
    ];
    for (expected, change) in reasons {
        for carries in ALL {
            let guard = Arc::new(Guard(Guarded::Ask(job), AtomicU32::new(0)));
            let policy = FastOpenPolicy { replays: Replays::NoDuplicates(guard.clone()), ..policy() };
            let option = option(carries, FastOpenForm::Standard);
            let mut first = FirstFlight {
                flow: FLOW,
                ports: (4000, 80),
                isn: SeqNum::new(1),
                presented: option.as_ref().map_or(Presented::None, Presented::FastOpen),
                claim: Claim::None,
                offered: Offered::Nothing,
                payload: &BYTES,
                relayed: false,
                syn_cookie_pressure: false,
            };
            change(&policy, &mut first);
            let good = matches!(carries, Primary | Backup);
            match asked(Some(&policy), &first) {
                Admission::Refuse(Refusal { reason, tell, .. }) => {
                    assert!(reason == expected || !good, "{reason:?}");
                    assert_eq!(tell, good.then_some(job), "{carries:?} {expected:?}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(guard.1.load(Ordering::Relaxed), u32::from(good));
            first.payload = &[];
            assert_eq!(
                invalidate((&policy).into(), &first, &CLOCK, false),
                Ok(None),
                "without data nothing runs"
            );
        }
    }
    // A plain policy remembers nothing, so its verifier is not asked.
    let (plain, verifier) = scripted(VerifierVerdict::Valid { grant: None, once: None });
    let plain = FastOpenPolicy { verifier: None, ..plain };
    assert_eq!(
        decision_with(Some(&plain), Primary, 100, |f| f.syn_cookie_pressure = true),
        fallback(Reason::SynCookie)
    );
    assert_eq!(verifier.asked.load(Ordering::Relaxed), 0);
}

/// The last permit may go to another shard while the credential is checked.
#[test]
fn a_place_lost_meanwhile_is_a_fallback_without_grant() {
    struct Rival(Arc<PendingLimit>, VerifierVerdict);
    impl Verifier for Rival {
        fn verify(&self, _first: &FirstFlight<'_>, _clock: &Clock) -> VerifierVerdict {
            self.0.set_limit(0);
            self.1
        }
    }
    let grant = Some(Grant { cookie: ring(1).grant(&FLOW), serial: None });
    for verdict in [
        VerifierVerdict::Valid { grant, once: None },
        VerifierVerdict::Pending { job: JobRequest::Verify { key: 1 }, grant: None },
    ] {
        let base = policy();
        let rival = Arc::new(Rival(base.pending.clone(), verdict));
        let policy = FastOpenPolicy { verifier: Some(rival), ..base };
        let option = option(Primary, FastOpenForm::Standard).unwrap();
        let first = FirstFlight {
            flow: FLOW,
            ports: (4000, 80),
            isn: SeqNum::new(1),
            presented: Presented::FastOpen(&option),
            claim: Claim::None,
            offered: Offered::Nothing,
            payload: &BYTES[..1],
            relayed: false,
            syn_cookie_pressure: false,
        };
        assert_eq!(decide(Some(&policy), &first), fallback(Reason::PendingLimit));
        assert_eq!(policy.pending.pending(), 0);
    }
}

#[test]
fn debug_of_a_policy_shows_no_secret() {
    let text = format!("{:?}", policy());
    assert!(text.contains("backups: 1") && !text.contains("[1, 1"), "{text}");
}

#[test]
fn one_clients_limit_is_not_the_listeners() {
    let policy = policy();
    policy.pending.set_client_limit(1);
    let held = policy.pending.reserve(FLOW.client).unwrap();
    assert_eq!(decision(Some(&policy), Primary, 100), fallback(Reason::ClientLimit));
    assert_eq!(decision(Some(&policy), Request, 100), fallback_grant(Reason::NoCredential));
    held.release();
    assert_eq!(decision(Some(&policy), Primary, 100), ACCEPT);
}

/// Always gives the same answer, and counts the questions.
struct Guard(Guarded, AtomicU32);

impl crate::replay::ReplayGuard for Guard {
    fn test_and_set(&self, _: crate::replay::ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        assert_eq!(stamp_ms, now_ms);
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0
    }

    fn observe(&self, clock: &Clock) -> u64 {
        clock.unix_ms
    }

    fn raise_floor(&self, _: u64) {}

    fn id(&self, first: &FirstFlight<'_>) -> crate::replay::ReplayId {
        crate::replay::GuardKey::from_bytes([1; 16]).id(first)
    }

    fn id_of(&self, _client: IpAddr, _key: &[u8]) -> crate::replay::ReplayId {
        crate::replay::ReplayId { id: 0, partition: 0 }
    }
}

#[test]
fn the_guard_is_asked_last_and_only_for_data() {
    let job = JobRequest::GuardSet {
        key: [0; 16],
        keep_ms: 1,
        ahead_ms: 0,
        reach_ms: 1,
        unix_ms: None,
        checked: true,
    };
    let rows = [
        (Guarded::New, ACCEPT),
        (Guarded::Seen, fallback(Reason::Replay)),
        (Guarded::Floor, fallback(Reason::GuardFloor)),
        (Guarded::Ask(job), Decided::Pending(job)),
    ];
    for (answer, expected) in rows {
        let guard = Arc::new(Guard(answer, AtomicU32::new(0)));
        let policy = FastOpenPolicy { replays: Replays::NoDuplicates(guard.clone()), ..policy() };
        assert_eq!(decision(Some(&policy), Primary, 0), ACCEPT, "nothing would be executed twice");
        assert_eq!(decision(Some(&policy), Wrong, 100), fallback_grant(Reason::StaleOrWrongCredential));
        assert_eq!(guard.1.load(Ordering::Relaxed), 0);
        assert_eq!(decision(Some(&policy), Primary, 100), expected);
        assert_eq!(guard.1.load(Ordering::Relaxed), 2, "once for each form");
    }
}

#[test]
fn at_most_once_is_refused_for_plain_cookies() {
    use crate::policy::PolicyError;
    let plain = FastOpenPolicy { replays: Replays::AtMostOnce, ..policy() };
    assert_eq!(plain.validate(), Err(PolicyError::AtMostOnceNeedsOneTime));
    // If the policy is used nevertheless, it accepts nothing.
    assert_eq!(decision(Some(&plain), Primary, 100), fallback(Reason::Policy));
    let open = FastOpenPolicy { no_cookie: true, ..plain };
    assert_eq!(open.validate(), Err(PolicyError::AtMostOnceWithoutCookie));
    assert_eq!(decision(Some(&open), Primary, 100), fallback(Reason::Policy));
    assert_eq!(policy().validate(), Ok(()));
}
