//! Requirements of RFC 9293 that no other file is about: addresses, flags, windows, queued segments.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use firstflight_stack::{ConnectConfig, ConnectError};
use peer::Peer;
use std::net::SocketAddr;

// --- addresses -----------------------------------------------------------------------------------

/// RFC 9293 §3.9.1.1 (MUST-46).
#[test]
fn nobody_connects_to_broadcast_multicast_or_nowhere() {
    for remote in ["255.255.255.255:80", "224.0.0.1:80", "239.1.2.3:80", "0.0.0.0:80", "10.0.0.2:0"] {
        let mut p = Peer::new();
        let remote: SocketAddr = remote.parse().unwrap();
        let refused = p.stack.connect(remote, b"", &ConnectConfig::default(), p.now);
        assert_eq!(refused, Err(ConnectError::BadRemote), "{remote}");
        p.quiet();
    }
    for remote in ["[ff02::1]:80", "[::]:80"] {
        let mut p = Peer::v6(|_| {});
        let refused = p.stack.connect(remote.parse().unwrap(), b"", &ConnectConfig::default(), p.now);
        assert_eq!(refused, Err(ConnectError::BadRemote), "{remote}");
    }
}
