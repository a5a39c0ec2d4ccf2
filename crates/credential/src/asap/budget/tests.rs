//! Lanes, shares and the block list: garbage requests cost honest clients as little as possible.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use super::super::fixtures::{Flight, NOW, clock_at, policy, shard};
use super::super::{Verified, verify};
use super::*;
use crate::flight::Decision;
use alloc::vec::Vec;
use firstflight_wire::asap::Status;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

const SECOND: Duration = Duration::from_secs(1);

fn prefix(n: u32) -> u64 {
    crate::pending::prefix(IpAddr::from(core::net::Ipv4Addr::from_bits(n)))
}

/// How many verifications of `lane` a shard affords at `now`, each from another network.
fn affords(shard: &mut AsapShard, lane: Lane, now: Instant) -> u32 {
    (1..100_000).take_while(|n| shard.afford(lane, prefix(n << 8), now).is_ok()).count() as u32
}

#[test]
fn garbage_in_the_lane_of_new_certificates_leaves_the_other_served() {
    let mut shard =
        AsapShard::new(BudgetConfig { per_second: 1000, certificates: 16, ..BudgetConfig::default() });
    // A burst is the tokens of a tenth of a second: of 500 signatures a second, with two for a new
    // certificate.
    assert_eq!(affords(&mut shard, Lane::New, NOW), 25);
    assert_eq!(shard.afford(Lane::New, prefix(7), NOW), Err(Reason::Overloaded));
    assert_eq!(affords(&mut shard, Lane::Known, NOW), 50);
    assert_eq!(affords(&mut shard, Lane::New, NOW + SECOND / 10), 25, "it comes back with time");
}

/// Requests under new certificates that an attacker sends in a client's name do not use up the client's share
/// for its verified certificate.
#[test]
fn garbage_from_a_clients_own_address_leaves_its_verified_certificate_served() {
    let mut shard =
        AsapShard::new(BudgetConfig { per_second: 1000, certificates: 16, ..BudgetConfig::default() });
    while shard.afford(Lane::New, prefix(7), NOW).is_ok() {}
    assert_eq!(shard.afford(Lane::Known, prefix(7), NOW), Ok(()));
}

#[test]
fn one_network_cannot_use_up_a_lane() {
    // A host may have any address in an IPv4 /24 or an IPv6 /56.
    let networks: [fn(u64) -> u64; 2] =
        [|n| prefix(0x0a00_0000 + n as u32 % 256), |n| 0x2001_0db8_0000_0000 + n % 256];
    for network in networks {
        let mut shard =
            AsapShard::new(BudgetConfig { per_second: 10_000, certificates: 16, ..BudgetConfig::default() });
        let taken = |shard: &mut AsapShard, now| {
            (0..100_000).take_while(|n| shard.afford(Lane::New, network(*n), now).is_ok()).count()
        };
        // Half of the 500 signatures that the lane has saved up, with two signatures for each request.
        assert_eq!(taken(&mut shard, NOW), 125);
        assert_eq!(shard.afford(Lane::New, network(1), NOW), Err(Reason::NetworkLimit));
        assert_eq!(shard.afford(Lane::New, prefix(0x0b00_0000), NOW), Ok(()), "others are served");
        // From then on it gets its sixteenth of 5,000 a second, whatever it saves up.
        let later: usize = (1..=100).map(|n| taken(&mut shard, NOW + SECOND * n / 10)).sum();
        assert!((1530..=1600).contains(&later), "{later} in ten seconds");
    }
}

/// Networks that use their saved tokens all at once leave half of the lane to others.
#[test]
fn bursts_of_many_networks_leave_half_of_a_lane() {
    let mut shard =
        AsapShard::new(BudgetConfig { per_second: 10_000, certificates: 16, ..BudgetConfig::default() });
    let mut taken = 0;
    for network in 0..8 {
        taken += (0..1000).take_while(|_| shard.afford(Lane::New, prefix(network << 8), NOW).is_ok()).count();
    }
    // The first network gets half of 500 signatures. Each other one gets a tenth of a second of its
    // sixteenth.
    assert_eq!(taken, 125 + 7 * 15);
    assert_eq!(shard.afford(Lane::New, prefix(0x0b00_0000), NOW), Ok(()));
}

/// After eight wrong requests the key is barred for a minute, and no signatures are verified for it.
#[test]
fn a_key_is_barred_after_eight_wrong_requests() {
    let (policy, mut shard) = (policy(), shard());
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let flight = Flight::of(1);
    let wrong = flight.with_signature([1; 64]);
    for n in 0..8 {
        let now = NOW + SECOND * n;
        let candidates = Vec::from([flight.examine(&policy, &wrong, &mut shard, now).unwrap()]);
        let verdicts = verify(&candidates, &mut rng);
        assert_eq!(verdicts, [Verified::BadRequest]);
        shard.learn(&candidates, &verdicts, now);
    }
    let barred = |shard: &mut AsapShard, now| {
        let fresh = Flight { requested_ms: clock_at(now).unix_ms, ..flight.clone() };
        fresh.examine(&policy, &fresh.block(), shard, now).err().map(|refused| refused.status)
    };
    let last = NOW + SECOND * 7;
    assert_eq!(barred(&mut shard, last), Some(Status::Barred));
    assert!(
        Flight::of(2).examine(&policy, &Flight::of(2).block(), &mut shard, last).is_ok(),
        "others are not"
    );
    assert_eq!(barred(&mut shard, last + SECOND * 59), Some(Status::Barred));
    assert_eq!(barred(&mut shard, last + SECOND * 60), None);
}

/// An attacker can put any key into a forged certificate.
#[test]
fn a_wrong_certificate_does_not_count_against_the_key_in_it() {
    let (policy, mut shard) = (policy(), shard());
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let flight = Flight::of(1);
    let mut forged = flight.block();
    forged.certificate.signature[40] ^= 1;
    for n in 0..20 {
        let now = NOW + SECOND * n;
        let candidates = Vec::from([flight.examine(&policy, &forged, &mut shard, now).unwrap()]);
        let verdicts = verify(&candidates, &mut rng);
        assert_eq!(verdicts, [Verified::BadCertificate]);
        shard.learn(&candidates, &verdicts, now);
    }
    assert_eq!(shard.certificates(), 0);
    assert!(flight.examine(&policy, &flight.block(), &mut shard, NOW + SECOND * 20).is_ok());
}

/// Verifies these flights together at `now`. The flag says whether a flight gets a valid signature.
fn batch(shard: &mut AsapShard, flights: &[(Flight, bool)], now: Instant) -> Vec<Verified> {
    let policy = policy();
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let candidates: Vec<_> = flights
        .iter()
        .map(|(flight, right)| {
            let block = if *right { flight.block() } else { flight.with_signature([1; 64]) };
            flight.examine(&policy, &block, shard, now).unwrap()
        })
        .collect();
    let verdicts = verify(&candidates, &mut rng);
    shard.learn(&candidates, &verdicts, now);
    verdicts
}

/// Whether a request of client `n` may go into a batch at `now`.
fn batches(shard: &mut AsapShard, n: u8, now: Instant) -> bool {
    let flight = Flight { requested_ms: clock_at(now).unix_ms, ..Flight::of(n) };
    flight.examine(&policy(), &flight.block(), shard, now).unwrap().batch
}

#[test]
fn a_prefix_with_a_wrong_request_is_verified_singly_for_ten_seconds() {
    let mut shard = shard();
    let verdicts = batch(&mut shard, &[(Flight::of(1), false), (Flight::of(2), true)], NOW);
    assert_eq!(verdicts, [Verified::BadRequest, Verified::Good]);
    assert!(!batches(&mut shard, 1, NOW + SECOND * 9));
    assert!(batches(&mut shard, 2, NOW + SECOND * 9), "who came with it is no suspect");
    assert!(batches(&mut shard, 1, NOW + SECOND * 10));
}

/// If more than 2 % of the batches fail, batches cost more than they save. Batching is tried again later.
#[test]
fn too_many_wrong_batches_end_batching_for_a_while() {
    let mut shard = shard();
    batch(&mut shard, &[(Flight::of(1), false), (Flight::of(2), true)], NOW);
    assert!(batches(&mut shard, 3, NOW), "one says nothing");
    batch(&mut shard, &[(Flight::of(3), false), (Flight::of(4), true)], NOW);
    assert!(!batches(&mut shard, 5, NOW));
    assert!(!batches(&mut shard, 5, NOW + SECOND * 9));
    assert!(batches(&mut shard, 5, NOW + SECOND * 10), "it never comes back");
    // One further failure does not end batching at once.
    let now = NOW + SECOND * 10;
    batch(&mut shard, &[(Flight::of(6), false), (Flight::of(7), true)], now);
    assert!(batches(&mut shard, 5, now));
}

/// Less than 2 % of failures is always tolerated. More is not, however many batches succeeded before.
#[test]
fn few_wrong_batches_are_borne() {
    let mut shard = shard();
    for n in 0..10_000 {
        shard.note_batch(n % 64 == 63, NOW);
        assert!(shard.may_batch(1, NOW), "after {n} batches");
    }
    for _ in 0..30 {
        shard.note_batch(true, NOW);
    }
    assert!(!shard.may_batch(1, NOW));
}

/// A certificate that was verified under one trust store is not known under another.
#[test]
fn a_new_trust_store_forgets_what_was_verified() {
    let (policy, mut shard) = (policy(), shard());
    let flight = Flight::of(1);
    batch(&mut shard, &[(flight.clone(), true)], NOW);
    let block = flight.block();
    assert_eq!(flight.examine(&policy, &block, &mut shard, NOW).unwrap().signatures(), 1);
    // A request that is being verified while the store changes is refused, and its certificate is not
    // remembered.
    let candidates = Vec::from([flight.examine(&policy, &block, &mut shard, NOW).unwrap()]);
    shard.trust_changed();
    assert_eq!(shard.certificates(), 0);
    let verdicts = verify(&candidates, &mut ChaCha20Rng::from_seed([1; 32]));
    shard.learn(&candidates, &verdicts, NOW);
    assert_eq!(shard.certificates(), 0);
    let decided = policy.decide(&candidates[0], verdicts[0], &mut shard, &clock_at(NOW));
    assert!(matches!(decided, Decision::Refuse(refused) if refused.status == Status::UnknownVerifier));
    assert_eq!(flight.examine(&policy, &block, &mut shard, NOW).unwrap().signatures(), 2);
}

/// A copy is refused while the clock is uncertain, and its client sends the data again. So what was being verified then is
/// refused too, also when the clock is certain again.
#[test]
fn a_clock_that_becomes_uncertain_stops_what_is_being_verified() {
    let (policy, mut shard) = (policy(), shard());
    let flight = Flight::of(1);
    let candidate = flight.examine(&policy, &flight.block(), &mut shard, NOW).unwrap();
    let mut clock = clock_at(NOW);
    for (seconds, status) in [(11, Status::OutsideWindow), (0, Status::GuardFloor)] {
        clock.uncertainty = Duration::from_secs(seconds);
        let decided = policy.decide(&candidate, Verified::Good, &mut shard, &clock);
        assert!(matches!(decided, Decision::Refuse(refused) if refused.status == status));
    }
}
