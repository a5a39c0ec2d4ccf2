//! A first flight that travels through a resolver: it is sealed and split into names. The front reassembles and opens
//! it and relays it to a server, which answers a client that never sent it anything. Uses UDP sockets of this host
//! and real time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::certified::{LOCAL, PORT, certificate, identity, policy};
use firstflight::credential::asap::PrivateKey;
use firstflight::link::UdpLink;
use firstflight::{Endpoint, ListenConfig, RelayedFlight, Stream};
use firstflight_dns::relay::MAX_RELAY;
use firstflight_dns::{
    Attempt, Boot, ConnectionInfo, DnsPathKey, DnsPathKeys, Fragment, Fragments, OpenBuffer, Reassembled,
    Reassembly, ReassemblyLimits, RelayKey, RelayReceiver, RelaySender, Relayed, WindowScale, seal,
};
use firstflight_wire::asap::{BLOCK_LEN, DnsPathParam, Hint, Reply, Status, Zone};
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::tcp::Segment;
use firstflight_wire::{Instant, SeqNum};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

const REQUEST: &[u8] = b"GET / HTTP/1.1";
const RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_never_asked_answers_a_first_flight_by_dns() {
    let verifier = PrivateKey::from_seed(&[1; 32]);
    let link = UdpLink::bind_all(0).unwrap();
    let outer = link.port();
    let server = Endpoint::over_udp(firstflight::config(Vec::new()).unwrap(), link);
    let mut listen = ListenConfig::new(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT));
    listen.asap = Some(policy(&verifier));
    let listener = server.listen(listen).unwrap();
    let serving = tokio::spawn(async move { serve(listener.accept().await.unwrap()).await });
    let visit = visit(&verifier, PORT, outer, |relayed| {
        let segment = relayed.ci.segment();
        server.handle_relayed(RelayedFlight {
            client: SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get()),
            server: LOCAL,
            segment: &segment,
            key: relayed.reply,
            seen_as: None,
        });
    });
    visit.await;
    drop(serving.await.unwrap());
    assert_eq!((server.counters().relayed, server.counters().relayed_dropped), (1, 0));
}

#[cfg(feature = "asap")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_all_ways_takes_first_flights_from_fronts() {
    use firstflight::Server;
    use firstflight::credential::asap::{TrustStore, Trusted};
    let verifier = PrivateKey::from_seed(&[1; 32]);
    let trust = std::sync::Arc::new(TrustStore::new([Trusted::new(verifier.public())]).unwrap());
    let builder = || {
        Server::builder().address(SocketAddr::new(LOCAL, 0)).identity("www.example.com:80").from_fronts([])
    };
    let server = builder().trust(trust.clone()).first_start(true).bind().unwrap();
    let (target, endpoint) = (server.relay_target().unwrap().clone(), server.endpoint().unwrap().clone());
    let (port, outer) = (server.local_addrs()[0].port(), server.udp_port().unwrap());
    assert_eq!(target.seen_as().collect::<Vec<_>>(), [SocketAddr::new(LOCAL, outer)]);
    let serving = tokio::spawn(async move { serve(server.accept().await.unwrap()).await });
    visit(&verifier, port, outer, |relayed| target.take(&endpoint, relayed)).await;
    drop(serving.await.unwrap());
    assert_eq!((endpoint.counters().relayed, endpoint.counters().relayed_dropped), (1, 0));

    // What they need is missing, or taken.
    let refused = |builder: firstflight::ServerBuilder| builder.bind().unwrap_err().to_string();
    assert!(refused(builder()).contains("name the verifiers to trust"));
    assert!(refused(builder().trust(trust.clone()).tcp_only()).contains("they need UDP"));
    let everywhere = Server::builder().address(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let everywhere = everywhere.trust(trust.clone()).identity("www.example.com").from_fronts([]);
    assert!(refused(everywhere).contains("is all addresses"));
    // The TCP port of the same number may be another test's.
    let told = (0..20).map(|_| {
        let taken = std::net::UdpSocket::bind((LOCAL, 0)).unwrap();
        let at = taken.local_addr().unwrap();
        let fronts = Server::builder().address(at).trust(trust.clone()).from_fronts([]);
        refused(fronts).contains(&format!("UDP port {}", at.port()))
    });
    assert!(told.into_iter().any(|told| told));
}

/// Reads the request, which is early, and answers it. The stream is still open.
async fn serve(mut stream: Stream) -> Stream {
    let mut request = [0; REQUEST.len()];
    stream.read_exact(&mut request).await.unwrap();
    assert!(stream.is_early());
    assert_eq!(request, REQUEST);
    stream.write_all(b"as you like").await.unwrap();
    stream
}

/// Sends a request to a server at this TCP port and this UDP port, inside a lookup. `take` is what the server does with a first flight
/// from a front. Returns when the whole answer has come.
async fn visit(verifier: &PrivateKey, port: u16, outer: u16, take: impl FnOnce(Relayed<'_>)) {
    let mut rng = ChaCha20Rng::from_seed([7; 32]);
    // The client encodes its SYN and seals it to what the server publishes.
    let socket = UdpSocket::bind((LOCAL, 0)).await.unwrap();
    let dns_path_key = DnsPathKey::generate(&mut rng);
    let key_id = NonZeroU8::new(3).unwrap();
    let zone = Zone::new(b"\x01f\x03xyz\x03com\x00").unwrap();
    let info = ConnectionInfo {
        address: LOCAL,
        outer_port: NonZeroU16::new(socket.local_addr().unwrap().port()).unwrap(),
        source_port: NonZeroU16::new(49_152).unwrap(),
        destination_port: NonZeroU16::new(port).unwrap(),
        isn: SeqNum::new(1000),
        window: 0xffff,
        mss: 1176,
        window_scale: WindowScale::new(7),
        sack_permitted: true,
        block: certificate(verifier, 5, Instant::ZERO).request_by_front(
            &identity(),
            REQUEST,
            [9; 8],
            Instant::from_millis(5000),
        ),
        data: REQUEST,
    };
    let to = DnsPathParam { key_id, key: dns_path_key.public(), zone };
    let (sealed, reply_key) = seal(&info, &to, &mut rng).unwrap();
    let fragments = Fragments::split(&sealed, Attempt::new(0).unwrap(), false);

    // The front reassembles the names, in any order.
    let keys = DnsPathKeys::new(key_id, dns_path_key);
    let mut table = Reassembly::new(ReassemblyLimits::default(), &mut rng);
    let mut whole = None;
    let mut labels: Vec<_> = fragments.labels().collect();
    labels.reverse();
    for label in labels {
        let fragment = Fragment::parse(&label).unwrap();
        if let Reassembled::Complete(sealed) =
            table.handle_fragment(&fragment, RESOLVER, Instant::ZERO, &mut rng)
        {
            whole = Some(sealed);
        }
    }
    let mut buffer = OpenBuffer::new();
    let unix_ms = firstflight::unix_ms();
    let (opened, proves) = keys.open(zone, &whole.unwrap(), unix_ms / 1000, &mut buffer).unwrap();
    let relay_key = RelayKey::generate(&mut rng);
    let mut sender = RelaySender::new(&relay_key, 1, 1, Boot((unix_ms / 1000) as u32));
    let mut datagram = [0; MAX_RELAY];
    let len = sender.emit(&opened, &proves, RESOLVER, unix_ms, &mut datagram).unwrap();

    // The server accepts the relayed flight.
    let mut receiver = RelayReceiver::new();
    receiver.set_key(1, &relay_key);
    let mut buffer = OpenBuffer::new();
    let relayed = receiver.handle_datagram(&datagram[..len], unix_ms, &mut buffer).unwrap();
    take(relayed);

    // The client has not sent anything to the server, and gets a SYN-ACK and an answer.
    let (mut syn_ack, mut answer) = (None, Vec::new());
    while answer.len() < b"as you like".len() {
        let mut bytes = [0; 2000];
        let received = tokio::time::timeout(Duration::from_secs(30), socket.recv_from(&mut bytes)).await;
        let (len, from) = received.expect("no answer").unwrap();
        assert_eq!(from, SocketAddr::new(LOCAL, outer));
        let Ok(Carried::Segment(segment)) = Carried::parse(&bytes[..len]) else { panic!() };
        let segment = Segment::parse(segment).unwrap();
        if let Some(reply) = segment.options.asap().and_then(Reply::parse) {
            let Hint::Proof(proof) = reply.hint else { panic!("{reply:?}") };
            assert_eq!(reply.status, Status::Accepted);
            assert!(reply_key.verifies(from, segment.seq, reply.status, &proof));
            assert_eq!(segment.ack, SeqNum::new(1001) + (BLOCK_LEN + REQUEST.len()) as u32);
            syn_ack = Some(segment.seq);
        } else if let Some(isn) = syn_ack
            && segment.seq == isn + 1
        {
            answer = segment.payload.to_vec();
        }
    }
    assert_eq!(answer, b"as you like");
}
