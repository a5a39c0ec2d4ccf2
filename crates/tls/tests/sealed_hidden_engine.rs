//! Hidden names (`docs/spec/sealed.md` 7.5) by an engine of the caller's, in virtual time: everything that the client sends is
//! overheard, and neither names the server nor confirms a guess of its name.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::emulated::{self, AT, Packets, Path, certified};
use crate::common::sealed::{PROTOCOL, keys_of, name};
use crate::common::{Ca, NAME, REQUEST, once, safe, site};
use firstflight::credential::asap::Identity;
use firstflight::link::VirtualTime;
use firstflight::{Client, Endpoint, FirstFlight, Time, block_on_virtual};
use firstflight_tls::seal::{KeySet, KeySource, Outcome};
use firstflight_tls::{Acceptor, ConnectError, Connector, HiddenError, SealClient, SealServer, TlsStream};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PUBLIC: &str = "public.example";
const START: Duration = Duration::from_secs(1_800_000_000);

struct World {
    time: Time,
    client: Endpoint,
    ca: Ca,
    packets: Packets,
}

fn keys(byte: u8) -> KeySet {
    keys_of(PUBLIC, byte, byte, START.as_secs())
}

/// The server takes blocks for the public name only, and its key is 7.
fn world(clock: &VirtualTime) -> World {
    let (path, packets) = Path::overheard(clock, PUBLIC);
    let (time, ca) = (path.time.clone(), Ca::new());
    let made = ca.certify(NAME);
    let seal = SealServer::builder(keys(7), 443).serves([name(NAME)]).first_start(true);
    let seal = seal.time(time.clone()).build().unwrap();
    let acceptor = Acceptor::builder().certificate(made.chain(), made.key()).alpn([PROTOCOL]);
    let (time, client, _) = path.serve(acceptor.seal(seal).time(time).build().unwrap());
    World { time, client, ca, packets }
}

impl World {
    /// A connector that believes this key.
    fn connector(&self, key: u8, hidden: bool) -> Connector {
        let record = keys(key).record(START.as_secs()).unwrap();
        let seal = SealClient::new().record(site(), record, KeySource::Configuration);
        let seal = if hidden { seal.hide(site()) } else { seal };
        self.ca.connector().http1().seal(seal).time(self.time.clone()).build().unwrap()
    }

    async fn visit(
        &self,
        connector: &Connector,
        first: FirstFlight<'_>,
        client: &Client,
    ) -> Result<TlsStream<firstflight::Stream>, ConnectError> {
        let connecting = connector.connect_at(client, &site(), &[AT.parse().unwrap()], first).await;
        let mut stream = connecting?;
        stream.read_exact(&mut [0]).await.unwrap();
        stream.shutdown().await.unwrap();
        self.time.sleep(Duration::from_secs(10)).await;
        Ok(stream)
    }

    /// A client without a certificate.
    fn by(&self, fast_open: bool) -> Client {
        emulated::client(&self.client, fast_open, None)
    }

    fn certified(&self) -> Client {
        emulated::client(&self.client, false, Some(&certified(&self.time)))
    }

    /// Whether the name or the request can be read, and whether a guess of the name is confirmed.
    fn is_exposed(&self) -> bool {
        let identity = Identity::name(NAME, 443);
        let id_tag = &identity.digest()[..4];
        let packets = std::mem::take(&mut *self.packets.lock().unwrap());
        assert!(!packets.is_empty());
        let has = |packet: &[u8], part: &[u8]| packet.windows(part.len()).any(|found| found == part);
        // rustls shuffles the extensions of a ClientHello, and the end of a segment may divide the name: then one of the two
        // parts has half of it.
        let (half, name) = (NAME.len().div_ceil(2), NAME.as_bytes());
        let names = |packet: &[u8]| has(packet, &name[..half]) || has(packet, &name[name.len() - half..]);
        packets.iter().any(|packet| names(packet) || has(packet, REQUEST) || has(packet, id_tag))
    }
}

/// Under a block, and without one, with and without Fast Open. The client connects to the server's name, and the block is for
/// the public name all the same.
#[test]
fn a_hidden_name_by_an_engine() {
    let clock = VirtualTime::new(START);
    let ran = block_on_virtual(&clock, async {
        let world = world(&clock);
        let certified = world.certified();
        let (plain, fast_open) = (world.by(false), world.by(true));
        let mut outcomes = Vec::new();
        for (turn, client) in [&certified, &plain, &fast_open, &fast_open].into_iter().enumerate() {
            for first in [safe(), once()] {
                let stream = world.visit(&world.connector(7, true), first, client).await.unwrap();
                outcomes.push(stream.seal_outcome().unwrap());
                assert!(!world.is_exposed(), "turn {turn}");
            }
        }
        outcomes
    });
    use Outcome::{OneRoundTrip, TransportRefused};
    let ran = ran.unwrap();
    assert_eq!(ran[..4], [OneRoundTrip, OneRoundTrip, TransportRefused, TransportRefused]);
    // With a cookie, what may run twice runs early.
    assert_eq!(ran[6..], [OneRoundTrip, TransportRefused]);
}

/// The variant without the defence: the same connect without `hide`. The block confirms a guess, and after a REJECT the name
/// is in clear.
#[test]
fn a_visible_name_by_an_engine_is_exposed() {
    let clock = VirtualTime::new(START);
    let done = block_on_virtual(&clock, async {
        let world = world(&clock);
        let certified = world.certified();
        world.visit(&world.connector(7, false), safe(), &certified).await.unwrap();
        assert!(world.is_exposed(), "the block is for the name");
        world.visit(&world.connector(9, false), safe(), &world.by(false)).await.unwrap();
        assert!(world.is_exposed(), "REJECT, and a ClientHello in clear");
    });
    done.unwrap();
}

/// A key that the server does not have: the attempt fails, and nothing more leaves.
#[test]
fn a_stale_key_by_an_engine_exposes_nothing() {
    let clock = VirtualTime::new(START);
    let done = block_on_virtual(&clock, async {
        let world = world(&clock);
        let certified = world.certified();
        for client in [&world.by(false), &world.by(true), &certified] {
            let connector = world.connector(9, true);
            let error = world.visit(&connector, safe(), client).await.unwrap_err();
            assert!(matches!(error, ConnectError::Hidden(HiddenError::Rejected)), "{error:?}");
            assert!(!world.is_exposed());
        }
        // It could have run under its block.
        let error = world.visit(&world.connector(9, true), once(), &certified).await.unwrap_err();
        assert!(error.maybe_delivered(), "{error:?}");
        assert!(!world.is_exposed());
    });
    done.unwrap();
}

/// What cannot be sealed is not sent: a request that is too long for a SYN of unknown size, and none at all.
#[test]
fn what_an_engine_cannot_seal_is_not_sent() {
    let clock = VirtualTime::new(START);
    let done = block_on_virtual(&clock, async {
        let world = world(&clock);
        let long = vec![b'x'; 20_000];
        for first in [FirstFlight::empty(), FirstFlight::safely_replayable(&long)] {
            let connector = world.connector(7, true);
            let error = world.visit(&connector, first, &world.by(false)).await.unwrap_err();
            assert!(matches!(error, ConnectError::Hidden(HiddenError::Request)), "{error:?}");
            assert!(world.packets.lock().unwrap().iter().all(|packet| packet.len() < 100), "no data");
        }
    });
    done.unwrap();
}
