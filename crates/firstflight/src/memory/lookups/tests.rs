#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use std::net::IpAddr;

const HOME: NetworkId = NetworkId([7; 16]);
const CAFE: NetworkId = NetworkId([8; 16]);
/// The clock of [`Manners`], and the wall clock at that moment.
const CLOCK: Instant = Instant::from_secs(1_000_000);
const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";

fn resolver() -> IpAddr {
    "192.0.2.53".parse().unwrap()
}

/// A stop of ZONE whose pause ends this many seconds from now.
fn stop(network: NetworkId, seconds: i64) -> Stop {
    let of = Duration::from_secs(seconds.unsigned_abs());
    Stop {
        network,
        resolver: resolver(),
        zone: Some(ZONE.into()),
        cause: if seconds < 0 { Cause::Zone } else { Cause::Resolver },
        strikes: 3,
        until: if seconds < 0 { CLOCK - of } else { CLOCK + of },
    }
}

fn unix(memory: &LookupMemory) -> u64 {
    memory.time.clock().unix_ms
}

#[test]
fn what_is_written_is_read_on_the_same_network_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let mut memory = LookupMemory::open(&path, HOME).unwrap();
    let now = unix(&memory);
    memory.set_stops_at(&[stop(HOME, 600), stop(NetworkId::UNKNOWN, 600)], CLOCK, now);
    memory.set_unreachable(true);
    memory.save().unwrap();
    assert_eq!(CredentialCache::read_all(&path).unwrap().len(), 2);
    let again = LookupMemory::open(&path, HOME).unwrap();
    let manners = again.manners_at(CLOCK, now);
    let zone = Zone::new(ZONE).unwrap();
    let is_stopped = |after| manners.is_stopped(zone, HOME, resolver(), CLOCK + Duration::from_secs(after));
    assert!(is_stopped(599) && !is_stopped(601));
    assert!(!manners.is_stopped(zone, CAFE, resolver(), CLOCK));
    assert!(again.is_unreachable() && !again.is_unreachable_at(now + 3_700_000));
    // A program on another network knows none of it, and leaves it in the file.
    let mut other = LookupMemory::open(&path, CAFE).unwrap();
    assert!(!other.is_unreachable());
    let stops: Vec<_> = other.manners_at(CLOCK, now).stops(CLOCK).cloned().collect();
    other.set_stops_at(&stops, CLOCK, now);
    other.set_unreachable(true);
    other.save().unwrap();
    let content = CredentialCache::read_all(&path).unwrap();
    assert_eq!((content.resolvers.len(), content.unreachable.len()), (1, 2));
}

#[test]
fn two_programs_write_into_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let [mut one, mut two] = [(); 2].map(|()| LookupMemory::open(&path, HOME).unwrap());
    one.set_unreachable(true);
    one.save().unwrap();
    two.set_stops_at(&[stop(HOME, -60)], CLOCK, unix(&two));
    two.save().unwrap();
    let content = CredentialCache::read_all(&path).unwrap();
    assert_eq!((content.resolvers.len(), content.unreachable.len()), (1, 1));
    assert!(content.resolvers[0].no_zone);
    // What one of them takes back is gone.
    one.set_unreachable(false);
    one.save().unwrap();
    let content = CredentialCache::read_all(&path).unwrap();
    assert_eq!((content.resolvers.len(), content.unreachable.len()), (1, 0));
}

#[test]
fn on_an_unknown_network_the_file_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let mut memory = LookupMemory::open(&path, NetworkId::UNKNOWN).unwrap();
    memory.set_unreachable(true);
    memory.save().unwrap();
    assert!(!memory.is_unreachable() && !path.exists());
}

#[test]
fn a_zone_that_is_none_is_passed_over() {
    let mut memory = LookupMemory::new(HOME);
    let mut wrong = stop(HOME, 600);
    wrong.zone = Some(b"\x05\xff".as_slice().into());
    let now = unix(&memory);
    memory.set_stops_at(&[wrong], CLOCK, now);
    assert_eq!(memory.manners_at(CLOCK, now).stops(CLOCK).count(), 0);
}
