//! One file for all subjects: what one process learnt, the next one knows, on the same network only.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::row::Row;
use super::*;
use crate::clock::unix;
use crate::memory::kernel::Memory;
use crate::memory::records::NamedServer;
use firstflight_credential::{NetworkId, Permission};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const HOME: NetworkId = NetworkId([0x11; 16]);
const CAFE: NetworkId = NetworkId([0x22; 16]);
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PARAMETER: &[u8] = &[1, 0xab];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn at(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER, port)
}

fn now() -> u64 {
    unix().as_millis() as u64
}

fn open(path: &Path, network: NetworkId) -> Memory {
    let mut memory = Memory::new(network);
    assert!(memory.keep(CredentialCache::open(path).unwrap()));
    memory
}

fn save(memory: &mut Memory) {
    memory.save().unwrap().write();
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache.json");
    (directory, path)
}

/// Learns something of every subject.
fn learn(memory: &mut Memory, network: NetworkId) {
    memory.lost_race(SERVER, Duration::ZERO);
    memory.raced(at(2), &[at(1)]);
    memory.note_closed(at(3));
    memory.udp_lost(at(4), Some(9));
    memory.udp_lost("198.51.100.1:4".parse().unwrap(), Some(9));
    let (records, time) = memory.records();
    records.learn(NamedServer::new(network, "www.Example.com", 80), Some(PARAMETER), DAY, time);
    records.learn(NamedServer::new(network, "nothing.example.com", 80), None, DAY, time);
}

/// Whether it is known, subject by subject: servers, lost races, closed ports, UDP, records.
fn knows(memory: &mut Memory, network: NetworkId) -> [bool; 5] {
    let (first, last) = memory.split(&[at(1), at(2)]);
    assert_eq!(first.len() + last.len(), 2);
    memory.lost_race(SERVER, Duration::ZERO);
    let servers = memory.permission(SERVER) == Permission::Nothing;
    let (closed, udp) =
        (memory.was_closed(at(3)), memory.is_slow_in_udp(at(4), 9) && !memory.allows_udp(true));
    let (records, time) = memory.records();
    let known = records.get(&NamedServer::new(network, "www.example.com", 80), time);
    let published = known.and_then(|known| known.parameter.as_deref()) == Some(PARAMETER);
    [servers, first == [at(1)], closed, udp, published]
}

#[test]
fn what_one_process_learnt_the_next_one_knows_on_the_same_network_only() {
    let (_directory, path) = file();
    let mut memory = open(&path, HOME);
    learn(&mut memory, HOME);
    save(&mut memory);
    let content = CredentialCache::read_all(&path).unwrap();
    // What is not published is not written.
    let lengths = [
        content.servers.len(),
        content.lost_races.len(),
        content.closed_ports.len(),
        content.udp_pauses.len(),
        content.records.len(),
    ];
    assert_eq!(lengths, [1, 3, 1, 1, 1], "{content:?}");
    assert_eq!(knows(&mut open(&path, HOME), HOME), [true; 5]);
    assert_eq!(knows(&mut open(&path, CAFE), CAFE), [false; 5]);
    let mut moved = open(&path, HOME);
    moved.move_to(CAFE);
    assert_eq!(knows(&mut moved, CAFE), [false; 5]);
    moved.move_to(NetworkId::UNKNOWN);
    assert_eq!(knows(&mut moved, NetworkId::UNKNOWN), [false; 5]);
}

#[test]
fn nothing_of_an_unknown_network_is_written_or_read() {
    let (_directory, path) = file();
    let mut memory = open(&path, HOME);
    memory.move_to(NetworkId::UNKNOWN);
    learn(&mut memory, NetworkId::UNKNOWN);
    if let Some(snapshot) = memory.save() {
        snapshot.write();
    }
    assert!(!path.exists(), "{:?}", fs::read_to_string(&path));
    // A file that has some of it is cleaned with the next write.
    memory.move_to(HOME);
    learn(&mut memory, HOME);
    save(&mut memory);
    let text = fs::read_to_string(&path).unwrap();
    let unknown = text.replace(&"11".repeat(16), &"00".repeat(16));
    fs::write(&path, unknown).unwrap();
    let mut next = open(&path, CAFE);
    assert_eq!(knows(&mut next, NetworkId::UNKNOWN), [false; 5]);
    save(&mut next);
    let mut content = CredentialCache::read_all(&path).unwrap();
    assert_eq!(content.len(), 1);
    content.retain(|network, _| network != CAFE);
    assert!(content.is_empty());
}

#[test]
fn a_file_of_version_one_is_read_and_becomes_one_of_version_two() {
    let (directory, path) = file();
    let old = format!(
        r#"{{"version": 1, "servers": [{{
            "network": "{}", "server": "192.0.2.7", "one_time": false, "mss": 1460, "failures": 1,
            "cookies": [{{"cookie": "0102030405060708", "experimental": false, "granted": 1}}],
            "rtt": null, "lost": 1, "avoided": null }}] }}"#,
        "11".repeat(16)
    );
    fs::write(&path, &old).unwrap();
    let mut memory = open(&path, HOME);
    learn(&mut memory, HOME);
    save(&mut memory);
    let content = CredentialCache::read_all(&path).unwrap();
    assert_eq!((content.servers.len(), content.records.len()), (2, 1));
    assert_eq!((content.servers[0].cookies.len(), content.servers[0].lost), (1, 1));
    assert!(fs::read_to_string(&path).unwrap().contains("\"version\": 2"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "the file, whose lock is gone");
}

/// A file of lookups, as an older `get` wrote it, and one with a field that this version does not have: both are kept
/// under another name.
#[test]
fn no_field_that_is_not_known_is_destroyed() {
    let (directory, path) = file();
    let lookups = r#"{"version":1,"servers":[],"stops":[],"closed":[]}"#;
    let field = r#"{"version":2,"servers":[],"weather":[]}"#;
    let inner = format!(
        r#"{{"version":2,"servers":[],"closed_ports":[{{"network":"{}","server":"[::1]:1","at":1,"by":2}}]}}"#,
        "11".repeat(16)
    );
    for (n, text) in [lookups, field, &inner].into_iter().enumerate() {
        fs::write(&path, text).unwrap();
        let mut memory = open(&path, HOME);
        // It is gone before anything is written.
        assert!(!path.exists(), "{text}");
        fs::write(&path, text).unwrap();
        learn(&mut memory, HOME);
        save(&mut memory);
        let kept = fs::read_dir(directory.path()).unwrap().filter(|entry| {
            let entry = entry.as_ref().unwrap();
            entry.file_name().to_string_lossy().contains("corrupt")
        });
        assert_eq!(kept.count(), 2 * (n + 1), "{text}");
        assert_eq!(CredentialCache::read_all(&path).unwrap().records.len(), 1);
    }
}

#[test]
fn two_processes_share_a_file() {
    let (_directory, path) = file();
    let (mut one, mut two) = (open(&path, HOME), open(&path, HOME));
    learn(&mut one, HOME);
    save(&mut one);
    two.note_closed(at(30));
    two.raced(at(20), &[at(10)]);
    save(&mut two);
    let content = CredentialCache::read_all(&path).unwrap();
    assert_eq!((content.closed_ports.len(), content.lost_races.len(), content.records.len()), (2, 4, 1));
    // What ended for one of them is gone, but not what the other learnt of it since.
    CredentialCache::update_all(&path, |content| {
        let again = content.lost_races.iter_mut().find(|row| row.server == at(1)).unwrap();
        again.at += 1;
    })
    .unwrap();
    one.raced(at(1), &[]);
    one.opened(at(3));
    save(&mut one);
    let content = CredentialCache::read_all(&path).unwrap();
    assert_eq!(content.closed_ports.iter().map(|row| row.server).collect::<Vec<_>>(), [at(30)]);
    assert!(content.lost_races.iter().any(|row| row.server == at(1)));
    // Forgotten is forgotten, in the file too, and what is learnt after that is not.
    one.forget();
    one.note_closed(at(40));
    save(&mut one);
    let content = CredentialCache::read_all(&path).unwrap();
    assert_eq!((content.len(), content.closed_ports.len()), (1, 1));
}

#[test]
fn what_counts_no_more_is_not_kept() {
    let (_directory, path) = file();
    let mut memory = open(&path, HOME);
    learn(&mut memory, HOME);
    save(&mut memory);
    CredentialCache::update_all(&path, |content| {
        content.lost_races.iter_mut().for_each(|row| row.at = now() - 11 * 60 * 1000);
        content.closed_ports.iter_mut().for_each(|row| row.at = now() - 61 * 1000);
        content.udp_pauses.iter_mut().for_each(|row| row.until = now() - 25 * 60 * 60 * 1000);
        content.records.iter_mut().for_each(|row| row.until = now() - 1);
        content.servers.clear();
    })
    .unwrap();
    let mut next = open(&path, HOME);
    assert_eq!(knows(&mut next, HOME), [false; 5]);
    save(&mut next);
    assert_eq!(CredentialCache::read_all(&path).unwrap().len(), 1, "the server of the last look");
}

/// The clock was a month ahead when the file was written.
#[test]
fn what_a_clock_that_was_ahead_wrote_does_not_count() {
    const MONTH: u64 = 30 * 24 * 60 * 60 * 1000;
    let (_directory, path) = file();
    let mut memory = open(&path, HOME);
    learn(&mut memory, HOME);
    save(&mut memory);
    CredentialCache::update_all(&path, |content| {
        content.lost_races.iter_mut().for_each(|row| row.at += MONTH);
        content.closed_ports.iter_mut().for_each(|row| row.at += MONTH);
        content.udp_pauses.iter_mut().for_each(|row| row.until += MONTH);
        content.unreachable.push(CachedUnreachable { network: HOME, until: now() + MONTH });
        content.records.clear();
        content.servers.clear();
    })
    .unwrap();
    let mut next = open(&path, HOME);
    assert_eq!(knows(&mut next, HOME), [false; 5]);
    save(&mut next);
    assert_eq!(CredentialCache::read_all(&path).unwrap().len(), 1, "the server of the last look");
}

/// Of each subject, `n` of the largest entries that can be.
fn full(n: usize) -> CacheContent {
    let network = |n: usize| NetworkId((n as u128 + 1).to_be_bytes());
    let ip = |n: usize| IpAddr::from(((0xfd00 << 112) + n as u128 * 0x1111_1111_1111).to_be_bytes());
    let (all, at) = (0..n, now() + 30_000);
    let cookie = || CachedCookie {
        cookie: firstflight_wire::tcp::Cookie::new(&[0xab; 16]).unwrap(),
        experimental: false,
        granted: at,
    };
    CacheContent {
        version: 0,
        servers: (all.clone())
            .map(|n| CachedServer {
                network: network(n),
                server: ip(n),
                cookies: (0..firstflight_credential::store::MAX_COOKIES).map(|_| cookie()).collect(),
                one_time: false,
                mss: Some(u16::MAX),
                rtt: Some(CachedRtt { srtt_us: u64::MAX, rttvar_us: u64::MAX, at }),
                path_mss: Some(CachedPathMss { mss: u16::MAX, at }),
                failures: u32::MAX,
                lost: u8::MAX,
                lost_at: at,
                avoided: Some(Avoided { until: at, asking: false }),
            })
            .collect(),
        lost_races: (all.clone())
            .map(|n| CachedLostRace {
                network: network(n),
                server: SocketAddr::new(ip(n), u16::MAX),
                udp_port: Some(u16::MAX),
                at,
            })
            .collect(),
        closed_ports: (all.clone())
            .map(|n| CachedClosedPort { network: network(n), server: SocketAddr::new(ip(n), u16::MAX), at })
            .collect(),
        udp_pauses: all
            .clone()
            .map(|n| CachedUdpPause { network: network(n), pauses: u32::MAX, until: at })
            .collect(),
        records: (all.clone())
            .map(|n| CachedRecord {
                network: network(n),
                name: format!("{n:0253}"),
                port: u16::MAX,
                parameter: vec![0xab; 512],
                until: at,
                lost: u32::MAX,
                asked: Some(at),
            })
            .collect(),
        resolvers: (all.clone())
            .map(|n| CachedResolver {
                network: network(n),
                resolver: ip(n),
                zone: vec![0xab; 255],
                strikes: u32::MAX,
                no_zone: true,
                until: at,
            })
            .collect(),
        unreachable: all.map(|n| CachedUnreachable { network: network(n), until: at }).collect(),
    }
}

#[test]
fn the_file_is_bounded_in_entries_and_bytes() {
    let (_directory, path) = file();
    let content = changes::Changes::default().apply(full(5000), usize::MAX, false, now());
    assert_eq!(content.servers.len(), CachedServer::MOST);
    assert_eq!(content.lost_races.len(), CachedLostRace::MOST);
    assert_eq!(content.closed_ports.len(), CachedClosedPort::MOST);
    assert_eq!(content.udp_pauses.len(), CachedUdpPause::MOST);
    assert_eq!(content.records.len(), CachedRecord::MOST);
    assert_eq!(content.resolvers.len(), CachedResolver::MOST);
    assert_eq!(content.unreachable.len(), CachedUnreachable::MOST);
    // The latest entries stay.
    assert_eq!(content.records.last().map(|row| row.network), Some(NetworkId(5000_u128.to_be_bytes())));
    disk::write(&path, &content).unwrap();
    assert_eq!(CredentialCache::read_all(&path).unwrap(), content, "too long to be read");
}

#[test]
fn a_file_cannot_ask_for_more_than_a_day_or_hold_other_things() {
    let (_directory, path) = file();
    let mut content = full(2);
    content.retain(|network, _| network == NetworkId(1_u128.to_be_bytes()));
    content.retain(|_, ip| ip.is_none());
    disk::write(&path, &content).unwrap();
    let network = NetworkId(1_u128.to_be_bytes());
    let mut memory = open(&path, network);
    let (records, time) = memory.records();
    let known = records.get(&NamedServer::new(network, &format!("{:0253}", 0), u16::MAX), time).unwrap();
    assert!(known.until <= time + DAY && known.asked.is_some_and(|asked| asked <= time));
    for wrong in ["\"zone\": \"0g\"", "\"zone\": 1"] {
        let text = fs::read_to_string(&path).unwrap();
        let zone = format!("\"zone\": \"{}\"", "ab".repeat(255));
        assert!(text.contains(&zone));
        fs::write(&path, text.replace(&zone, wrong)).unwrap();
        assert!(matches!(CredentialCache::read_all(&path), Err(CacheError::Invalid(..))), "{wrong}");
        fs::write(&path, text).unwrap();
    }
}
