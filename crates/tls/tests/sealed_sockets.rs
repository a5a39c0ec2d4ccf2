//! Sealed first flights between `Client` and `Server`, with credential blocks in UDP and by the kernel's TCP. Each test has a
//! namespace of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::common;
use crate::common::Ca;
use crate::common::sealed::{SAFE, rng, unix};
use crate::namespace::{in_namespace, nft};
use crate::site;
use crate::site::{NETWORK, REQUEST, block, once, ready, safely};
use firstflight::credential::asap::{AcceptedBlock, Identity, PrivateKey};
use firstflight::record::Published;
use firstflight::{AttemptInfo, Authority, Client, ClientBuilder, FirstFlight, MakeFlight, Server, Way};
use firstflight_tls::rustls::{self, ClientConfig};
use firstflight_tls::seal::{
    Bind, Draft, FlightRoom, HostName, KeySet, KeySource, Outcome, REJECT, Record, Rid, SealKey, Target, Why,
};
use firstflight_tls::{ConnectError, Connector, SealClient, SealServer, SealedInfo};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const NAME: &str = "localhost";

/// What a connection of the server was: whether it had a block, and how its request came.
type Seen = (bool, Option<SealedInfo>);

struct World {
    at: Authority,
    udp_port: u16,
    client: ClientBuilder,
    connector: Connector,
    record: Record,
    ca: Ca,
    seen: UnboundedReceiver<Seen>,
}

async fn world() -> World {
    world_behind(NAME).await
}

/// The keys have this public name, and blocks are signed for it.
async fn world_behind(public: &str) -> World {
    let key = PrivateKey::from_seed(&[1; 32]);
    let verifier = site::verifier(&key).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let policy = site::policy(&key, Identity::name(public, port));
    let server = Server::builder().address(address).asap(policy).bind().unwrap();
    let at: Authority = format!("{NAME}:{port}").parse().unwrap();
    let udp_port = server.udp_port().unwrap();
    let published = Published::in_udp(udp_port, 1200, &[verifier.id()]).unwrap();
    let client =
        Client::builder().network(NETWORK).verifier(verifier).no_resolver().record(at.clone(), published);

    let mut keys = KeySet::new(public.parse().unwrap());
    let (id, now) = (NonZeroU8::new(7).unwrap(), unix());
    keys.add(id, SealKey::from_bytes(&[5; 32]).unwrap(), (now + 86_400) as u32, now).unwrap();
    let seal =
        SealServer::builder(keys, port).serves([NAME.parse().unwrap()]).first_start(true).build().unwrap();
    let record = seal.record().unwrap();
    let ca = Ca::new();
    let made = ca.certify(NAME);
    let acceptor = firstflight_tls::Acceptor::builder().certificate(made.chain(), made.key());
    let acceptor = acceptor.alpn(["http/1.1"]).seal(seal).build().unwrap();
    let ours = SealClient::new().record(at.clone(), record.clone(), KeySource::Configuration);
    let connector = ca.connector().http1().seal(ours).build().unwrap();
    let (tell, seen) = unbounded_channel();
    tokio::spawn(async move {
        loop {
            let stream = server.accept().await.unwrap();
            let (acceptor, tell) = (acceptor.clone(), tell.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut request = [0; REQUEST.len()];
                if stream.read_exact(&mut request).await.is_ok() {
                    assert_eq!(request, REQUEST);
                    let certified = stream.io().accepted_block().is_some();
                    let _ = tell.send((certified, stream.sealed_info().copied()));
                    // A client may be gone.
                    let _ = stream.write_all(b"answer").await;
                    let _ = stream.shutdown().await;
                }
            });
        }
    });
    World { at, udp_port, client, connector, record, ca, seen }
}

/// Asks, and returns the way, the outcome, and what the server saw.
async fn ask(
    (connector, at): (&Connector, &Authority),
    client: &Client,
    seen: &mut UnboundedReceiver<Seen>,
    first: FirstFlight<'_>,
) -> (Way, Option<Outcome>, Seen) {
    let mut stream = connector.connect_to(client, at, first).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
    stream.shutdown().await.unwrap();
    (stream.io().way(), stream.seal_outcome(), seen.recv().await.unwrap())
}

fn why((certified, info): Seen) -> (bool, bool, Why) {
    let info = info.expect("the request came sealed");
    (certified, info.ran_early, info.why)
}

/// Bound to its block, a request runs early at the first contact, also if it must not run twice.
#[test]
fn in_udp_under_a_block() {
    in_namespace("3", || async {
        let mut world = world().await;
        let client = ready(world.client.servers_run_once(true)).await;
        let to = (&world.connector, &world.at);
        for first in [safely(), once()] {
            let (way, outcome, seen) = ask(to, &client, &mut world.seen, first).await;
            assert_eq!((way, outcome), (Way::Udp, Some(Outcome::OneRoundTrip)));
            assert_eq!(why(seen), (true, true, Why::Block));
            assert_eq!(seen.1.unwrap().replayable, first.is_replayable());
        }
        // Once it has left under a block, it does not leave again.
        if !block(world.udp_port) {
            return;
        }
        let connecting = world.connector.connect_to(&client, &world.at, once());
        match tokio::time::timeout(Duration::from_secs(8), connecting).await {
            Err(_) => {}
            Ok(Ok(stream)) => panic!("connected by {:?}", stream.io().way()),
            Ok(Err(error)) => assert!(error.maybe_delivered(), "{error}"),
        }
        assert!(world.seen.try_recv().is_err(), "it ran by another way");
        // What is replayable goes on by TCP, sealed again, with the same number.
        let (way, _, seen) = ask(to, &client, &mut world.seen, safely()).await;
        assert_eq!(way, Way::Kernel);
        assert_eq!(why(seen), (false, true, Why::Replayable));
    });
}

/// In a SYN with a cookie; before there is one, behind the handshake. What must not run twice rides as well, and waits for the
/// Finished.
#[test]
fn by_the_kernel() {
    in_namespace("3", || async {
        let mut world = world().await;
        let client = common::client();
        let to = (&world.connector, &world.at);
        for (first, outcome, expected) in [
            (safely(), Outcome::TransportRefused, (false, true, Why::Replayable)),
            (safely(), Outcome::OneRoundTrip, (false, true, Why::Replayable)),
            (once(), Outcome::TransportRefused, (false, false, Why::NotReplayable)),
        ] {
            let (way, got, seen) = ask(to, &client, &mut world.seen, first).await;
            assert_eq!((way, got), (Way::Kernel, Some(outcome)));
            assert_eq!(why(seen), expected);
        }
        // What does not surely fit into a SYN goes in an ordinary ClientHello.
        let long = [REQUEST, &[b'x'; 900]].concat();
        let first = FirstFlight::safely_replayable(&long);
        let (_, outcome, seen) = ask(to, &client, &mut world.seen, first).await;
        assert_eq!((outcome, seen), (Some(Outcome::Declined), (false, None)));
    });
}

/// A key that the server does not have, and a server that is not there.
#[test]
fn failures() {
    in_namespace("3", || async {
        let mut world = world().await;
        let stale = common::sealed::keys(9, 9).record(unix()).unwrap();
        let seal = SealClient::new().record(world.at.clone(), stale, KeySource::Configuration);
        let connector = world.ca.connector().http1().seal(seal).build().unwrap();
        let client = ready(world.client.servers_run_once(true)).await;
        let to = (&connector, &world.at);
        let (way, outcome, seen) = ask(to, &client, &mut world.seen, safely()).await;
        assert_eq!((way, outcome, seen), (Way::Udp, Some(Outcome::StaleKey), (true, None)));
        // A REJECT says nothing about what could have run.
        let error = connector.connect_to(&client, &world.at, once()).await.unwrap_err();
        assert!(matches!(error, ConnectError::MaybeDelivered(_)), "{error}");
        // That was the second failure.
        let (_, outcome, seen) = ask(to, &client, &mut world.seen, once()).await;
        assert_eq!((outcome, seen.1), (Some(Outcome::Declined), None));
    });
}

/// The ciphertext of another client under a block of the attacker: its bind is another one, or zero.
#[test]
fn a_foreign_flight_under_a_block_is_rejected() {
    struct Foreign(Record, Authority, ClientConfig, bool);
    impl MakeFlight for Foreign {
        fn is_replayable(&self, _: bool) -> bool {
            true
        }
        fn make(&self, info: &AttemptInfo) -> io::Result<Vec<u8>> {
            let Self(record, at, config, right) = self;
            let mut block = info.block.expect("by UDP");
            if !right {
                block.client_key[0] ^= 1;
            }
            let public: HostName = NAME.parse().unwrap();
            let to = Target { entry: &record.entries()[0], public_name: &public, port: at.port() };
            let (rid, t_ms) = (Rid::from_bytes([u8::from(*right); 16]), unix() * 1000);
            let draft = Draft::new(to, rid, Bind::to(&block), t_ms, SAFE, REQUEST, b"http/1.1").unwrap();
            let (_, hello) = common::sealed::hello(config.clone(), NAME, draft.alpn().to_vec());
            let plan = FlightRoom::in_udp(1176, 40, 204).plan(hello.len(), REQUEST.len()).unwrap();
            let flight = draft.seal(&hello, &public, &plan, &mut rng(3)).unwrap();
            Ok(flight.as_bytes().to_vec())
        }
    }
    in_namespace("3", || async {
        let world = world().await;
        let client = ready(world.client).await;
        let config = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_root_certificates(world.ca.roots())
            .with_no_client_auth();
        for right in [false, true] {
            // Without cookies, which a client prefers to a block for what may run twice.
            client.forget();
            let flights = Foreign(world.record.clone(), world.at.clone(), config.clone(), right);
            let (mut stream, _) =
                client.connect(&world.at, FirstFlight::empty()).made_by(&flights).await.unwrap();
            assert_eq!(stream.way(), Way::Udp);
            let mut first = [0; 4];
            stream.read_exact(&mut first).await.unwrap();
            assert!(stream.outcome().is_accepted(), "{}", stream.outcome());
            assert_eq!(first == REJECT, !right, "{first:x?}");
        }
    });
}

const PUBLIC: &str = "public.example";

/// The block is signed for the public name, and the server takes no block for another. So the request runs early, also if it
/// must not run twice.
#[test]
fn a_hidden_name_in_udp_under_a_block() {
    in_namespace("3", || async {
        let mut world = world_behind(PUBLIC).await;
        let client = ready(world.client.servers_run_once(true)).await;
        let seal = SealClient::new().record(world.at.clone(), world.record.clone(), KeySource::Configuration);
        let of = |seal| world.ca.connector().http1().seal(seal).build().unwrap();
        let (visible, hidden) = (of(seal.clone()), of(seal.hide(world.at.clone())));
        for first in [safely(), once()] {
            let (way, outcome, seen) = ask((&hidden, &world.at), &client, &mut world.seen, first).await;
            assert_eq!((way, outcome), (Way::Udp, Some(Outcome::OneRoundTrip)));
            assert_eq!(why(seen), (true, true, Why::Block));
        }
        // Otherwise the block is for the name, which is no identity of this server.
        client.forget();
        let (_, _, seen) = ask((&visible, &world.at), &client, &mut world.seen, safely()).await;
        assert_eq!(why(seen), (false, true, Why::Replayable));
    });
}

/// The client key of the blocks for a hidden name is used for nothing else.
#[test]
fn a_hidden_name_has_a_client_key_of_its_own() {
    #[derive(Default)]
    struct Looks(Option<&'static str>, Mutex<Option<AcceptedBlock>>);
    impl MakeFlight for Looks {
        fn is_replayable(&self, _: bool) -> bool {
            true
        }
        fn block_name(&self) -> Option<&str> {
            self.0
        }
        fn make(&self, info: &AttemptInfo) -> io::Result<Vec<u8>> {
            // The first attempt is the one in UDP.
            if let Some(block) = info.block {
                self.1.lock().unwrap().get_or_insert(block);
            }
            Err(io::Error::other("nothing leaves"))
        }
    }
    in_namespace("3", || async {
        let world = world().await;
        let client = world.client.build().unwrap();
        let mut keys = Vec::new();
        for name in [None, Some(PUBLIC), Some("other.example"), Some(PUBLIC), None] {
            assert!(client.prepare(Duration::from_secs(20)).await);
            let looks = Looks(name, Mutex::default());
            let failed = client.connect(&world.at, FirstFlight::empty()).made_by(&looks).await.is_err();
            let block = looks.1.into_inner().unwrap().unwrap();
            assert!(failed);
            assert_eq!(block.identity, *Identity::name(name.unwrap_or(NAME), world.at.port()).digest());
            keys.push(block.client_key);
        }
        let [none, public, other, public_again, none_again] = keys.try_into().unwrap();
        assert_eq!((none, public), (none_again, public_again));
        assert!(none != public && none != other && public != other);
    });
}

/// A hidden name is not looked up by `connect_at`. Its flight goes again by itself when a connection breaks, and only sealed.
#[test]
fn a_hidden_name_goes_again_sealed_only() {
    in_namespace("3", || async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let at: Authority = format!("hidden.invalid:{}", address.port()).parse().unwrap();
        let record = common::sealed::keys(7, 5).record(unix()).unwrap();
        let seal = SealClient::new().record(at.clone(), record, KeySource::Configuration).hide(at.clone());
        let connector = Ca::new().connector().http1().seal(seal).build().unwrap();
        let client = common::client();
        for first in [safely(), once()] {
            let addresses = [address];
            let connecting = connector.connect_at(&client, &at, &addresses, first);
            let serving = async {
                for _ in 0..2 {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut head = [0; 6];
                    stream.read_exact(&mut head).await.unwrap();
                    assert_eq!(head[..3], [0xff, 0x53, 0x11], "in clear");
                    let mut rest = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
                    stream.read_exact(&mut rest).await.unwrap();
                    stream.shutdown().await.unwrap();
                    let mut more = Vec::new();
                    stream.read_to_end(&mut more).await.unwrap();
                    assert!(more.is_empty());
                }
            };
            let (connected, ()) = tokio::join!(connecting, serving);
            assert!(matches!(connected.unwrap_err(), ConnectError::Closed));
        }
        let nothing = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(nothing.is_err(), "a third connection");
    });
}

/// A flight in a SYN that is answered by a RST goes again as ordinary TLS. If that fails as well, the server is down, and
/// flights go on when it is back.
#[test]
fn connects_that_fail_in_an_outage_do_not_count() {
    in_namespace("3", || async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let addresses = [1, 2, 3].map(|n| SocketAddr::from(([127, 0, 0, n], port)));
        let server = addresses.iter().fold(Server::builder(), |server, at| server.address(*at)).tcp_only();
        let server = server.bind().unwrap();
        let at: Authority = format!("{NAME}:{port}").parse().unwrap();
        let mut keys = KeySet::new(NAME.parse().unwrap());
        let (id, now) = (NonZeroU8::new(7).unwrap(), unix());
        keys.add(id, SealKey::from_bytes(&[5; 32]).unwrap(), (now + 86_400) as u32, now).unwrap();
        let seal = SealServer::builder(keys, port).first_start(true).build().unwrap();
        let record = seal.record().unwrap();
        let (ca, client) = (Ca::new(), common::client());
        let made = ca.certify(NAME);
        let acceptor = firstflight_tls::Acceptor::builder().certificate(made.chain(), made.key());
        let acceptor = acceptor.alpn(["http/1.1"]).seal(seal).build().unwrap();
        tokio::spawn(async move {
            loop {
                let stream = server.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let _ = stream.write_all(b"answer").await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        let connector = || {
            let seal = SealClient::new().record(at.clone(), record.clone(), KeySource::Configuration);
            ca.connector().http1().seal(seal).build().unwrap()
        };
        let visit = async |connector: &Connector, address| {
            let mut stream = connector.connect_at(&client, &at, &[address], safely()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            Ok::<_, ConnectError>(stream.seal_outcome().unwrap())
        };
        let refused = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add rule ip t c tcp dport {port} reject with tcp reset"
        );
        // The first visit to each address gets its cookie.
        let (connector, fresh) = (connector(), connector());
        for address in addresses {
            visit(&fresh, address).await.unwrap();
            assert_eq!(visit(&fresh, address).await.unwrap(), Outcome::OneRoundTrip);
        }
        if !nft(&refused) {
            return;
        }
        for address in addresses {
            let error = visit(&connector, address).await.unwrap_err();
            assert!(matches!(&error, ConnectError::Connect(_)), "{error}");
            assert!(!error.maybe_delivered(), "it may run twice, so it can go again");
        }
        assert!(nft("flush ruleset"));
        let outcome = visit(&connector, addresses[0]).await.unwrap();
        assert_ne!(outcome, Outcome::Declined);
    });
}
