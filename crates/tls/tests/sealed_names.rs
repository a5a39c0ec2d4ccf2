//! One listener with the keys of several public names: each name is served with its own keys only.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::sealed::{PROTOCOL, keys_of, name, unix};
use crate::common::{Ca, exchange, safe, wire};
use firstflight::credential::asap::Identity;
use firstflight::link::VirtualTime;
use firstflight::{Authority, Time};
use firstflight_tls::seal::{KeySet, KeySource, Outcome};
use firstflight_tls::{Acceptor, SealClient, SealServer, SealServerBuilder};
use std::num::NonZeroU32;
use std::time::Duration;

const SITES: [&str; 2] = ["a.example.com", "b.example.com"];
const PUBLIC: [&str; 2] = ["one.example", "two.example"];

fn keys(at: usize, id: u8) -> KeySet {
    keys_of(PUBLIC[at], id, at as u8 + 1, unix())
}

/// Each public name has a key with one of these numbers, and serves one site.
fn two(ids: [u8; 2]) -> SealServerBuilder {
    let first = SealServer::builder(keys(0, ids[0]), 443).serves([name(SITES[0])]).first_start(true);
    first.and_keys(keys(1, ids[1]), [name(SITES[1])])
}

fn acceptor(ca: &Ca, seal: SealServer) -> Acceptor {
    let mut builder = Acceptor::builder().alpn([PROTOCOL]).seal(seal);
    for site in SITES {
        let made = ca.certify(site);
        builder = builder.certificate(made.chain(), made.key());
    }
    builder.build().unwrap()
}

/// A visit to a site with these keys. The certificate is the site's, or the visit fails.
async fn visit(ca: &Ca, acceptor: &Acceptor, site: usize, keys: &KeySet) -> Option<Outcome> {
    let site: Authority = format!("{}:443", SITES[site]).parse().unwrap();
    let record = keys.record(unix()).unwrap();
    let seal = SealClient::new().record(site.clone(), record, KeySource::Configuration);
    let connector = ca.connector().http1().seal(seal).build().unwrap();
    let (ours, theirs) = wire();
    let (ours, theirs) =
        tokio::join!(connector.connect_over(ours, &site, safe()), acceptor.accept_over(theirs));
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    exchange(&mut ours, &mut theirs, safe().data()).await;
    assert_eq!(theirs.sealed_info().is_some(), ours.seal_outcome() == Some(Outcome::OneRoundTrip));
    ours.seal_outcome()
}

/// Also if the keys of both have the same number.
#[tokio::test]
async fn each_name_is_served_with_its_own_keys_only() {
    let ca = Ca::new();
    for ids in [[7, 7], [7, 8]] {
        let acceptor = acceptor(&ca, two(ids).build().unwrap());
        for site in [0, 1] {
            for with in [0, 1] {
                let expected = if site == with { Outcome::OneRoundTrip } else { Outcome::StaleKey };
                let keys = keys(with, ids[with]);
                assert_eq!(visit(&ca, &acceptor, site, &keys).await, Some(expected), "{ids:?}");
            }
        }
    }
}

#[tokio::test]
async fn keys_are_replaced_by_their_public_name() {
    let ca = Ca::new();
    let seal = two([7, 7]).build().unwrap();
    let acceptor = acceptor(&ca, seal.clone());
    assert_eq!(seal.records(), [0, 1].map(|at| keys(at, 7).record(unix()).unwrap()));
    assert!(seal.set_keys(keys(1, 9)));
    assert_eq!(visit(&ca, &acceptor, 1, &keys(1, 7)).await, Some(Outcome::StaleKey));
    assert_eq!(visit(&ca, &acceptor, 1, &keys(1, 9)).await, Some(Outcome::OneRoundTrip));
    assert_eq!(visit(&ca, &acceptor, 0, &keys(0, 7)).await, Some(Outcome::OneRoundTrip));
    assert_eq!(seal.record(), keys(0, 7).record(unix()));
    // There are none of this name.
    assert!(!seal.set_keys(keys_of("three.example", 9, 9, unix())));
    let names = [SITES, PUBLIC].concat().into_iter();
    assert_eq!(seal.identities(), names.map(|name| Identity::name(name, 443)).collect::<Vec<_>>());
}

/// Each try is an opening.
#[tokio::test]
async fn tries_are_counted() {
    let ca = Ca::new();
    // One, as its time stands still.
    let acceptor_of = |ids| {
        let time = Time::from(VirtualTime::new(Duration::from_secs(unix())));
        acceptor(&ca, two(ids).openings(NonZeroU32::MIN).time(time).build().unwrap())
    };
    assert_eq!(visit(&ca, &acceptor_of([7, 8]), 1, &keys(1, 8)).await, Some(Outcome::OneRoundTrip));
    assert_eq!(visit(&ca, &acceptor_of([7, 7]), 1, &keys(1, 7)).await, Some(Outcome::StaleKey));
}

#[test]
fn settings_that_cannot_be() {
    let of = |name: &str| keys_of(name, 7, 1, unix());
    let twice = SealServer::builder(of("one.example"), 443).and_keys(of("one.example"), []);
    assert!(twice.build().unwrap_err().to_string().contains("one.example"));
    let many = (1..SealServer::MOST_NAMES).fold(SealServer::builder(of("n0.example"), 443), |builder, n| {
        builder.and_keys(of(&format!("n{n}.example")), [])
    });
    let more = |builder: SealServerBuilder| builder.and_keys(of("more.example"), []);
    assert!(more(many).build().unwrap_err().to_string().contains("at most"));
}
