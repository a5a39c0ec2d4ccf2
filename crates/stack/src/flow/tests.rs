use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;
use std::collections::BTreeSet;

#[test]
fn a_key_is_forty_bytes_and_keeps_all_its_parts() {
    assert_eq!(size_of::<FlowKey>(), 40);
    for (local, remote) in
        [("192.0.2.1:80", "198.51.100.2:40000"), ("[2001:db8::1]:80", "[2001:db8::2]:40000")]
    {
        let (local, remote): (SocketAddr, SocketAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        let raw = FlowKey::new(local, remote);
        assert!(!raw.is_carried());
        assert_eq!((raw.outer_local(), raw.outer_remote()), (0, 0));
        let key = raw.carried(4433, 65_535);
        assert!(key.is_carried());
        assert_eq!((key.local(), key.remote()), (local, remote));
        assert_eq!((key.outer_local(), key.outer_remote()), (4433, 65_535));
        assert_eq!(key.headers_len() - key.ip_header_len(), 12);
        assert_eq!(key.v4().is_some(), local.is_ipv4());
        let outer = key.outer();
        assert_eq!((outer.local_port(), outer.remote_port(), outer.outer_remote()), (0, 0, 65_535));
        assert_eq!(outer, FlowKey::new(local, SocketAddr::new(remote.ip(), 1)).carried(4433, 65_535).outer());
    }
}

#[test]
fn an_ipv4_mapped_address_is_the_ipv4_address() {
    let (server, client) = ("192.0.2.1:80".parse().unwrap(), "[::ffff:198.51.100.2]:40000".parse().unwrap());
    let key = FlowKey::new(server, client);
    assert_eq!(key, FlowKey::new(server, "198.51.100.2:40000".parse().unwrap()));
    assert_eq!((key.remote().to_string(), key.ip_header_len()), ("198.51.100.2:40000".into(), 20));
    assert_eq!(key.v4(), Some((Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2))));
}

/// TIME-WAIT identifies flows by their hash alone.
#[test]
fn flows_that_differ_in_one_port_have_different_hashes() {
    let hasher = FlowHasher::new(7);
    for (local, remote) in [("192.0.2.1", "198.51.100.2"), ("2001:db8::1", "2001:db8::2")] {
        let (local, remote): (IpAddr, IpAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        let inner: Vec<FlowKey> = (0..100).map(|n| FlowKey::of(local, 80 + n, remote, 4000)).collect();
        let all: Vec<FlowKey> = (inner.iter().copied())
            .chain(inner.iter().map(|key| key.carried(80, 4000)))
            .chain((1..100).map(|n| inner[0].carried(80, 4000 + n)))
            .chain((1..100).map(|n| inner[0].carried(80 + n, 4000)))
            .collect();
        let hashes: BTreeSet<u64> = all.iter().map(|key| hasher.hash(key)).collect();
        assert_eq!(hashes.len(), all.len());
    }
}
