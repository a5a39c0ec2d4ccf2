//! Tests of the cookie, and of servers behind one address.

use super::*;
use crate::admission::{Accepted, Admission, Refusal, admit};
use crate::asap::{AsapShard, BudgetConfig};
use crate::cookie::Scheme;
use crate::cookie_key::CookieKey;
use crate::flight::{Claim, Offered};
use crate::key::KeyRing;
use crate::pending::PendingLimit;
use crate::policy::{FastOpenPolicy, Replays};
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use firstflight_wire::tcp::FastOpenForm;
use firstflight_wire::{Instant, SeqNum};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash};

const CLOCK: Clock = Clock { mono: Instant::ZERO, unix_ms: 0, uncertainty: Duration::ZERO };

fn keys(byte: u8) -> OneTimeKeys {
    OneTimeKeys::from_bytes(core::array::from_fn(|at| byte.wrapping_add(at as u8)))
}

fn flow(client: &str, server: &str) -> Flow {
    Flow { client: client.parse().unwrap(), server: server.parse().unwrap() }
}

fn table(issuer: u16) -> Arc<SerialTable> {
    let table = SerialTable::own(issuer, 1, 1000);
    table.extend(1 << 40);
    Arc::new(table)
}

/// The decision of a farm member about a SYN of `flow`.
fn visit(member: &FastOpenPolicy, flow: Flow, cookie: Option<Cookie>) -> (Option<Reason>, Option<Grant>) {
    let form = FastOpenForm::Standard;
    let option = cookie.map_or(FastOpen::Request(form), |cookie| FastOpen::Cookie(form, cookie));
    let first = FirstFlight {
        flow,
        ports: (4000, 80),
        isn: SeqNum::new(1),
        presented: Presented::FastOpen(&option),
        claim: Claim::None,
        offered: Offered::Nothing,
        payload: b"GET /",
        relayed: false,
        syn_cookie_pressure: false,
    };
    let shard = &mut AsapShard::new(BudgetConfig::default());
    match admit(member.into(), &first, shard, &CLOCK) {
        Admission::Accept(Accepted { grant, .. }) => (None, grant),
        Admission::Refuse(Refusal { reason, grant, .. }) => (Some(reason), grant),
        Admission::Ask(_) => panic!("nobody is asked here"),
    }
}

fn policy(cookies: OneTimeCookies, replays: Replays) -> FastOpenPolicy {
    let ring = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([1; 16]));
    let mut policy = FastOpenPolicy::new(Arc::new(ring), Arc::new(PendingLimit::new(100)));
    policy.verifier = Some(Arc::new(cookies));
    policy.replays = replays;
    policy
}

/// The client's ACK.
fn complete(member: &FastOpenPolicy, grant: &Grant) {
    assert_eq!(member.verifier().activate(grant.serial.unwrap()), None);
}

#[test]
fn a_cookie_belongs_to_its_addresses_and_keys() {
    let here = flow("192.0.2.1", "192.168.0.1");
    let serial = Serial::new(3, 99).unwrap();
    let cookie = keys(1).make(&here, serial);
    assert_eq!(cookie.as_bytes().len(), 16);
    assert_eq!(keys(1).open(&here, &cookie), Some(serial));
    assert_eq!(keys(2).open(&here, &cookie), None);
    for other in [flow("192.0.2.2", "192.168.0.1"), flow("192.0.2.1", "192.168.0.2")] {
        assert_eq!(keys(1).open(&other, &cookie), None);
    }
    let swapped = Flow { client: here.server, server: here.client };
    assert_eq!(keys(1).open(&swapped, &cookie), None);
    let v6 = flow("fd00::1", "fd00::2");
    assert_eq!(keys(1).open(&v6, &keys(1).make(&v6, serial)), Some(serial));
    assert_ne!(keys(1).make(&here, serial), keys(1).make(&here, Serial::new(3, 100).unwrap()));
}

#[test]
fn used_once_and_each_visit_brings_the_next() {
    let server = policy(OneTimeCookies::new(keys(1), table(1)), Replays::AtMostOnce);
    assert_eq!(server.validate(), Ok(()));
    let here = flow("192.0.2.1", "192.168.0.1");
    let (reason, grant) = visit(&server, here, None);
    assert_eq!(reason, Some(Reason::NoCredential));
    let first = grant.unwrap();
    complete(&server, &first);
    let (reason, second) = visit(&server, here, Some(first.cookie));
    assert_eq!(reason, None);
    assert_eq!(visit(&server, here, Some(first.cookie)).0, Some(Reason::Replay));
    let second = second.unwrap();
    complete(&server, &second);
    assert_eq!(visit(&server, here, Some(second.cookie)).0, None);
    let early = visit(&server, here, None).1.unwrap();
    assert_eq!(visit(&server, here, Some(early.cookie)).0, Some(Reason::NotActive), "the ACK has not come");
    let elsewhere = flow("192.0.2.99", "192.168.0.1");
    assert_eq!(visit(&server, elsewhere, Some(second.cookie)).0, Some(Reason::StaleOrWrongCredential));
}

#[test]
fn a_roll_over_of_the_keys_loses_no_cookie() {
    let serials = table(1);
    let before = policy(OneTimeCookies::new(keys(1), serials.clone()), Replays::AtMostOnce);
    let after = policy(OneTimeCookies::new(keys(2), serials).with_backup(keys(1)), Replays::AtMostOnce);
    let here = flow("192.0.2.1", "192.168.0.1");
    let grant = visit(&before, here, None).1.unwrap();
    complete(&before, &grant);
    let (reason, next) = visit(&after, here, Some(grant.cookie));
    assert_eq!(reason, None);
    complete(&after, &next.unwrap());
    assert_eq!(visit(&after, here, next.map(|grant| grant.cookie)).0, None);
}

/// Rendezvous hashing of the cookie, as a balancer without a key would do it.
fn balancer(cookie: &Cookie, members: usize) -> usize {
    let weight = |member: usize| {
        let mut hasher = DefaultHasher::new();
        (cookie.as_bytes(), member).hash(&mut hasher);
        hasher.finish()
    };
    (0..members).max_by_key(|member| weight(*member)).unwrap()
}

struct Here {
    member: usize,
    members: usize,
    asked: AtomicUsize,
}

impl Placement for Here {
    fn is_here(&self, cookie: &Cookie) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        balancer(cookie, self.members) == self.member
    }
}

/// §7.1, balancers that hash the cookie: the first SYN goes to any member. Every later SYN goes to the member
/// that granted its cookie, which also detects copies.
#[test]
fn behind_a_hashing_balancer_a_cookie_finds_its_issuer() {
    const MEMBERS: usize = 8;
    let places: Vec<_> = (0..MEMBERS)
        .map(|member| Arc::new(Here { member, members: MEMBERS, asked: AtomicUsize::new(0) }))
        .collect();
    let farm: Vec<_> = places
        .iter()
        .map(|place| {
            let serials = table(place.member as u16);
            serials.extend(1 << 40);
            policy(OneTimeCookies::new(keys(1), serials).placed(place.clone()), Replays::AtMostOnce)
        })
        .collect();
    let (mut accepted, mut replayed) = (0, 0);
    for client in 0..100u8 {
        let here = Flow {
            client: Ipv4Addr::new(192, 0, 2, client).into(),
            server: Ipv4Addr::new(10, 0, 0, 1).into(),
        };
        // Without a cookie the balancer chooses any member.
        let mut member = usize::from(client) % MEMBERS;
        let mut grant = visit(&farm[member], here, None).1.unwrap();
        for _ in 0..5 {
            complete(&farm[member], &grant);
            member = balancer(&grant.cookie, MEMBERS);
            let (reason, next) = visit(&farm[member], here, Some(grant.cookie));
            accepted += u32::from(reason.is_none());
            let copy = visit(&farm[balancer(&grant.cookie, MEMBERS)], here, Some(grant.cookie)).0;
            replayed += u32::from(copy == Some(Reason::Replay));
            grant = next.unwrap();
        }
    }
    assert_eq!((accepted, replayed), (500, 500));
    let draws: usize = places.iter().map(|place| place.asked.load(Ordering::Relaxed)).sum();
    // 1,100 grants, and about eight draws for each.
    assert!((5_000..15_000).contains(&draws), "{draws}");
}

/// §7.1, without a change to the balancer: with n servers a cookie may be used at most n times.
#[test]
fn with_a_table_for_each_issuer_a_cookie_is_good_once_at_every_member() {
    const MEMBERS: u16 = 4;
    let farm: Vec<_> = (0..MEMBERS)
        .map(|member| {
            let others: Vec<_> = (0..MEMBERS).filter(|other| *other != member).collect();
            let others: Vec<_> = others
                .into_iter()
                .map(|other| {
                    let table = SerialTable::foreign(other, 1, 1000);
                    table.extend(1 << 40);
                    table
                })
                .collect();
            let cookies =
                OneTimeCookies::new(keys(1), table(member)).with_farm(Farm::EachOnce(others.into()));
            policy(cookies, Replays::Allow)
        })
        .collect();
    assert!(FastOpenPolicy { replays: Replays::AtMostOnce, ..farm[0].clone() }.validate().is_err());
    let here = flow("192.0.2.1", "10.0.0.1");
    let grant = visit(&farm[0], here, None).1.unwrap();
    complete(&farm[0], &grant);
    let mut uses: BTreeMap<usize, u32> = BTreeMap::new();
    for attempt in 0..40 {
        let member = attempt % usize::from(MEMBERS);
        if visit(&farm[member], here, Some(grant.cookie)).0.is_none() {
            *uses.entry(member).or_default() += 1;
        }
    }
    assert_eq!(uses, BTreeMap::from([(0, 1), (1, 1), (2, 1), (3, 1)]));
}

#[test]
fn with_a_shared_store_every_use_is_a_question() {
    let cookies = OneTimeCookies::new(keys(1), table(1)).with_farm(Farm::Shared);
    assert!(cookies.is_once());
    let serial = Serial::new(2, 5).unwrap();
    assert_eq!(cookies.activate(serial), Some(JobRequest::Activate { serial }));
    assert_eq!(
        cookies.redeem(serial, &ordered(Presented::None)),
        Decision::Ask(JobRequest::Redeem { serial, flight: None }),
        "nothing that is the farm's"
    );
}

/// A SYN with an order.
fn ordered(presented: Presented<'_>) -> FirstFlight<'_> {
    FirstFlight {
        flow: flow("192.0.2.1", "10.0.0.1"),
        ports: (40_000, 80),
        isn: SeqNum::new(7),
        presented,
        claim: Claim::None,
        offered: Offered::Nothing,
        payload: b"POST /order",
        relayed: false,
        syn_cookie_pressure: false,
    }
}

#[test]
fn members_tell_copies_of_a_syn_from_others_at_each_step_of_a_roll_over() {
    let member = |current, backup| {
        OneTimeCookies::new(keys(current), table(1)).with_backup(keys(backup)).with_farm(Farm::Shared)
    };
    let (before, after) = (member(1, 9), member(9, 1));
    let serial = Serial::new(2, 5).unwrap();
    let asked = |member: &OneTimeCookies, first: &FirstFlight<'_>| match member.redeem(serial, first) {
        Decision::Ask(JobRequest::Redeem { serial: of, flight: Some(flight) }) if of == serial => flight,
        other => panic!("{other:?}"),
    };
    for of in [1, 9] {
        let cookie = |flow| FastOpen::Cookie(FastOpenForm::Standard, keys(of).make(&flow, serial));
        let (here, elsewhere) = (flow("192.0.2.1", "10.0.0.1"), flow("192.0.2.2", "10.0.0.1"));
        let (option, another) = (cookie(here), cookie(elsewhere));
        let first = ordered(Presented::FastOpen(&option));
        let flight = asked(&before, &first);
        for member in [&before, &after] {
            assert_eq!(asked(member, &FirstFlight { syn_cookie_pressure: true, ..first }), flight, "a copy");
            for other in [
                FirstFlight { ports: (40_001, 80), ..first },
                FirstFlight { isn: SeqNum::new(8), ..first },
                FirstFlight { payload: b"POST /other", ..first },
                FirstFlight { flow: elsewhere, presented: Presented::FastOpen(&another), ..first },
            ] {
                assert_ne!(asked(member, &other), flight);
            }
        }
    }
}

proptest! {
    #[test]
    fn nobody_guesses_a_cookie(bytes: [u8; 16], counter in 1u64..1 << 48) {
        let here = flow("192.0.2.1", "192.168.0.1");
        let forged = Cookie::new(&bytes).unwrap();
        prop_assert_eq!(keys(1).open(&here, &forged), None);
        let mut real: [u8; 16] = keys(1).make(&here, Serial::new(1, counter).unwrap()).as_bytes().try_into().unwrap();
        real[(counter % 16) as usize] ^= 1 << (counter % 8);
        prop_assert_eq!(keys(1).open(&here, &Cookie::new(&real).unwrap()), None);
    }
}
