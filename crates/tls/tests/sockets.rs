//! Both ends over the streams of `firstflight`, on loopback.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ANSWER, Ca, REQUEST, client, once, safe};
use firstflight::credential::{FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight::link::UdpLink;
use firstflight::{
    ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, ReplaySafety, Server, Stream, Way,
};
use firstflight_tls::{Acceptor, ConnectError, Departure, Early, TlsStream};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn serve(acceptor: Acceptor, stream: Stream) -> u64 {
    let mut stream = acceptor.accept(stream).await.unwrap();
    stream.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
    stream.write_all(ANSWER).await.unwrap();
    stream.shutdown().await.unwrap();
    stream.early_bytes()
}

async fn answer(mut stream: TlsStream<Stream>) -> TlsStream<Stream> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, ANSWER);
    stream.shutdown().await.unwrap();
    stream
}

fn acceptor(ca: &Ca) -> Acceptor {
    let made = ca.certify("127.0.0.1");
    Acceptor::builder().certificate(made.chain(), made.key()).build().unwrap()
}

#[tokio::test]
async fn by_client_and_server() {
    let ca = Ca::new();
    let (connector, acceptor) = (ca.connector().build().unwrap(), acceptor(&ca));
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addrs()[0].into();
    let client = client();
    for (first, resumed, early) in
        [(safe(), false, Early::None), (safe(), true, Early::Accepted), (once(), true, Early::None)]
    {
        let (stream, accepted) = tokio::join!(connector.connect_to(&client, &at, first), async {
            serve(acceptor.clone(), server.accept().await.unwrap()).await
        });
        let stream = answer(stream.unwrap()).await;
        let seen = stream.handshake();
        assert_eq!((seen.resumed, seen.early, stream.io().way()), (resumed, early, Way::Kernel));
        assert_eq!(accepted > 0, early == Early::Accepted);
        assert!(!seen.hybrid, "the hello had to fit into a SYN");
        assert!(stream.io().nodelay().unwrap() && stream.io().times().is_some());
    }
}

/// A server that is reset in the handshake, and one that does not listen.
#[tokio::test]
async fn failures_say_who_is_at_fault() {
    let ca = Ca::new();
    let connector = ca.connector().build().unwrap();
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addrs()[0].into();
    let client = client();
    // On a busy machine there may be two attempts.
    let resets = async {
        while let Ok(stream) = server.accept().await {
            stream.abort();
        }
    };
    let error = tokio::select! {
        connected = connector.connect_to(&client, &at, once()) => connected.unwrap_err(),
        () = resets => unreachable!(),
    };
    assert!(
        matches!(error, ConnectError::Io(_) | ConnectError::Closed | ConnectError::Connect(_)),
        "{error:?}"
    );
    assert!(!error.maybe_delivered(), "the request waited for the handshake");
    drop(server);
    let error = connector.connect_to(&client, &at, once()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Connect(_)));
    assert!(matches!(
        connector.connect(&client, "a b", once()).await.unwrap_err(),
        ConnectError::Authority(_)
    ));
}

fn udp() -> (Endpoint, Listener, Endpoint, ConnectConfig) {
    let link = UdpLink::bind(SocketAddr::new(LOCAL, 0)).unwrap();
    let port = link.port();
    let server = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
    let mut listen = ListenConfig::new(SocketAddr::new(LOCAL, 443));
    listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
    let listener = server.listen(listen).unwrap();
    let link = UdpLink::towards(SocketAddr::new(LOCAL, port)).unwrap();
    let client = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    (server, listener, client, ConnectConfig::default().fast_open(true).encapsulation(Some(port)))
}

/// In UDP, with cookies: the ClientHello rides in the first flight and is accepted there.
#[tokio::test]
async fn by_an_engine_in_udp() {
    let ca = Ca::new();
    let (connector, acceptor) = (ca.connector().build().unwrap(), acceptor(&ca));
    let (_server, listener, client, config) = udp();
    let remote = SocketAddr::new(LOCAL, 443);
    for (accepted, early) in [(false, 0), (true, REQUEST.len() as u64), (true, REQUEST.len() as u64)] {
        let hello = connector.hello(
            &remote.into(),
            Departure::elsewhere(firstflight::credential::NetworkId::UNKNOWN),
            safe(),
        );
        let hello = hello.unwrap();
        let bytes = hello.bytes().to_vec();
        let visit = async {
            let stream =
                client.connect(remote, FirstFlight::safely_replayable(&bytes), &config).await.unwrap();
            answer(hello.finish(stream).await.unwrap()).await
        };
        let serving = async { serve(acceptor.clone(), listener.accept().await.unwrap()).await };
        let (stream, bytes) = tokio::join!(visit, serving);
        assert_eq!((stream.io().outcome().is_accepted(), bytes), (accepted, early));
        assert!(stream.handshake().hybrid && stream.io().way() == Way::Udp);
    }
}

/// A stream that connects with its first write, as hyper needs it: read and written by different tasks.
#[tokio::test]
async fn by_a_lazy_stream() {
    let ca = Ca::new();
    let (connector, acceptor) = (ca.connector().build().unwrap(), acceptor(&ca));
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at: firstflight::Authority = server.local_addrs()[0].into();
    for (safety, early) in [
        (ReplaySafety::Safe, Early::None),
        (ReplaySafety::Safe, Early::Accepted),
        (ReplaySafety::Unsafe, Early::None),
    ] {
        let lazy = connector.connect_lazy(&client(), at.clone(), safety);
        assert!(lazy.stream().is_none());
        let (mut read, mut write) = tokio::io::split(lazy);
        let reading = tokio::spawn(async move {
            let mut answer = Vec::new();
            read.read_to_end(&mut answer).await.unwrap();
            (answer, read)
        });
        tokio::task::yield_now().await;
        let acceptor = acceptor.clone();
        let (written, _) = tokio::join!(write.write_all(REQUEST), async {
            serve(acceptor, server.accept().await.unwrap()).await
        });
        written.unwrap();
        let (answer, read) = reading.await.unwrap();
        let mut lazy = read.unsplit(write);
        assert_eq!((answer.as_slice(), lazy.stream().unwrap().handshake().early), (ANSWER, early));
        lazy.shutdown().await.unwrap();
    }
    // What was shut down before its first write has ended, and did not connect.
    let (mut read, mut write) =
        tokio::io::split(connector.connect_lazy(&client(), at.clone(), ReplaySafety::Safe));
    let reading = tokio::spawn(async move { read.read(&mut [0; 9]).await });
    tokio::task::yield_now().await;
    write.shutdown().await.unwrap();
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("it hangs").unwrap().unwrap(),
        0
    );
    assert_eq!(write.write(REQUEST).await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    // The error is the write's, or the read's behind it.
    drop(server);
    let mut lazy = connector.connect_lazy(&client(), at, ReplaySafety::Safe);
    lazy.flush().await.unwrap();
    let _ = lazy.write_all(REQUEST).await;
    assert!(lazy.read(&mut [0; 9]).await.is_err());
}
