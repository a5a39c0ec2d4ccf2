//! The life of a gateway on loopback: start, reload, end.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight_gateway::{Config, Gateway, GatewayError};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A backend that answers every request with this text.
async fn backend(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                let mut bytes = Vec::new();
                while stream.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
                    if bytes.ends_with(b"\r\n\r\n") {
                        bytes.clear();
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    at
}

/// A listener for each name, before this backend.
fn config(listeners: &[(&str, SocketAddr)], backend: SocketAddr) -> Config {
    let mut text = "[gateway]\nadmin = \"127.0.0.1:0\"\nlog = \"off\"\n".to_owned();
    for (name, at) in listeners {
        text += &format!(
            "[[listener]]\nname = \"{name}\"\naddress = [\"{at}\"]\nmode = \"http\"\nservice = \"s\"\nudp_port = 0\n"
        );
    }
    text += &format!("[[service]]\nname = \"s\"\nbackend = [\"{backend}\"]\n");
    Config::parse(&text).unwrap()
}

async fn ask(stream: &mut TcpStream, length: usize) -> String {
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.unwrap());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    String::from_utf8(body).unwrap()
}

/// A port that is free, or was a moment ago.
async fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn a_reload_takes_effect_on_open_connections_and_a_failed_one_does_not() {
    let (one, two) = (backend("one").await, backend("two").await);
    let web = free().await;
    let mut gateway = Gateway::start(config(&[("web", web)], one), std::io::sink()).await.unwrap();
    assert_eq!(gateway.addresses("web"), [web]);
    let mut client = TcpStream::connect(web).await.unwrap();
    assert_eq!(ask(&mut client, 3).await, "one");

    // A port that is taken: nothing changes, also not what could have.
    let listeners = [("web", web), ("taken", one)];
    let error = gateway.reload(config(&listeners, two)).await.unwrap_err();
    assert!(matches!(error, GatewayError::Bind(..)), "{error}");
    assert_eq!(ask(&mut client, 3).await, "one");
    // Sockets stay as they are.
    let error = gateway.reload(config(&[("web", free().await)], two)).await.unwrap_err();
    assert_eq!(error.exit_kind(), firstflight_daemon::ExitKind::Mistake, "{error}");

    let other = free().await;
    gateway.reload(config(&[("web", web), ("other", other)], two)).await.unwrap();
    assert_eq!(ask(&mut client, 3).await, "two");
    assert_eq!(ask(&mut TcpStream::connect(other).await.unwrap(), 3).await, "two");

    // A listener that is gone ends its connections.
    let mut kept = TcpStream::connect(other).await.unwrap();
    assert_eq!(ask(&mut kept, 3).await, "two");
    gateway.reload(config(&[("web", web)], two)).await.unwrap();
    assert_eq!(kept.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(gateway.addresses("other").is_empty());
    assert_eq!(ask(&mut client, 3).await, "two");
    gateway.drain().await;
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(TcpStream::connect(web).await.is_err());
}

#[tokio::test]
async fn the_admin_address_says_whether_it_is_ready() {
    let web = free().await;
    let gateway = Gateway::start(config(&[("web", web)], backend("x").await), std::io::sink()).await.unwrap();
    let mut admin = TcpStream::connect(gateway.admin_address().unwrap()).await.unwrap();
    // Nobody has asked the backend.
    assert_eq!(ask(&mut admin, 38).await, "ready\ns: 0 of 1 backends up, 1 unknown");
}
