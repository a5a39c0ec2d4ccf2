//! Service and client on the loopback interface.

use super::*;
use crate::StreamLimits;
use crate::config::{Config, Issuer, VantagePoint};
use crate::counters::Counters;
use crate::service::{CounterHandle, STREAM_LIMITS, Service};
use crate::token::{GroupMember, TokenKey};
use firstflight_credential::asap::is_certified;
use firstflight_wire::asap::message::{Reason, VantageId};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

/// A service that stops when it is dropped.
struct Running {
    address: SocketAddr,
    counters: CounterHandle,
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<()>,
}

impl Running {
    async fn start(config: Config, at: &str) -> Self {
        let service = Service::bind(config, &[at.parse().unwrap()], STREAM_LIMITS).await.unwrap();
        let (address, counters) = (service.addresses()[0], service.counters());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(service.run(async {
            let _ = stopped.await;
        }));
        Self { address, counters, _stop: stop, _task: task }
    }

    fn counters(&self) -> Counters {
        self.counters.get()
    }
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

fn local(issuer: Option<Issuer>, vantage: Option<VantagePoint>) -> Config {
    let allowed = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    Config { issuer, vantage, allowed, ..Config::default() }
}

fn wanted(seed: u8) -> Wanted<'static> {
    Wanted { key: key(seed), wished: 3600, old: None }
}

/// Short time limits, for peers that never answer.
fn hasty() -> Patience {
    Patience { first: Duration::from_millis(100), sends: 2, ..Patience::default() }
}

#[tokio::test]
async fn over_udp_and_both_families() {
    for at in [V4, V6] {
        let running = Running::start(local(Some(Issuer::new(key(1))), None), at).await;
        let issuer = IssuerAddress::new(running.address, key(1).public());
        let certificate = obtain(&issuer, wanted(2), &Patience::default()).await.unwrap();
        assert_eq!(certificate.address(), running.address.ip());
        assert_eq!(certificate.body().duration(), 1800);
        assert!(is_certified(certificate.body(), &key(1).public(), running.address.ip()));
        let old = Wanted { key: key(3), wished: 3600, old: Some(&certificate) };
        let refreshed = obtain(&issuer, old, &Patience::default()).await.unwrap();
        assert!(refreshed.body().flags.is_refreshed());
        let counters = running.counters();
        assert_eq!((counters.certificates, counters.refreshed, counters.stream_messages), (2, 1, 0));
    }
}

/// The probe comes from a third address of this host. A probe from an address that was asked proves nothing.
#[tokio::test]
async fn a_probe_from_elsewhere_arrives_on_an_open_network() {
    let certifies = || local(Some(Issuer::new(key(1))), None);
    let probes = |from: &str| Config { probe_from: vec![from.parse().unwrap()], ..certifies() };
    let first = Running::start(probes("127.0.0.3:0"), V4).await;
    let second = Running::start(certifies(), "127.0.0.2:0").await;
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let found = reach(&socket, [first.address, second.address], &Patience::default()).await.unwrap();
    assert_eq!((found.seen.port(), found.seen_by_second.port()), (port, port));
    assert_eq!((found.strangers, found.mapping()), (true, Mapping::EndpointIndependent));
    assert!(found.is_open());
    // A probe from another port of a verifier that was asked does not come from a stranger.
    let known = Running::start(probes("127.0.0.1:0"), "127.0.0.4:0").await;
    let asking = [first.address, second.address];
    // The client waits until no probe has come.
    let patience = Patience { sends: 2, ..Patience::default() };
    let mut asked = reach::AskingVerifier { socket: &socket, contacted: asking.to_vec(), patience };
    asked.contacted.push(known.address);
    let (_, strangers) = asked.probe(known.address).await.unwrap();
    assert!(!strangers);
    assert!(!Reach { strangers: false, ..found }.is_open());
    // The error names the verifier that sends no probes.
    let (who, fault) =
        reach(&socket, [second.address, first.address], &Patience::default()).await.unwrap_err();
    assert_eq!(who, second.address);
    assert!(matches!(fault, Fault::Refused(Refused { reason: Reason::NoProbe, .. })), "{fault}");
    assert_eq!(first.counters().probes, 1);
}

#[tokio::test]
async fn probes_cannot_come_from_where_clients_ask() {
    let config = Config { probe_from: vec![V4.parse().unwrap()], ..local(Some(Issuer::new(key(1))), None) };
    let refused = Service::bind(config, &[V4.parse().unwrap()], STREAM_LIMITS).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("give another address of this machine"), "{error}");
}

/// No stamp of the client is ahead of the verifier's clock.
#[tokio::test]
async fn requests_are_stamped_no_later_than_the_verifier_wrote() {
    let running = Running::start(local(Some(Issuer::new(key(1))), None), V4).await;
    let issuer = IssuerAddress::new(running.address, key(1).public());
    let certificate = obtain(&issuer, wanted(2), &Patience::default()).await.unwrap();
    let stamp = certificate.requested_ms(boot_clock().unwrap());
    let clock = crate::clock::clocks().unwrap();
    assert!(stamp <= clock.unix_ms, "{stamp} is after {}", clock.unix_ms);
    assert!(clock.unix_ms - stamp < 60_000);
}

/// A UDP socket that never answers, as behind a filter that drops UDP. TCP on the same port goes to the
/// verifier.
#[tokio::test]
async fn tcp_is_taken_where_udp_is_silent() {
    for at in [V4, V6] {
        let running = Running::start(local(Some(Issuer::new(key(1))), None), at).await;
        let front = TcpListener::bind(at).await.unwrap();
        let address = front.local_addr().unwrap();
        let _deaf = UdpSocket::bind(address).await.unwrap();
        let behind = running.address;
        let relay = tokio::spawn(async move {
            let (mut near, _) = front.accept().await.unwrap();
            let mut far = tokio::net::TcpStream::connect(behind).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        let issuer = IssuerAddress::new(address, key(1).public());
        let certificate = obtain(&issuer, wanted(2), &hasty()).await.unwrap();
        assert!(is_certified(certificate.body(), &key(1).public(), certificate.address()));
        let counters = running.counters();
        assert_eq!((counters.datagrams, counters.stream_messages, counters.certificates), (0, 1, 1));
        relay.abort();
    }
}

#[tokio::test]
async fn who_is_not_there_is_named() {
    let free = TcpListener::bind(V4).await.unwrap().local_addr().unwrap();
    let issuer = IssuerAddress { name: "oslo".into(), ..IssuerAddress::new(free, key(1).public()) };
    let error = obtain(&issuer, wanted(2), &hasty()).await.unwrap_err();
    assert!(
        matches!(&error, ObtainError::Issuer { name, fault: Fault::Silent(_) } if name == "oslo"),
        "{error}"
    );
    assert!(error.to_string().starts_with("verifier oslo: no answer over UDP"), "{error}");
}

#[tokio::test]
async fn another_verifiers_certificate_is_not_taken() {
    let running = Running::start(local(Some(Issuer::new(key(1))), None), V4).await;
    let issuer = IssuerAddress::new(running.address, key(9).public());
    let error = obtain(&issuer, wanted(2), &Patience::default()).await.unwrap_err();
    // The request is signed for the other verifier, so it is refused at once.
    assert_eq!(error.refused().map(|refused| refused.reason), Some(Reason::BadSignature));
}

#[tokio::test]
async fn connections_end_when_the_service_stops() {
    let config = local(Some(Issuer::new(key(1))), None);
    let limits = StreamLimits { patience: Duration::from_millis(300), ..STREAM_LIMITS };
    let service = Service::bind(config, &[V4.parse().unwrap()], limits).await.unwrap();
    let address = service.addresses()[0];
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(service.run(async {
        let _ = stopped.await;
    }));
    // An idle connection does not delay the stop for long.
    let _idle = tokio::net::TcpStream::connect(address).await.unwrap();
    stop.send(()).unwrap();
    task.await.unwrap();
    let error = tokio::net::TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

/// One client cannot hold all places: of twenty idle connections, eight are kept.
#[tokio::test]
async fn a_client_has_its_share_of_connections() {
    use tokio::io::AsyncReadExt;
    let running = Running::start(local(Some(Issuer::new(key(1))), None), V4).await;
    let mut streams = JoinSet::new();
    for _ in 0..20 {
        let mut stream = tokio::net::TcpStream::connect(running.address).await.unwrap();
        streams.spawn(async move { stream.read(&mut [0]).await });
    }
    // Twelve are closed at once, and the other eight only when their time is over.
    for _ in 0..12 {
        assert!(matches!(streams.join_next().await, Some(Ok(Ok(0) | Err(_)))));
    }
    assert_eq!(streams.len(), 8);
    assert!(timeout_is_far(&mut streams).await);
}

async fn timeout_is_far(streams: &mut JoinSet<std::io::Result<usize>>) -> bool {
    streams.try_join_next().is_none()
}

fn id(number: u16) -> VantageId {
    VantageId::new(number).unwrap()
}

fn vantage(number: u8, secret: u8) -> Config {
    let key = TokenKey::new(1, [secret; 32]);
    local(None, Some(VantagePoint { id: id(number.into()), key }))
}

/// An issuer with three vantage points, and the addresses that clients know.
struct Group {
    issuer: Running,
    points: Vec<Running>,
    known: IssuerAddress,
}

impl Group {
    async fn start(at: &str) -> Self {
        let member = |number: u8| GroupMember {
            id: id(number.into()),
            name: format!("point-{number}"),
            keys: vec![TokenKey::new(1, [number; 32])],
        };
        let group = vec![member(1), member(2), member(3)];
        let issuer = Running::start(local(Some(Issuer { group, ..Issuer::new(key(1)) }), None), at).await;
        let mut points = Vec::new();
        for number in 1..=3 {
            points.push(Running::start(vantage(number, number), at).await);
        }
        let mut known = IssuerAddress::new(issuer.address, key(1).public());
        known.group = (points.iter().zip(1..))
            .map(|(point, number)| VantageAddress {
                id: id(number),
                name: format!("point-{number}"),
                addresses: vec![point.address],
            })
            .collect();
        Self { issuer, points, known }
    }
}

#[tokio::test]
async fn a_group_of_three_certifies_together() {
    for at in [V4, V6] {
        let group = Group::start(at).await;
        let certificate = obtain(&group.known, wanted(2), &Patience::default()).await.unwrap();
        assert_eq!(certificate.body().flags.vantage(), 4);
        assert!(is_certified(certificate.body(), &key(1).public(), certificate.address()));
        assert!(group.points.iter().all(|point| point.counters().tokens == 1));
    }
}

#[tokio::test]
async fn a_vantage_point_that_is_down_is_named_and_nothing_is_certified() {
    let mut group = Group::start(V4).await;
    let free = TcpListener::bind(V4).await.unwrap().local_addr().unwrap();
    group.known.group[1].addresses = vec![free];
    let error = obtain(&group.known, wanted(2), &hasty()).await.unwrap_err();
    assert!(error.to_string().contains("vantage point point-2 (number 2): no answer over UDP"), "{error}");
    let ObtainError::Vantage(faults) = error else { panic!("{error}") };
    assert_eq!(faults.len(), 1);
    assert_eq!(group.issuer.counters().certificates, 0);
}

/// The packets to it are dropped: the client waits, and gets no certificate.
#[tokio::test]
async fn without_a_way_to_one_vantage_point_there_is_no_certificate() {
    let mut group = Group::start(V4).await;
    let hole = UdpSocket::bind(V4).await.unwrap();
    group.known.group[2].addresses = vec![hole.local_addr().unwrap()];
    let error = obtain(&group.known, wanted(2), &hasty()).await.unwrap_err();
    let ObtainError::Vantage(faults) = error else { panic!("{error}") };
    assert_eq!(faults[0].name, "point-3");
    assert!(matches!(faults[0].fault, Fault::Silent(_)));
    assert_eq!(group.issuer.counters().certificates, 0);
    // The client tried: the datagram is there.
    assert!(hole.try_recv(&mut [0; 512]).is_ok() || hole.recv(&mut [0; 512]).await.is_ok());
}

#[tokio::test]
async fn a_vantage_point_that_lies_is_named() {
    let mut group = Group::start(V4).await;
    // Its key is not the one that the issuer knows.
    let liar = Running::start(vantage(3, 77), V4).await;
    group.known.group[2].addresses = vec![liar.address];
    let error = obtain(&group.known, wanted(2), &Patience::default()).await.unwrap_err();
    assert!(error.to_string().contains("the token of vantage point point-3 (number 3)"), "{error}");
    let wrong = matches!(error, ObtainError::Token { reason: Reason::TokenWrong, id, .. } if id.get() == 3);
    assert!(wrong);
    // A vantage point that gives the number of another one.
    let other = Running::start(vantage(2, 2), V4).await;
    group.known.group[2].addresses = vec![other.address];
    let error = obtain(&group.known, wanted(2), &Patience::default()).await.unwrap_err();
    assert!(
        error.to_string().contains("vantage point point-3 (number 3): its answer makes no sense"),
        "{error}"
    );
    assert_eq!(group.issuer.counters().certificates, 0);
}

/// A vantage point that hands out a token that was made for another client, or long ago.
#[tokio::test]
async fn a_vantage_point_that_replays_is_named() {
    let mut group = Group::start(V4).await;
    let now = (crate::clock::clocks().unwrap().unix_ms / 1000) as u32;
    let ip = "127.0.0.1".parse().unwrap();
    let maker = TokenKey::new(1, [2; 32]);
    let others = maker.token(id(2), now, ip, key(50).public().as_bytes());
    let old = maker.token(id(2), now - 120, ip, key(2).public().as_bytes());
    for (token, expected) in [(others, Reason::TokenWrong), (old, Reason::TokenExpired)] {
        let socket = Arc::new(UdpSocket::bind(V4).await.unwrap());
        group.known.group[1].addresses = vec![socket.local_addr().unwrap()];
        let replayer = tokio::spawn(replay(Arc::clone(&socket), token));
        let error = obtain(&group.known, wanted(2), &Patience::default()).await.unwrap_err();
        let named = matches!(&error, ObtainError::Token { reason, vantage, .. } if *reason == expected && vantage == "point-2");
        assert!(named, "{error}");
        replayer.abort();
    }
    assert_eq!(group.issuer.counters().certificates, 0);
}

/// Answers with a challenge, and then always with the same token.
async fn replay(socket: Arc<UdpSocket>, token: Token) {
    use firstflight_wire::asap::message::{ChallengeMessage, TokenMessage};
    let mut buffer = [0; 512];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        let Ok(Message::VantageRequest(request)) = Message::parse(&buffer[..len]) else { continue };
        let transaction = request.transaction;
        let challenge = Challenge { key: 1, time: 1, mac: [1; 16] };
        let answer = match request.challenge {
            None => ChallengeMessage { transaction, challenge, seen: from, time: 1 }.to_bytes(),
            Some(_) => TokenMessage { transaction, token }.to_bytes(),
        };
        socket.send_to(&answer, from).await.unwrap();
    }
}

/// Knows one name, and counts how often it is asked.
struct Book(std::sync::atomic::AtomicUsize, Vec<IpAddr>);

impl LookUp for Book {
    fn addresses<'a>(&'a self, name: &'a str, v4: bool) -> Looked<'a> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let known = self.1.iter().copied().filter(|ip| name == "pv.example.com" && ip.is_ipv4() == v4);
        let known = known.collect();
        Box::pin(async move { Ok(known) })
    }
}

/// Each time that it is asked, its name is looked up. An address of another family is not asked, and a silent one is followed by
/// the next.
#[tokio::test]
async fn a_verifier_has_a_name() {
    let running = Running::start(local(Some(Issuer::new(key(1))), None), V4).await;
    let addresses = ["127.0.0.9", "127.0.0.1", "::1"].map(|ip| ip.parse().unwrap());
    let book = Arc::new(Book(std::sync::atomic::AtomicUsize::new(0), addresses.to_vec()));
    let at = |name: &str, v4| {
        IssuerAddress::named(name, running.address.port(), v4, key(1).public(), Arc::clone(&book) as _)
    };
    let wanted = || Wanted { key: key(9), wished: 600, old: None };
    for _ in 0..2 {
        let got = obtain(&at("pv.example.com", true), wanted(), &Patience::default()).await.unwrap();
        assert_eq!(got.address(), "127.0.0.1".parse::<IpAddr>().unwrap());
    }
    assert_eq!(book.0.load(std::sync::atomic::Ordering::Relaxed), 2);
    let other = obtain(&at("other.example.com", true), wanted(), &Patience::default()).await.unwrap_err();
    assert!(matches!(other, ObtainError::Unknown { v4: true, .. }), "{other}");
    assert!(other.to_string().contains("other.example.com"), "{other}");
    // At the IPv6 address nobody listens.
    let silent = obtain(&at("pv.example.com", false), wanted(), &Patience::default()).await.unwrap_err();
    assert!(silent.to_string().contains("(::1)"), "{silent}");
    assert_eq!(running.counters().certificates, 2);
}
