//! First flights with a certificate, in UDP.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::namespace::in_namespace;
use crate::site;
use crate::world::{head, hello};
use firstflight::credential::asap::{Identity, PrivateKey};
use firstflight::record::Published;
use firstflight_proxy::{EarlyData, Event, Proxy};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A server that takes certificates, and a proxy whose client has one.
struct Certified {
    site: firstflight::Authority,
    udp_port: u16,
    executed: UnboundedReceiver<bool>,
    proxy: SocketAddr,
    events: UnboundedReceiver<Event>,
}

/// A server like that of the other tests, which reads all that its client sends. Tells whether the beginning was early.
async fn serve() -> (firstflight::Authority, u16, UnboundedReceiver<bool>, firstflight::ClientBuilder) {
    let key = PrivateKey::from_seed(&[1; 32]);
    let verifier = site::verifier(&key).await;
    // The identity has the port, so the port must be known.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let policy = site::policy(&key, Identity::address(address.ip(), port));
    let server = firstflight::Server::builder().address(address).asap(policy).bind().unwrap();
    let (at, udp_port) = (firstflight::Authority::from(address), server.udp_port().unwrap());
    let record = Published::in_udp(udp_port, 1200, &[verifier.id()]).unwrap();
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        loop {
            let mut stream = server.accept().await.unwrap();
            let _ = tell.send(stream.early_bytes() > 0);
            tokio::spawn(async move {
                let _ = stream.write_all(b"answer").await;
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    let client = firstflight::Client::builder().network(site::NETWORK).verifier(verifier).no_resolver();
    (at.clone(), udp_port, told, client.record(at, record))
}

async fn begin(early_data: EarlyData) -> Certified {
    let (site, udp_port, executed, client) = serve().await;
    let client = site::ready(client.servers_run_once(early_data == EarlyData::AtMostOnce)).await;
    let (tell, events) = unbounded_channel();
    let proxy = Proxy::builder(client)
        .listen("127.0.0.1:0".parse().unwrap())
        .allow_net("127.0.0.0/8".parse().unwrap())
        .early_data(early_data)
        .on_event(move |event| drop(tell.send(event.clone())))
        .bind()
        .await
        .unwrap();
    let at = proxy.local_addrs()[0];
    tokio::spawn(proxy.run(std::future::pending()));
    Certified { site, udp_port, executed, proxy: at, events }
}

impl Certified {
    /// Sends `bytes` through a tunnel. Returns the way, the outcome, whether the yes was early, and whether the server had
    /// data early.
    async fn visit(&mut self, bytes: &[u8]) -> (&'static str, &'static str, bool, bool) {
        let mut tcp = TcpStream::connect(self.proxy).await.unwrap();
        tcp.write_all(format!("CONNECT {} HTTP/1.1\r\n\r\n", self.site).as_bytes()).await.unwrap();
        assert!(head(&mut tcp).await.starts_with("HTTP/1.1 200 "));
        tcp.write_all(bytes).await.unwrap();
        let mut answer = vec![0; 6];
        tcp.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
        let early = self.executed.recv().await.unwrap();
        loop {
            if let Event::Connected { contact, .. } = self.events.recv().await.unwrap() {
                return (contact.way, contact.outcome, contact.early_yes, early);
            }
        }
    }
}

#[test]
fn a_hybrid_hello_rides_in_udp() {
    in_namespace("3", || async {
        let mut world = begin(EarlyData::Hold).await;
        // The last contact must have succeeded, and there was none.
        assert_eq!(world.visit(&hello(1800)).await, ("kernel", "handshake", false, false));
        for _ in 0..2 {
            assert_eq!(world.visit(&hello(1800)).await, ("udp", "accepted", true, true));
        }
    });
}

#[test]
fn early_data_rides_where_the_server_executes_it_once() {
    in_namespace("3", || async {
        let mut world = begin(EarlyData::AtMostOnce).await;
        let (alone, early_data) = (hello(200), [23, 3, 3, 0, 2, 1, 2]);
        let both = [&alone[..], &early_data[..]].concat();
        world.visit(&alone).await;
        // UDP has not answered yet, so nothing that must not run twice leaves by it. The hello rides on TCP.
        assert_eq!(world.visit(&both).await, ("kernel", "accepted", true, true));
        assert_eq!(world.visit(&alone).await, ("udp", "accepted", true, true));
        assert_eq!(world.visit(&both).await, ("udp", "accepted", true, true));
    });
}

#[test]
fn where_udp_is_blocked_the_hello_goes_by_tcp() {
    in_namespace("3", || async {
        let mut world = begin(EarlyData::Hold).await;
        world.visit(&hello(200)).await;
        if !site::block(world.udp_port) {
            return;
        }
        let (way, _, early_yes, _) = world.visit(&hello(200)).await;
        assert_eq!((way, early_yes), ("kernel", true));
    });
}
