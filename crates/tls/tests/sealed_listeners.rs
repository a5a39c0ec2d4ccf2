//! Listeners of several sites that share seal keys. The seal covers the port and not the address, so an attacker can lead a
//! flight, by DNS or by routing, to the listener of another site. It must not run there.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::sealed::{PROTOCOL, SAFE, Sealed, keys_of, name, unix};
use crate::common::{Ca, Made, NAME, exchange, safe, wire};
use firstflight::Authority;
use firstflight_tls::seal::{KeySource, Outcome, REJECT};
use firstflight_tls::{Acceptor, ConnectError, MemorySessions, SealClient, SealServer, Tickets};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SITES: [&str; 2] = ["a.example.com", "b.example.com"];
const PUBLIC: &str = "public.example";

/// Both sites are served with the same keys.
fn seal() -> SealServer {
    let keys = keys_of(PUBLIC, 7, 5, unix());
    SealServer::builder(keys, 443).serves(SITES.map(name)).first_start(true).build().unwrap()
}

/// The listener of one site.
fn listener(made: &Made, seal: SealServer) -> Acceptor {
    let builder = Acceptor::builder().certificate(made.chain(), made.key()).alpn([PROTOCOL]);
    builder.seal(seal).build().unwrap()
}

/// A visit to a site that ends at this listener: what became of the seal, and whether the request ran early.
async fn visit(ca: &Ca, at: &Acceptor, site: &str) -> Result<Option<Outcome>, bool> {
    let site: Authority = format!("{site}:443").parse().unwrap();
    let record = keys_of(PUBLIC, 7, 5, unix()).record(unix()).unwrap();
    let seal = SealClient::new().record(site.clone(), record, KeySource::Configuration);
    let connector = ca.connector().http1().seal(seal).build().unwrap();
    let (ours, theirs) = wire();
    match tokio::join!(connector.connect_over(ours, &site, safe()), at.accept_over(theirs)) {
        (Ok(mut ours), Ok(mut theirs)) => {
            exchange(&mut ours, &mut theirs, safe().data()).await;
            Ok(ours.seal_outcome())
        }
        (_, theirs) => {
            Err(theirs.is_ok_and(|stream| stream.sealed_info().is_some_and(|info| info.ran_early)))
        }
    }
}

/// The client would not accept the certificate of the other site. But before that, its request would have run.
#[tokio::test]
async fn a_flight_led_to_the_listener_of_another_site_does_not_run() {
    let (ca, seal) = (Ca::new(), seal());
    let listeners = SITES.map(|site| listener(&ca.certify(site), seal.clone()));
    for (at, site) in SITES.iter().enumerate() {
        assert_eq!(visit(&ca, &listeners[at], site).await, Ok(Some(Outcome::OneRoundTrip)));
        assert_eq!(visit(&ca, &listeners[1 - at], site).await, Err(false), "{site} at the other listener");
    }
}

/// One certificate is for both sites, so the client accepts it. A listener that says which names it has takes no others.
#[tokio::test]
async fn a_listener_takes_flights_for_its_own_names_only() {
    let (ca, seal) = (Ca::new(), seal());
    let both = ca.certify("*.example.com");
    let listeners = SITES.map(|site| listener(&both, seal.only([name(site)])));
    for (at, site) in SITES.iter().enumerate() {
        assert_eq!(visit(&ca, &listeners[at], site).await, Ok(Some(Outcome::OneRoundTrip)));
        // Its ordinary TLS is there for all names, as before.
        assert_eq!(visit(&ca, &listeners[1 - at], site).await, Ok(Some(Outcome::StaleKey)));
    }
    // The variant without the defence: this listener has all names of the keys.
    let open = listener(&both, seal);
    for site in SITES {
        assert_eq!(visit(&ca, &open, site).await, Ok(Some(Outcome::OneRoundTrip)));
    }
}

/// A copy of the flight at another listener, before the real one gets it, does not use it up either.
#[tokio::test]
async fn a_copy_at_another_listener_leaves_no_entry() {
    let world = Sealed::new();
    let seal = SealServer::builder(common::sealed::keys(7, 5), 443).serves([name(NAME), name(SITES[0])]);
    let seal = seal.first_start(true).build().unwrap();
    let other = listener(&world.ca.certify(SITES[0]), seal.clone());
    let own = listener(&world.ca.certify(NAME), seal);
    let raw = world.raw(SAFE);
    let (mut attacker, theirs) = wire();
    attacker.write_all(&raw.bytes).await.unwrap();
    attacker.shutdown().await.unwrap();
    assert!(other.accept_over(theirs).await.is_err());
    let mut got = Vec::new();
    attacker.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, REJECT);
    let (mut client, theirs) = wire();
    client.write_all(&raw.bytes).await.unwrap();
    assert!(own.accept_over(theirs).await.unwrap().sealed_info().unwrap().ran_early);
}

/// The same with ordinary TLS. Both listeners have one memory of sessions, and a session needs no certificate.
#[tokio::test]
async fn early_data_led_to_the_listener_of_another_site_does_not_run() {
    let (ca, sessions) = (Ca::new(), Arc::new(MemorySessions::default()));
    let listeners = SITES.map(|site| {
        let made = ca.certify(site);
        let builder = Acceptor::builder().certificate(made.chain(), made.key()).alpn([PROTOCOL]);
        builder.tickets(Tickets::Sessions(Arc::<MemorySessions>::clone(&sessions))).build().unwrap()
    });
    let connector = ca.connector().http1().build().unwrap();
    let site: Authority = format!("{}:443", SITES[0]).parse().unwrap();
    let visit = async |at: &Acceptor| {
        let (ours, theirs) = wire();
        tokio::join!(connector.connect_over(ours, &site, safe()), at.accept_over(theirs))
    };
    for early in [false, true] {
        let (ours, theirs) = visit(&listeners[0]).await;
        let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
        exchange(&mut ours, &mut theirs, safe().data()).await;
        assert_eq!(theirs.early_bytes() > 0, early);
    }
    let (ours, theirs) = visit(&listeners[1]).await;
    assert!(matches!(ours.unwrap_err(), ConnectError::Certificate(_)));
    if let Ok(mut stream) = theirs {
        let read = stream.read(&mut [0; 9]).await;
        assert!(read.is_err() || read.is_ok_and(|count| count == 0), "it runs there");
    }
}
