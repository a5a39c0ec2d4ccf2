//! A server that is its own verifier, on an emulated path in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::certified;
use firstflight::credential::asap::{AsapPolicy, ClientCertificate, PrivateKey, TrustStore, Trusted};
use firstflight::credential::{Outcome, Reason};
use firstflight::link::{Link, MemoryLink, PathConfig, VirtualTime, virtual_time_pair};
use firstflight::verifier::{Config, Issuer};
use firstflight::{
    Certified, ConnectConfig, EncapsulationConfig, Endpoint, FirstFlight, ListenConfig, Listener,
    OwnVerifier, Stream, Time, block_on_virtual,
};
use firstflight_wire::asap::message::{self, Message, Refused, Request, Tokens, TransactionId};
use firstflight_wire::ip::{Ecn, Header, Packet, Protocol};
use firstflight_wire::{Clock, udp};
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.0.2";
/// UDP ports.
const CLIENT_PORT: u16 = 5000;
const SERVER_PORT: u16 = 4433;
const ROUND_TRIP: Duration = Duration::from_millis(100);
const REQUEST: &[u8] = b"GET / HTTP/1.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32])
}

fn config(n: u8) -> Config {
    let allowed = vec!["10.0.0.0/8".parse().unwrap()];
    Config::default().issuer(Some(Issuer::new(key(n)))).allowed(allowed)
}

/// A server that trusts nobody but itself.
struct World {
    time: Time,
    server: Endpoint,
    listener: Listener,
    verifier: OwnVerifier,
    policy: AsapPolicy,
    path: MemoryLink,
}

/// Runs a test in virtual time.
fn run(test: impl AsyncFnOnce(World)) {
    let clock = VirtualTime::new(Duration::from_millis(firstflight::unix_ms()));
    block_on_virtual(&clock, async { test(world(&clock)).await }).unwrap();
}

fn world(clock: &VirtualTime) -> World {
    let path = PathConfig::default().delay(ROUND_TRIP / 2);
    let (path, far) = virtual_time_pair(path.clone(), path, 1, clock).unwrap();
    let time = Time::from(clock.clone());
    let server = Endpoint::in_time(engine(SERVER, SERVER_PORT), far, &time);
    let verifier = OwnVerifier::with_config(config(1)).unwrap();
    server.verify(&verifier).unwrap();
    let nobody = Arc::new(TrustStore::default());
    let policy = AsapPolicy { trust: nobody, ..certified::policy(&key(9)) };
    let mut listen = ListenConfig::new((ip(SERVER), certified::PORT).into());
    listen.asap = Some(policy.clone());
    let listener = server.listen(listen).unwrap();
    World { time, server, listener, verifier, policy, path }
}

fn engine(address: &str, port: u16) -> firstflight::Config {
    let mut config = firstflight::config(vec![ip(address)]).unwrap();
    config.encapsulation = Some(EncapsulationConfig::new(port));
    config
}

/// A UDP datagram from the client to the server, as an IP packet.
fn packet(payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (ip(CLIENT), ip(SERVER));
    let mut datagram = vec![0; udp::HEADER];
    let header = udp::Header { src_port: CLIENT_PORT, dst_port: SERVER_PORT };
    header.emit(payload.len(), &mut datagram).unwrap();
    datagram.extend_from_slice(payload);
    udp::fill_checksum(&mut datagram, src, dst);
    let header = Header {
        src,
        dst,
        protocol: Protocol::Udp,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let mut packet = vec![0; 40 + datagram.len()];
    let at = header.emit(datagram.len(), &mut packet).unwrap();
    packet[at..at + datagram.len()].copy_from_slice(&datagram);
    packet.truncate(at + datagram.len());
    packet
}

/// Sends a message to the verifier, and waits for the answer from the very port.
async fn ask(path: &mut MemoryLink, request: &Request) -> Message {
    let sent = packet(&request.to_bytes());
    poll_fn(|cx| path.poll_send(cx, &sent)).await.unwrap();
    let mut received = [0; 1500];
    loop {
        let len = poll_fn(|cx| path.poll_recv(cx, &mut received)).await.unwrap();
        let ip = Packet::parse(&received[..len]).unwrap();
        if ip.protocol != Protocol::Udp {
            continue;
        }
        let datagram = udp::Datagram::parse_checked(ip.payload, ip.src, ip.dst).unwrap();
        if let Ok(message) = Message::parse(datagram.payload) {
            assert_eq!((ip.src, datagram.src_port), (self::ip(SERVER), SERVER_PORT));
            assert_eq!((ip.dst, datagram.dst_port), (self::ip(CLIENT), CLIENT_PORT));
            assert!(datagram.payload.len() <= message::REQUEST_MIN_UDP);
            return message;
        }
    }
}

impl World {
    /// Obtains a certificate for the client's key with this number, by the verifier's key with that one.
    async fn obtain(&mut self, client: u8, verifier: u8) -> Result<Arc<ClientCertificate>, Refused> {
        let (client, verifier) = (key(client), key(verifier).public());
        let public = *client.public().as_bytes();
        let make = |challenge| {
            let id = TransactionId([client.public().as_bytes()[0]; 8]);
            let mut request = Request::new(id, public, 86_400, challenge, Tokens::NONE, None, true);
            request.signature = client.sign(request.signing_input(verifier.as_bytes()).as_slice());
            request
        };
        let Message::Challenge(came) = ask(&mut self.path, &make(None)).await else { panic!("no challenge") };
        match ask(&mut self.path, &make(Some(came.challenge))).await {
            Message::Certificate(certified) => {
                let now = self.time.certificate_clock().unwrap();
                let body = certified.certificate;
                let certificate = ClientCertificate::new(body, verifier, certified.seen.ip(), client, now);
                Ok(Arc::new(certificate.expect("a certificate by this verifier for this key")))
            }
            Message::Refused(refused) => Err(refused),
            other => panic!("{other:?}"),
        }
    }

    /// A client behind the same path, which takes it over.
    fn client(self) -> (Visits, Listener) {
        let Self { time, server, listener, path, .. } = self;
        let client = Endpoint::in_time(engine(CLIENT, CLIENT_PORT), path, &time);
        (Visits { time, client, _server: server }, listener)
    }
}

/// A client that has certificates.
struct Visits {
    time: Time,
    client: Endpoint,
    _server: Endpoint,
}

impl Visits {
    /// Visits the server, and returns the stream and after what time the answer was there.
    async fn visit(&self, listener: &Listener, certificate: &Arc<ClientCertificate>) -> (Stream, Duration) {
        let certified = Certified {
            certificate: Arc::clone(certificate),
            now: self.time.certificate_clock().unwrap(),
            identity: certified::identity(),
            known: true,
            once: false,
            mss: None,
            request_id: None,
        };
        let config = ConnectConfig::default().asap(Some(certified)).encapsulation(Some(SERVER_PORT));
        let began = self.time.now();
        let asking = async {
            let first = FirstFlight::safely_replayable(REQUEST);
            let to = (ip(SERVER), certified::PORT).into();
            let mut stream = self.client.connect(to, first, &config).await.unwrap();
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
            (stream, self.time.now() - began)
        };
        let serving = async {
            let mut stream = listener.accept().await.unwrap();
            let mut request = [0; REQUEST.len()];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"answer").await.unwrap();
            stream
        };
        let (asked, _served) = tokio::join!(asking, serving);
        asked
    }
}

#[test]
fn the_port_certifies_and_the_next_request_is_in_the_first_packet() {
    run(async |mut world| {
        let certificate = world.obtain(2, 1).await.unwrap();
        assert_eq!(certificate.address(), ip(CLIENT));
        assert_eq!(world.verifier.counters().certificates, 1);
        let (visits, listener) = world.client();
        let (stream, took) = visits.visit(&listener, &certificate).await;
        assert_eq!((stream.outcome(), took), (Outcome::Accepted, ROUND_TRIP));
    });
}

/// Whatever a reload trusts or no longer trusts, the server trusts itself.
#[test]
fn a_reload_keeps_the_servers_own_key() {
    run(async |mut world| {
        let certificate = world.obtain(2, 1).await.unwrap();
        let trust = world.listener.trust().unwrap();
        assert!(trust.set(Arc::new(TrustStore::new([Trusted::new(key(3).public())]).unwrap())));
        assert!(trust.set(Arc::new(TrustStore::default())));
        let (visits, listener) = world.client();
        let (stream, took) = visits.visit(&listener, &certificate).await;
        assert_eq!((stream.outcome(), took), (Outcome::Accepted, ROUND_TRIP));
    });
}

/// The file's own entry for the key holds while it is there: here it forbids the client's address.
#[test]
fn an_entry_of_the_file_for_the_same_key_holds() {
    run(async |mut world| {
        let certificate = world.obtain(2, 1).await.unwrap();
        let elsewhere = vec!["192.0.2.0/24".parse().unwrap()];
        let narrow = Trusted { prefixes: elsewhere, ..Trusted::new(key(1).public()) };
        let trust = world.listener.trust().unwrap();
        assert!(trust.set(Arc::new(TrustStore::new([narrow]).unwrap())));
        let (visits, listener) = world.client();
        let (stream, _) = visits.visit(&listener, &certificate).await;
        assert_eq!(stream.outcome(), Outcome::Handshake(Reason::Policy));
    });
}

/// The servers trust the new key first. Requests that were made before, or within ten seconds, may have been refused.
#[test]
fn a_new_key_is_trusted_before_it_certifies() {
    run(async |mut world| {
        let issuer = Issuer { retired: vec![key(1).public()], ..Issuer::new(key(4)) };
        let before = world.obtain(2, 1).await.unwrap();
        world.verifier.set_config(config(4).issuer(Some(issuer))).unwrap();
        let early = world.obtain(3, 4).await.unwrap();
        world.time.sleep(Duration::from_secs(31)).await;
        let after = world.obtain(5, 4).await.unwrap();
        let (visits, listener) = world.client();
        // The former key is a retired one.
        let (stream, _) = visits.visit(&listener, &before).await;
        assert_eq!(stream.outcome(), Outcome::Accepted);
        for certificate in [early, after] {
            let (stream, took) = visits.visit(&listener, &certificate).await;
            assert_eq!((stream.outcome(), took), (Outcome::Accepted, ROUND_TRIP));
        }
    });
    run(async |mut world| {
        world.verifier.set_config(config(4)).unwrap();
        let certificate = world.obtain(3, 4).await.unwrap();
        let (visits, listener) = world.client();
        let (stream, _) = visits.visit(&listener, &certificate).await;
        assert_eq!(stream.outcome(), Outcome::Handshake(Reason::GuardFloor));
    });
}

/// While the clock is behind the guard's time, a certificate would be refused, so none is made.
#[test]
fn nothing_is_issued_while_the_guard_refuses_the_clock() {
    run(async |mut world| {
        let ahead = Clock {
            mono: world.time.now(),
            unix_ms: world.time.unix().as_millis() as u64 + 60_000,
            uncertainty: Duration::ZERO,
        };
        world.policy.guard.observe(&ahead);
        let refused = world.obtain(2, 1).await.unwrap_err();
        assert_eq!(refused.reason, message::Reason::Overloaded);
        assert!(refused.retry_after > 0);
        world.time.sleep(Duration::from_secs(60)).await;
        assert!(world.obtain(2, 1).await.is_ok());
    });
}

/// What a listener trusts may not contradict the verifier, when it begins and when the verifier's key changes. The two keys
/// have one id.
#[test]
fn two_keys_with_one_id_are_refused() {
    run(async |world| {
        let [one, other] = same_id();
        assert_eq!(one.public().id(), other.public().id());
        let trusting = |key: &PrivateKey| Arc::new(TrustStore::new([Trusted::new(key.public())]).unwrap());
        let own = |key: &PrivateKey| config(1).issuer(Some(Issuer::new(key.clone())));
        // The server trusts one already, and is to become the other.
        let trust = world.listener.trust().unwrap();
        assert!(trust.set(trusting(&one)));
        assert!(world.verifier.set_config(own(&other)).is_err());
        assert!(trust.set(Arc::new(TrustStore::default())));
        world.verifier.set_config(own(&other)).unwrap();
        // It is the other, and is to trust the first.
        assert!(!trust.set(trusting(&one)));
        let mut listen = ListenConfig::new((ip(SERVER), 81).into());
        listen.asap = Some(AsapPolicy { trust: trusting(&one), ..world.policy.clone() });
        let error = world.server.listen(listen.clone()).unwrap_err();
        assert!(error.to_string().contains(&one.public().id().to_string()), "{error}");
        listen.asap = Some(AsapPolicy { trust: trusting(&other), ..world.policy.clone() });
        world.server.listen(listen).unwrap();
        // Two keys of its own.
        let issuer = Issuer { retired: vec![one.public()], ..Issuer::new(other) };
        assert!(OwnVerifier::with_config(config(1).issuer(Some(issuer))).is_err());
    });
}

/// Keys whose ids are equal, dd0598e8, found by trying 163,802.
fn same_id() -> [PrivateKey; 2] {
    [96_995_u32, 163_802].map(|n| {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&n.to_be_bytes());
        PrivateKey::from_seed(&seed)
    })
}
