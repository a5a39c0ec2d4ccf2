//! Sealed first flights in virtual time, on a path of 100 ms.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::emulated::{AT, Path, RTT};
use common::sealed::{PROTOCOL, keys_at, name};
use common::{ANSWER, Ca, NAME, once, safe, site};
use firstflight::link::VirtualTime;
use firstflight::{ConnectConfig, Endpoint, FirstFlight, Stream, Time, block_on_virtual};
use firstflight_tls::rustls::{self, ClientConfig, ClientConnection};
use firstflight_tls::seal::{Bind, Draft, Flags, Rid, Room, Target};
use firstflight_tls::{Acceptor, SealServer};
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct World {
    time: Time,
    client: Endpoint,
    ca: Ca,
    seal: SealServer,
    config: ConnectConfig,
}

fn world(clock: &VirtualTime) -> World {
    let path = Path::new(clock);
    let time = path.time.clone();
    let ca = Ca::new();
    let made = ca.certify(NAME);
    let seal = SealServer::builder(keys_at(7, 5, time.unix().as_secs()), 443);
    let seal = seal.first_start(true).time(time.clone()).build().unwrap();
    let acceptor = Acceptor::builder().certificate(made.chain(), made.key()).alpn([PROTOCOL]);
    let acceptor = acceptor.seal(seal.clone()).time(time.clone()).build().unwrap();
    let (time, client, config) = path.serve(acceptor);
    World { time, client, ca, seal, config }
}

impl World {
    /// A flight as the connector makes it in a SYN, and TLS behind it.
    fn seal(&self, first: FirstFlight<'_>, rid: u8) -> (Vec<u8>, ClientConnection) {
        let (record, public) = (self.seal.record().unwrap(), name(NAME));
        let to = Target { entry: &record.entries()[0], public_name: &public, port: 443 };
        let flags = Flags { replayable: first.is_replayable(), complete: true };
        let (rid, t_ms) = (Rid::from_bytes([rid; 16]), self.time.unix().as_millis() as u64);
        let draft = Draft::new(to, rid, Bind::NONE, t_ms, flags, first.data(), PROTOCOL).unwrap();
        let provider = rustls::crypto::CryptoProvider {
            kx_groups: vec![rustls::crypto::aws_lc_rs::kx_group::X25519],
            ..rustls::crypto::aws_lc_rs::default_provider()
        };
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.ca.roots())
            .with_no_client_auth();
        let (client, hello) = common::sealed::hello(config, NAME, draft.alpn().to_vec());
        let plan = Room::in_syn(1220, 40, 0).plan(hello.len(), first.data().len()).unwrap();
        assert!(plan.fits_syn());
        let flight = draft.seal(&hello, &public, &plan, &mut common::sealed::rng(3)).unwrap();
        (flight.as_bytes().to_vec(), client)
    }

    async fn open(&self, bytes: &[u8]) -> Stream {
        let remote: SocketAddr = AT.parse().unwrap();
        let first = FirstFlight::safely_replayable(bytes);
        let stream = self.client.connect(remote, first, &self.config).await.unwrap();
        stream.set_nodelay(true);
        stream
    }

    /// How many round trips until the first byte of the response.
    async fn visit(&self, first: FirstFlight<'_>, rid: u8) -> f64 {
        let began = self.time.now();
        let (bytes, mut client) = self.seal(first, rid);
        let mut stream = self.open(&bytes).await;
        let (mut piece, mut answer) = (vec![0; 4096], Vec::new());
        while answer.is_empty() {
            let count = stream.read(&mut piece).await.unwrap();
            assert!(count > 0);
            let mut rest = &piece[..count];
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
            }
            let _ = client.reader().read_to_end(&mut answer);
            if !client.is_handshaking() {
                common::sealed::send(&mut stream, &mut client).await;
            }
        }
        let trips = (self.time.now() - began).as_secs_f64() / RTT.as_secs_f64();
        assert!(answer.starts_with(ANSWER));
        stream.shutdown().await.unwrap();
        // So that no connection disturbs the next one.
        self.time.sleep(RTT * 100).await;
        trips
    }

    /// The same by the connector, on a connection whose handshake is complete. Without the trip of that handshake.
    async fn over(&self, first: FirstFlight<'_>, stale: bool) -> f64 {
        let mut record = self.seal.record().unwrap();
        if stale {
            record = keys_at(9, 9, self.time.unix().as_secs()).record(self.time.unix().as_secs()).unwrap();
        }
        let seal = firstflight_tls::SealClient::new();
        let seal = seal.record(site(), record, firstflight_tls::seal::KeySource::Configuration);
        let connector = self.ca.connector().http1().seal(seal).time(self.time.clone()).build().unwrap();
        let stream = self.open(&[]).await;
        stream.connected().await.unwrap();
        let began = self.time.now();
        let mut stream = connector.connect_over(stream, &site(), first).await.unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).await.unwrap();
        let trips = (self.time.now() - began).as_secs_f64() / RTT.as_secs_f64();
        stream.shutdown().await.unwrap();
        self.time.sleep(RTT * 100).await;
        trips
    }
}

#[test]
fn one_round_trip_at_the_first_contact_with_tls() {
    let clock = VirtualTime::new(Duration::from_secs(1_800_000_000));
    let measured = block_on_virtual(&clock, async {
        let world = world(&clock);
        let mut all = Vec::new();
        // Without a cookie; with one; and what must not run twice.
        all.push(world.visit(safe(), 1).await);
        all.push(world.visit(safe(), 2).await);
        all.push(world.visit(once(), 3).await);
        // On an open connection: a right key, at most once, a stale key.
        all.push(world.over(safe(), false).await);
        all.push(world.over(once(), false).await);
        all.push(world.over(safe(), true).await);
        all
    })
    .unwrap();
    println!("{measured:?}");
    let rounded: Vec<_> = measured.iter().map(|trips| trips.round()).collect();
    assert_eq!(rounded, [2.0, 1.0, 2.0, 1.0, 2.0, 3.0]);
    for trips in measured {
        assert!((trips - trips.round()).abs() < 0.05, "no wait but the path's");
    }
}
