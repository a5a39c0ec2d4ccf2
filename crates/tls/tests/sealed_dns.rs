//! Seal keys from a name server in this process, over the loopback device.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::sealed::{PROTOCOL, keys, unix};
use crate::common::{ANSWER, Ca, REQUEST, safe, site};
use firstflight::record::Names;
use firstflight_tls::seal::{KeySet, Reason, Trust};
use firstflight_tls::{Acceptor, Connector, DnsKeys, SealClient, SealReport, SealServer};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

/// What the name server has: a parameter, and whether it says that it has validated it.
type Published = Arc<Mutex<Option<(Vec<u8>, bool)>>>;

struct Dns {
    at: SocketAddr,
    published: Published,
    asked: Arc<AtomicUsize>,
}

impl Dns {
    async fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = socket.local_addr().unwrap();
        let (published, asked) = (Published::default(), Arc::<AtomicUsize>::default());
        let (answers, count) = (Arc::clone(&published), Arc::clone(&asked));
        tokio::spawn(async move {
            let mut query = [0; 512];
            loop {
                let (length, client) = socket.recv_from(&mut query).await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let found = answers.lock().unwrap().clone();
                socket.send_to(&answer(&query[..length], found.as_ref()), client).await.unwrap();
            }
        });
        Self { at, published, asked }
    }

    fn publish(&self, keys: &KeySet, authentic: bool) {
        let value = keys.record(unix()).unwrap().to_bytes();
        *self.published.lock().unwrap() = Some((value, authentic));
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn connector(&self, ca: &Ca, trust: Trust) -> Connector {
        self.connector_that(ca, trust, true)
    }

    fn connector_that(&self, ca: &Ca, trust: Trust, trusts_ad: bool) -> Connector {
        let names = Names::at(self.at).unwrap().trust_ad(trusts_ad);
        let keys = DnsKeys::new(names).patience(Duration::from_secs(30));
        ca.connector().alpn([PROTOCOL]).seal(SealClient::new().trust(trust).dns(keys)).build().unwrap()
    }
}

/// An HTTPS record of priority 1 at the name itself, with a TTL of an hour.
fn answer(query: &[u8], found: Option<&(Vec<u8>, bool)>) -> Vec<u8> {
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let flags = if found.is_some_and(|(_, authentic)| *authentic) { [0x81, 0xa0] } else { [0x81, 0x80] };
    let mut answer = [&query[..2], &flags, &[0, 1, 0, u8::from(found.is_some()), 0, 0, 0, 0]].concat();
    answer.extend_from_slice(&query[12..end]);
    if let Some((value, _)) = found {
        let length = (value.len() as u16).to_be_bytes();
        let data = [&[0, 1, 0][..], &65301u16.to_be_bytes(), &length, value].concat();
        answer.extend_from_slice(&[0xc0, 12, 0, 65, 0, 1, 0, 0, 14, 16]);
        answer.extend_from_slice(&(data.len() as u16).to_be_bytes());
        answer.extend_from_slice(&data);
    }
    answer
}

fn server(ca: &Ca, keys: KeySet) -> (Acceptor, SealServer) {
    let seal = SealServer::builder(keys, 443).first_start(true).build().unwrap();
    (common::sealed::acceptor(ca, seal.clone()).build().unwrap(), seal)
}

async fn visit(connector: &Connector, acceptor: &Acceptor) -> SealReport {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let acceptor = acceptor.clone();
    let serving = tokio::spawn(async move {
        let mut stream = acceptor.accept_over(theirs).await.unwrap();
        let mut request = [0; REQUEST.len()];
        stream.read_exact(&mut request).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let mut stream = connector.connect_over(ours, &site(), safe()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, ANSWER);
    serving.await.unwrap();
    stream.seal_report().unwrap()
}

fn reasons(report: SealReport) -> (&'static str, Option<Reason>) {
    (report.outcome.name(), report.reason)
}

#[tokio::test]
async fn a_key_is_asked_for_once_and_again_after_a_reject() {
    let (ca, dns) = (Ca::new(), Dns::new().await);
    let (acceptor, seal) = server(&ca, keys(7, 5));
    let connector = dns.connector(&ca, Trust::Authenticated);
    dns.publish(&keys(7, 5), true);
    for _ in 0..3 {
        assert_eq!(reasons(visit(&connector, &acceptor).await), ("one-round-trip", None));
    }
    assert_eq!(dns.asked(), 1, "its TTL is an hour");
    seal.set_keys(keys(8, 6));
    dns.publish(&keys(8, 6), true);
    assert_eq!(reasons(visit(&connector, &acceptor).await), ("stale-key", Some(Reason::Rejected)));
    assert_eq!(reasons(visit(&connector, &acceptor).await), ("one-round-trip", None));
    assert_eq!(dns.asked(), 2);
    connector.forget();
    visit(&connector, &acceptor).await;
    assert_eq!(dns.asked(), 3, "a stranger knows no key");
}

#[tokio::test]
async fn a_key_that_nobody_vouches_for_is_for_requests_without_secrets() {
    let (ca, dns) = (Ca::new(), Dns::new().await);
    let (acceptor, _) = server(&ca, keys(7, 5));
    dns.publish(&keys(7, 5), false);
    let careful = dns.connector(&ca, Trust::Authenticated);
    assert_eq!(reasons(visit(&careful, &acceptor).await), ("no-key", Some(Reason::Untrusted)));
    let open = dns.connector(&ca, Trust::Any);
    assert_eq!(reasons(visit(&open, &acceptor).await), ("one-round-trip", None));
}

/// A forwarder on a loopback address passes a forger's AD bit on.
#[tokio::test]
async fn a_resolver_on_a_loopback_address_is_not_believed_for_its_address() {
    let (ca, dns) = (Ca::new(), Dns::new().await);
    let (acceptor, _) = server(&ca, keys(7, 5));
    dns.publish(&keys(7, 5), true);
    assert!(dns.at.ip().is_loopback());
    let careful = dns.connector_that(&ca, Trust::Authenticated, false);
    assert_eq!(reasons(visit(&careful, &acceptor).await), ("no-key", Some(Reason::Untrusted)));
    let declared = dns.connector_that(&ca, Trust::Authenticated, true);
    assert_eq!(reasons(visit(&declared, &acceptor).await), ("one-round-trip", None));
}

#[tokio::test]
async fn a_server_without_a_key_is_not_asked_about_again_at_once() {
    let (ca, dns) = (Ca::new(), Dns::new().await);
    let (acceptor, _) = server(&ca, keys(7, 5));
    let connector = dns.connector(&ca, Trust::Authenticated);
    for _ in 0..2 {
        assert_eq!(reasons(visit(&connector, &acceptor).await), ("no-key", Some(Reason::NoRecord)));
    }
    // A value that cannot be read counts as none.
    connector.forget();
    *dns.published.lock().unwrap() = Some((vec![1, 0], true));
    assert_eq!(reasons(visit(&connector, &acceptor).await), ("no-key", Some(Reason::NoRecord)));
    assert_eq!(dns.asked(), 2);
}
