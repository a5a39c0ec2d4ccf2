//! A server at engines that the program runs: how often a first flight is executed, and by whose memory.

use firstflight::credential::Replays;
use firstflight::link::{PathConfig, real_time_pair};
use firstflight::serial_file::SerialFile;
use firstflight::{ConnectConfig, Endpoint, FirstFlight, Server, Stream};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const AT: &str = "10.0.0.2:80";

fn engines() -> (Endpoint, Endpoint) {
    let (a, b) = real_time_pair(PathConfig::default(), PathConfig::default(), 1).unwrap();
    let engine = |ip: &str| firstflight::config(vec![ip.parse().unwrap()]).unwrap();
    (Endpoint::new(engine("10.0.0.1"), a), Endpoint::new(engine("10.0.0.2"), b))
}

async fn answer(mut stream: Stream) -> std::io::Result<()> {
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    stream.write_all(b"pong").await?;
    stream.shutdown().await
}

async fn visit(client: &Endpoint, at: SocketAddr, fast_open: bool) -> &'static str {
    // The time of earlier visits is too short on a busy machine.
    let patient = Some(std::time::Duration::from_secs(20));
    let config = ConnectConfig::default().fast_open(fast_open).syn_timeout(patient);
    let mut stream = client.connect(at, FirstFlight::safely_replayable(b"ping"), &config).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "pong");
    stream.outcome().as_str()
}

/// The server listens at the engine and on the kernel's TCP, and grants cookies that are good once at the engine only: the
/// kernel has no memory of first flights, so it takes none.
#[tokio::test(flavor = "multi_thread")]
async fn cookies_of_one_connection_work_at_an_engine() {
    let (client, engine) = engines();
    let directory = tempfile::tempdir().unwrap();
    let file = SerialFile::open(&directory.path().join("serials"), 0, None).unwrap();
    let at: SocketAddr = AT.parse().unwrap();
    let server = Server::builder()
        .address("127.0.0.1:0".parse().unwrap())
        .tcp_only()
        .engine_at(&engine, at)
        .replays(Replays::AtMostOnce)
        .one_time(Arc::new(file.cookies().unwrap()))
        .bind()
        .unwrap();
    assert!(!server.grants_cookies(), "the kernel remembers no first flight");
    let by_kernel = server.local_addrs();
    assert_eq!(by_kernel.len(), 1);
    tokio::spawn(async move {
        while let Ok(stream) = server.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(visit(&client, at, true).await);
        // A visit may end before the ACK that makes its cookie valid has arrived. Behind another handshake it has.
        assert_eq!(visit(&client, at, false).await, "handshake");
    }
    assert_eq!(outcomes, ["handshake", "accepted", "accepted"]);
    let mut plain = tokio::net::TcpStream::connect(by_kernel[0]).await.unwrap();
    plain.write_all(b"ping").await.unwrap();
    let mut text = String::new();
    plain.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "pong");
}

#[tokio::test]
async fn at_most_once_needs_cookies_of_one_connection() {
    let (_, engine) = engines();
    let builder = Server::builder().engine_at(&engine, AT.parse().unwrap());
    let error = builder.replays(Replays::AtMostOnce).bind().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(Server::builder().bind().is_err(), "nowhere to listen");
}
