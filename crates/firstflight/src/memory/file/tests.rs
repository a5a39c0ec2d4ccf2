//! The cache file: what is written is read back, invalid files are kept, nothing of an unknown network is written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::*;
use crate::Config;
use crate::memory::history::History;
use crate::memory::{Fact, HolderMemory};
use firstflight_credential::{Entry, NetworkId};
use firstflight_stack::Stack;
use firstflight_wire::tcp::Cookie;
use firstflight_wire::{Clock, Instant};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const HOME: NetworkId = NetworkId([0x11; 16]);
const CAFE: NetworkId = NetworkId([0x22; 16]);

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn stack(network: NetworkId) -> Stack {
    let mut config = Config::new(vec![ip(1)], [1; 32]);
    config.network = network;
    Stack::new(config, START.mono)
}

const START: Clock =
    Clock { mono: Instant::from_secs(1_000_000), unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO };

/// Seconds after the start.
fn at(seconds: u64) -> Clock {
    let passed = Duration::from_secs(seconds);
    Clock { mono: START.mono + passed, unix_ms: START.unix_ms + passed.as_millis() as u64, ..START }
}

fn server(network: NetworkId, last: u8) -> CachedServer {
    let cookie = |byte, granted| CachedCookie {
        cookie: Cookie::new(&[byte; 8]).unwrap(),
        experimental: byte == 7,
        granted: START.unix_ms - granted,
    };
    CachedServer {
        network,
        server: ip(last),
        cookies: vec![cookie(last, 1_000), cookie(7, 86_400_000)],
        one_time: true,
        mss: Some(1460),
        rtt: Some(CachedRtt { srtt_us: 20_000, rttvar_us: 1_500, at: START.unix_ms - 500 }),
        path_mss: Some(CachedPathMss { mss: 1_024, at: START.unix_ms - 2_000 }),
        failures: 3,
        lost: 2,
        lost_at: START.unix_ms - 3_000,
        avoided: Some(Avoided { until: START.unix_ms + 60_000, asking: true }),
    }
}

fn learnt(stack: &Stack) -> HolderMemory<'_> {
    const NO_RACES: &History = &History::new();
    HolderMemory { servers: stack.credentials(), history: NO_RACES, others: None }
}

fn keeper(path: &Path, stack: &mut Stack) -> Keeper {
    let keeper = Keeper::load(CredentialCache::open(path).unwrap(), &START, |fact| match fact {
        Fact::Server(network, server, entry) => stack.restore_credential(network, server, entry),
        fact => panic!("{fact:?}"),
    });
    keeper.start(&learnt(stack), &START)
}

/// Changes the store and writes it.
fn save(keeper: &mut Keeper, stack: &mut Stack, clock: &Clock) {
    stack.restore_credential(HOME, ip(99), Entry::new());
    keeper.snapshot(&learnt(stack), clock).unwrap().write();
}

#[test]
fn what_is_saved_comes_back_with_its_ages() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    // The most recently used server is last in the file.
    let servers = vec![server(HOME, 9), server(CAFE, 3), server(HOME, 4)];
    CredentialCache::write(&path, &servers).unwrap();
    let mut stack = stack(HOME);
    let mut keeper = keeper(&path, &mut stack);
    assert!(keeper.due(&learnt(&stack)).is_none(), "nothing changed yet");
    let entry = stack.credentials().iter().find(|(_, server, _)| *server == ip(4)).unwrap().2;
    assert_eq!(START.mono - entry.cookie().unwrap().granted_at, Duration::from_secs(1));
    save(&mut keeper, &mut stack, &at(10));
    let mut again = CredentialCache::read(&path).unwrap();
    let added = again.pop().unwrap();
    assert_eq!((added.server, added.cookies.len(), added.avoided), (ip(99), 0, None));
    assert_eq!(again, servers);
}

#[test]
fn the_file_is_private_and_replaced_in_one_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    fs::write(&path, "{\"version\":1,\"servers\":[]}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::File::open(&path).unwrap();
    CredentialCache::write(&path, &[server(HOME, 4)]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::io::read_to_string(before).unwrap(), "{\"version\":1,\"servers\":[]}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn a_file_that_is_no_cache_is_set_aside_and_never_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    let older = "{\"version\":0,\"servers\":{}}";
    let long = format!("{{\"version\":1,\"servers\":[{{\"network\":\"{}\"}}]}}", "1".repeat(31));
    let bad = ["", "not JSON", older, &long, "{\"version\":1}"];
    for text in bad {
        fs::write(&path, text).unwrap();
        assert!(matches!(CredentialCache::read(&path), Err(CacheError::Invalid(..))), "{text}");
        assert!(CredentialCache::open(&path).unwrap().servers().is_empty());
        assert!(!path.exists());
    }
    let mut kept: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    kept.sort_unstable();
    let mut bad = bad.map(String::from);
    bad.sort_unstable();
    assert_eq!(kept, bad);
}

#[test]
fn a_cache_of_a_newer_program_is_refused_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    let newer = "{\"version\":3,\"servers\":{}}";
    fs::write(&path, newer).unwrap();
    assert!(matches!(CredentialCache::open(&path), Err(CacheError::Newer(_, 3))));
    // Nor is it replaced by a program that opened it before.
    assert!(CredentialCache::update(&path, Vec::clear).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), newer);
}

#[test]
fn a_missing_file_is_an_empty_cache_and_a_bad_place_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    assert!(CredentialCache::open(&path).unwrap().servers().is_empty());
    assert!(!path.exists(), "nothing to write yet");
    assert!(matches!(CredentialCache::read(&path), Err(CacheError::Missing(_))));
    assert!(matches!(CredentialCache::open(directory.path()), Err(CacheError::Write(..))));
    let nowhere = directory.path().join("no/such/cache.json");
    assert!(matches!(CredentialCache::open(nowhere), Err(CacheError::Write(..))));
}

#[test]
fn nothing_of_an_unknown_network_is_written_or_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    CredentialCache::write(&path, &[server(NetworkId::UNKNOWN, 4), server(HOME, 5)]).unwrap();
    let mut stack = stack(HOME);
    let mut keeper = keeper(&path, &mut stack);
    assert_eq!(stack.credentials().len(), 1);
    stack.restore_credential(NetworkId::UNKNOWN, ip(6), Entry::new());
    save(&mut keeper, &mut stack, &START);
    let servers = CredentialCache::read(&path).unwrap();
    assert_eq!(servers.iter().map(|s| s.server).collect::<Vec<_>>(), [ip(5), ip(99)]);
}

#[test]
fn it_is_written_every_few_seconds_at_most_and_never_backwards() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    let mut stack = stack(HOME);
    let mut keeper = keeper(&path, &mut stack);
    stack.restore_credential(HOME, ip(4), Entry::new());
    assert_eq!(keeper.due(&learnt(&stack)), Some(START.mono));
    let first = keeper.snapshot(&learnt(&stack), &START).unwrap();
    assert!(keeper.snapshot(&learnt(&stack), &at(1)).is_none(), "nothing changed");
    stack.restore_credential(HOME, ip(5), Entry::new());
    assert_eq!(keeper.due(&learnt(&stack)), Some(at(3).mono));
    let second = keeper.snapshot(&learnt(&stack), &at(3)).unwrap();
    second.write();
    first.write();
    assert_eq!(CredentialCache::read(&path).unwrap().len(), 2);
}

/// Two processes share a file: neither loses what the other learnt.
#[test]
fn two_processes_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    CredentialCache::write(&path, &[server(HOME, 1), server(HOME, 2)]).unwrap();
    let (mut one, mut two) = (stack(HOME), stack(HOME));
    let (mut first, mut second) = (keeper(&path, &mut one), keeper(&path, &mut two));
    one.restore_credential(HOME, ip(3), Entry::new());
    first.snapshot(&learnt(&one), &at(1)).unwrap().write();
    // The other one has not read that, and learns something else, also of a server that both know.
    two.restore_credential(HOME, ip(4), Entry::new());
    two.restore_credential(HOME, ip(1), Entry::new());
    second.snapshot(&learnt(&two), &at(2)).unwrap().write();
    let servers = CredentialCache::read(&path).unwrap();
    assert_eq!(servers.iter().map(|s| s.server).collect::<Vec<_>>(), [2, 3, 4, 1].map(ip));
    assert_eq!(servers.iter().map(|s| s.cookies.len()).collect::<Vec<_>>(), [2, 0, 0, 0]);
    // What one of them forgets is gone, and what it learns after that is not.
    one.forget_credentials();
    first.forget();
    one.restore_credential(HOME, ip(5), Entry::new());
    first.snapshot(&learnt(&one), &at(5)).unwrap().write();
    assert_eq!(CredentialCache::read(&path).unwrap().iter().map(|s| s.server).collect::<Vec<_>>(), [ip(5)]);
}

#[test]
fn the_file_holds_no_more_servers_than_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    let mut store = firstflight_credential::CredentialStore::new(2);
    CredentialCache::write(&path, &[server(HOME, 1), server(HOME, 2)]).unwrap();
    let cache = CredentialCache::open(&path).unwrap();
    let keeper = Keeper::load(cache, &START, |fact| match fact {
        Fact::Server(network, ip, entry) => store.restore(network, ip, entry),
        fact => panic!("{fact:?}"),
    });
    const NO_RACES: &History = &History::new();
    fn learnt(servers: &firstflight_credential::CredentialStore) -> HolderMemory<'_> {
        HolderMemory { servers, history: NO_RACES, others: None }
    }
    let mut keeper = keeper.start(&learnt(&store), &START);
    store.restore(HOME, ip(3), Entry::new());
    keeper.snapshot(&learnt(&store), &at(1)).unwrap().write();
    let servers = CredentialCache::read(&path).unwrap();
    assert_eq!(servers.iter().map(|s| s.server).collect::<Vec<_>>(), [ip(2), ip(3)]);
}

/// A file that became invalid meanwhile is kept, and what could not be written is written later.
#[test]
fn a_file_that_cannot_be_written_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    let mut stack = stack(HOME);
    let mut keeper = keeper(&path, &mut stack);
    let lock = firstflight_files::StateFile::lock(&path).unwrap();
    stack.restore_credential(HOME, ip(4), Entry::new());
    keeper.snapshot(&learnt(&stack), &START).unwrap().write();
    assert!(!path.exists(), "another process holds the lock");
    drop(lock);
    fs::write(&path, "not JSON").unwrap();
    stack.restore_credential(HOME, ip(5), Entry::new());
    keeper.snapshot(&learnt(&stack), &at(3)).unwrap().write();
    let servers = CredentialCache::read(&path).unwrap();
    assert_eq!(servers.iter().map(|s| s.server).collect::<Vec<_>>(), [ip(4), ip(5)]);
    let aside = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(aside.into_iter().any(|name| name.to_string_lossy().contains("corrupt")));
}

#[test]
fn a_file_cannot_ask_for_more_than_a_server_can() {
    let mut odd = server(HOME, 4);
    odd.cookies = vec![odd.cookies[0].clone(); 100];
    odd.mss = Some(0);
    odd.rtt = Some(CachedRtt { srtt_us: u64::MAX, rttvar_us: u64::MAX, at: u64::MAX });
    odd.failures = u32::MAX;
    odd.avoided = Some(Avoided { until: u64::MAX, asking: false });
    let entry = odd.entry(&START);
    assert_eq!((entry.cookies.as_slice().len(), entry.mss), (1, None));
    assert_eq!(entry.failures.retry_at, START.mono + Duration::from_secs(86_400));
    let mut store = firstflight_credential::CredentialStore::new(1);
    store.restore(HOME, ip(4), entry);
    assert_eq!(store.syn_timeout(HOME, ip(4), START.mono), Duration::from_secs(1));
    store.note_failure(HOME, ip(4), at(90_000).mono);
}

#[test]
fn debug_shows_no_cookie() {
    let text = format!("{:?}", server(HOME, 0xab));
    assert!(!text.contains("abab") && !text.contains("171, 171"), "{text}");
}
