//! Attacks on sealed first flights that need TLS (`docs/spec/sealed.md` section 10). The attacks on the protocol itself are in
//! `crates/seal/src/tests/attacks`, with variants without the defences. Where an attack here has such a variant, rustls alone plays
//! the end without the defence.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::sealed::{
    ONCE, PROTOCOL, Parts, SAFE, Sealed, acceptor, forward, hello, name, read_flight, record, seal_server,
    send, until_finished,
};
use crate::common::{Ca, NAME, REQUEST, once, safe, site, wire};
use firstflight_tls::rustls::crypto::aws_lc_rs;
use firstflight_tls::rustls::{self, ClientConfig, ServerConfig, ServerConnection};
use firstflight_tls::seal::{Inner, PROTOCOL_PREFIX, REJECT, Rid, Target, seal};
use firstflight_tls::{AcceptError, ConnectError, Connector};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Gives bytes to the acceptor, and returns what it sends until it waits.
async fn told(world: &Sealed, bytes: &[u8]) -> Vec<u8> {
    let (mut ours, theirs) = wire();
    ours.write_all(bytes).await.unwrap();
    ours.shutdown().await.unwrap();
    let served = world.acceptor.accept_over(theirs).await;
    drop(served);
    let mut got = Vec::new();
    ours.read_to_end(&mut got).await.unwrap();
    got
}

/// Seals somebody's ClientHello with a request of the attacker.
fn resealed(hello: &[u8], request: &[u8]) -> Vec<u8> {
    let (record, public) = (record(), name(NAME));
    let to = Target { entry: &record.entries()[0], public_name: &public, port: 443 };
    let inner = Inner {
        rid: Rid::from_bytes([1; 16]),
        bind: firstflight_tls::seal::Bind::NONE,
        t_ms: firstflight::Time::system().unix().as_millis() as u64,
        flags: SAFE,
        hello,
        request,
    };
    seal(&inner, &to, 4096, &mut common::sealed::rng(1)).unwrap().as_bytes().to_vec()
}

/// The attacker wants the victim's Finished to confirm its own request (as CVE-2009-3555). The ClientHello of an ordinary
/// client commits to nothing, and that of a flight to another request.
#[tokio::test]
async fn a_foreign_hello_confirms_no_other_request() {
    let world = Sealed::new();
    let (_, ordinary) = hello(world.config(), NAME, vec![PROTOCOL.to_vec()]);
    let sealed = world.raw(SAFE).hello;
    for victim in [ordinary, sealed.clone()] {
        assert_eq!(told(&world, &resealed(&victim, b"attack!")).await, REJECT);
    }
    // The same parts with the request that the hello commits to would be another flight of it, but rid differs.
    assert_eq!(told(&world, &resealed(&sealed, REQUEST)).await, REJECT);
}

/// The owner of a forged key forwards the ClientHello in clear. Servers with this code refuse it, also without keys.
#[tokio::test]
async fn a_hello_of_a_flight_is_refused_in_clear() {
    let world = Sealed::new();
    let without = Sealed { acceptor: world.ca.acceptor().build().unwrap(), ..Sealed::new() };
    for server in [&world, &without] {
        let raw = server.raw(SAFE);
        let alert = [21, 3, 3, 0, 2, 2, 120];
        assert_eq!(told(server, &raw.hello).await, alert);
    }
    // Also behind a REJECT.
    let raw = world.raw(SAFE);
    let mut unknown = raw.bytes.clone();
    unknown[3] = 9;
    let got = told(&world, &[&unknown[..], &raw.hello].concat()).await;
    assert_eq!(got, [&REJECT[..], &[21, 3, 3, 0, 2, 2, 120]].concat());
}

async fn forwarded(world: &Sealed, config: ServerConfig) -> (ConnectError, Vec<Vec<u8>>, ServerConnection) {
    let (ours, theirs) = wire();
    let writes = Arc::clone(&ours.writes);
    let site = site();
    let (connected, server) =
        tokio::join!(world.connector.connect_over(ours, &site, safe()), forward(theirs, config));
    let writes = writes.lock().unwrap().clone();
    (connected.unwrap_err(), writes, server)
}

/// The same with a server of rustls alone. One that knows protocols answers with an alert. One without ALPN completes, and
/// one may select the other name: the client must see it, and close.
#[tokio::test]
async fn only_the_first_name_counts() {
    // It knows HTTP/1.1 only.
    let world = Sealed::new();
    let (error, writes, server) = forwarded(&world, world.stock(&[PROTOCOL])).await;
    assert!(
        matches!(error, ConnectError::Refused(rustls::AlertDescription::NoApplicationProtocol)),
        "{error:?}"
    );
    assert!(writes.len() == 1 && server.is_handshaking());
    // It has no names.
    let world = Sealed::new();
    let (error, writes, server) = forwarded(&world, world.stock(&[])).await;
    assert!(error.maybe_delivered(), "{error:?}");
    assert!(writes.len() == 1 && server.is_handshaking(), "no Finished, no data");
    // The key is not used again.
    let (ours, mut theirs) = wire();
    let site = site();
    let connecting = world.connector.connect_over(ours, &site, safe());
    let first = async {
        let mut byte = [0];
        theirs.read_exact(&mut byte).await.unwrap();
        byte[0]
    };
    tokio::select! {
        _ = connecting => unreachable!("nobody answers"),
        byte = first => assert_eq!(byte, 22, "an ordinary ClientHello"),
    }
    // It selects another name that was offered.
    let world = Sealed::new();
    let (ours, mut theirs) = wire();
    let writes = Arc::clone(&ours.writes);
    let config = world.stock(&[]);
    let serving = async {
        let flight = read_flight(&mut theirs).await;
        let inner = common::sealed::opened(&flight);
        let digest = firstflight_tls::seal::Hello::parse(&inner).unwrap().digest.to_vec();
        let mut config = config;
        config.alpn_protocols = vec![[&firstflight_tls::seal::DIGEST_PREFIX[..], &digest].concat()];
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        server.read_tls(&mut inner.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut out = Vec::new();
        server.write_tls(&mut out).unwrap();
        while server.wants_write() {
            server.write_tls(&mut out).unwrap();
        }
        theirs.write_all(&out).await.unwrap();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "no Finished, no data");
    };
    let (connected, ()) = tokio::join!(world.connector.connect_over(ours, &site, safe()), serving);
    assert!(connected.unwrap_err().maybe_delivered());
    assert_eq!(writes.lock().unwrap().len(), 1);
}

/// Without the check of 4.4 the attack of the test above succeeds: a client of rustls alone sends its Finished, and the server
/// takes the bytes that follow as the client's first ones.
#[tokio::test]
async fn without_the_clients_check_the_server_is_deceived() {
    use std::io::Write;
    let world = Sealed::new();
    let mut raw = world.raw(SAFE);
    let (mut ours, theirs) = wire();
    let serving = tokio::spawn(forward(theirs, world.stock(&[])));
    ours.write_all(&raw.bytes).await.unwrap();
    until_finished(&mut ours, &mut raw.client).await;
    raw.client.writer().write_all(b"the end of a request").unwrap();
    send(&mut ours, &mut raw.client).await;
    ours.shutdown().await.unwrap();
    let mut server = serving.await.unwrap();
    let mut got = [0; 20];
    std::io::Read::read_exact(&mut server.reader(), &mut got).unwrap();
    assert_eq!(&got, b"the end of a request");
}

/// A HelloRetryRequest would make the client send its second ClientHello in clear.
#[tokio::test]
async fn a_hello_retry_request_is_not_answered() {
    for first in [safe(), once()] {
        let world = Sealed::new();
        let provider = rustls::crypto::CryptoProvider {
            kx_groups: vec![aws_lc_rs::kx_group::SECP256R1],
            ..aws_lc_rs::default_provider()
        };
        let made = world.ca.certify(NAME);
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(made.chain(), made.key())
            .unwrap();
        config.alpn_protocols = vec![[&PROTOCOL_PREFIX, PROTOCOL].concat()];
        let (ours, theirs) = wire();
        let writes = Arc::clone(&ours.writes);
        let site = site();
        let (connected, server) =
            tokio::join!(world.connector.connect_over(ours, &site, first), forward(theirs, config));
        assert_eq!(server.handshake_kind(), Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
        assert_eq!(writes.lock().unwrap().len(), 1, "no second ClientHello");
        let error = connected.unwrap_err();
        assert!(matches!(error, ConnectError::Server(_)) && !error.maybe_delivered(), "{error:?}");
    }
}

/// A HelloRetryRequest that asks for a cookie and nothing else, for this ClientHello (RFC 8446 section 4.1.4). Anybody on the
/// path can make it: nothing in it is authenticated.
fn cookie_only(hello: &[u8]) -> Vec<u8> {
    // Behind the heads of record and message, version and random.
    let session = &hello[43..][..1 + usize::from(hello[43])];
    let random = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
        0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ];
    let extensions = [0, 43, 0, 2, 3, 4, 0, 44, 0, 5, 0, 3, 1, 2, 3];
    let body = [&[3, 3][..], &random, session, &[0x13, 1, 0, 0, 15], &extensions].concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[22, 3, 3, 0, length + 4, 2, 0, 0, length][..], &body].concat()
}

#[tokio::test]
async fn a_hello_retry_request_with_a_cookie_only() {
    let world = Sealed::new();
    let (ours, mut theirs) = wire();
    let (writes, site) = (Arc::clone(&ours.writes), site());
    let attacking = async {
        let hello = common::sealed::opened(&read_flight(&mut theirs).await);
        theirs.write_all(&cookie_only(&hello)).await.unwrap();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "a second ClientHello");
    };
    let (connected, ()) = tokio::join!(world.connector.connect_over(ours, &site, safe()), attacking);
    assert!(connected.is_err());
    assert_eq!(writes.lock().unwrap().len(), 1);
    // The variant without the defence: rustls alone answers, and names the server in clear.
    let mut raw = world.raw(SAFE);
    raw.client.read_tls(&mut cookie_only(&raw.hello).as_slice()).unwrap();
    raw.client.process_new_packets().unwrap();
    let mut second = Vec::new();
    while raw.client.wants_write() {
        raw.client.write_tls(&mut second).unwrap();
    }
    assert!(second.windows(NAME.len()).any(|part| part == NAME.as_bytes()));
}

/// What the server rejects before it sends a byte of TLS.
#[tokio::test]
async fn hellos_that_tls_would_not_take_at_once_are_rejected() {
    let world = Sealed::new();
    let raw = |alter: fn(&mut Parts)| {
        let mut parts = Parts::new(world.config(), SAFE);
        alter(&mut parts);
        parts.seal().bytes
    };
    assert_ne!(told(&world, &raw(|_| ())).await, REJECT);
    assert_eq!(told(&world, &raw(|parts| parts.server = "other.example.com")).await, REJECT);
    assert_eq!(told(&world, &raw(|parts| parts.protocol = b"h2")).await, REJECT);
    assert_eq!(told(&world, &raw(|parts| parts.port = 444)).await, REJECT);
    // It would need a HelloRetryRequest: the share is of a group that the server does not have.
    let with = |groups| {
        let provider = rustls::crypto::CryptoProvider { kx_groups: groups, ..aws_lc_rs::default_provider() };
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(world.ca.roots())
            .with_no_client_auth()
    };
    use aws_lc_rs::kx_group::{SECP256R1MLKEM768, X25519};
    let retried = Parts::new(with(vec![SECP256R1MLKEM768, X25519]), SAFE).seal().bytes;
    assert_eq!(told(&world, &retried).await, REJECT);
    // Nothing in common: an alert.
    let nothing = Parts::new(with(vec![SECP256R1MLKEM768]), SAFE).seal().bytes;
    assert_eq!(told(&world, &nothing).await, REJECT);
    // A rejected request is not remembered as one that ran.
    assert_ne!(told(&world, &raw(|parts| parts.rid = 10)).await, REJECT);
}

/// Early data in a sealed ClientHello would be a second way for a request.
#[tokio::test]
async fn early_data_in_a_sealed_hello_is_rejected() {
    use std::io::Write;
    let world = Sealed::new();
    let mut config = world.config();
    config.enable_early_data = true;
    // An ordinary visit gets tickets for early data, with the names of a flight.
    let mut stock = world.stock(&[b"\xff\x53\x01http/1.1"]);
    stock.max_early_data_size = 1000;
    let mut first = Parts::new(config.clone(), SAFE).seal();
    let (mut ours, theirs) = wire();
    let serving = tokio::spawn(forward(theirs, stock));
    ours.write_all(&first.bytes).await.unwrap();
    until_finished(&mut ours, &mut first.client).await;
    send(&mut ours, &mut first.client).await;
    ours.shutdown().await.unwrap();
    let mut server = serving.await.unwrap();
    let mut tickets = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut tickets).unwrap();
    }
    let mut rest = tickets.as_slice();
    while !rest.is_empty() {
        first.client.read_tls(&mut rest).unwrap();
        first.client.process_new_packets().unwrap();
    }
    assert!(first.client.tls13_tickets_received() > 0);
    let mut second = Parts::new(config, SAFE);
    second.rid = 10;
    let mut second = second.seal();
    assert!(second.client.early_data().is_some_and(|mut early| early.write(b"x").is_ok()));
    assert_eq!(told(&world, &second.bytes).await, REJECT);
}

/// Copies of a flight that was recorded: it runs once, and no copy gets a response, neither before nor after the Finished.
#[tokio::test]
async fn copies_of_a_flight_run_once() {
    let world = Sealed::new();
    for flags in [SAFE, ONCE] {
        let mut parts = Parts::new(world.config(), flags);
        parts.rid = if flags.replayable { 1 } else { 2 };
        let mut raw = parts.seal();
        let (mut ours, theirs) = wire();
        ours.write_all(&raw.bytes).await.unwrap();
        let acceptor = world.acceptor.clone();
        let serving = tokio::spawn(async move { acceptor.accept_over(theirs).await.unwrap() });
        until_finished(&mut ours, &mut raw.client).await;
        // A copy before the Finished: an early run is known, one that waits is not.
        let copy = told(&world, &raw.bytes).await;
        assert_eq!(copy.is_empty(), flags.replayable);
        send(&mut ours, &mut raw.client).await;
        let mut served = serving.await.unwrap();
        served.confirmed().await.unwrap();
        assert_eq!(served.sealed_info().unwrap().ran_early, flags.replayable);
        // Nobody but the client can make the Finished, so a copy of one that waits never runs.
        let (mut attacker, theirs) = wire();
        attacker.write_all(&raw.bytes).await.unwrap();
        attacker.shutdown().await.unwrap();
        let error = world.acceptor.accept_over(theirs).await.unwrap_err();
        assert!(matches!(error, AcceptError::NotRun(_) | AcceptError::Closed), "{error:?}");
    }
}

/// The client itself seals one request for two connections: the second one is closed after its Finished.
#[tokio::test]
async fn two_flights_of_one_request_run_once() {
    let world = Sealed::new();
    for flags in [SAFE, ONCE] {
        let mut ran = 0;
        for _ in 0..2 {
            let mut parts = Parts::new(world.config(), flags);
            parts.rid = if flags.replayable { 1 } else { 2 };
            let mut raw = parts.seal();
            let (mut ours, theirs) = wire();
            ours.write_all(&raw.bytes).await.unwrap();
            let acceptor = world.acceptor.clone();
            let serving = tokio::spawn(async move { acceptor.accept_over(theirs).await });
            if ran == 0 || !flags.replayable {
                until_finished(&mut ours, &mut raw.client).await;
                send(&mut ours, &mut raw.client).await;
            }
            match serving.await.unwrap() {
                Ok(_) => ran += 1,
                Err(error) => {
                    assert!(matches!(error, AcceptError::NotRun(_)), "{error:?}");
                    let mut rest = Vec::new();
                    ours.read_to_end(&mut rest).await.unwrap();
                    // No alert: at most tickets, behind the handshake.
                    assert!(!rest.starts_with(&[21]));
                }
            }
        }
        assert_eq!(ran, 1);
    }
}

/// The attacker holds the Finished back.
#[tokio::test(start_paused = true)]
async fn a_finished_after_a_minute_is_too_late() {
    let ca = Ca::new();
    let seal = seal_server().build().unwrap();
    let world = Sealed {
        acceptor: acceptor(&ca, seal).timeout(Duration::from_secs(3600)).build().unwrap(),
        connector: ca.connector().build().unwrap(),
        ca,
    };
    let raw = world.raw(ONCE);
    let (mut ours, theirs) = wire();
    ours.write_all(&raw.bytes).await.unwrap();
    let (began, really) = (tokio::time::Instant::now(), std::time::Instant::now());
    let error = world.acceptor.accept_over(theirs).await.unwrap_err();
    let (waited, worked) = (began.elapsed(), really.elapsed());
    assert!(matches!(error, AcceptError::Timeout(_)), "{error:?}");
    // The minute is of the real clock, which also runs while the server works. Only the wait is in virtual time.
    let minute = Duration::from_secs(60);
    assert!(waited <= minute && waited + worked >= minute, "{waited:?} after {worked:?}");
}

/// A client that is deceived by a forged REJECT sends its request again in ordinary TLS, which is not secret from the server
/// only. What must not run twice has not run: the server never gets its Finished.
#[tokio::test]
async fn a_forged_reject_runs_nothing_twice() {
    let world = Sealed::new();
    let (ours, mut attacker) = wire();
    let writes = Arc::clone(&ours.writes);
    let connector: Connector = world.connector.clone();
    let acceptor = world.acceptor.clone();
    let client = tokio::spawn(async move { connector.connect_over(ours, &site(), once()).await });
    let flight = read_flight(&mut attacker).await;
    // The real server gets the flight, and waits for a Finished.
    let (mut to_server, theirs) = wire();
    to_server.write_all(&flight).await.unwrap();
    let waiting = tokio::spawn(async move { acceptor.accept_over(theirs).await });
    attacker.write_all(&REJECT).await.unwrap();
    let mut record = [0; 5];
    attacker.read_exact(&mut record).await.unwrap();
    assert_eq!(record[0], 22, "a ClientHello in clear, without names of a flight");
    assert!(!writes.lock().unwrap()[1].windows(2).any(|two| two == [0xff, 0x53]));
    to_server.shutdown().await.unwrap();
    assert!(waiting.await.unwrap().is_err(), "the request has not run");
    drop(attacker);
    let error: ConnectError = client.await.unwrap().unwrap_err();
    assert!(!error.maybe_delivered());
}
