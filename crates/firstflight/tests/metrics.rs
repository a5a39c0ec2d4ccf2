//! A scrape shows what happened.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight::metrics::{Publisher, describe};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, credential, link};
use metrics_exporter_prometheus::PrometheusBuilder;
use std::net::SocketAddr;
use std::sync::Arc;

const PING: FirstFlight<'_> = FirstFlight::safely_replayable(b"ping");

/// The value of a series, or `None` if it does not exist.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

fn first_flights(text: &str, side: &str, outcome: &str, reason: &str) -> Option<f64> {
    let labels = format!("side=\"{side}\",outcome=\"{outcome}\",reason=\"{reason}\"");
    value(text, &format!("firstflight_first_flights_total{{{labels}}}"))
}

#[tokio::test]
async fn a_scrape_shows_the_outcomes_of_known_traffic() {
    let path = link::PathConfig::default();
    let (a, b) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let client = Endpoint::new(firstflight::config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), a);
    let server = Endpoint::new(firstflight::config(vec!["10.0.0.2".parse().unwrap()]).unwrap(), b);
    let keys = credential::KeyRing::new(credential::Scheme::Linux, firstflight::random_key().unwrap());
    let at = SocketAddr::from(([10, 0, 0, 2], 80));
    let mut listen = ListenConfig::new(at);
    let pending = Arc::new(credential::PendingLimit::new(16));
    listen.fast_open = Some(credential::FastOpenPolicy::new(Arc::new(keys), pending));
    let listener = server.listen(listen).unwrap();

    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let mut publishers = [Publisher::new(client.clone()), Publisher::new(server.clone())];
    let mut scrape = || {
        metrics::with_local_recorder(&recorder, || {
            describe();
            publishers.iter_mut().for_each(Publisher::publish);
        });
        handle.render()
    };
    assert_eq!(first_flights(&scrape(), "server", "accepted", ""), Some(0.0));

    // One ordinary handshake, one to get the cookie, three that use it.
    let mut open = Vec::new();
    for fast_open in [false, true, true, true, true] {
        let config = ConnectConfig::default().fast_open(fast_open);
        let (ours, theirs) = tokio::join!(client.connect(at, PING, &config), listener.accept());
        let theirs = theirs.unwrap();
        theirs.handshake_confirmed().await.unwrap();
        open.push((ours.unwrap(), theirs));
    }
    let text = scrape();
    for side in ["client", "server"] {
        assert_eq!(first_flights(&text, side, "accepted", ""), Some(3.0), "{text}");
        assert_eq!(first_flights(&text, side, "handshake", "not-requested"), Some(1.0), "{text}");
        assert_eq!(first_flights(&text, side, "handshake", "no-credential"), Some(1.0), "{text}");
        assert_eq!(first_flights(&text, side, "handshake", "syn-timed-out"), None, "{text}");
        let opened = format!("firstflight_connections_opened_total{{side=\"{side}\"}}");
        assert_eq!(value(&text, &opened), Some(5.0), "{text}");
    }
    assert_eq!(value(&text, "firstflight_cookies_granted_total"), Some(1.0), "{text}");
    assert_eq!(value(&text, "firstflight_connections"), Some(10.0), "{text}");
    assert_eq!(value(&text, "firstflight_pending_first_flights_limit"), Some(16.0), "{text}");
    assert_eq!(value(&text, "firstflight_pending_first_flights"), Some(0.0), "{text}");
    assert!(text.contains("# TYPE firstflight_first_flights_total counter"), "{text}");
    assert!(text.contains("# HELP firstflight_buffer_bytes "), "{text}");

    // A second scrape adds nothing. Dropping a publisher removes its share of the gauges.
    assert_eq!(first_flights(&scrape(), "server", "accepted", ""), Some(3.0));
    metrics::with_local_recorder(&recorder, || drop(publishers));
    assert_eq!(value(&handle.render(), "firstflight_connections"), Some(0.0));
}
