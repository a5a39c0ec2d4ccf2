//! Formulas, and visits to servers of this process.

use super::{Parts, Savings, Visit, VisitError, VisitStage, Visitor, round_trip};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn parts(lookup: Option<u64>, handshake: u64, tls: Option<u64>) -> Parts {
    Parts {
        lookup: lookup.map(ms),
        handshake: ms(handshake),
        tls: tls.map(ms),
        request: ms(90),
        transfer: ms(10),
    }
}

fn visitor(timeout: Duration) -> Visitor {
    Visitor::new().timeout(timeout)
}

#[test]
fn savings_are_round_trips_that_were_measured() {
    // The name server is at the server's site: the thesis' two round trips.
    let cold = Savings::of(&parts(Some(80), 80, Some(100)), ms(80));
    assert_eq!((cold.first_flight, cold.in_lookup), (ms(80), Some(ms(160))));
    assert_eq!(cold.sealed, Some(ms(160)));
    // The resolver had to ask several servers: more of the lookup stays than one round trip.
    assert_eq!(Savings::of(&parts(Some(300), 80, None), ms(80)).in_lookup, Some(ms(160)));
    // A cache answered: the lookup that is saved is short.
    assert_eq!(Savings::of(&parts(Some(2), 80, None), ms(80)).in_lookup, Some(ms(82)));
    // Neither a lookup nor TLS.
    let plain = Savings::of(&parts(None, 80, None), ms(80));
    assert_eq!((plain.in_lookup, plain.sealed), (None, None));
    // A resumed or near handshake of TLS takes less than a round trip of TCP did.
    assert_eq!(Savings::of(&parts(None, 80, Some(60)), ms(80)).sealed, Some(ms(140)));
}

#[test]
fn a_lost_syn_is_no_saving() {
    let visits: Vec<Visit> = [50, 52, 1050]
        .map(|took| Visit {
            parts: parts(None, took, None),
            round_trip: ms(took),
            remote: SocketAddr::from(([192, 0, 2, 1], 80)),
            status: 200,
            bytes: 1000,
            location: None,
        })
        .into();
    let one = round_trip(&visits);
    assert_eq!(one, ms(52));
    assert_eq!(Savings::of(&visits[2].parts, one).first_flight, ms(52));
    assert_eq!(Savings::of(&visits[0].parts, one).first_flight, ms(50));
}

/// A server that answers each connection with these pieces, with a pause before each.
async fn server(pieces: &'static [(u64, &'static str)]) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            for (pause, piece) in pieces {
                tokio::time::sleep(ms(*pause)).await;
                let _ = stream.write_all(piece.as_bytes()).await;
            }
        }
    });
    (url, serving)
}

#[tokio::test]
async fn the_parts_of_a_visit_are_told_apart() {
    let (url, serving) =
        server(&[(60, "HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 4\r\n\r\nab"), (80, "cd")])
            .await;
    let target = url.parse().unwrap();
    let seen = visitor(ms(60_000)).visit(&target).await.unwrap();
    assert!(seen.parts.request >= ms(60) && seen.parts.transfer >= ms(79), "{:?}", seen.parts);
    assert_eq!((seen.status, seen.bytes, seen.redirect().as_deref()), (302, 4, Some("/y")));
    assert_eq!((seen.parts.lookup, seen.parts.tls), (None, None));
    // A name takes a lookup. Every system resolves this one (RFC 6761).
    let named = url.replace("127.0.0.1", "localhost").parse().unwrap();
    assert!(visitor(ms(60_000)).visit(&named).await.unwrap().parts.lookup.is_some());
    serving.abort();
}

#[tokio::test]
async fn what_fails_is_named() {
    let (url, serving) = server(&[(100_000, "")]).await;
    let slow = visitor(ms(100)).visit(&url.parse().unwrap()).await.unwrap_err();
    assert_eq!((slow.stage(), slow.to_string().as_str()), (VisitStage::Request, "no response within 100ms"));
    serving.abort();
    let (url, serving) =
        server(&[(0, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"), (0, "not nine"), (0, "")]).await;
    let seen = visitor(ms(60_000)).visit(&url.parse().unwrap()).await;
    assert_eq!(seen.unwrap().bytes, 9);
    serving.abort();
    let (url, serving) = server(&[(0, "SSH-2.0-x\r\n")]).await;
    let error = visitor(ms(60_000)).visit(&url.parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, VisitError::Http(_)), "{error}");
    serving.abort();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = visitor(ms(60_000)).visit(&format!("http://{free}/").parse().unwrap()).await.unwrap_err();
    assert_eq!(refused.stage().as_str(), "handshake");
    assert!(refused.to_string().starts_with(&format!("cannot connect to {free}: ")), "{refused}");
}

#[tokio::test]
async fn without_a_connector_nothing_is_sent_in_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let error = Visitor::new().visit(&url).await.unwrap_err();
    assert!(matches!(error, VisitError::NoConnector), "{error}");
    let (mut stream, _) = listener.accept().await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}
