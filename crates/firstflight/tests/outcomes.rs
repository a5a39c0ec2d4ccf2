//! The outcomes that a client reports for first flights with a certificate, through the public interface only.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use crate::certified::{LOCAL, PORT, certificate, identity, policy};
use firstflight::credential::asap::PrivateKey;
use firstflight::credential::{FastOpenPolicy, KeyRing, Outcome, PendingLimit, Reason, Scheme};
use firstflight::link::UdpLink;
use firstflight::{Certified, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener};
use firstflight_wire::Instant;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DATA: &[u8] = b"an order";

/// Both ends, on UDP sockets of this host, and the client's configuration.
struct World {
    client: Endpoint,
    _server: Endpoint,
    listener: Listener,
    config: ConnectConfig,
}

fn world(fast_open: bool) -> World {
    let verifier = PrivateKey::from_seed(&[1; 32]);
    let link = UdpLink::bind(SocketAddr::new(LOCAL, 0)).unwrap();
    let port = link.port();
    let server = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let mut listen = ListenConfig::new(SocketAddr::new(LOCAL, PORT));
    listen.asap = Some(policy(&verifier));
    let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
    listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
    let listener = server.listen(listen).unwrap();
    let link = UdpLink::towards(SocketAddr::new(LOCAL, port)).unwrap();
    let client = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let certificate = certificate(&verifier, 0, firstflight::certificate_clock().unwrap());
    let asap = Certified {
        certificate: Arc::new(certificate),
        now: Instant::ZERO,
        identity: identity(),
        known: false,
        once: false,
        mss: None,
        request_id: None,
    };
    let config = ConnectConfig::default().fast_open(fast_open).asap(Some(asap)).encapsulation(Some(port));
    World { client, _server: server, listener, config }
}

impl World {
    async fn visit(&self, first: FirstFlight<'_>) -> Outcome {
        let remote = SocketAddr::new(LOCAL, PORT);
        let (ours, theirs) =
            tokio::join!(self.client.connect(remote, first, &self.config), self.listener.accept());
        let (ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
        let mut got = vec![0; first.data().len()];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(got, first.data());
        ours.outcome()
    }
}

/// The server is known to understand certificates, but the data must not ride in the SYN.
#[tokio::test]
async fn at_most_once_after_an_accepted_certificate_is_not_replay_safe() {
    let world = world(false);
    let by = Outcome::Handshake;
    let (safe, order) = (FirstFlight::safely_replayable(DATA), FirstFlight::at_most_once(DATA));
    assert_eq!(world.visit(safe).await, by(Reason::CapabilityUnknown));
    assert_eq!(world.visit(safe).await, Outcome::Accepted);
    assert_eq!(world.visit(order).await, by(Reason::NotReplaySafe));
    assert_eq!(world.visit(FirstFlight::empty()).await, by(Reason::NoData));
    assert_eq!(world.visit(safe).await, Outcome::Accepted);
}

/// The same case with Fast Open in addition, and for a stream that connects with its first write.
#[tokio::test]
async fn at_most_once_beside_a_cookie_and_a_certificate_is_not_replay_safe() {
    let world = world(true);
    let order = FirstFlight::at_most_once(DATA);
    assert_eq!(world.visit(order).await, Outcome::Handshake(Reason::CapabilityUnknown));
    assert_eq!(world.visit(order).await, Outcome::Handshake(Reason::NotReplaySafe));
    let mut lazy = world.client.connect_lazy(SocketAddr::new(LOCAL, PORT), world.config.clone());
    let (written, theirs) = tokio::join!(lazy.write_all(DATA), world.listener.accept());
    written.unwrap();
    let mut got = [0; DATA.len()];
    theirs.unwrap().read_exact(&mut got).await.unwrap();
    assert_eq!((&got[..], lazy.outcome()), (DATA, Outcome::Handshake(Reason::NotReplaySafe)));
}
