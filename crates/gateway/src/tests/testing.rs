//! A client on an emulated path, backends on loopback, and a site, for tests.

use crate::backend::Service;
use crate::config::Config;
use crate::connection::{self, Phases};
use crate::limits::Clients;
use crate::log::{Log, Memory};
use crate::site::{Services, Site};
use arc_swap::ArcSwap;
use firstflight::credential::{FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight::link::{PathConfig, real_time_pair};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const AT: &str = "10.0.0.2:80";
/// How long the server's packets take to the client. Meanwhile a first flight is early.
pub(crate) const EARLY_FOR: Duration = Duration::from_millis(900);

/// A path whose client has a cookie of the server.
pub(crate) struct Path {
    client: Endpoint,
    _server: Endpoint,
    listener: Listener,
}

impl Path {
    pub(crate) async fn new() -> Self {
        let (up, down) =
            (PathConfig::with_delay(Duration::from_millis(1)), PathConfig::with_delay(EARLY_FOR));
        let (a, b) = real_time_pair(up, down, 1).unwrap();
        let config = |ip: &str| firstflight::config(vec![ip.parse().unwrap()]).unwrap();
        let (client, server) = (Endpoint::new(config("10.0.0.1"), a), Endpoint::new(config("10.0.0.2"), b));
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(AT.parse().unwrap());
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        let listener = server.listen(listen).unwrap();
        let path = Self { client, _server: server, listener };
        let (ours, theirs) = path.connect(b"cookie").await;
        drop((ours.await.unwrap(), theirs));
        path
    }

    /// Connects with these bytes in the SYN. The server's end is early.
    pub(crate) async fn connect(&self, data: &'static [u8]) -> (JoinHandle<Stream>, Stream) {
        let client = self.client.clone();
        let connecting = tokio::spawn(async move {
            let config = ConnectConfig::default().fast_open(true);
            let first = FirstFlight::safely_replayable(data);
            let at: SocketAddr = AT.parse().unwrap();
            let stream = client.connect(at, first, &config).await.unwrap();
            stream.connected().await.unwrap();
            stream
        });
        (connecting, self.listener.accept().await.unwrap())
    }
}

impl Path {
    /// Connects by an ordinary handshake. Both ends are confirmed, and the server's packets are slow.
    pub(crate) async fn plain(&self) -> (Stream, Stream) {
        let at: SocketAddr = AT.parse().unwrap();
        let config = ConnectConfig::default();
        let connecting = self.client.connect(at, FirstFlight::empty(), &config);
        let (ours, theirs) = tokio::join!(connecting, self.listener.accept());
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        theirs.handshake_confirmed().await.unwrap();
        (ours, theirs)
    }
}

/// A site, and what its connections need.
pub(crate) struct TestSite {
    pub(crate) site: Arc<ArcSwap<Site>>,
    pub(crate) log: Memory,
    pub(crate) drain: watch::Sender<bool>,
    kill: watch::Sender<bool>,
    clients: Clients,
}

impl TestSite {
    /// A listener with these settings, and a service `s` with these, which has `backend`.
    pub(crate) fn new(listener: &str, service: &str, backend: SocketAddr) -> Self {
        let text = format!(
            "[gateway]\nlog = \"json\"\n[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:1\"]\nservice = \"s\"\n\
             {listener}\n[[service]]\nname = \"s\"\nbackend = [\"{backend}\"]\n{service}\n"
        );
        let config = Config::parse(&text).unwrap();
        let service = Arc::new(Service::new(&config.services[0], None).unwrap());
        let services = Services::from([("s".to_owned(), service)]);
        let log = Memory::default();
        let writes = Log::new(config.gateway.log, log.clone()).unwrap();
        let (site, _) = Site::new(&config.listeners[0], &services, &writes, None, None).unwrap();
        let site = Arc::new(ArcSwap::from_pointee(site));
        Self {
            site,
            log,
            drain: watch::channel(false).0,
            kill: watch::channel(false).0,
            clients: Clients::default(),
        }
    }

    /// Serves a connection to its end.
    pub(crate) fn serve(&self, stream: Stream) -> JoinHandle<()> {
        let phases = Phases { draining: self.drain.subscribe(), killed: self.kill.subscribe() };
        let alive = mpsc::channel(1).0;
        let site = Arc::clone(&self.site);
        tokio::spawn(connection::serve(stream, site, self.clients.clone(), Vec::new(), alive, phases))
    }

    /// The lines of the access log, once there are so many.
    pub(crate) async fn lines(&self, count: usize) -> Vec<serde_json::Value> {
        loop {
            let text = String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap();
            let lines: Vec<_> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            if lines.len() >= count {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A port on loopback.
pub(crate) async fn backend() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// A kernel connection, as a gateway's listener accepts it.
pub(crate) async fn accepted() -> (TcpStream, Stream) {
    let server =
        firstflight::Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
    let at = server.local_addrs()[0];
    let (client, stream) = tokio::join!(TcpStream::connect(at), server.accept());
    (client.unwrap(), stream.unwrap())
}
