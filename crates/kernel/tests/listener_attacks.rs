//! Attacks on the kernel's listener, from its specification alone.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::namespace;
use crate::namespace::in_namespace;
use firstflight_credential::Outcome;
use firstflight_kernel::{Carry, ListenConfig, Listener, connect};
use std::io::Write;

/// A service manager's socket has connections that wait since before this program adopted it.
#[test]
fn what_waited_in_an_adopted_socket_is_early() {
    // 0x400: all listeners take first flights without asking for it.
    in_namespace("1027", || async {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let attempt = connect(at, None, Carry::Data(b"first")).unwrap();
        drop(attempt.established().await.unwrap());
        // Only SYNs pass, so the handshake is not complete.
        let rule = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add rule ip t c tcp dport {} tcp flags & (syn | ack) == ack drop",
            at.port()
        );
        assert!(namespace::nft(&rule));
        let attempt = connect(at, None, Carry::Data(b"order")).unwrap();
        assert_eq!(attempt.taken(), 5);
        let listener = Listener::adopt(socket, ListenConfig::default()).unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let stream = listener.accept().await.unwrap();
            seen.push((stream.outcome(), stream.early_bytes(), stream.is_early()));
        }
        let (outcome, bytes, early) = seen[1];
        assert_eq!(outcome, Outcome::Accepted);
        assert!(bytes > 0 && early, "data of a SYN, no ACK yet: {seen:?}");
    });
}

/// A SYN with an IPv6 extension header.
#[test]
fn a_syn_with_an_extension_header_is_early() {
    in_namespace("3", || async {
        let listener = Listener::bind("[::1]:0".parse().unwrap(), ListenConfig::default()).unwrap();
        let at = listener.local_addr();
        let attempt = connect(at, None, Carry::Data(b"first")).unwrap();
        let (client, server) = tokio::join!(attempt.established(), listener.accept());
        drop((client.unwrap(), server.unwrap()));
        assert!(namespace::nft(&format!(
            "add table ip6 t; add chain ip6 t c {{ type filter hook input priority 0; }}; \
             add rule ip6 t c tcp dport {} tcp flags & (syn | ack) == ack drop",
            at.port()
        )));
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        // Destination options: PadN of six bytes.
        let options: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
        let result = unsafe {
            use std::os::fd::AsRawFd;
            libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IPV6, 59, options.as_ptr().cast(), 8)
        };
        assert_eq!(result, 0);
        socket.set_nonblocking(true).unwrap();
        let sent = socket.send_to_with_flags(b"order", &at.into(), libc::MSG_FASTOPEN);
        assert_eq!(sent.unwrap(), 5);
        let stream = listener.accept().await.unwrap();
        assert_eq!(stream.outcome(), Outcome::Accepted);
        assert!(
            stream.early_bytes() == 5 && stream.is_early(),
            "{} {}",
            stream.early_bytes(),
            stream.is_early()
        );
    });
}

/// As its documentation says: "accept until `try_accept` returns nothing, and drop the listener".
#[test]
fn try_accept_returns_what_waits() {
    in_namespace("3", || async {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), ListenConfig::default()).unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr()).unwrap();
        client.write_all(b"order").unwrap();
        listener.drain().unwrap();
        assert!(listener.try_accept().unwrap().is_some(), "a connection waits, whose data was acknowledged");
    });
}
