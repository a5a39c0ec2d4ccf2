//! A server of a test, its verifier, and what its clients say.
#![allow(clippy::unwrap_used, dead_code, reason = "tests")]

use firstflight::credential::asap::{AsapPolicy, GuardDomain, Identity, PrivateKey, TrustStore, Trusted};
use firstflight::credential::{NetworkId, PendingLimit, Quarantine, ReplayTable, Window};
use firstflight::record::Published;
use firstflight::verifier::{Config, Issuer, IssuerAddress, Service, StreamLimits};
use firstflight::{Authority, Client, ClientBuilder, ClientError, FirstFlight, Server, Stream};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

pub(crate) const REQUEST: &[u8] = b"request";
pub(crate) const NETWORK: NetworkId = NetworkId([1; 16]);

/// What a server executed: whether each request was early.
pub(crate) type Executed = UnboundedReceiver<bool>;

/// Answers each connection of `server`, and gives each request to `note`.
pub(crate) fn serve(server: Server, note: fn([u8; REQUEST.len()], &Stream)) -> Executed {
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let mut stream = server.accept().await.unwrap();
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut request = [0; REQUEST.len()];
                if stream.read_exact(&mut request).await.is_ok() {
                    note(request, &stream);
                    let _ = tell.send(stream.early_bytes() > 0);
                    // A client may be gone.
                    let _ = stream.write_all(b"answer").await;
                    let _ = stream.shutdown().await;
                }
            });
        }
    });
    told
}

pub(crate) async fn bind() -> (Server, Authority) {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addrs()[0].into();
    (server, at)
}

pub(crate) async fn answer(stream: Result<Stream, ClientError>) -> Stream {
    let mut stream = stream.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
    stream
}

pub(crate) fn safely() -> FirstFlight<'static> {
    FirstFlight::safely_replayable(REQUEST)
}

pub(crate) fn once() -> FirstFlight<'static> {
    FirstFlight::at_most_once(REQUEST)
}

/// A verifier that certifies addresses of this host.
pub(crate) async fn verifier(key: &PrivateKey) -> IssuerAddress {
    let allowed = vec!["127.0.0.0/8".parse().unwrap()];
    let config = Config::default().issuer(Some(Issuer::new(key.clone()))).allowed(allowed);
    let service =
        Service::bind(config, &["127.0.0.1:0".parse().unwrap()], StreamLimits::per_client(16)).await.unwrap();
    let address = IssuerAddress::new(service.addresses()[0], key.public());
    tokio::spawn(service.run(std::future::pending()));
    address
}

/// Trusts `verifier`, as a server does that has run for ten minutes.
pub(crate) fn policy(verifier: &PrivateKey, identity: Identity) -> AsapPolicy {
    let key = firstflight::random_guard_key().unwrap();
    let began = firstflight::unix_ms() - 600_000;
    AsapPolicy {
        trust: Arc::new(TrustStore::new([Trusted::new(verifier.public())]).unwrap()),
        identities: [identity].into(),
        guard: Arc::new(ReplayTable::new(key, Window::REQUESTS, 1 << 20, began)),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::new(64)),
        relayed: None,
        quarantine: Quarantine::default(),
    }
}

/// A server that takes certificates, and settings of a client that has one.
pub(crate) struct Certified {
    pub(crate) at: Authority,
    pub(crate) udp_port: u16,
    pub(crate) executed: Executed,
    pub(crate) client: ClientBuilder,
}

pub(crate) async fn certified(note: fn([u8; REQUEST.len()], &Stream)) -> Certified {
    let key = PrivateKey::from_seed(&[1; 32]);
    let verifier = verifier(&key).await;
    // The identity has the port, so the port must be known.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let builder =
        Server::builder().address(address).asap(policy(&key, Identity::address(address.ip(), port)));
    let server = builder.bind().unwrap();
    let (at, udp_port) = (Authority::from(address), server.udp_port().unwrap());
    let record = Published::in_udp(udp_port, 1200, &[verifier.id()]).unwrap();
    let client =
        Client::builder().network(NETWORK).verifier(verifier).no_resolver().record(at.clone(), record);
    Certified { at, udp_port, executed: serve(server, note), client }
}

pub(crate) async fn ready(builder: ClientBuilder) -> Client {
    let client = builder.build().unwrap();
    assert!(client.prepare(Duration::from_secs(20)).await);
    client
}

/// Drops what goes to this UDP port.
pub(crate) fn block(udp_port: u16) -> bool {
    crate::namespace::nft(&format!(
        "table inet t {{ chain c {{ type filter hook input priority 0; udp dport {udp_port} drop; }}; }}"
    ))
}
