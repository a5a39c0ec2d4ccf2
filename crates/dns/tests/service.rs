//! The front on sockets of the loopback interface.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use firstflight_dns::front::{RateLimit, RoundRobin};
use firstflight_dns::metrics::{Publisher, describe};
use firstflight_dns::service::{FrontHandle, STREAM_LIMITS, Sockets};
use firstflight_dns::{
    Attempt, Boot, CarriageConfig, CarriageKey, CarriageKeys, ConnectionInfo, Destination, Echo, Fragment,
    FragmentQuery, Fragments, Front, OpenBuffer, ReassemblyLimits, RelayKey, RelayReceiver, RelaySender,
    RelayServer, Sealed, ZoneData,
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
/// An answer that does not come would be waited for without end.
const LONG: Duration = Duration::from_secs(20);

/// The first vector, whose zone and key the front serves.
struct Vector {
    file: serde_json::Value,
}

fn unhex(text: &serde_json::Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

impl Vector {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/carriage.json");
        Self { file: serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() }
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        unhex(&self.file["vectors"][0][key])
    }

    fn zone(&self) -> Vec<u8> {
        self.bytes("zone")
    }

    fn key(&self) -> CarriageKeys {
        let secret = unhex(&self.file["private_key"]).try_into().unwrap();
        let id = u8::try_from(self.file["key_id"].as_u64().unwrap()).unwrap();
        CarriageKeys::new(id.try_into().unwrap(), CarriageKey::from_bytes(&secret).unwrap())
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

async fn start(vector: &Vector, limits: StreamLimits) -> Running {
    let server = UdpSocket::bind(LOOPBACK).await.unwrap();
    let wire = vector.zone();
    let zone: String = Zone::new(&wire).unwrap().to_string();
    let name = hickory_proto::rr::Name::from_ascii(&zone).unwrap();
    let text = "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.53\n";
    let data = ZoneData::parse(text, None, &name).unwrap();
    let mut rng = firstflight_dns::service::secure_rng().unwrap();
    let mut front = Front::new(vec![data], RateLimit::default()).unwrap();
    let config = CarriageConfig {
        zone: name,
        addresses: vec![Ipv4Addr::new(192, 0, 2, 80)],
        keys: vector.key(),
        to: Destination::Relay {
            servers: vec![RelayServer {
                address: server.local_addr().unwrap(),
                sender: RelaySender::new(&RelayKey::from_bytes(&[8; 32]), 1, 1, Boot(1)),
            }],
            policy: Box::new(RoundRobin::default()),
        },
        limits: ReassemblyLimits::default(),
        opens_per_second: CarriageConfig::OPENS_PER_SECOND,
    };
    front.carry(config, &mut rng).unwrap();
    let sockets = Sockets::bind(&[LOOPBACK]).await.unwrap();
    let at = sockets.addresses()[0];
    let service = sockets.serve(front, limits).await.unwrap();
    let handle = service.handle();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(service.run(async {
        let _ = stopped.await;
    }));
    Running { at, server, handle, stop, task }
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
    // The other one goes on; UDP does, too.
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
