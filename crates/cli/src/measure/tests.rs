//! Formulas, redirects, and visits to servers of this process.

use super::report::{self, Sample};
use super::savings::{Savings, round_trip};
use super::site::Site;
use super::visit::{Means, Parts, Visit, VisitError, visit};
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

fn means(timeout: Duration) -> Means {
    Means { names: None, tls: None, timeout }
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
    let visits: Vec<Visit> = [50, 52, 1050].map(|took| Visit::of(parts(None, took, None))).into();
    let one = round_trip(&visits);
    assert_eq!(one, ms(52));
    assert_eq!(Savings::of(&visits[2].parts, one).first_flight, ms(52));
    assert_eq!(Savings::of(&visits[0].parts, one).first_flight, ms(50));
}

#[test]
fn medians_are_exact() {
    let of = |values: &[u64]| Sample::new(values.iter().copied().map(ms));
    assert_eq!(of(&[3, 1, 2]).median(), Some(ms(2)));
    assert_eq!(of(&[4, 1, 2, 3]).median(), Some(Duration::from_micros(2500)));
    assert_eq!((of(&[]).median(), of(&[]).quantile(0.5)), (None, None));
    assert_eq!(
        [0.0, 0.1, 0.9, 1.0].map(|share| of(&[5, 1, 9]).quantile(share)),
        [1, 1, 9, 9].map(|v| Some(ms(v)))
    );
}

#[test]
fn a_cache_is_seen_in_the_lookups() {
    let site = |lookups: &[u64]| {
        let mut site = Site::new("http://a.example/".parse().unwrap(), None);
        site.visits = lookups.iter().map(|lookup| Visit::of(parts(Some(*lookup), 50, None))).collect();
        site
    };
    assert_eq!(site(&[100, 1, 2, 1]).cached(), Some((ms(100), ms(1))));
    assert_eq!(site(&[100, 90, 95]).cached(), None);
    assert_eq!(site(&[100]).cached(), None);
}

#[test]
fn the_report_has_the_numbers_of_the_thesis_beside_ours() {
    let mut site = Site::new("https://a.example/".parse().unwrap(), None);
    site.visits = vec![Visit::of(parts(Some(100), 50, Some(55))); 3];
    let text = report::text(&[site], false);
    for (name, numbers) in [
        ("lookup", ["100.0 ms", "32.8 %", "41.5 %, median 101 ms"]),
        ("handshake", ["50.0 ms", "16.4 %", "20.5 %, median 72 ms"]),
        ("  ASAP inside the lookup", ["100.0 ms", "32.8 %", ""]),
        ("  a sealed flight, also", ["100.0 ms", "32.8 %", ""]),
    ] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(numbers.iter().all(|number| line.contains(number)), "{line}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 112), "{text}");
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
    let seen = visit(&means(ms(60_000)), &target).await.unwrap();
    assert!(seen.parts.request >= ms(60) && seen.parts.transfer >= ms(79), "{:?}", seen.parts);
    assert_eq!((seen.status, seen.bytes, seen.redirect().as_deref()), (302, 4, Some("/y")));
    assert_eq!((seen.parts.lookup, seen.parts.tls), (None, None));
    // A name takes a lookup. Every system resolves this one (RFC 6761).
    let named = url.replace("127.0.0.1", "localhost").parse().unwrap();
    assert!(visit(&means(ms(60_000)), &named).await.unwrap().parts.lookup.is_some());
    serving.abort();
}

#[tokio::test]
async fn what_fails_is_named() {
    let (url, serving) = server(&[(100_000, "")]).await;
    let slow = visit(&means(ms(100)), &url.parse().unwrap()).await.unwrap_err();
    assert_eq!(
        (slow.stage(), slow.to_string().as_str()),
        ("request", "no response within 100ms (--timeout)")
    );
    serving.abort();
    let (url, serving) =
        server(&[(0, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"), (0, "not nine"), (0, "")]).await;
    let seen = visit(&means(ms(60_000)), &url.parse().unwrap()).await;
    assert_eq!(seen.unwrap().bytes, 9);
    serving.abort();
    let (url, serving) = server(&[(0, "SSH-2.0-x\r\n")]).await;
    let error = visit(&means(ms(60_000)), &url.parse().unwrap()).await.unwrap_err();
    assert!(matches!(error, VisitError::Http(_)), "{error}");
    serving.abort();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = visit(&means(ms(60_000)), &format!("http://{free}/").parse().unwrap()).await.unwrap_err();
    assert_eq!(refused.stage(), "handshake");
    assert!(refused.to_string().starts_with(&format!("cannot connect to {free}: ")), "{refused}");
}
