//! The policy `Hidden` (`docs/spec/sealed.md` 7.5) over streams in memory: whatever the server or an attacker does, the
//! server's name is never sent in clear.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::sealed::{PROTOCOL, acceptor, forward_of, keys_of, name, read_flight, unix};
use crate::common::{Ca, NAME, REQUEST, Recorded, Writes, exchange, once, safe, site, wire};
use firstflight::FirstFlight;
use firstflight::credential::NetworkId;
use firstflight_tls::rustls::crypto::aws_lc_rs;
use firstflight_tls::rustls::{self, ServerConfig};
use firstflight_tls::seal::{KeySource, Outcome, PROTOCOL_PREFIX, REJECT, Record};
use firstflight_tls::{
    Acceptor, ConnectError, Connector, Departure, HiddenError, SealClient, SealServer, TlsStream,
};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PUBLIC: &str = "public.example";

struct World {
    ca: Ca,
    connector: Connector,
    acceptor: Acceptor,
}

fn record() -> Record {
    keys_of(PUBLIC, 7, 5, unix()).record(unix()).unwrap()
}

fn hiding(record: Record) -> SealClient {
    SealClient::new().record(site(), record, KeySource::Configuration).hide(site())
}

impl World {
    fn new() -> Self {
        Self::with(hiding(record()))
    }

    fn with(seal: SealClient) -> Self {
        let ca = Ca::new();
        let connector = ca.connector().http1().seal(seal).build().unwrap();
        let keys = keys_of(PUBLIC, 7, 5, unix());
        let seal = SealServer::builder(keys, 443).serves([name(NAME)]).first_start(true).build().unwrap();
        let acceptor = acceptor(&ca, seal).build().unwrap();
        Self { ca, connector, acceptor }
    }

    async fn visit(&self, first: FirstFlight<'_>) -> (TlsStream<Recorded>, TlsStream<Recorded>) {
        let (ours, theirs) = wire();
        let site = site();
        let (ours, theirs) =
            tokio::join!(self.connector.connect_over(ours, &site, first), self.acceptor.accept_over(theirs));
        let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
        exchange(&mut ours, &mut theirs, first.data()).await;
        (ours, theirs)
    }

    /// Connects to a server that is played by the caller. Returns the error, and all that was written.
    async fn fail(
        &self,
        first: FirstFlight<'_>,
        server: impl AsyncFnOnce(Recorded),
    ) -> (ConnectError, Vec<Vec<u8>>) {
        let (ours, theirs) = wire();
        let writes = Arc::clone(&ours.writes);
        let site = site();
        let (connected, ()) = tokio::join!(self.connector.connect_over(ours, &site, first), server(theirs));
        (connected.unwrap_err(), written(&writes))
    }
}

/// What was written, which must not contain the name.
fn written(writes: &Writes) -> Vec<Vec<u8>> {
    let writes = writes.lock().unwrap().clone();
    let all = writes.concat();
    for text in [NAME.as_bytes(), REQUEST] {
        assert!(!all.windows(text.len()).any(|part| part == text), "in clear");
    }
    writes
}

#[tokio::test]
async fn a_hidden_name_is_served_as_any_other() {
    let world = World::new();
    for (first, resumed, outcome) in [
        (safe(), false, Outcome::OneRoundTrip),
        (once(), true, Outcome::TransportRefused),
        (safe(), true, Outcome::OneRoundTrip),
    ] {
        let (ours, theirs) = world.visit(first).await;
        assert_eq!((ours.seal_outcome(), ours.handshake().resumed), (Some(outcome), resumed));
        assert!(theirs.sealed_info().is_some() && theirs.server_name() == Some(NAME));
        assert!(written(&ours.io().writes)[0].starts_with(&[0xff, 0x53, 0x11, 7]));
    }
}

/// To learn the name, an attacker on the path answers with REJECT. Nothing follows.
#[tokio::test]
async fn a_forged_reject_does_not_expose_the_name() {
    for first in [safe(), once()] {
        let world = World::new();
        // After any number of them, too: the memory of failures leads to no ordinary TLS.
        for _ in 0..4 {
            let (error, writes) = world
                .fail(first, async |mut io: Recorded| {
                    let flight = read_flight(&mut io).await;
                    assert!(flight.starts_with(&[0xff, 0x53, 0x11]));
                    io.write_all(&REJECT).await.unwrap();
                    let mut rest = Vec::new();
                    io.read_to_end(&mut rest).await.unwrap();
                    assert!(rest.is_empty(), "something follows the REJECT");
                })
                .await;
            assert!(matches!(error, ConnectError::Hidden(HiddenError::Rejected)), "{error:?}");
            assert_eq!(writes.len(), 1);
        }
        // The server itself still gets it.
        assert!(world.visit(first).await.1.sealed_info().is_some());
    }
}

/// The server has other keys by now.
#[tokio::test]
async fn a_stale_key_is_an_error() {
    for stale in [keys_of(PUBLIC, 8, 5, unix()), keys_of(PUBLIC, 7, 6, unix())] {
        let world = World::with(hiding(stale.record(unix()).unwrap()));
        let acceptor = world.acceptor.clone();
        let (error, writes) = world
            .fail(safe(), async move |io: Recorded| drop(acceptor.accept_over(io).await.unwrap_err()))
            .await;
        assert!(matches!(error, ConnectError::Hidden(HiddenError::Rejected)), "{error:?}");
        assert_eq!(writes.len(), 1);
        assert!(error.to_string().contains("another key"), "{error}");
    }
}

/// A HelloRetryRequest, which would be answered with the name in clear.
#[tokio::test]
async fn a_hello_retry_request_is_not_answered() {
    let world = World::new();
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
    let (error, writes) = world
        .fail(safe(), async |io: Recorded| {
            let server = forward_of(io, config, &keys_of(PUBLIC, 7, 5, unix())).await;
            assert_eq!(server.handshake_kind(), Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
        })
        .await;
    assert!(matches!(error, ConnectError::Server(_)), "{error:?}");
    assert_eq!(writes.len(), 1, "a second ClientHello");
}

#[tokio::test(start_paused = true)]
async fn other_answers_and_silence() {
    let answers = [&[21, 3, 3, 0, 2, 2, 40][..], &[], b"HTTP/1.1 400 Bad Request", &REJECT[..2], b"silence"];
    for answer in answers {
        let world = World::new();
        let (error, writes) = world
            .fail(once(), async |mut io: Recorded| {
                read_flight(&mut io).await;
                if answer != b"silence" {
                    io.write_all(answer).await.unwrap();
                    io.shutdown().await.unwrap();
                }
                let mut rest = Vec::new();
                io.read_to_end(&mut rest).await.unwrap();
                assert!(rest.is_empty());
            })
            .await;
        assert!(!error.maybe_delivered(), "{error:?}");
        assert_eq!(writes.len(), 1);
    }
}

/// The owner of a forged key forwards the hello to a server that completes the handshake without the names of a flight. Then
/// nothing is sealed to that key for a day, and nothing is sent in clear either.
#[tokio::test]
async fn a_forged_key_is_not_used_again() {
    let world = World::new();
    let made = world.ca.certify(NAME);
    let stock = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_no_client_auth()
        .with_single_cert(made.chain(), made.key())
        .unwrap();
    let (error, writes) = world
        .fail(safe(), async |io: Recorded| {
            let server = forward_of(io, stock, &keys_of(PUBLIC, 7, 5, unix())).await;
            assert!(server.is_handshaking(), "no Finished");
        })
        .await;
    assert!(error.maybe_delivered(), "{error:?}");
    assert_eq!(writes.len(), 1);
    let (error, writes) = world.fail(safe(), async |_: Recorded| ()).await;
    assert!(matches!(error, ConnectError::Hidden(HiddenError::Stopped)), "{error:?}");
    assert!(writes.is_empty());
}

/// Without a key that may be used, and with a request that cannot be sealed, nothing is sent at all.
#[tokio::test]
async fn keyless_contacts_fail() {
    let plain = |source| SealClient::new().record(site(), record(), source).hide(site());
    let over = keys_of(PUBLIC, 7, 5, unix() - 200_000).record(unix() - 200_000).unwrap();
    let own = keys_of(NAME, 7, 5, unix()).record(unix()).unwrap();
    let long = vec![1; 20_000];
    let long = FirstFlight::safely_replayable(&long);
    use HiddenError::{NoKey, PublicName, Request};
    for (seal, first, expected) in [
        (SealClient::new().hide(site()), safe(), NoKey),
        (plain(KeySource::PlainDns), safe(), NoKey),
        (hiding(over), safe(), NoKey),
        (hiding(own), safe(), PublicName),
        (hiding(record()), FirstFlight::empty(), Request),
        (hiding(record()), long, Request),
    ] {
        let world = World::with(seal);
        let (error, writes) = world.fail(first, async |_: Recorded| ()).await;
        assert!(matches!(&error, ConnectError::Hidden(got) if *got == expected), "{error:?}");
        assert!(writes.is_empty());
        // The bytes of a ClientHello in clear are not given to the caller either.
        let hello = world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), first);
        assert!(matches!(hello, Err(ConnectError::Hidden(_))));
    }
    // Without a protocol.
    let mut world = World::new();
    world.connector = world.ca.connector().seal(hiding(record())).build().unwrap();
    let (error, writes) = world.fail(safe(), async |_: Recorded| ()).await;
    assert!(matches!(error, ConnectError::Hidden(Request)) && writes.is_empty(), "{error:?}");
    // Another name of the same client is not hidden.
    let other = "other.example.com:443".parse().unwrap();
    assert!(world.connector.hello(&other, Departure::elsewhere(NetworkId::UNKNOWN), safe()).is_ok());
}
