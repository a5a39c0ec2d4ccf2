//! Sealed first flights in virtual time, on a path of 100 ms.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::emulated::{AT, Path, RTT, certified, client};
use crate::common::sealed::{PROTOCOL, keys_at};
use crate::common::{Ca, NAME, once, safe, site};
use firstflight::link::VirtualTime;
use firstflight::{Client, Endpoint, FirstFlight, Time, block_on_virtual};
use firstflight_tls::seal::{KeySet, KeySource, Outcome};
use firstflight_tls::{Acceptor, Connector, SealClient, SealServer};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct World {
    time: Time,
    client: Endpoint,
    ca: Ca,
}

fn world(clock: &VirtualTime) -> World {
    let path = Path::new(clock);
    let time = path.time.clone();
    let ca = Ca::new();
    let made = ca.certify(NAME);
    let seal = SealServer::builder(keys(&time, 7), 443).first_start(true).time(time.clone()).build().unwrap();
    let acceptor = Acceptor::builder().certificate(made.chain(), made.key()).alpn([PROTOCOL]);
    let (time, client, _) = path.serve(acceptor.seal(seal).time(time).build().unwrap());
    World { time, client, ca }
}

/// One key: 7 is the server's.
fn keys(time: &Time, id: u8) -> KeySet {
    keys_at(id, id, time.unix().as_secs())
}

impl World {
    /// A connector that knows this key.
    fn connector(&self, id: u8) -> Connector {
        let record = keys(&self.time, id).record(self.time.unix().as_secs()).unwrap();
        let seal = SealClient::new().record(site(), record, KeySource::Configuration);
        self.ca.connector().http1().seal(seal).time(self.time.clone()).build().unwrap()
    }

    /// How many round trips until the first byte of the response, and what became of the seal.
    async fn visit(&self, connector: &Connector, first: FirstFlight<'_>) -> (f64, Outcome) {
        self.visit_by(&client(&self.client, true, None), connector, first).await
    }

    async fn visit_by(
        &self,
        client: &Client,
        connector: &Connector,
        first: FirstFlight<'_>,
    ) -> (f64, Outcome) {
        let (at, site) = (AT.parse().unwrap(), site());
        let began = self.time.now();
        let mut stream = connector.connect_at(client, &site, &[at], first).await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        let trips = (self.time.now() - began).as_secs_f64() / RTT.as_secs_f64();
        stream.shutdown().await.unwrap();
        // So that no connection disturbs the next one.
        self.time.sleep(RTT * 100).await;
        (trips, stream.seal_outcome().unwrap())
    }
}

#[test]
fn one_round_trip_at_the_first_contact_with_tls() {
    let clock = VirtualTime::new(Duration::from_secs(1_800_000_000));
    let measured = block_on_virtual(&clock, async {
        let world = world(&clock);
        let (right, stale) = (world.connector(7), world.connector(9));
        let mut all = Vec::new();
        // Without a cookie, which may run twice and not; with one; a stale key.
        all.push(world.visit(&right, safe()).await);
        world.client.forget_credentials();
        all.push(world.visit(&right, once()).await);
        all.push(world.visit(&right, safe()).await);
        all.push(world.visit(&right, once()).await);
        all.push(world.visit(&stale, safe()).await);
        all.push(world.visit(&stale, once()).await);
        all
    })
    .unwrap();
    use Outcome::{OneRoundTrip, StaleKey, TransportRefused};
    let expected = [
        (2.0, TransportRefused),
        (3.0, TransportRefused),
        (1.0, OneRoundTrip),
        (2.0, TransportRefused),
        (3.0, StaleKey),
        (3.0, StaleKey),
    ];
    are(&measured, &expected);
}

/// On IP, under a certificate for a server that the client has never contacted. A request that must not run twice is bound to
/// it, and runs as early.
#[test]
fn one_round_trip_at_the_first_contact_of_all() {
    let clock = VirtualTime::new(Duration::from_secs(1_800_000_000));
    let measured = block_on_virtual(&clock, async {
        let world = world(&clock);
        let (right, stale) = (world.connector(7), world.connector(9));
        // No cookies: a client with one shows that.
        let client = client(&world.client, false, Some(&certified(&world.time)));
        let mut all = Vec::new();
        for first in [safe(), once()] {
            all.push(world.visit_by(&client, &right, first).await);
        }
        all.push(world.visit_by(&client, &stale, safe()).await);
        let (at, site) = (AT.parse().unwrap(), site());
        let lost = stale.connect_at(&client, &site, &[at], once()).await.unwrap_err();
        assert!(lost.maybe_delivered(), "a REJECT says nothing about what could have run: {lost}");
        all
    })
    .unwrap();
    use Outcome::{OneRoundTrip, StaleKey};
    are(&measured, &[(1.0, OneRoundTrip), (1.0, OneRoundTrip), (3.0, StaleKey)]);
}

fn are(measured: &[(f64, Outcome)], expected: &[(f64, Outcome)]) {
    println!("{measured:?}");
    let rounded: Vec<_> = measured.iter().map(|(trips, outcome)| (trips.round(), *outcome)).collect();
    assert_eq!(rounded, expected);
    for (trips, _) in measured {
        assert!((trips - trips.round()).abs() < 0.05, "no wait but the path's");
    }
}
