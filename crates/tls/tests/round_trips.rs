//! Round trips in virtual time, on a path of 100 ms.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::emulated::{AT, Path, RTT};
use crate::common::{ANSWER, Ca, NAME, once, safe, site};
use firstflight::credential::NetworkId;
use firstflight::link::VirtualTime;
use firstflight::{ConnectConfig, Endpoint, FirstFlight, Time, block_on_virtual};
use firstflight_tls::{Acceptor, Connector, Departure};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct World {
    time: Time,
    client: Endpoint,
    connector: Connector,
    config: ConnectConfig,
}

fn world(clock: &VirtualTime) -> World {
    let path = Path::new(clock);
    let time = path.time.clone();
    let ca = Ca::new();
    let made = ca.certify(NAME);
    let acceptor =
        Acceptor::builder().certificate(made.chain(), made.key()).time(time.clone()).build().unwrap();
    let (time, client, config) = path.serve(acceptor);
    let connector = ca.connector().time(time.clone()).build().unwrap();
    World { time, client, connector, config }
}

impl World {
    /// How many round trips until the first byte of the response, and until the end.
    async fn visit(&self, first: FirstFlight<'_>) -> (f64, f64) {
        let remote: SocketAddr = AT.parse().unwrap();
        let began = self.time.now();
        let departure = Departure::in_syn(NetworkId::UNKNOWN);
        let hello = self.connector.hello(&site(), departure, first).unwrap();
        let bytes = hello.bytes().to_vec();
        let stream =
            self.client.connect(remote, FirstFlight::safely_replayable(&bytes), &self.config).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut stream = hello.finish(stream).await.unwrap();
        let mut answer = vec![0; 1];
        stream.read_exact(&mut answer).await.unwrap();
        let trips = || (self.time.now() - began).as_secs_f64() / RTT.as_secs_f64();
        let first_byte = trips();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, ANSWER);
        let end = trips();
        stream.shutdown().await.unwrap();
        // So that no connection disturbs the next one.
        self.time.sleep(RTT * 10).await;
        (first_byte, end)
    }
}

#[test]
fn one_round_trip_with_a_ticket_two_without() {
    let clock = VirtualTime::new(Duration::from_secs(1_800_000_000));
    let measured = block_on_virtual(&clock, async {
        let world = world(&clock);
        let mut all = Vec::new();
        // Neither cookie nor ticket; both; both, and what must not run twice; a cookie alone.
        all.push(world.visit(safe()).await);
        all.push(world.visit(safe()).await);
        all.push(world.visit(once()).await);
        world.connector.forget();
        all.push(world.visit(safe()).await);
        all
    })
    .unwrap();
    println!("{measured:?}");
    let rounded: Vec<_> = measured.iter().map(|(first, end)| (first.round(), end.round())).collect();
    assert_eq!(rounded, [(3.0, 3.0), (1.0, 2.0), (2.0, 2.0), (2.0, 2.0)]);
    for (first, _) in measured {
        assert!((first - first.round()).abs() < 0.05, "no wait but the path's");
    }
}
