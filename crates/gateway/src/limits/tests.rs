#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::time::Duration;
use tokio::time::timeout;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_client_is_an_address_or_a_network_of_its_own() {
    let clients = Clients::default();
    let held: Vec<_> = (0..2).map(|_| clients.connection(ip("192.0.2.1"), 2).unwrap()).collect();
    assert!(clients.connection(ip("192.0.2.1"), 2).is_none());
    assert!(clients.connection(ip("::ffff:192.0.2.1"), 2).is_none());
    assert!(clients.connection(ip("192.0.2.2"), 2).is_some());
    let six = clients.connection(ip("2001:db8::1"), 1).unwrap();
    assert!(clients.connection(ip("2001:db8::2"), 1).is_none());
    assert!(clients.connection(ip("2001:db8:0:1::1"), 1).is_some());
    drop((held, six));
    assert!(clients.connection(ip("192.0.2.9"), 0).is_none());
    assert!(clients.0.lock().unwrap().is_empty(), "nothing is kept of clients that left");
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_wait_for_the_others_of_their_client() {
    let clients = Clients::default();
    let connection = clients.connection(ip("192.0.2.1"), 9).unwrap();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(clients.request(ip("192.0.2.1"), 3).await.unwrap());
    }
    let soon = Duration::from_secs(1);
    assert!(timeout(soon, clients.request(ip("192.0.2.1"), 3)).await.is_err());
    assert!(timeout(soon, clients.request(ip("192.0.2.2"), 3)).await.is_ok(), "another client waits");
    let waiting = clients.clone();
    let waiting = tokio::spawn(async move { waiting.request(ip("192.0.2.1"), 3).await });
    tokio::task::yield_now().await;
    held.pop();
    assert!(waiting.await.unwrap().is_some());
    drop((held, connection));
    assert!(clients.0.lock().unwrap().is_empty());
}

#[test]
fn each_connection_of_a_client_gets_less_memory() {
    let clients = Clients::default();
    let (wanted, least, most) = (16 << 20, 65_535, 64 << 20);
    let held: Vec<_> =
        (0..100).map(|_| clients.reserve(ip("192.0.2.1"), wanted, least, most).unwrap()).collect();
    assert_eq!((held[0].bytes(), held[1].bytes(), held[99].bytes()), (wanted, wanted, least));
    let all: u64 = held.iter().map(ClientPermit::bytes).sum();
    assert!(all <= most + 100 * least, "{all}");
    assert_eq!(clients.reserve(ip("192.0.2.2"), wanted, least, most).unwrap().bytes(), wanted);
    drop(held);
    assert!(clients.0.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_limit_changes_while_its_places_are_taken() {
    let soon = Duration::from_secs(1);
    let limit = Limit::new(2);
    let one = Arc::clone(&limit).place().await;
    let two = Arc::clone(&limit).place().await;
    let waiting = tokio::spawn(Arc::clone(&limit).place());
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    limit.set(3);
    let three = waiting.await.unwrap();
    limit.set(1);
    let waiting = tokio::spawn(Arc::clone(&limit).place());
    drop((one, two));
    tokio::time::sleep(soon).await;
    assert!(!waiting.is_finished(), "one place is taken");
    drop(three);
    let again = waiting.await.unwrap();
    assert!(timeout(soon, Arc::clone(&limit).place()).await.is_err());
    drop(again);
    assert!(timeout(soon, limit.place()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reload_reaches_a_client_at_its_limit() {
    let clients = Clients::default();
    let (client, soon) = (ip("192.0.2.1"), Duration::from_secs(1));
    let held = clients.request(client, 1).await.unwrap();
    assert!(timeout(soon, clients.request(client, 1)).await.is_err());
    let more = timeout(soon, clients.request(client, 2)).await.expect("there are two places");
    assert!(timeout(soon, clients.request(client, 1)).await.is_err());
    drop(more);
    assert!(timeout(soon, clients.request(client, 1)).await.is_err(), "one place is taken");
    drop(held);
    assert!(timeout(soon, clients.request(client, 1)).await.is_ok());
    assert!(clients.0.lock().unwrap().is_empty());
}
