//! `Client` whose connections are an engine's.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight::credential::{FastOpenPolicy, KeyRing, Outcome, PendingLimit, Reason, Scheme};
use firstflight::{Client, Endpoint, FirstFlight, ListenConfig, Way, link};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DATA: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

fn safely() -> FirstFlight<'static> {
    FirstFlight::safely_replayable(DATA)
}

/// Answers each connection with whether its request came in the SYN.
fn serve(server: &Endpoint, at: SocketAddr) {
    let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
    let mut listen = ListenConfig::new(at);
    listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
    let listener = server.listen(listen).unwrap();
    tokio::spawn(async move {
        while let Ok(mut stream) = listener.accept().await {
            let mut request = [0; DATA.len()];
            stream.read_exact(&mut request).await.unwrap();
            let early = if stream.early_bytes() > 0 { "early" } else { "late" };
            stream.write_all(early.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
}

async fn visit(client: &Client, at: SocketAddr) -> (Way, Outcome, String) {
    let mut stream = client.connect(at, safely()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (stream.way(), stream.outcome(), answer)
}

fn pair() -> (Endpoint, Endpoint) {
    let path = link::PathConfig::default();
    let (a, b) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let endpoint = |addresses: [&str; 2], link| {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        Endpoint::new(firstflight::config(addresses).unwrap(), link)
    };
    (endpoint(["10.0.0.1", "fd00::1"], a), endpoint(["10.0.0.2", "fd00::2"], b))
}

/// The second request rides in the SYN of the engine, and nothing does when first flights are off.
#[tokio::test]
async fn an_engine_on_ip_carries_first_flights() {
    let (ours, theirs) = pair();
    let at = "10.0.0.2:80".parse().unwrap();
    serve(&theirs, at);
    let client = Client::builder().engine(ours.clone()).build().unwrap();
    let none = client.outlook(&at.into(), &[at]).await;
    assert_eq!((none.credential, none.answered), (None, false));
    let first = visit(&client, at).await;
    assert_eq!(first, (Way::Ip, Outcome::Handshake(Reason::NoCredential), "late".into()));
    let known = client.outlook(&at.into(), &[at]).await;
    assert_eq!((known.credential, known.answered), (Some(Way::Ip), true));
    assert_eq!(visit(&client, at).await, (Way::Ip, Outcome::Accepted, "early".into()));

    let plain = Client::builder().engine(ours.clone()).off(true).build().unwrap();
    let expected = (Way::Ip, Outcome::Handshake(Reason::NotRequested), "late".into());
    assert_eq!(visit(&plain, at).await, expected);

    client.forget();
    assert_eq!(client.outlook(&at.into(), &[at]).await.credential, None);
    // The engine is the program's.
    client.close().await;
    assert_eq!(visit(&plain, at).await, expected);
}

/// Of several addresses the one that answers is taken, and the next visit goes there first.
#[tokio::test]
async fn an_engines_attempts_race() {
    let (ours, theirs) = pair();
    let (refuses, works): (SocketAddr, SocketAddr) =
        ("[fd00::2]:80".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
    serve(&theirs, works);
    let client = Client::builder().engine(ours).build().unwrap();
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let stream = client.connect(("www.example.com", 80), safely()).at([refuses, works]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), works);
        outcomes.push(stream.outcome());
    }
    let handshake = Outcome::Handshake;
    let expected = [handshake(Reason::NotFirstAddress), handshake(Reason::NoCredential), Outcome::Accepted];
    assert_eq!(outcomes, expected);
}

/// In UDP the segments go to the port that the program names, or to that of the server's TCP.
#[tokio::test]
async fn an_engine_in_udp_carries_first_flights() {
    let link = link::UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let udp = link.port();
    let theirs = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    for (tcp, named) in [(80, Some(udp)), (udp, None)] {
        let at = SocketAddr::from(([127, 0, 0, 1], tcp));
        serve(&theirs, at);
        let link = link::UdpLink::client(&[at]).unwrap();
        let ours = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
        let client = Client::builder().engine_in_udp(ours, named).build().unwrap();
        let first = visit(&client, at).await;
        assert_eq!(first, (Way::Udp, Outcome::Handshake(Reason::NoCredential), "late".into()));
        assert_eq!(client.outlook(&at.into(), &[at]).await.credential, Some(Way::Udp));
        assert_eq!(visit(&client, at).await, (Way::Udp, Outcome::Accepted, "early".into()));
    }
}

/// What the engine has learnt on one network is not used on the next.
#[tokio::test]
async fn a_client_follows_its_engine_to_another_network() {
    use firstflight::credential::NetworkId;
    let (ours, theirs) = pair();
    let at = "10.0.0.2:80".parse().unwrap();
    serve(&theirs, at);
    ours.move_to(NetworkId([1; 16]));
    let client = Client::builder().engine(ours.clone()).build().unwrap();
    for _ in 0..2 {
        visit(&client, at).await;
    }
    assert!(client.outlook(&at.into(), &[at]).await.is_good());
    ours.move_to(NetworkId([2; 16]));
    client.network_changed().await;
    let there = client.outlook(&at.into(), &[at]).await;
    assert_eq!((there.credential, there.answered), (None, false));
    ours.move_to(NetworkId([1; 16]));
    client.network_changed().await;
    assert!(client.outlook(&at.into(), &[at]).await.is_good());
}
