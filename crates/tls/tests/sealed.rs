//! Sealed first flights over streams in memory: what becomes of them.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::sealed::{
    ONCE, PROTOCOL, SAFE, Sealed, acceptor, keys, record, seal_client, seal_server, send, until_finished,
};
use crate::common::{ANSWER, Ca, NAME, REQUEST, Recorded, exchange, first_write, once, safe, site, wire};
use firstflight::FirstFlight;
use firstflight_tls::seal::{KeySource, Outcome, REJECT, Record, Trust, Why};
use firstflight_tls::{
    AcceptError, Acceptor, ClientCertificates, ConfigError, ConnectError, SealClient, SealServer, TlsStream,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Ends = (TlsStream<Recorded>, TlsStream<Recorded>);

/// A visit that ends well.
async fn visit(world: &Sealed, first: FirstFlight<'_>) -> Ends {
    let (ours, theirs) = wire();
    let site = site();
    let (ours, theirs) =
        tokio::join!(world.connector.connect_over(ours, &site, first), world.acceptor.accept_over(theirs));
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    exchange(&mut ours, &mut theirs, first.data()).await;
    (ours, theirs)
}

fn in_clear(bytes: &[u8]) -> bool {
    [REQUEST, NAME.as_bytes()].iter().any(|text| bytes.windows(text.len()).any(|part| part == *text))
}

#[tokio::test]
async fn a_replayable_request_runs_early() {
    let world = Sealed::new();
    for resumed in [false, true] {
        let (ours, theirs) = visit(&world, safe()).await;
        let info = theirs.sealed_info().unwrap();
        assert_eq!((info.replayable, info.ran_early, info.why), (true, true, Why::Replayable));
        assert_eq!(theirs.early_bytes(), REQUEST.len() as u64);
        assert_eq!(ours.seal_outcome(), Some(Outcome::OneRoundTrip));
        assert_eq!((ours.alpn(), theirs.alpn()), (Some(PROTOCOL), Some(PROTOCOL)));
        assert_eq!(theirs.server_name(), Some(NAME));
        // Tickets of sealed connections serve later seals.
        assert_eq!((ours.handshake().resumed, theirs.handshake().resumed), (resumed, resumed));
        let writes = ours.io().writes.lock().unwrap().clone();
        assert!(writes[0].starts_with(&[0xff, 0x53, 0x11, 7]) && writes[0].len() % 256 == 0);
        assert!(!writes.iter().any(|write| in_clear(write)));
        assert_eq!(writes[1][0], 20, "the Finished, behind a ChangeCipherSpec");
    }
}

#[tokio::test]
async fn the_answer_comes_before_the_finished() {
    let world = Sealed::new();
    let mut raw = world.raw(SAFE);
    let (mut ours, theirs) = wire();
    ours.write_all(&raw.bytes).await.unwrap();
    let mut served = world.acceptor.accept_over(theirs).await.unwrap();
    let mut request = [0; REQUEST.len()];
    served.read_exact(&mut request).await.unwrap();
    assert_eq!(request, REQUEST);
    served.write_all(ANSWER).await.unwrap();
    assert!(served.is_early());
    until_finished(&mut ours, &mut raw.client).await;
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut raw.client.reader(), &mut answer);
    assert_eq!(answer, ANSWER);
    assert!(served.is_early());
    send(&mut ours, &mut raw.client).await;
    served.confirmed().await.unwrap();
    assert!(!served.is_early());
}

/// What must not run twice waits for the Finished, and then the table is asked.
#[tokio::test]
async fn at_most_once_waits_for_the_finished() {
    let world = Sealed::new();
    let (ours, theirs) = visit(&world, once()).await;
    let info = theirs.sealed_info().unwrap();
    assert_eq!((info.replayable, info.ran_early, info.why), (false, false, Why::NotReplayable));
    assert_eq!((ours.seal_outcome(), theirs.early_bytes()), (Some(Outcome::TransportRefused), 0));

    let mut raw = world.raw(ONCE);
    let (mut ours, theirs) = wire();
    ours.write_all(&raw.bytes).await.unwrap();
    let acceptor = world.acceptor.clone();
    let mut accepting = Box::pin(async move { acceptor.accept_over(theirs).await });
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut accepting).await;
    assert!(waited.is_err(), "it is given to the application before the Finished");
    until_finished(&mut ours, &mut raw.client).await;
    send(&mut ours, &mut raw.client).await;
    let mut served = accepting.await.unwrap();
    assert!(!served.is_early());
    let mut request = [0; REQUEST.len()];
    served.read_exact(&mut request).await.unwrap();
    assert_eq!(request, REQUEST);
}

/// After a start nothing runs early, unless nothing ran before.
#[tokio::test]
async fn after_a_start_requests_wait() {
    let world = Sealed::with(seal_server().first_start(false).build().unwrap());
    let (_, theirs) = visit(&world, safe()).await;
    let info = theirs.sealed_info().unwrap();
    assert_eq!((info.ran_early, info.why), (false, Why::Floor));
}

/// A key that the server does not have: REJECT, and ordinary TLS on the same connection.
#[tokio::test]
async fn a_stale_key_costs_a_round_trip() {
    for stale in [keys(8, 5), keys(7, 6)] {
        for first in [safe(), once()] {
            let mut world = Sealed::with(SealServer::builder(stale.clone(), 443).build().unwrap());
            let (ours, theirs) = visit(&world, first).await;
            assert_eq!(ours.seal_outcome(), Some(Outcome::StaleKey));
            assert!(theirs.sealed_info().is_none() && theirs.io().writes.lock().unwrap()[0] == REJECT);
            assert_eq!((ours.alpn(), theirs.alpn()), (Some(PROTOCOL), Some(PROTOCOL)));
            // The request itself is never in clear.
            let writes = ours.io().writes.lock().unwrap().concat();
            assert!(!writes.windows(REQUEST.len()).any(|part| part == REQUEST));
            // After two in a row no flight is sent for a day.
            visit(&world, first).await;
            let (ours, theirs) = visit(&world, first).await;
            assert_eq!((ours.seal_outcome(), theirs.sealed_info()), (Some(Outcome::Declined), None));
            // The keys are right again, and the memory stays.
            world.acceptor = acceptor(&world.ca, seal_server().build().unwrap()).build().unwrap();
            assert_eq!(visit(&world, first).await.0.seal_outcome(), Some(Outcome::Declined));
        }
    }
}

#[tokio::test]
async fn without_a_trusted_key_tls_is_ordinary() {
    let mut world = Sealed::new();
    let of = |seal: SealClient, ca: &Ca| ca.connector().http1().seal(seal).build().unwrap();
    let untrusted = SealClient::new().record(site(), record(), KeySource::PlainDns);
    for (seal, outcome) in [
        (SealClient::new(), Outcome::NoKey),
        (untrusted.clone(), Outcome::NoKey),
        (untrusted.trust(Trust::Any), Outcome::OneRoundTrip),
    ] {
        world.connector = of(seal, &world.ca);
        let (ours, theirs) = visit(&world, safe()).await;
        assert_eq!(ours.seal_outcome(), Some(outcome));
        assert_eq!(theirs.sealed_info().is_some(), outcome == Outcome::OneRoundTrip);
    }
    // No protocol, no data, or too much of it.
    world.connector = world.ca.connector().seal(seal_client()).build().unwrap();
    assert_eq!(visit(&world, safe()).await.0.seal_outcome(), Some(Outcome::Declined));
    world.connector = of(seal_client(), &world.ca);
    assert_eq!(visit(&world, FirstFlight::empty()).await.0.seal_outcome(), Some(Outcome::Declined));
    let long = vec![1; 20_000];
    let long = FirstFlight::safely_replayable(&long);
    assert_eq!(visit(&world, long).await.0.seal_outcome(), Some(Outcome::Declined));
    // Without a seal nothing is considered.
    world.connector = world.ca.connector().http1().build().unwrap();
    assert_eq!(visit(&world, safe()).await.0.seal_outcome(), None);
}

#[tokio::test]
async fn a_wrong_certificate_is_an_error() {
    for first in [safe(), once()] {
        let mut world = Sealed::new();
        world.connector = Ca::new().connector().http1().seal(seal_client()).build().unwrap();
        let (ours, theirs) = wire();
        let writes = Arc::clone(&ours.writes);
        let acceptor = world.acceptor.clone();
        let serving = tokio::spawn(async move { acceptor.accept_over(theirs).await });
        let error = world.connector.connect_over(ours, &site(), first).await.unwrap_err();
        assert!(matches!(error, ConnectError::Certificate(_)), "{error:?}");
        assert_eq!(writes.lock().unwrap().len(), 1, "nothing follows the flight");
        drop(serving.await);
    }
}

/// Alert, close and garbage say nothing about execution. Without a block, the request goes again.
#[tokio::test]
async fn failures_say_nothing() {
    for bytes in [&[21, 3, 3, 0, 2, 2, 40][..], &[], b"HTTP/1.1 400 Bad Request", &REJECT[..2]] {
        for first in [safe(), once()] {
            let world = Sealed::new();
            let (ours, mut server) = wire();
            server.write_all(bytes).await.unwrap();
            server.shutdown().await.unwrap();
            let writes = Arc::clone(&ours.writes);
            let error = world.connector.connect_over(ours, &site(), first).await.unwrap_err();
            assert!(matches!(error, ConnectError::Closed | ConnectError::Refused(_)), "{error:?}");
            assert!(!error.maybe_delivered());
            assert_eq!(writes.lock().unwrap().len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up() {
    let world = Sealed::new();
    let (ours, _server) = wire();
    let error = world.connector.connect_over(ours, &site(), safe()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Timeout(_)));
}

/// What a server sends to these bytes, and why there is no stream.
async fn told(acceptor: &Acceptor, bytes: &[u8]) -> (Vec<u8>, AcceptError) {
    let (mut ours, theirs) = wire();
    ours.write_all(bytes).await.unwrap();
    ours.shutdown().await.unwrap();
    let error = acceptor.accept_over(theirs).await.unwrap_err();
    let mut got = Vec::new();
    ours.read_to_end(&mut got).await.unwrap();
    (got, error)
}

#[tokio::test]
async fn first_bytes_that_are_neither_are_closed() {
    let world = Sealed::new();
    let flight = world.raw(SAFE).bytes;
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &REJECT, &[0xff, 0x53, 0x21, 7, 1, 0], &[0xff, 0x53, 0x11, 0, 1, 0]]
    {
        let (got, error) = told(&world.acceptor, bytes).await;
        assert!(got.is_empty() && matches!(error, AcceptError::Flight(_)), "{error:?}");
    }
    // Half a flight.
    let (got, error) = told(&world.acceptor, &flight[..flight.len() - 1]).await;
    assert!(got.is_empty() && matches!(error, AcceptError::Closed), "{error:?}");
    // A second flight behind a REJECT.
    let mut unknown = flight.clone();
    unknown[3] = 9;
    let (got, error) = told(&world.acceptor, &[unknown, flight].concat()).await;
    assert!(got == REJECT && matches!(error, AcceptError::Flight(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flight_has_a_minute_to_arrive() {
    let ca = Ca::new();
    let acceptor = acceptor(&ca, seal_server().build().unwrap());
    let acceptor = acceptor.timeout(Duration::from_secs(600)).build().unwrap();
    let (mut ours, theirs) = wire();
    ours.write_all(&[0xff, 0x53, 0x11, 7]).await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(matches!(acceptor.accept_over(theirs).await.unwrap_err(), AcceptError::Flight(_)));
    assert_eq!(began.elapsed().as_secs(), 60);
}

/// With client certificates the request runs when the client is known.
#[tokio::test]
async fn client_certificates_come_first() {
    let mut world = Sealed::new();
    let client = world.ca.certify("client.example.com");
    let asking = ClientCertificates::Required(Arc::new(world.ca.roots()));
    let seal = seal_server().build().unwrap();
    world.acceptor = acceptor(&world.ca, seal).clients(asking).build().unwrap();
    let connector = world.ca.connector().http1().client_certificate(client.chain(), client.key());
    world.connector = connector.seal(seal_client()).build().unwrap();
    for _ in 0..2 {
        let (_, theirs) = visit(&world, safe()).await;
        let info = theirs.sealed_info().unwrap();
        assert_eq!((info.ran_early, info.why), (false, Why::ClientCertificates));
        assert_eq!(theirs.peer_certificates().unwrap(), client.chain());
    }
}

#[tokio::test]
async fn keys_are_published_and_changed() {
    let seal = seal_server().build().unwrap();
    assert_eq!(seal.record(), Some(record()));
    let world = Sealed::with(seal.clone());
    seal.set_keys(keys(9, 9));
    assert_eq!(visit(&world, safe()).await.0.seal_outcome(), Some(Outcome::StaleKey));
    assert_ne!(seal.record().map(|record| Record::to_bytes(&record)), Some(record().to_bytes()));
    assert!(first_write(&visit(&world, safe()).await.1.io().writes) == REJECT);
    let without = world.ca.acceptor().seal(seal).build();
    assert!(matches!(without, Err(ConfigError::SealWithoutProtocol)));
}
