//! Streams for libraries that ask for a connection before they have a request.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{ANSWER, Ca, client};
use firstflight::{Authority, ReplaySafety, Server};
use firstflight_tls::{Acceptor, ConnectError, Early, H2, HTTP_1_1, LazyTlsStream, SealClient};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
/// The preface of HTTP/2 with empty settings, and a GET.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GET_H2: &[u8] = &[0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84];

fn acceptor<'a>(ca: &Ca, alpn: impl IntoIterator<Item = &'a [u8]>) -> Acceptor {
    let made = ca.certify("127.0.0.1");
    Acceptor::builder().certificate(made.chain(), made.key()).alpn(alpn).build().unwrap()
}

async fn bind() -> (Server, Authority) {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addrs()[0].into();
    (server, at)
}

/// Answers one request of `length` bytes. Returns how many of them came early.
async fn serve(server: &Server, acceptor: &Acceptor, length: usize) -> io::Result<u64> {
    let mut stream = acceptor.accept(server.accept().await.unwrap()).await?;
    stream.read_exact(&mut vec![0; length]).await?;
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    Ok(stream.early_bytes())
}

/// Writes a request, and reads to the end.
async fn ask(stream: &mut LazyTlsStream, writes: &[&[u8]]) -> io::Result<()> {
    for part in writes {
        stream.write_all(part).await?;
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    assert_eq!(answer, ANSWER);
    stream.shutdown().await
}

/// hyper writes the preface and the request apart.
#[tokio::test]
async fn a_get_of_http_2_is_early_with_its_preface() {
    let ca = Ca::new();
    let (connector, acceptor) = (ca.connector().h2().build().unwrap(), acceptor(&ca, [H2]));
    let (server, at) = bind().await;
    let length = PREFACE.len() + GET_H2.len();
    for expected in [0, length as u64] {
        let mut stream = connector.connect_lazy(&client(), at.clone(), ReplaySafety::ByMethod);
        let (asked, early) =
            tokio::join!(ask(&mut stream, &[PREFACE, GET_H2]), serve(&server, &acceptor, length));
        asked.unwrap();
        assert_eq!(early.unwrap(), expected);
    }
}

#[tokio::test]
async fn the_protocol_is_known_before_the_first_write() {
    let ca = Ca::new();
    let connector = ca.connector().alpn([H2, HTTP_1_1]).build().unwrap();
    let client = client();
    for protocol in [H2, HTTP_1_1] {
        connector.forget();
        let acceptor = acceptor(&ca, [protocol]);
        let (server, at) = bind().await;
        // Whether it connects at once, resumes, and what becomes of early data.
        for (safety, request, at_once, resumes, early) in [
            (ReplaySafety::ByMethod, GET, true, false, Early::None),
            (ReplaySafety::ByMethod, GET, false, true, Early::Accepted),
            (ReplaySafety::ByMethod, POST, false, true, Early::None),
            (ReplaySafety::Unsafe, GET, true, true, Early::None),
            (ReplaySafety::Safe, POST, false, true, Early::Accepted),
        ] {
            let visit = async {
                let mut stream = connector.connect_or_lazy(&client, at.clone(), safety).await.unwrap();
                assert_eq!((stream.stream().is_some(), stream.protocol()), (at_once, Some(protocol)));
                ask(&mut stream, &[request]).await.unwrap();
                stream
            };
            let (stream, served) = tokio::join!(visit, serve(&server, &acceptor, request.len()));
            let seen = stream.stream().unwrap().handshake();
            assert_eq!((seen.resumed, seen.early), (resumes, early));
            assert_eq!(served.unwrap() > 0, early == Early::Accepted);
            assert_eq!(stream.protocol(), Some(protocol));
        }
    }
}

/// The server goes back to HTTP/1.1: it refuses its protocol of before, or chooses none.
#[tokio::test]
async fn a_server_may_change_its_protocol() {
    let ca = Ca::new();
    let (before, client) = (acceptor(&ca, [H2]), client());
    for (after, then) in [(acceptor(&ca, [HTTP_1_1]), Some(HTTP_1_1)), (acceptor(&ca, []), None)] {
        let connector = ca.connector().alpn([H2, HTTP_1_1]).build().unwrap();
        let (server, at) = bind().await;
        let connect = || connector.connect_or_lazy(&client, at.clone(), ReplaySafety::ByMethod);
        let visit = async {
            let mut stream = connect().await.unwrap();
            ask(&mut stream, &[GET]).await.unwrap();
        };
        tokio::join!(visit, serve(&server, &before, GET.len())).1.unwrap();
        let mut stream = connect().await.unwrap();
        assert_eq!((stream.stream().is_none(), stream.protocol()), (true, Some(H2)));
        let (asked, served) = tokio::join!(ask(&mut stream, &[GET]), serve(&server, &after, GET.len()));
        let error = asked.unwrap_err();
        assert!(matches!(error.get_ref().unwrap().downcast_ref(), Some(ConnectError::Protocol)), "{error:?}");
        assert!(served.is_err());
        let visit = async {
            let mut stream = connect().await.unwrap();
            assert_eq!((stream.stream().is_some(), stream.protocol()), (true, then));
            ask(&mut stream, &[GET]).await.unwrap();
        };
        tokio::join!(visit, serve(&server, &after, GET.len())).1.unwrap();
    }
}

#[tokio::test]
async fn a_first_contact_that_fails_is_the_error_of_the_connect() {
    let ca = Ca::new();
    let connector = ca.connector().alpn([H2, HTTP_1_1]).build().unwrap();
    let (server, at) = bind().await;
    let client = client();
    let connect = || connector.connect_or_lazy(&client, at.clone(), ReplaySafety::ByMethod);
    let stranger = acceptor(&Ca::new(), [H2]);
    let (connected, _) = tokio::join!(connect(), serve(&server, &stranger, 0));
    assert!(matches!(connected.unwrap_err(), ConnectError::Certificate(_)));
    drop(server);
    assert!(matches!(connect().await.unwrap_err(), ConnectError::Connect(_)));
}

/// What can seal its first request waits for it. Nothing listens, so nothing else would succeed.
#[tokio::test]
async fn a_request_that_may_be_sealed_is_waited_for() {
    let ca = Ca::new();
    let (server, at) = bind().await;
    drop(server);
    let (seal, client) = (SealClient::new(), client());
    for (seal, alpn, waits) in [
        (seal.clone(), &[HTTP_1_1][..], true),
        (seal.clone(), &[H2, HTTP_1_1], false),
        (seal.hide(at.clone()), &[H2, HTTP_1_1], true),
    ] {
        let connector = ca.connector().alpn(alpn.iter().copied()).seal(seal).build().unwrap();
        match connector.connect_or_lazy(&client, at.clone(), ReplaySafety::Unsafe).await {
            Ok(stream) => assert!(waits && stream.stream().is_none() && stream.protocol() == Some(alpn[0])),
            Err(error) => assert!(!waits && matches!(error, ConnectError::Connect(_)), "{error:?}"),
        }
    }
}
