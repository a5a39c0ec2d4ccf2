//! https in a network namespace whose kernel grants cookies: hyper-util's client and tonic, over TLS servers that see what
//! came early.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "main of the examples")]

#[path = "../examples/https_client.rs"]
pub(crate) mod https_client;

use crate::common::{Ca, client};
use crate::namespace::in_namespace;
use crate::tonic_both;
use bytes::Bytes;
use firstflight::credential::Outcome;
use firstflight::{Authority, ReplaySafety, Server, Stream};
use firstflight_adapters::{ConnectorError, HttpsConnector};
use firstflight_tls::{Acceptor, Early, H2, HTTP_1_1, TlsStream};
use http::{Method, Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use tonic::transport::Endpoint;
use tower_service::Service;

const BOTH: &[&[u8]] = &[H2, HTTP_1_1];

async fn bind() -> (Server, Authority) {
    bind_to("127.0.0.1").await
}

async fn bind_to(ip: &str) -> (Server, Authority) {
    let server = Server::bind(&format!("{ip}:0")).await.unwrap();
    let at = server.local_addrs()[0].into();
    (server, at)
}

/// Answers how many bytes came in the SYN, and for which name the client asked.
async fn answer(stream: TlsStream<Stream>) {
    let text = format!("{} {}", stream.io().early_bytes(), stream.server_name().unwrap_or("no name"));
    let h2 = stream.alpn() == Some(H2);
    let service = service_fn(move |_: Request<Incoming>| {
        let answer = Response::new(Full::<Bytes>::from(text.clone()));
        async move { Ok::<_, Infallible>(answer) }
    });
    let io = TokioIo::new(stream);
    // It ends when the client has closed.
    if h2 {
        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = http.serve_connection(io, service).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

/// Serves for ever.
async fn serve<F: Future<Output = ()> + Send + 'static>(
    server: Server,
    acceptor: Acceptor,
    each: impl Fn(TlsStream<Stream>) -> F,
) {
    while let Ok(stream) = server.accept().await {
        // A client that does not trust the certificate is no failure of the server.
        if let Ok(stream) = acceptor.accept(stream).await {
            tokio::spawn(each(stream));
        }
    }
}

fn in_syn(answer: &str) -> u32 {
    answer.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_get_of_hyper_is_early_data_in_the_syn_and_a_post_waits() {
    in_namespace("3", || async {
        let ca = Ca::new();
        // The kernel's cookies are for an address.
        for (ip, alpn, version) in
            [("127.0.0.1", BOTH, Version::HTTP_2), ("127.0.0.2", &[HTTP_1_1], Version::HTTP_11)]
        {
            let (server, at) = bind_to(ip).await;
            let acceptor = ca.acceptor(ip, alpn);
            tokio::spawn(async move { serve(server, acceptor, answer).await });
            let connector = HttpsConnector::new(client(), ca.connector(BOTH)).https_only(true);
            let uri = format!("https://{at}/");
            for (method, outcome, early) in [
                // A cookie and tickets; the whole request in the SYN; a ClientHello in it; the request again.
                (Method::GET, false, Early::None),
                (Method::GET, true, Early::Accepted),
                (Method::POST, true, Early::None),
                (Method::GET, true, Early::Accepted),
            ] {
                let visit = async || {
                    // A client of its own has no connection that is open already.
                    let client = https_client::client(connector.clone());
                    let visited = https_client::visit(&client, method.clone(), &uri).await.unwrap();
                    let info = &visited.2;
                    println!("{method} {:?}: {}: {info:?}", visited.1, visited.0);
                    https_client::ticket(info).await;
                    assert!(info.tickets() > 0);
                    visited
                };
                let mut visited = visit().await;
                // The preface of HTTP/2 waits two milliseconds for the request. On a busy machine it may leave alone.
                for _ in 0..20 {
                    if early == Early::None || visited.2.tls().unwrap().early == early {
                        break;
                    }
                    visited = visit().await;
                }
                let (text, spoken, info) = visited;
                assert_eq!((spoken, info.tls().unwrap().early), (version, early), "{method}");
                assert_eq!((in_syn(&text) > 0, info.outcome() == Outcome::Accepted), (outcome, outcome));
            }
        }
    });
}

#[test]
fn certificates_have_names_or_addresses() {
    in_namespace("3", || async {
        let ca = Ca::new();
        for (host, name) in [("127.0.0.1", "no name"), ("localhost", "localhost")] {
            let (server, at) = bind().await;
            let acceptor = ca.acceptor(host, BOTH);
            tokio::spawn(async move { serve(server, acceptor, answer).await });
            let https = https_client::client(HttpsConnector::new(client(), ca.connector(BOTH)));
            let visit = async |host: &str| {
                https_client::visit(&https, Method::GET, &format!("https://{host}:{}/", at.port())).await
            };
            let (text, ..) = visit(host).await.unwrap();
            assert_eq!(text.split_once(' ').unwrap().1, name);
            // The other host is not in the certificate, and the connect says so.
            let other = if host == "localhost" { "127.0.0.1" } else { "localhost" };
            let error = visit(other).await.map(|(text, ..)| text).unwrap_err();
            let error = error.downcast::<hyper_util::client::legacy::Error>().unwrap();
            assert!(error.is_connect(), "{error:?}");
            assert!(format!("{error:?}").contains("NotValidForName"), "{error:?}");
        }
    });
}

#[test]
fn http_has_no_tls_unless_only_https_is_allowed() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        tokio::spawn(async move {
            while let Ok(stream) = server.accept().await {
                let service = service_fn(async |_: Request<Incoming>| {
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("plain")))
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        let connector = HttpsConnector::new(client(), Ca::new().connector(BOTH));
        let uri = format!("http://{at}/");
        for expected in [false, true] {
            let client = https_client::client(connector.clone());
            let (text, version, info) = https_client::visit(&client, Method::GET, &uri).await.unwrap();
            assert_eq!((text.as_str(), version, info.tls()), ("plain", Version::HTTP_11, None));
            assert_eq!(info.outcome() == Outcome::Accepted, expected);
        }
        let mut only = connector.https_only(true);
        let error = only.call(uri.parse().unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{uri} is not encrypted, and this connector takes only https"));
        let error = only.call("ftp://127.0.0.1/".parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, ConnectorError::Scheme(_)));
    });
}

/// Both ways of tonic to connect. TLS ends in front of its server.
#[test]
fn a_call_of_tonic_is_early_data() {
    in_namespace("3", || async {
        let (plain, inside) = bind().await;
        tokio::spawn(tonic_both::serve(plain));
        let (server, at) = bind().await;
        let ca = Ca::new();
        let acceptor = ca.acceptor("127.0.0.1", &[H2]);
        let (ended, mut early) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let inside = inside.address().unwrap();
            let each = move |mut stream: TlsStream<Stream>| {
                let ended = ended.clone();
                async move {
                    let mut inner = tokio::net::TcpStream::connect(inside).await.unwrap();
                    // The client may close as it likes.
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut inner).await;
                    ended.send(stream.early_bytes()).unwrap();
                }
            };
            serve(server, acceptor, each).await;
        });
        let connector = HttpsConnector::new(client(), ca.connector(BOTH));
        let endpoint: Endpoint = format!("https://{at}").parse::<http::Uri>().unwrap().into();
        let channel = endpoint.connect_with_connector(connector.clone()).await.unwrap();
        assert_eq!(tonic_both::call(channel, "hello").await.unwrap().1, "hello");
        assert_eq!(early.recv().await, Some(0));
        let mut call = async |safety| {
            let channel = endpoint.connect_with_connector_lazy(connector.clone().replay_safety(safety));
            assert_eq!(tonic_both::call(channel, "hello").await.unwrap().1, "hello");
            early.recv().await.unwrap()
        };
        // The preface of HTTP/2 waits two milliseconds for the request. On a busy machine it may leave alone.
        let mut longest = 0;
        for _ in 0..20 {
            longest = longest.max(call(ReplaySafety::Safe).await);
            // The preface and its settings are shorter, and hold neither the path nor the message.
            if longest > 150 {
                break;
            }
        }
        assert!(longest > 150, "{longest}");
        assert_eq!(call(ReplaySafety::ByMethod).await, 0, "a POST");
    });
}
