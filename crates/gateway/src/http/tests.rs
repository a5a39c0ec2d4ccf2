//! Requests through a gateway, with backends on loopback that the tests write by hand.
#![allow(clippy::unwrap_used, reason = "tests")]

mod backends;
mod clients;
mod early;
mod h2;
mod limits;
mod plain;
mod retries;
mod shared;

use crate::testing::{TestSite, accepted, backend};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HTTP: &str = "mode = \"http\"";

/// A backend that answers by hand.
struct Backend {
    listener: TcpListener,
    at: SocketAddr,
}

impl Backend {
    async fn new() -> Self {
        let (listener, at) = backend().await;
        Self { listener, at }
    }

    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }
}

/// Reads the head of a message, in lower case.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let read = stream.read_u8().await;
        bytes
            .push(read.unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&bytes))));
    }
    String::from_utf8(bytes).unwrap().to_lowercase()
}

async fn exactly(stream: &mut (impl AsyncReadExt + Unpin), count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

async fn send(stream: &mut (impl AsyncWriteExt + Unpin), bytes: &str) {
    stream.write_all(bytes.as_bytes()).await.unwrap();
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A client of a gateway with these settings, and its backend.
async fn pair(listener: &str, service: &str) -> (TcpStream, Backend, TestSite) {
    let backend = Backend::new().await;
    let place = TestSite::new(&format!("{HTTP}\n{listener}"), service, backend.at);
    let (client, stream) = accepted().await;
    place.serve(stream);
    (client, backend, place)
}
