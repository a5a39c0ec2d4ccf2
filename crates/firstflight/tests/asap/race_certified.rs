//! Connecting to one of several addresses by an engine, with a certificate.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::certified;
use crate::race::{DATA, NAME, V4, V6, World, addr, run};
use firstflight::credential::asap::{ClientCertificate, PrivateKey, certify};
use firstflight::credential::{Outcome, Reason};
use firstflight::record::Published;
use firstflight::verifier::IssuerAddress;
use firstflight::{Authority, Client, ClientBuilder, FirstFlight, ListenConfig};
use firstflight_wire::asap::CertificateFlags;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;

fn verifier() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// A client with a certificate for this address of its own, and servers that are known to accept it.
fn certified(world: &World, address: &str) -> ClientBuilder {
    let (verifier, key) = (verifier(), PrivateKey::from_seed(&[2; 32]));
    let address: IpAddr = address.parse().unwrap();
    let unix_s = world.time.unix().as_secs() as u32;
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let body = certify(&verifier, &key.public(), address, unix_s, 1800, flags).unwrap();
    let now = world.time.certificate_clock().unwrap();
    let certificate = ClientCertificate::new(body, verifier.public(), address, key, now).unwrap();
    let record = Published::on_ip(1460, &[verifier.public().id()]).unwrap();
    let client = Client::builder().engine(world.ours.clone()).fast_open(false).no_resolver();
    client.certificate(Arc::new(certificate)).record(Authority::new(NAME.0, NAME.1).unwrap(), record)
}

/// A certificate for an IPv4 address is not used with an IPv6 server, which sees a different client address.
#[test]
fn a_certificate_is_shown_to_its_own_family_only() {
    run(async |world| {
        let (_v6, _v4) = (world.listen(V6), world.listen(V4));
        let client = certified(&world, "10.0.0.1").build().unwrap();
        // No server here accepts certificates; the reason says so when a certificate was offered.
        for (server, reason) in [(V6, Reason::NoCredential), (V4, Reason::Policy)] {
            let first = FirstFlight::safely_replayable(DATA);
            let stream = world.at_once(client.connect(NAME, first).at(addr(server)).into_future());
            assert_eq!(stream.await.unwrap().outcome(), Outcome::Handshake(reason));
        }
    });
}

/// A certificate may carry an order that the server executes once. With several addresses it does not: the first one may
/// have executed the order when another one answers.
#[test]
fn an_order_rides_with_a_certificate_to_a_single_address_only() {
    for (addresses, lost, rides) in [(&[V6][..], false, true), (&[V6, V4], true, false)] {
        run(async |world| {
            let policy = certified::policy(&verifier());
            let early = Arc::new(Mutex::new(Vec::new()));
            for at in [V6, V4] {
                let mut listen = ListenConfig::new(addr(at));
                listen.asap = Some(policy.clone());
                let (listener, early) = (world.server.listen(listen).unwrap(), Arc::clone(&early));
                tokio::spawn(async move {
                    while let Ok(mut stream) = listener.accept().await {
                        let mut got = [0; DATA.len()];
                        if stream.read_exact(&mut got).await.is_ok() {
                            early.lock().unwrap().push(stream.early_bytes() > 0);
                        }
                    }
                });
            }
            world.to_client_shut.store(lost, Ordering::Relaxed);
            let client = certified(&world, "fd00::1").servers_run_once(true).build().unwrap();
            let addresses: Vec<_> = addresses.iter().map(|at| addr(at)).collect();
            let won = client.connect(NAME, FirstFlight::at_most_once(DATA)).at(addresses).await.unwrap();
            while early.lock().unwrap().is_empty() {
                world.time.sleep(Duration::from_millis(1)).await;
            }
            drop(won);
            assert_eq!(*early.lock().unwrap(), [rides]);
        });
    }
}

/// The reason of an attempt that requested nothing is the client's.
#[test]
fn why_nothing_was_asked_for_is_told() {
    run(async |world| {
        let _v6 = world.listen(V6);
        // Nobody is there, so there is no certificate.
        let verifier = IssuerAddress::new("10.0.0.2:9".parse().unwrap(), verifier().public());
        let builder = Client::builder().engine(world.ours.clone()).fast_open(false).no_resolver();
        let client = builder.verifier(verifier).build().unwrap();
        let first = FirstFlight::safely_replayable(DATA);
        let stream = client.connect(NAME, first).at(addr(V6)).await.unwrap();
        assert_eq!(stream.outcome(), Outcome::Handshake(Reason::NoCredential));
    });
}
