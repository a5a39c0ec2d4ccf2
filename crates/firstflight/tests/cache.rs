//! Cookies that outlive the endpoint, through the public interface only.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight::credential::{self, NetworkId, Outcome};
use firstflight::{ConnectConfig, CredentialCache, Endpoint, FirstFlight, ListenConfig, link};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

const HOME: NetworkId = NetworkId([7; 16]);

/// Simulates one process: a client with the cache in `file` visits a server with `key` once.
async fn visit(file: &Path, network: NetworkId, key: credential::CookieKey) -> (bool, Outcome, Option<u64>) {
    let path = link::PathConfig::with_delay(Duration::ZERO);
    let (a, b) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let mut config = firstflight::config(vec!["10.0.0.1".parse().unwrap()]).unwrap();
    config.network = network;
    let client = Endpoint::new(config, a);
    let cached = client.use_cache(CredentialCache::open(file).unwrap());
    let server = Endpoint::new(firstflight::config(vec!["10.0.0.2".parse().unwrap()]).unwrap(), b);
    let at = SocketAddr::from(([10, 0, 0, 2], 80));
    let mut listen = ListenConfig::new(at);
    let keys = credential::KeyRing::new(credential::Scheme::Linux, key);
    let pending = Arc::new(credential::PendingLimit::new(16));
    listen.fast_open = Some(credential::FastOpenPolicy::new(Arc::new(keys), pending));
    let listener = server.listen(listen).unwrap();
    let fast = ConnectConfig::default().fast_open(true);
    let (mut stream, accepted) = tokio::join!(
        async { client.connect(at, FirstFlight::safely_replayable(b"ping"), &fast).await.unwrap() },
        async { listener.accept().await.unwrap() }
    );
    drop(accepted);
    let _ = stream.read(&mut [0]).await;
    let seen = (cached, stream.outcome(), stream.info().unwrap().cookie_age.map(|age| age.as_secs()));
    drop(stream);
    client.shutdown(Duration::from_millis(1)).await;
    seen
}

#[tokio::test]
async fn the_next_process_begins_with_the_cookie_on_the_same_network_only() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cache.json");
    let key = firstflight::random_key().unwrap();
    let asks = Outcome::Handshake(credential::Reason::NoCredential);
    assert_eq!(visit(&file, HOME, key.clone()).await, (true, asks, None));
    let second = visit(&file, HOME, key.clone()).await;
    assert_eq!((second.0, second.1), (true, Outcome::Accepted));
    assert!(second.2.is_some_and(|age| age < 60));
    assert_eq!(visit(&file, NetworkId([8; 16]), key.clone()).await, (true, asks, None));
    let before = std::fs::read(&file).unwrap();
    assert_eq!(visit(&file, NetworkId::UNKNOWN, key).await, (false, asks, None));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(CredentialCache::read(&file).unwrap().len(), 2);
}

/// Clients that leave no trace, and one that does.
#[test]
fn a_client_that_is_private_or_off_writes_no_file() {
    use firstflight::{Client, ClientBuilder};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let visit = |settings: fn(ClientBuilder) -> ClientBuilder| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cache.json");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let builder = Client::builder().network(NetworkId([1; 16])).cache(&file);
        let client = settings(builder).build().unwrap();
        runtime.block_on(async {
            drop(client.connect(listener.local_addr().unwrap(), FirstFlight::empty()).await.unwrap());
            client.close().await;
        });
        std::fs::read_dir(directory.path()).unwrap().count()
    };
    assert_eq!(visit(|builder| builder.private(true)), 0);
    assert_eq!(visit(|builder| builder.off(true)), 0);
    assert_eq!(visit(|builder| builder.network(NetworkId::UNKNOWN)), 0);
    assert_eq!(visit(|builder| builder), 1, "the file, whose lock is gone");
}
