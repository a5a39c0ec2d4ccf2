#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Fixed;

impl Shows for Fixed {
    fn metrics(&self) -> Option<String> {
        Some("one 1\n".to_owned())
    }

    fn ready(&self) -> Ready {
        Ready { is_ready: false, text: "starting\n".to_owned() }
    }
}

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

async fn start(hosts: &[&str]) -> (Admin, SocketAddr) {
    let admin = Admin::start(LOCAL, hosts.iter().map(|&host| host.to_owned()).collect(), Fixed).await;
    let at = admin.address().unwrap();
    (admin, at)
}

async fn send(at: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn ask(at: SocketAddr, path: &str, fields: &str) -> String {
    send(at, format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes()).await
}

#[tokio::test]
async fn there_are_three_pages() {
    let (_admin, at) = start(&[]).await;
    let page = async |path| ask(at, path, "Host: 127.0.0.1").await;
    let metrics = page("/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 ") && metrics.ends_with("\r\n\r\none 1\n"), "{metrics}");
    assert!(page("/healthz").await.ends_with("alive\n"));
    let ready = page("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("starting\n"), "{ready}");
    assert!(page("/").await.starts_with("HTTP/1.1 404 "));
}

/// None of the other connections ever ends by itself: their patience is an hour.
#[tokio::test]
async fn connections_that_ask_nothing_delay_nobody() {
    let (listener, at) = listen(LOCAL).await.unwrap();
    let source = Source { shows: Fixed, hosts: Vec::new(), patience: Duration::from_secs(3600) };
    let running = tokio::spawn(run(listener, Arc::new(source)));
    let mut idle = Vec::new();
    for number in 0..3 * CONNECTIONS {
        let mut stream = TcpStream::connect(at).await.unwrap();
        // Every second one begins a question.
        stream.write_all(&b"GET /metrics HTT"[..if number % 2 == 0 { 0 } else { 16 }]).await.unwrap();
        idle.push(stream);
    }
    assert!(ask(at, "/metrics", "Host: localhost").await.ends_with("one 1\n"));
    running.abort();
}

#[tokio::test]
async fn a_rebound_name_reads_nothing() {
    let (_admin, at) = start(&["Metrics.example.com"]).await;
    let status = async |fields: &str| ask(at, "/metrics", fields).await[9..12].to_owned();
    let own = format!("Host: {at}");
    for fields in [&own, "Host: localhost:1", "Host: [::1]", "Host: pod", "Host: metrics.example.com:7413"] {
        assert_eq!(status(fields).await, "200", "{fields}");
    }
    let port = at.port();
    for host in [format!("rebound.example:{port}"), "127.0.0.1.example".to_owned()] {
        let answer = ask(at, "/readyz", &format!("Host: {host}")).await;
        assert!(answer.starts_with("HTTP/1.1 421 ") && !answer.contains("starting"), "{answer}");
    }
    assert_eq!(status(&format!("{own}\r\nSec-Fetch-Site: cross-site")).await, "403");
    assert_eq!(status(&format!("{own}\r\nOrigin: http://evil.example")).await, "403");
}

/// The one who asks still sends when the answer comes.
#[tokio::test]
async fn a_refused_upload_is_answered() {
    let (_admin, at) = start(&[]).await;
    let upload = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 3 << 20);
    let upload = [upload.into_bytes(), vec![b'x'; 3 << 20]].concat();
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(120_000)).into_bytes();
    for (request, status) in [(upload, "405"), (long, "431")] {
        let text = send(at, &request).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_in_use_is_tried_again() {
    let (taken, at) = listen(LOCAL).await.unwrap();
    let admin = Admin::start(at, Vec::new(), Fixed).await;
    assert_eq!(admin.address(), None);
    drop(taken);
    tokio::time::sleep(2 * AGAIN).await;
    assert!(ask(at, "/healthz", "Host: localhost").await.ends_with("alive\n"));
}
