//! Requests that travel inside the lookup of the server's address, from the client's `DnsPath` to the server's
//! endpoint. The resolver is a socket of this test with a front behind it. Uses UDP sockets of this host and real
//! time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::certified::{LOCAL, PORT, certificate, connect_config, policy};
use crate::dns_path::{DnsPath, Exchange, Form, HeldBack, LookupWay, Proof, Report, Restraint, Server};
use firstflight::credential::NetworkId;
use firstflight::credential::asap::{ClientCertificate, PrivateKey};
use firstflight::link::UdpLink;
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, RelayedFlight, Stream};
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::{
    Boot, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, Front, Manners, OpenBuffer, ReassemblyLimits,
    RelayKey, RelayReceiver, RelaySender, RelayServer, Transport,
};
use firstflight_wire::asap::{DnsPathParam, UdpService, Zone};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::future::{pending, ready};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";
const NETWORK: NetworkId = NetworkId([3; 16]);

/// What the resolver does with names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resolver {
    /// It asks the front.
    Asks,
    /// It drops them silently.
    Silent,
    /// It refuses them.
    Refuses,
    /// It changes an octet of the question.
    Mangles,
}

struct World {
    path: DnsPath,
    client: Endpoint,
    server: Endpoint,
    seen: SocketAddr,
    key: [u8; 32],
    udp_port: u16,
    certificate: Arc<ClientCertificate>,
    asked: Arc<AtomicUsize>,
    resolver: SocketAddr,
}

/// Answers names, and gives first flights to `server`.
async fn resolve(
    socket: UdpSocket,
    does: Resolver,
    mut front: Front,
    relay_key: RelayKey,
    server: Endpoint,
    asked: Arc<AtomicUsize>,
) {
    let mut rng = ChaCha20Rng::from_seed([8; 32]);
    let mut receiver = RelayReceiver::new();
    receiver.set_key(1, &relay_key);
    let mut buffer = [0; 600];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        asked.fetch_add(1, Ordering::Relaxed);
        let now = Instant::ZERO;
        let Some(mut answer) = front.handle_query(now, from.ip(), Transport::Udp, &buffer[..len], &mut rng)
        else {
            continue;
        };
        match does {
            Resolver::Silent => continue,
            Resolver::Refuses => answer[3] = answer[3] & 0xf0 | 5,
            Resolver::Mangles => answer[20] ^= 0x80,
            Resolver::Asks => {}
        }
        socket.send_to(&answer, from).await.unwrap();
        let unix_ms = firstflight::unix_ms();
        let clock = Clock { mono: now, unix_ms, uncertainty: Duration::ZERO };
        while let Some(relay) = front.poll_relay(&clock).filter(|_| does == Resolver::Asks) {
            let mut open = OpenBuffer::new();
            let relayed = receiver.handle_datagram(&relay.datagram, unix_ms, &mut open).unwrap();
            let segment = relayed.ci.segment();
            server.handle_relayed(RelayedFlight {
                client: SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get()),
                server: LOCAL,
                segment: &segment,
                key: relayed.reply,
                seen_as: None,
            });
        }
    }
}

async fn world(does: Resolver) -> World {
    let mut rng = ChaCha20Rng::from_seed([7; 32]);
    let verifier = PrivateKey::from_seed(&[1; 32]);
    let link = UdpLink::bind((LOCAL, 0).into()).unwrap();
    let udp_port = link.port();
    let server = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let mut listen = ListenConfig::new(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT));
    listen.asap = Some(policy(&verifier));
    let listener = server.listen(listen).unwrap();
    tokio::spawn(async move {
        while let Ok(mut stream) = listener.accept().await {
            tokio::spawn(async move {
                let (mut request, mut room) = (Vec::new(), [0; 1000]);
                // A request with lines is whole when there is an empty one.
                let is_part = |request: &[u8]| request.contains(&b'\n') && !request.ends_with(b"\r\n\r\n");
                while request.is_empty() || is_part(&request) {
                    let len = stream.read(&mut room).await?;
                    request.extend_from_slice(&room[..len]);
                }
                stream.write_all(&request).await?;
                stream.shutdown().await
            });
        }
    });

    let (dns_path_key, relay_key) = (DnsPathKey::generate(&mut rng), RelayKey::generate(&mut rng));
    let key = dns_path_key.public();
    let mut front = Front::new(Vec::new(), RateLimit::default()).unwrap();
    let sender = RelaySender::new(&relay_key, 1, 1, Boot((firstflight::unix_ms() / 1000) as u32));
    let config = DnsPathConfig {
        zone: "f.xyz.com.".parse().unwrap(),
        addresses: vec![Ipv4Addr::LOCALHOST],
        keys: DnsPathKeys::new(NonZeroU8::new(3).unwrap(), dns_path_key),
        to: Destination::Relay {
            servers: vec![RelayServer { address: SocketAddr::new(LOCAL, 9), sender }],
            policy: Box::new(RoundRobin::default()),
        },
        limits: ReassemblyLimits::default(),
        opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
    };
    front.carry(config, &mut rng).unwrap();
    let socket = UdpSocket::bind((LOCAL, 0)).await.unwrap();
    let resolver = socket.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    tokio::spawn(resolve(socket, does, front, relay_key, server.clone(), Arc::clone(&asked)));

    let socket = std::net::UdpSocket::bind((LOCAL, 0)).unwrap();
    let seen = socket.local_addr().unwrap();
    let link = UdpLink::adopt(socket).unwrap().heed_icmp().unwrap();
    let client = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let obtained = firstflight::certificate_clock().unwrap();
    let certificate = Arc::new(certificate(&verifier, 0, obtained));
    let proof = Some(Proof { seen, verifier: resolver, at: std::time::Instant::now() });
    let path = DnsPath::new(
        client.clone(),
        resolver,
        None,
        NETWORK,
        proof,
        Manners::new(),
        Form { parity: true, ..Form::default() },
    );
    World { path, client, server, seen, key, udp_port, certificate, asked, resolver }
}

impl World {
    fn service(&self) -> Server<'_> {
        let dns_path = DnsPathParam {
            key_id: NonZeroU8::new(3).unwrap(),
            key: self.key,
            zone: Zone::new(ZONE).unwrap(),
        };
        let port = NonZeroU16::new(self.udp_port).unwrap();
        Server { port: PORT, service: Some(UdpService { port, dns_path: Some(dns_path) }) }
    }

    fn config(&self) -> ConnectConfig {
        connect_config(&self.certificate, self.udp_port)
    }

    /// Sends a request and checks the answer.
    async fn ask<F>(&self, lookup: impl Fn() -> F + Sync, request: &[u8]) -> (Stream, Report)
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send,
    {
        let first = FirstFlight::safely_replayable(request);
        let config = self.config();
        let asked = self.path.connect(self.service(), lookup, first, &config);
        let (mut stream, report) =
            tokio::time::timeout(Duration::from_secs(30), asked).await.expect("no answer").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, request);
        (stream, report)
    }

    /// Sends a request and checks that nothing goes through the resolver.
    async fn held_back(&self, path: &DnsPath, first: FirstFlight<'_>, config: &ConnectConfig) -> HeldBack {
        let before = self.asked.load(Ordering::Relaxed);
        let lookup = || ready(Ok(vec![LOCAL]));
        let (_stream, report) = path.connect(self.service(), lookup, first, config).await.unwrap();
        assert_eq!((report.way, report.names), (LookupWay::Ordinary, 0));
        assert_eq!(self.asked.load(Ordering::Relaxed), before);
        report.held_back.unwrap()
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_comes_without_the_address() {
    let world = world(Resolver::Asks).await;
    let (stream, report) = world.ask(pending, REQUEST).await;
    assert_eq!((report.way, report.names), (LookupWay::Lookup, 7));
    assert!(report.held_back.is_none());
    assert_eq!(stream.peer_addr().unwrap(), SocketAddr::new(LOCAL, PORT));
    assert!(stream.outcome().is_accepted() && stream.info().unwrap().relayed);
    let counters = world.server.counters();
    assert_eq!((counters.relayed, counters.relayed_dropped), (1, 0));
    assert_eq!(world.client.counters().in_lookup_answered, 1);
    // The largest request that fits.
    let (_, report) = world.ask(pending, &[b'a'; 135]).await;
    assert_eq!((report.way, report.names), (LookupWay::Lookup, 9));
    assert!(!world.path.is_stopped(Zone::new(ZONE).unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_line_of_a_long_request_travels_in_the_lookup_and_the_rest_follows() {
    let request = format!("GET /small HTTP/1.1\r\nCookie: {}\r\n\r\n", "a".repeat(3000));
    let request = request.as_bytes();
    for (does, way) in [(Resolver::Asks, LookupWay::Lookup), (Resolver::Silent, LookupWay::Direct)] {
        let world = world(does).await;
        let lines = Form { first_lines: true, ..Form::default() };
        let proof = Some(Proof { seen: world.seen, verifier: world.resolver, at: std::time::Instant::now() });
        let path =
            DnsPath::new(world.client.clone(), world.resolver, None, NETWORK, proof, Manners::new(), lines);
        let world = World { path, ..world };
        let (stream, report) = match way {
            LookupWay::Lookup => world.ask(pending, request).await,
            _ => world.ask(|| ready(Ok(vec![LOCAL])), request).await,
        };
        assert_eq!((report.way, report.bytes), (way, 21));
        assert!(report.held_back.is_none() && stream.outcome().is_accepted());
        assert_eq!(world.server.counters().passive_opens, 1);
    }
    // Nobody asked for it, or the line is too long as well.
    let world = world(Resolver::Asks).await;
    let first = FirstFlight::safely_replayable(request);
    let why = world.held_back(&world.path, first, &world.config()).await;
    assert!(matches!(why, HeldBack::TooLong));
    let why = world.held_back(&world.path, first.beginning(136), &world.config()).await;
    assert!(matches!(why, HeldBack::TooLong));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_resolver_costs_nothing_but_names() {
    let world = world(Resolver::Silent).await;
    let (stream, report) = world.ask(|| ready(Ok(vec![LOCAL])), REQUEST).await;
    assert_eq!((report.way, report.names), (LookupWay::Direct, 7));
    assert!(stream.outcome().is_accepted() && !stream.info().unwrap().relayed);
    // Addresses of another family than the certificate's, and addresses without a listener, are skipped.
    let elsewhere = ["::1".parse().unwrap(), "127.0.0.99".parse().unwrap(), LOCAL];
    let (_, report) = world.ask(|| ready(Ok(elsewhere.to_vec())), REQUEST).await;
    assert_eq!(report.way, LookupWay::Direct);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_refuses_or_changes_names_is_left_in_peace() {
    for does in [Resolver::Refuses, Resolver::Mangles] {
        let world = world(does).await;
        let (_, report) = world.ask(|| ready(Ok(vec![LOCAL])), REQUEST).await;
        assert_eq!(report.way, LookupWay::Direct);
        // Wait for all seven names; no further name may follow.
        let is_stopped = || world.path.is_stopped(Zone::new(ZONE).unwrap());
        while !is_stopped() || world.asked.load(Ordering::Relaxed) < 7 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let first = FirstFlight::safely_replayable(REQUEST);
        let why = world.held_back(&world.path, first, &world.config()).await;
        assert!(matches!(why, HeldBack::Manners(Restraint::Stopped)), "{why:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_back_goes_the_direct_way_only() {
    let world = world(Resolver::Asks).await;
    let (path, config) = (&world.path, world.config());
    let first = FirstFlight::safely_replayable(REQUEST);
    let order = FirstFlight::at_most_once(REQUEST);
    assert!(matches!(world.held_back(path, order, &config).await, HeldBack::NotReplayable));
    let long = FirstFlight::safely_replayable(&[b'a'; 136]);
    assert!(matches!(world.held_back(path, long, &config).await, HeldBack::TooLong));
    let plain = config.clone().asap(None);
    assert!(matches!(world.held_back(path, first, &plain).await, HeldBack::NoCertificate));
    let with = |proof| {
        DnsPath::new(
            world.client.clone(),
            world.resolver,
            None,
            NETWORK,
            proof,
            Manners::new(),
            Form::default(),
        )
    };
    assert!(matches!(world.held_back(&with(None), first, &config).await, HeldBack::NotProved));
    let at = std::time::Instant::now();
    let elsewhere = Proof { seen: "192.0.2.1:4000".parse().unwrap(), verifier: world.resolver, at };
    assert!(matches!(world.held_back(&with(Some(elsewhere)), first, &config).await, HeldBack::OtherAddress));
    if let Some(at) = at.checked_sub(Duration::from_secs(3601)) {
        let old = Proof { seen: world.seen, verifier: world.resolver, at };
        assert!(matches!(world.held_back(&with(Some(old)), first, &config).await, HeldBack::NotProved));
    }
    // The limit is four first flights of a zone per minute.
    for _ in 0..4 {
        // The signature limit of one network is three first flights at once and thirty per second. The direct ones above
        // count, too.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.ask(pending, REQUEST).await.1.way, LookupWay::Lookup);
    }
    let why = world.held_back(path, first, &config).await;
    assert!(matches!(why, HeldBack::Manners(Restraint::Zone)), "{why:?}");
}

/// A proof that is given later applies from then on. Earlier requests do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_may_come_after_the_first_connection() {
    let world = world(Resolver::Asks).await;
    let path = DnsPath::new(
        world.client.clone(),
        world.resolver,
        None,
        NETWORK,
        None,
        Manners::new(),
        Form::default(),
    );
    let (first, config) = (FirstFlight::safely_replayable(REQUEST), world.config());
    assert!(matches!(world.held_back(&path, first, &config).await, HeldBack::NotProved));
    // No first flight is under way.
    path.settled().await;
    let proof = Proof { seen: world.seen, verifier: world.resolver, at: std::time::Instant::now() };
    path.prove(proof);
    let (_stream, report) = path.connect(world.service(), pending, first, &config).await.unwrap();
    assert_eq!(report.way, LookupWay::Lookup);
    // A newer one replaces it.
    path.prove(Proof { seen: "192.0.2.1:4000".parse().unwrap(), ..proof });
    assert!(matches!(world.held_back(&path, first, &config).await, HeldBack::OtherAddress));
}

/// The operator has changed the key; the front answers the names as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_flights_that_lose_in_a_row_are_counted() {
    let world = world(Resolver::Asks).await;
    let ask = async |server: Server<'_>, addresses: Vec<IpAddr>| {
        let (first, config) = (FirstFlight::safely_replayable(REQUEST), world.config());
        let (_stream, report) =
            world.path.connect(server, || ready(Ok(addresses.clone())), first, &config).await.unwrap();
        world.path.settled().await;
        report.way
    };
    let now = world.service();
    let mut old = now;
    let mut dns_path = old.service.unwrap().dns_path.unwrap();
    dns_path.key = DnsPathKey::generate(&mut ChaCha20Rng::from_seed([9; 32])).public();
    old.service = old.service.map(|service| UdpService { dns_path: Some(dns_path), ..service });
    assert_eq!(world.path.lost_in_a_row(&dns_path), 0);
    for lost in 1..=2 {
        assert_eq!(ask(old, vec![LOCAL]).await, LookupWay::Direct);
        assert_eq!(world.path.lost_in_a_row(&dns_path), lost);
    }
    assert_eq!(DnsPath::ASK_AGAIN_AFTER, 2);
    // The new parameter starts a new count, and the first flight that arrives ends a row.
    let new = now.service.unwrap().dns_path.unwrap();
    world.path.recall_lost(&new, 1);
    assert_eq!(world.path.lost_in_a_row(&new), 1);
    let (_, report) = world.ask(pending, REQUEST).await;
    world.path.settled().await;
    assert_eq!((report.way, world.path.lost_in_a_row(&new)), (LookupWay::Lookup, 0));
    assert_eq!(world.path.lost_in_a_row(&dns_path), 2);
}

/// The names were answered before the address was known, so they should have won. This runs on one thread, so that an
/// answer is handled before anything else happens.
#[tokio::test]
async fn after_four_that_should_have_won_there_is_a_pause() {
    let world = world(Resolver::Asks).await;
    let (heard, resolver) = (Arc::new(AtomicUsize::new(0)), world.resolver);
    let counter = Arc::clone(&heard);
    let exchange = Exchange::new(move |query| {
        let heard = Arc::clone(&counter);
        async move {
            let socket = UdpSocket::bind((LOCAL, 0)).await?;
            socket.send_to(&query, resolver).await?;
            let mut answer = vec![0; 600];
            let len = socket.recv(&mut answer).await?;
            answer.truncate(len);
            heard.fetch_add(1, Ordering::Relaxed);
            Ok(answer)
        }
    });
    let proof = Some(Proof { seen: world.seen, verifier: resolver, at: std::time::Instant::now() });
    let client = world.client.clone();
    let path =
        DnsPath::new(client, resolver, Some(exchange), NETWORK, proof, Manners::new(), Form::default());
    let mut server = world.service();
    let mut dns_path = server.service.unwrap().dns_path.unwrap();
    dns_path.key = DnsPathKey::generate(&mut ChaCha20Rng::from_seed([9; 32])).public();
    server.service = server.service.map(|service| UdpService { dns_path: Some(dns_path), ..service });
    let (first, config) = (FirstFlight::safely_replayable(REQUEST), world.config());
    let mut repeated = false;
    for flights in 1..=4 {
        let lookup = async || {
            while heard.load(Ordering::Relaxed) < 6 * flights {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(vec![LOCAL])
        };
        let (stream, report) = path.connect(server, lookup, first, &config).await.unwrap();
        assert_eq!((report.way, report.names), (LookupWay::Direct, 6));
        repeated |= stream.info().unwrap().handshake_retransmits > 0;
        path.settled().await;
    }
    assert_eq!(path.lost_in_a_row(&dns_path), 4);
    // A repeated SYN, for example because the machine stood still for a second, proves nothing.
    if !repeated {
        let lookup = || ready(Ok(vec![LOCAL]));
        let (_stream, report) = path.connect(server, lookup, first, &config).await.unwrap();
        assert!(matches!(report.held_back, Some(HeldBack::Lost)), "{report:?}");
    }
}

/// A resolver that refuses names or does not answer them proves nothing about the parameter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_names_do_not_count_as_lost() {
    for does in [Resolver::Refuses, Resolver::Silent] {
        let world = world(does).await;
        let (_, report) = world.ask(|| ready(Ok(vec![LOCAL])), REQUEST).await;
        assert_eq!(report.way, LookupWay::Direct);
        world.path.settled().await;
        assert_eq!(world.path.lost_in_a_row(&world.service().service.unwrap().dns_path.unwrap()), 0);
    }
}
