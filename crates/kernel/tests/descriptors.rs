//! What is said of sockets that this crate did not make, in a network namespace of each test's own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::namespace::in_namespace;
use firstflight_credential::{Outcome, Reason};
use firstflight_kernel::{Carry, begin, descriptor};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const REQUEST: &[u8] = b"request";

/// Connects a socket of the standard library's, sends the request, and returns both ends.
fn visit(listener: &TcpListener, carry: Carry<'_>) -> (TcpStream, TcpStream) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let facts = descriptor::connect_on(&socket, listener.local_addr().unwrap(), carry).unwrap();
    let mut client: TcpStream = socket.into();
    client.write_all(&REQUEST[facts.taken()..]).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The server reads the request, and the client its end.
fn exchange((mut client, mut server): (TcpStream, TcpStream)) {
    let mut request = [0; REQUEST.len()];
    server.read_exact(&mut request).unwrap();
    assert_eq!(request, REQUEST);
    drop(server);
    assert_eq!(client.read(&mut request).unwrap(), 0);
}

fn outcomes((client, server): &(TcpStream, TcpStream)) -> (Outcome, Outcome, u32) {
    let arrived = descriptor::accepted(server).unwrap();
    (descriptor::connected(client).unwrap().0, arrived.outcome, arrived.early)
}

#[test]
fn both_ends_of_any_socket_have_an_outcome() {
    in_namespace("3", || async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(descriptor::prepare(&listener, 16, &[7; 16]).unwrap());
        let refused = Outcome::Handshake(Reason::NoCredential);
        let ends = visit(&listener, Carry::Data(REQUEST));
        assert_eq!(outcomes(&ends), (refused, refused, 0));
        exchange(ends);
        let ends = visit(&listener, Carry::Data(REQUEST));
        assert_eq!(outcomes(&ends), (Outcome::Accepted, Outcome::Accepted, 7));
        exchange(ends);
        // The cookie is one of another key.
        descriptor::set_keys(&listener, &[8; 16]).unwrap();
        let ends = visit(&listener, Carry::Data(REQUEST));
        let expected = (
            Outcome::Handshake(Reason::DataNotAcknowledged),
            Outcome::Handshake(Reason::StaleOrWrongCredential),
            0,
        );
        assert_eq!(outcomes(&ends), expected);
        exchange(ends);
        let ends = visit(&listener, Carry::Nothing(Reason::Policy));
        let plain = Outcome::Handshake(Reason::NotRequested);
        assert_eq!(outcomes(&ends), (plain, plain, 0));
        exchange(ends);
    });
}

#[test]
fn a_namespace_that_does_not_allow_it_is_named() {
    in_namespace("0", || async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!descriptor::prepare(&listener, 16, &[]).unwrap());
        let ends = visit(&listener, Carry::Data(REQUEST));
        let disabled = Outcome::Handshake(Reason::SystemDisabled);
        assert_eq!(outcomes(&ends), (disabled, Outcome::Handshake(Reason::NotRequested), 0));
        exchange(ends);
    });
}

#[test]
fn sockets_that_are_not_connected_are_undecided_and_others_are_errors() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    assert_eq!(descriptor::connected(&socket).unwrap().0, Outcome::Undecided);
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(descriptor::connected(&datagrams).is_err() && descriptor::prepare(&datagrams, 1, &[]).is_err());
    assert!(descriptor::prepare(&socket, 1, &[1; 15]).is_err());
}

#[test]
fn a_connect_without_a_runtime_is_checked_until_it_is_answered() {
    in_namespace("3", || async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at: SocketAddr = listener.local_addr().unwrap();
        let begun = begin(at, None, Carry::Request(Reason::NoData)).unwrap();
        let outcome = loop {
            match begun.check().unwrap() {
                Some(outcome) => break outcome,
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!(outcome, Outcome::Handshake(Reason::NoData));
        drop(listener);
        let refused = begin(at, None, Carry::Nothing(Reason::Policy)).and_then(|begun| {
            loop {
                if begun.check()?.is_some() {
                    return Ok(());
                }
            }
        });
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    });
}
