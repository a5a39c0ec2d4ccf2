//! A server that is its own verifier, with real sockets. Each test has a namespace of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::site::{NETWORK, REQUEST, answer, ready, safely, serve};
use crate::namespace::in_namespace;
use firstflight::credential::asap::{PrivateKey, TrustStore, Trusted};
use firstflight::credential::{GuardKey, Guarded, Outcome, RemoteGuard, ReplayGuard, Window};
use firstflight::record::Published;
use firstflight::verifier::{Config, Issuer, IssuerAddress, Patience, Wanted, obtain};
use firstflight::{Authority, Client, MemoryStore, OwnVerifier, Server, Way};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::sync::Arc;

fn key() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

fn verifier() -> OwnVerifier {
    of_members(1)
}

fn of_members(members: u16) -> OwnVerifier {
    let allowed = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    let config = Config::default().issuer(Some(Issuer::new(key()))).allowed(allowed);
    let config = config.limits(OwnVerifier::limits()).members(NonZeroU16::new(members));
    OwnVerifier::with_config(config).unwrap()
}

/// A client that knows the server's verifier by its address and key gets a certificate from the very port, and its next request
/// is in the first packet.
#[test]
fn a_client_gets_its_certificate_where_it_sends_its_requests() {
    in_namespace("0", || async {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let verifier = verifier();
            let server = Server::builder()
                .address(address.parse().unwrap())
                .verifier(&verifier)
                .first_start(true)
                .bind()
                .unwrap();
            let (at, udp_port) = (server.local_addrs()[0], server.udp_port().unwrap());
            let mut executed = serve(server, |request, _| assert_eq!(request, REQUEST));
            let itself = IssuerAddress::new(SocketAddr::new(at.ip(), udp_port), key().public());
            let record = Published::in_udp(udp_port, 1200, &[itself.id()]).unwrap();
            let client = Client::builder().network(NETWORK).verifier(itself).no_resolver();
            let client = ready(client.record(Authority::from(at), record)).await;
            let stream = answer(client.connect(at, safely()).await).await;
            assert_eq!((stream.way(), stream.outcome()), (Way::Udp, Outcome::Accepted), "{address}");
            assert_eq!(executed.recv().await, Some(true));
            assert!(verifier.counters().certificates > 0);
        }
    });
}

/// Two servers of a process are one verifier. A server at all addresses answers from the address that was asked.
#[test]
fn servers_of_a_process_are_one_verifier() {
    in_namespace("0", || async {
        let verifier = verifier();
        let mut servers = Vec::new();
        for _ in 0..2 {
            let server = Server::builder()
                .address("0.0.0.0:0".parse().unwrap())
                .identity("www.example.com")
                .verifier(&verifier)
                .bind()
                .unwrap();
            let port = server.udp_port().unwrap();
            for address in ["127.0.0.1", "127.0.0.2"] {
                let from =
                    IssuerAddress::new(SocketAddr::new(address.parse().unwrap(), port), key().public());
                let wanted = Wanted { key: PrivateKey::from_seed(&[2; 32]), wished: 3600, old: None };
                obtain(&from, wanted, &Patience::default()).await.unwrap();
            }
            servers.push(server);
        }
        assert_eq!(verifier.counters().certificates, 4);
        assert_eq!(verifier.counters().stream_messages, 0);
    });
}

/// Clients would ask in vain.
#[test]
fn without_udp_there_is_no_verifier() {
    in_namespace("0", || async {
        let at: SocketAddr = "127.0.0.1:8443".parse().unwrap();
        let builder = || Server::builder().address(at).verifier(&verifier());
        let refused = |server: io::Result<Server>| server.unwrap_err().kind();
        assert_eq!(refused(builder().tcp_only().bind()), io::ErrorKind::InvalidInput);
        let taken = UdpSocket::bind(at).unwrap();
        assert_eq!(refused(builder().bind()), io::ErrorKind::AddrInUse);
        drop(taken);
        // It trusts itself beside others.
        let other = Trusted::new(PrivateKey::from_seed(&[3; 32]).public());
        let trust = Arc::new(TrustStore::new([other]).unwrap());
        builder().trust(trust).bind().unwrap();
        // At all addresses it needs a name.
        let all = Server::builder().address("0.0.0.0:0".parse().unwrap()).verifier(&verifier());
        assert_eq!(refused(all.bind()), io::ErrorKind::InvalidInput);
    });
}

/// Each member has a guard of its own, so a copy of a first flight would run at each.
#[test]
fn members_of_a_farm_say_that_they_do_not_know_of_each_other() {
    in_namespace("0", || async {
        let of = |members, per_site| {
            let server = Server::builder().address("127.0.0.1:0".parse().unwrap());
            server.verifier(&of_members(members)).per_site(per_site).bind()
        };
        assert!(of(1, false).is_ok() && of(2, true).is_ok());
        let error = of(2, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("set per_site"), "{error}");
        // One that they share knows.
        let guard = Arc::new(RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS));
        let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).verifier(&of_members(2));
        let server = server.request_guard(guard).store(Arc::new(MemoryStore::new(100)));
        assert!(server.bind().is_ok());
    });
}

/// A server does not know what was refused before it began, by another one that asks the same store or by none. So each has a
/// floor of its own, also one that begins later in the process.
#[test]
fn each_server_of_a_farm_begins_with_a_floor() {
    in_namespace("0", || async {
        let first = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
        let second = first.beside(Window::REQUESTS);
        let [first, second] = [first, second].map(Arc::new);
        let bind = |guard: &Arc<RemoteGuard>, first_start| {
            let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).verifier(&verifier());
            let server = server.request_guard(guard.clone()).store(Arc::new(MemoryStore::new(100)));
            server.first_start(first_start).bind().unwrap()
        };
        let refuses = |guard: &RemoteGuard, ahead_ms: u64| {
            let now = firstflight::unix_ms();
            let id = guard.id_of("192.0.2.1".parse().unwrap(), b"request");
            guard.look_up(id, now + ahead_ms, now) == Guarded::Floor
        };
        let _running = bind(&first, true);
        assert!(!refuses(&first, 0));
        let _added = bind(&second, false);
        assert!(refuses(&second, 5_000) && !refuses(&second, 10_001));
        assert!(!refuses(&first, 0), "the running one has no pause");
    });
}

/// Who gives a guard believes that it is asked.
#[test]
fn a_guard_that_is_not_asked_is_a_mistake() {
    in_namespace("0", || async {
        let server = || {
            let guard = Arc::new(RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS));
            let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).request_guard(guard);
            server.store(Arc::new(MemoryStore::new(100)))
        };
        assert!(server().verifier(&verifier()).bind().is_ok());
        for wrong in [server(), server().verifier(&verifier()).per_site(true)] {
            let error = wrong.bind().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains("request_guard"), "{error}");
        }
    });
}
