//! Tests of the front on sockets of the loopback interface.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use data_encoding::HEXLOWER;
use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::metrics::{Publisher, describe};
use firstflight_dns::service::{FrontHandle, STREAM_LIMITS, Sockets};
use firstflight_dns::{
    Attempt, Boot, ConnectionInfo, Destination, DnsPathConfig, DnsPathKey, DnsPathKeys, Echo, ForwardConfig,
    ForwardSender, Forwarder, Fragment, FragmentQuery, Fragments, Front, OpenBuffer, ReassemblyLimits,
    RelayKey, RelayReceiver, RelaySender, RelayServer, Sealed, ZoneData,
};
use firstflight_service::StreamLimits;
use firstflight_wire::asap::Zone;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Time limit for an answer. Without it a test would wait for a missing answer without end.
const LONG: Duration = Duration::from_secs(20);

/// The first vector, whose zone and key the front serves.
struct Vector {
    file: serde_json::Value,
}

fn unhex(text: &serde_json::Value) -> Vec<u8> {
    HEXLOWER.decode(text.as_str().unwrap().as_bytes()).unwrap()
}

impl Vector {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/dns-path.json");
        Self { file: serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() }
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        unhex(&self.file["vectors"][0][key])
    }

    fn zone(&self) -> Vec<u8> {
        self.bytes("zone")
    }

    fn key(&self) -> DnsPathKeys {
        let secret = unhex(&self.file["private_key"]).try_into().unwrap();
        let id = u8::try_from(self.file["key_id"].as_u64().unwrap()).unwrap();
        DnsPathKeys::new(id.try_into().unwrap(), DnsPathKey::from_bytes(&secret).unwrap())
    }

    fn queries(&self) -> Vec<FragmentQuery> {
        let sealed = Sealed::new(&self.bytes("sealed")).unwrap();
        let zone = self.zone();
        let fragments = Fragments::split(&sealed, Attempt::default(), false);
        let labels: Vec<[u8; 63]> = fragments.labels().collect();
        assert!(labels.iter().all(|label| Fragment::parse(label).is_ok()));
        let query = |(id, label)| FragmentQuery::new(id, label, Zone::new(&zone).unwrap()).unwrap();
        (0..).zip(&labels).map(query).collect()
    }
}

struct Running {
    at: SocketAddr,
    server: UdpSocket,
    handle: FrontHandle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// A front of the vector's zone, with this number, that relays to `server`.
fn front(vector: &Vector, server: SocketAddr, number: u16) -> Front {
    let wire = vector.zone();
    let zone: String = Zone::new(&wire).unwrap().to_string();
    let name = hickory_proto::rr::Name::from_ascii(&zone).unwrap();
    let text = "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.53\n";
    let data = ZoneData::parse(text, None, &name).unwrap();
    let mut rng = firstflight_dns::service::secure_rng().unwrap();
    let mut front = Front::new(vec![data], RateLimit::default()).unwrap();
    let config = DnsPathConfig {
        zone: name,
        addresses: vec![Ipv4Addr::new(192, 0, 2, 80)],
        keys: vector.key(),
        to: Destination::Relay {
            servers: vec![RelayServer {
                address: server,
                sender: RelaySender::new(&RelayKey::from_bytes(&[8; 32]), 1, number, Boot(1)),
            }],
            policy: Box::new(RoundRobin::default()),
        },
        limits: ReassemblyLimits::default(),
        opens_per_second: DnsPathConfig::OPENS_PER_SECOND,
    };
    front.carry(config, &mut rng).unwrap();
    front
}

async fn run(sockets: Sockets, front: Front, server: UdpSocket, limits: StreamLimits) -> Running {
    let at = sockets.addresses()[0];
    let service = sockets.serve(front, limits).await.unwrap();
    let handle = service.handle();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(service.run(async {
        let _ = stopped.await;
    }));
    Running { at, server, handle, stop, task }
}

async fn start(vector: &Vector, limits: StreamLimits) -> Running {
    let server = UdpSocket::bind(LOOPBACK).await.unwrap();
    let front = front(vector, server.local_addr().unwrap(), 1);
    run(Sockets::bind(&[LOOPBACK]).await.unwrap(), front, server, limits).await
}

/// Two fronts of one zone, which know each other or not.
async fn start_two(vector: &Vector, forwarding: bool) -> [Running; 2] {
    let shared = RelayKey::from_bytes(&[6; 32]);
    let (mut bound, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let mut sockets = Sockets::bind(&[LOOPBACK]).await.unwrap();
        ports.push(sockets.bind_for_fronts(LOOPBACK).await.unwrap());
        bound.push(sockets);
    }
    let mut all = Vec::new();
    for (number, sockets) in (0_u16..).zip(bound) {
        let server = UdpSocket::bind(LOOPBACK).await.unwrap();
        let mut front = front(vector, server.local_addr().unwrap(), number);
        if forwarding {
            let config = ForwardConfig {
                others: vec![ports[1 - usize::from(number)]],
                sender: ForwardSender::new(&shared, 2, number, Boot(1)),
                keys: vec![(2, shared.clone())],
                per_second: ForwardConfig::PER_SECOND,
            };
            assert!(front.forward(Forwarder::new(config).unwrap()));
        }
        all.push(run(sockets, front, server, STREAM_LIMITS).await);
    }
    all.try_into().ok().unwrap()
}

impl Running {
    async fn over_udp(&self, query: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind(LOOPBACK).await.unwrap();
        socket.send_to(query, self.at).await.unwrap();
        let mut buffer = [0; 2048];
        let (len, from) = timeout(LONG, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(from, self.at);
        buffer[..len].to_vec()
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        timeout(LONG, self.task).await.unwrap().unwrap();
    }
}

async fn over_stream(stream: &mut TcpStream, query: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).await?;
    let mut len = [0; 2];
    stream.read_exact(&mut len).await?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_first_flight_over_udp_and_tcp_arrives_at_the_server() {
    let (recorder, vector) = (PrometheusBuilder::new().build_recorder(), Vector::read());
    let rendered = recorder.handle();
    let running = start(&vector, STREAM_LIMITS).await;
    let mut stream = TcpStream::connect(running.at).await.unwrap();
    let queries = vector.queries();
    for (n, query) in queries.iter().enumerate() {
        let answer = match n % 2 {
            0 => running.over_udp(query.as_bytes()).await,
            _ => over_stream(&mut stream, query.as_bytes()).await.unwrap(),
        };
        assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
    }
    drop(stream);
    let mut datagram = [0; 2048];
    let (len, _) = timeout(LONG, running.server.recv_from(&mut datagram)).await.unwrap().unwrap();
    let mut receiver = RelayReceiver::new();
    receiver.set_key(1, &RelayKey::from_bytes(&[8; 32]));
    let mut buffer = OpenBuffer::new();
    let now = firstflight_dns::service::unix_ms();
    let relayed = receiver.handle_datagram(&datagram[..len], now, &mut buffer).unwrap();
    assert_eq!(ConnectionInfo::parse(&vector.bytes("connection_info")), Ok(relayed.ci));
    assert_eq!(relayed.resolver, LOOPBACK.ip());

    let mut publisher = Publisher::new(running.handle.clone());
    metrics::with_local_recorder(&recorder, || {
        describe();
        publisher.publish();
        publisher.publish();
    });
    let text = rendered.render();
    let n = queries.len();
    for line in [
        format!("firstflight_dns_queries_total{{transport=\"udp\"}} {}\n", n.div_ceil(2)),
        format!("firstflight_dns_queries_total{{transport=\"tcp\"}} {}\n", n / 2),
        format!("firstflight_dns_answers_total{{kind=\"fragment\"}} {n}\n"),
        format!("firstflight_dns_fragments_total{{outcome=\"taken\"}} {n}\n"),
        "firstflight_dns_sets_total{outcome=\"completed\"} 1\n".into(),
        "firstflight_dns_first_flights_total{outcome=\"relayed\"} 1\n".into(),
        "firstflight_dns_sets 1\n".into(),
    ] {
        assert!(text.contains(&line), "{line} in {text}");
    }
    running.end().await;
}

/// Each front has half of the fragments, so without forwarding neither of them has all.
#[tokio::test]
async fn two_fronts_hand_over_a_first_flight_that_is_spread_over_them() {
    let vector = Vector::read();
    let fronts = start_two(&vector, true).await;
    let alive = |running: &Running| running.handle.forwarding().unwrap().1;
    while fronts.iter().any(|running| alive(running) < 2) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let queries = vector.queries();
    let [one, two] = &fronts;
    let (mut first, mut second) = ([0; 2048], [0; 2048]);
    let (len, by_first) = loop {
        for (query, running) in queries.iter().zip(fronts.iter().cycle()) {
            let answer = running.over_udp(query.as_bytes()).await;
            assert_eq!(query.read_answer(&answer), Some(Echo::Answered));
        }
        let received = async {
            tokio::select! {
                received = one.server.recv(&mut first) => (received.unwrap(), true),
                received = two.server.recv(&mut second) => (received.unwrap(), false),
            }
        };
        // Try again if the machine was busy for so long that one front considered the other dead.
        if let Ok(received) = timeout(LONG / 4, received).await {
            break received;
        }
    };
    let datagram = if by_first { &first[..len] } else { &second[..len] };
    let (mut receiver, mut buffer) = (RelayReceiver::new(), OpenBuffer::new());
    receiver.set_key(1, &RelayKey::from_bytes(&[8; 32]));
    let now = firstflight_dns::service::unix_ms();
    let relayed = receiver.handle_datagram(datagram, now, &mut buffer).unwrap();
    assert_eq!(ConnectionInfo::parse(&vector.bytes("connection_info")), Ok(relayed.ci));
    assert_eq!(relayed.resolver, LOOPBACK.ip());
    let counts = fronts.each_ref().map(|running| running.handle.counters().0.relayed);
    assert_eq!(counts.iter().sum::<u64>(), 1);
    let counts = fronts.each_ref().map(|running| running.handle.forwarding().unwrap().0);
    let (forwarded, taken) =
        counts.iter().fold((0, 0), |(out, taken), one| (out + one.forwarded, taken + one.taken));
    assert!(forwarded == taken && taken >= queries.len() as u64 / 2, "{counts:?}");

    let mut publisher = Publisher::new(one.handle.clone());
    let recorder = PrometheusBuilder::new().build_recorder();
    let rendered = recorder.handle();
    metrics::with_local_recorder(&recorder, || publisher.publish());
    assert!(rendered.render().contains("firstflight_dns_fronts_alive 2\n"));
    for running in fronts {
        running.end().await;
    }

    // The fronts do not know each other, so each keeps half of the set.
    let fronts = start_two(&vector, false).await;
    for (query, running) in queries.iter().zip(fronts.iter().cycle()) {
        running.over_udp(query.as_bytes()).await;
    }
    assert_eq!(fronts.each_ref().map(|running| running.handle.counters().1.completed), [0, 0]);
    for running in fronts {
        running.end().await;
    }
}

#[tokio::test]
async fn a_client_has_its_share_of_connections() {
    let limits = StreamLimits { per_client: 2, ..STREAM_LIMITS };
    let vector = Vector::read();
    let running = start(&vector, limits).await;
    let query = vector.queries().remove(0);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(running.at).await.unwrap();
        over_stream(&mut stream, query.as_bytes()).await.unwrap();
        held.push(stream);
    }
    // The connection that has been idle for longest is closed.
    let mut third = TcpStream::connect(running.at).await.unwrap();
    timeout(LONG, over_stream(&mut third, query.as_bytes())).await.unwrap().unwrap();
    assert!(timeout(LONG, over_stream(&mut held[0], query.as_bytes())).await.unwrap().is_err());
    // The other connection and UDP still work.
    over_stream(&mut held[1], query.as_bytes()).await.unwrap();
    running.over_udp(query.as_bytes()).await;
    drop((held, third));
    running.end().await;
}

#[tokio::test]
async fn who_asks_for_nothing_or_too_much_is_let_go() {
    let limits = StreamLimits { patience: Duration::from_millis(50), ..STREAM_LIMITS };
    let running = start(&Vector::read(), limits).await;
    for start in [&[][..], &[0], &[0, 40, 1, 2, 3], &[0xff, 0xff], &[0, 3, 1, 2, 3]] {
        let mut stream = TcpStream::connect(running.at).await.unwrap();
        stream.write_all(start).await.unwrap();
        let mut nothing = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut nothing)).await.unwrap();
        assert!(nothing.is_empty(), "{start:?}");
    }
    running.end().await;
}
