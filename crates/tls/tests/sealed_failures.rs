//! What a client remembers of flights that failed (`docs/spec/sealed.md` 7.4), and what it takes along to another network.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::sealed::{PROTOCOL, keys, keys_of, name, unix};
use crate::common::{ANSWER, Ca, safe};
use firstflight::credential::NetworkId;
use firstflight::{Authority, Client};
use firstflight_tls::seal::{KeySet, KeySource, Outcome};
use firstflight_tls::{Acceptor, ConnectError, Connector, Departure, SealClient, SealServer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does with connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Serves,
    /// It, or a box in front of it, closes connections that begin with a flight. TLS works.
    NoFlights,
    /// It closes all connections.
    Down,
}

struct Server {
    at: Authority,
    address: SocketAddr,
    keys: KeySet,
    mode: Arc<AtomicU8>,
}

impl Server {
    /// `serves`: the keys that it has. Clients believe the key 7 of this name.
    async fn start(ca: &Ca, host: &str, serves: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seal = SealServer::builder(keys_of(host, serves, 5, unix()), address.port());
        let seal = seal.serves([name(host)]).first_start(true).build().unwrap();
        let made = ca.certify(host);
        let acceptor = Acceptor::builder().certificate(made.chain(), made.key()).alpn([PROTOCOL]);
        let acceptor = acceptor.seal(seal).build().unwrap();
        let mode = Arc::new(AtomicU8::new(Mode::Serves as u8));
        let (at, now) = (format!("{host}:{}", address.port()).parse().unwrap(), Arc::clone(&mode));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, acceptor.clone(), now.load(Ordering::Relaxed)));
            }
        });
        Self { at, address, keys: keys_of(host, 7, 5, unix()), mode }
    }

    fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// What became of the seal.
    async fn visit(&self, connector: &Connector, client: &Client) -> Result<Outcome, ConnectError> {
        let mut stream = connector.connect_at(client, &self.at, &[self.address], safe()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, ANSWER);
        Ok(stream.seal_outcome().unwrap())
    }
}

async fn serve(mut stream: TcpStream, acceptor: Acceptor, mode: u8) {
    let mut first = [0];
    let begun = stream.read_exact(&mut first).await;
    if begun.is_err() || mode == Mode::Down as u8 || mode == Mode::NoFlights as u8 && first[0] == 0xff {
        return;
    }
    let Ok(mut stream) = acceptor.accept_behind(stream, first.to_vec()).await else { return };
    let mut request = [0; common::REQUEST.len()];
    if stream.read_exact(&mut request).await.is_ok() {
        let _ = stream.write_all(ANSWER).await;
        let _ = stream.shutdown().await;
    }
}

fn connector(ca: &Ca, servers: &[&Server]) -> Connector {
    let seal = servers.iter().fold(SealClient::new(), |seal, server| {
        let record = server.keys.record(unix()).unwrap();
        seal.record(server.at.clone(), record, KeySource::Configuration)
    });
    ca.connector().http1().seal(seal).build().unwrap()
}

/// The flight was taken: without a cookie it follows the handshake.
const TAKEN: Outcome = Outcome::TransportRefused;

fn is_sealed(server: &Server, outcome: Outcome) -> bool {
    server.mode.load(Ordering::Relaxed) == Mode::Serves as u8 && outcome != Outcome::Declined
}

#[tokio::test]
async fn two_failures_stop_a_server_where_tls_works() {
    let ca = Ca::new();
    let server = Server::start(&ca, "a.example", 7).await;
    let (connector, client) = (connector(&ca, &[&server]), common::client());
    server.set(Mode::NoFlights);
    for _ in 0..2 {
        assert_eq!(server.visit(&connector, &client).await.unwrap(), TAKEN, "it goes again in ordinary TLS");
    }
    assert_eq!(server.visit(&connector, &client).await.unwrap(), Outcome::Declined);
    server.set(Mode::Serves);
    assert_eq!(server.visit(&connector, &client).await.unwrap(), Outcome::Declined);
}

/// A server that is down takes no flights, and no TLS either. When it is back, flights go on.
#[tokio::test]
async fn an_outage_is_no_failure_of_flights() {
    let ca = Ca::new();
    let server = Server::start(&ca, "a.example", 7).await;
    let (connector, client) = (connector(&ca, &[&server]), common::client());
    server.set(Mode::Down);
    for _ in 0..3 {
        server.visit(&connector, &client).await.unwrap_err();
    }
    // Nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for _ in 0..3 {
        connector.connect_at(&client, &server.at, &[closed], safe()).await.unwrap_err();
    }
    server.set(Mode::Serves);
    let outcome = server.visit(&connector, &client).await.unwrap();
    assert!(is_sealed(&server, outcome), "{outcome}");
}

/// A page names three servers of the attacker, which take no flights. That stops no flights to others on a network that
/// carries them.
#[tokio::test]
async fn three_servers_of_an_attacker_do_not_stop_a_network() {
    let ca = Ca::new();
    let honest = [Server::start(&ca, "a.example", 7).await, Server::start(&ca, "b.example", 7).await];
    let mut evil = Vec::new();
    for host in ["x.example", "y.example", "z.example"] {
        evil.push(Server::start(&ca, host, 7).await);
    }
    let all: Vec<_> = honest.iter().chain(&evil).collect();
    let attack = async |connector: &Connector, client: &Client| {
        for server in &evil {
            server.set(Mode::NoFlights);
            for _ in 0..2 {
                server.visit(connector, client).await.unwrap();
            }
            assert_eq!(server.visit(connector, client).await.unwrap(), Outcome::Declined);
        }
    };
    let (connector_of, client) = (|| connector(&ca, &all), common::client());
    let connector = connector_of();
    assert_eq!(honest[0].visit(&connector, &client).await.unwrap(), TAKEN);
    attack(&connector, &client).await;
    for server in &honest {
        assert_eq!(server.visit(&connector, &client).await.unwrap(), TAKEN);
    }
    // Where nothing has worked yet they stop it for an hour: section 11.
    let connector = connector_of();
    attack(&connector, &client).await;
    assert_eq!(honest[1].visit(&connector, &client).await.unwrap(), Outcome::Declined);
}

/// Tickets that come behind a REJECT belong to the network of the flight. Elsewhere they would show the server, and who
/// listens, that it is the same client.
#[tokio::test]
async fn tickets_behind_a_reject_stay_on_their_network() {
    let ca = Ca::new();
    let server = Server::start(&ca, "a.example", 8).await;
    assert_ne!(keys(7, 5).record(unix()), server.keys.record(unix()));
    let connector = connector(&ca, &[&server]);
    let [here, elsewhere] = [1, 2].map(|n| NetworkId([n; 16]));
    let client = Client::builder().network(here).build().unwrap();
    assert_eq!(server.visit(&connector, &client).await.unwrap(), Outcome::StaleKey);
    let resumes =
        |network| connector.hello(&server.at, Departure::elsewhere(network), safe()).unwrap().resumes();
    assert!(!resumes(NetworkId::UNKNOWN) && !resumes(elsewhere));
    assert!(resumes(here));
}
