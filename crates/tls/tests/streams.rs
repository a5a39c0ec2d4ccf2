//! Both ends, over streams in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::{
    ANSWER, Ca, NAME, REQUEST, World, exchange, first_write, once, record_types, safe, site, wire,
};
use firstflight::credential::NetworkId;
use firstflight::{FirstFlight, Time};
use firstflight_tls::{
    AcceptError, ClientCertificates, ConnectError, Departure, Early, FarmTickets, Hybrid, MemorySessions,
    Tickets,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHANGE_CIPHER_SPEC: u8 = 20;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

#[tokio::test]
async fn the_first_write_has_the_hello_and_the_early_data() {
    let world = World::new();
    let (first, served) = world.visit(safe()).await;
    assert_eq!(record_types(&first_write(&first.io().writes)), [HANDSHAKE]);
    assert_eq!((first.handshake().early, served.early_bytes()), (Early::None, 0));
    assert!(!first.handshake().resumed && first.tickets() > 0);

    let (second, served) = world.visit(safe()).await;
    let writes = second.io().writes.lock().unwrap().clone();
    assert_eq!(record_types(&writes[0]), [HANDSHAKE, CHANGE_CIPHER_SPEC, DATA]);
    // EndOfEarlyData and Finished, then the close_notify.
    assert_eq!(
        writes[1..].iter().map(|write| record_types(write)).collect::<Vec<_>>(),
        [vec![DATA, DATA], vec![DATA]]
    );
    assert!(second.handshake().resumed);
    assert_eq!((second.handshake().early, served.early_bytes()), (Early::Accepted, REQUEST.len() as u64));
    assert_eq!(served.handshake().early, Early::Accepted);
}

#[tokio::test]
async fn a_request_leaves_with_the_finished() {
    let world = World::new();
    let (first, _) = world.visit(once()).await;
    let writes = first.io().writes.lock().unwrap().clone();
    // ClientHello; then ChangeCipherSpec, Finished and the request; then the close_notify.
    assert_eq!(writes.len(), 3);
    assert_eq!(record_types(&writes[1]), [CHANGE_CIPHER_SPEC, DATA, DATA]);
}

#[tokio::test]
async fn the_server_answers_early_data_before_the_finished() {
    let world = World::new();
    world.visit(safe()).await;
    let (mut ours, theirs) = wire();
    let hello = world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), safe()).unwrap();
    assert!(hello.resumes() && hello.early() == REQUEST.len());
    ours.write_all(hello.bytes()).await.unwrap();
    let mut served = world.acceptor.accept_over(theirs).await.unwrap();
    let confirmation = served.confirmation();
    let mut request = [0; REQUEST.len()];
    served.read_exact(&mut request).await.unwrap();
    assert_eq!(request, REQUEST);
    served.write_all(ANSWER).await.unwrap();
    assert!(served.is_early() && confirmation.is_early());
    // The client has sent nothing but its first flight.
    assert_eq!(ours.writes.lock().unwrap().len(), 1);

    let mut stream = hello.finish(ours).await.unwrap();
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, ANSWER);
    served.confirmed().await.unwrap();
    confirmation.confirmed().await.unwrap();
    assert!(!served.is_early() && !confirmation.is_early());
}

#[tokio::test]
async fn the_server_may_speak_first_before_the_finished() {
    let world = World::new();
    let (mut ours, theirs) = wire();
    let hello = world
        .connector
        .hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), FirstFlight::empty())
        .unwrap();
    ours.write_all(hello.bytes()).await.unwrap();
    let mut served = world.acceptor.accept_over(theirs).await.unwrap();
    assert!(served.is_early());
    served.write_all(ANSWER).await.unwrap();
    let mut stream = hello.finish(ours).await.unwrap();
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, ANSWER);
}

#[tokio::test]
async fn early_data_that_is_refused_goes_again() {
    let world = World::new();
    world.visit(safe()).await;
    // Another server of that name does not know the session.
    let other = World { acceptor: world.ca.acceptor().build().unwrap(), ..world };
    let (ours, theirs) = other.visit(safe()).await;
    assert_eq!((ours.handshake().early, theirs.early_bytes()), (Early::Refused, 0));
    assert!(!ours.handshake().resumed);
}

#[tokio::test]
async fn early_data_beyond_the_limit_waits() {
    let world = World::with(|connector| connector, |acceptor| acceptor.early_data(10));
    let long = FirstFlight::safely_replayable(b"a request of many bytes");
    world.visit(long).await;
    let (ours, theirs) = world.visit(long).await;
    assert_eq!((ours.handshake().early, theirs.early_bytes()), (Early::Accepted, 10));
}

#[tokio::test]
async fn at_most_once_waits_for_the_finished() {
    let world = World::new();
    for resumed in [false, true] {
        let (ours, theirs) = world.visit(once()).await;
        assert_eq!(ours.handshake().resumed, resumed);
        assert_eq!((ours.handshake().early, theirs.early_bytes()), (Early::None, 0));
    }
    // Also where early data is switched off.
    let world = World::with(|connector| connector.early_data(false), |acceptor| acceptor);
    world.visit(safe()).await;
    let (ours, _) = world.visit(safe()).await;
    assert!(ours.handshake().resumed && ours.handshake().early == Early::None);
}

/// An attacker sends a first flight again. The session is used up, so the early data does not come a second time; and the
/// connection is never confirmed.
#[tokio::test]
async fn a_repeated_first_flight_is_never_confirmed() {
    let world = World::new();
    let (plain, _) = world.visit(safe()).await;
    let (early, served) = world.visit(safe()).await;
    assert_eq!(served.early_bytes(), REQUEST.len() as u64);
    for recorded in [plain, early] {
        let (mut attacker, theirs) = wire();
        attacker.write_all(&first_write(&recorded.io().writes)).await.unwrap();
        let mut served = world.acceptor.accept_over(theirs).await.unwrap();
        assert!(served.is_early());
        attacker.shutdown().await.unwrap();
        let error = served.read(&mut [0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(served.confirmed().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(served.is_early() && served.early_bytes() == 0);
    }
}

/// The attacker is faster than the client: the early data runs, but is not confirmed, and the client's own copy waits for
/// its Finished.
#[tokio::test]
async fn a_first_flight_that_overtakes_the_client_runs_early_once() {
    let world = World::new();
    world.visit(safe()).await;
    let hello = world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), safe()).unwrap();
    let (mut attacker, theirs) = wire();
    attacker.write_all(hello.bytes()).await.unwrap();
    let mut served = world.acceptor.accept_over(theirs).await.unwrap();
    served.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
    // What the attacker sends next is no Finished.
    attacker.write_all(&[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 30]).await.unwrap();
    attacker.write_all(&[0; 30]).await.unwrap();
    assert!(served.confirmed().await.is_err() && served.is_early());

    let (ours, theirs) = wire();
    let (ours, theirs) = tokio::join!(hello.finish_over(ours), world.acceptor.accept_over(theirs));
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    exchange(&mut ours, &mut theirs, REQUEST).await;
    assert_eq!((ours.handshake().early, theirs.early_bytes()), (Early::Refused, 0));
}

#[tokio::test]
async fn shutting_down_early_waits_for_the_finished() {
    let world = World::new();
    world.visit(safe()).await;
    let (mut ours, theirs) = wire();
    let hello = world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), safe()).unwrap();
    ours.write_all(hello.bytes()).await.unwrap();
    let mut served = world.acceptor.accept_over(theirs).await.unwrap();
    served.write_all(ANSWER).await.unwrap();
    let closing = tokio::spawn(async move { (served.shutdown().await, served) });
    let mut stream = hello.finish(ours).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, ANSWER);
    let (closed, served) = closing.await.unwrap();
    closed.unwrap();
    assert!(!served.is_early());
    assert!(stream.tickets() > 0, "tickets come before the close_notify");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_does_not_hold_the_server() {
    let world = World::new();
    let (mut ours, theirs) = wire();
    let hello = world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), safe()).unwrap();
    ours.write_all(hello.bytes()).await.unwrap();
    let mut served = world.acceptor.accept_over(theirs).await.unwrap();
    let began = tokio::time::Instant::now();
    served.shutdown().await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 5);
    assert_eq!(served.write(b"late").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn handshakes_have_a_time_limit() {
    let world = World::new();
    let (ours, _theirs) = wire();
    let error = world.connector.connect_over(ours, &site(), safe()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Timeout(limit) if limit == Duration::from_secs(10)));
    let (_ours, theirs) = wire();
    assert!(matches!(world.acceptor.accept_over(theirs).await.unwrap_err(), AcceptError::Timeout(_)));
}

#[tokio::test]
async fn leaving_waits_for_a_ticket() {
    let world = World::new();
    let (ours, theirs) = world.pair(FirstFlight::empty()).await;
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    let served = tokio::spawn(async move { (theirs.read(&mut [0; 1]).await, theirs) });
    ours.leave().await.unwrap();
    assert_eq!(served.await.unwrap().0.unwrap(), 0, "the close_notify");
    assert!(ours.tickets() > 0);
}

/// The end of the stream without a close_notify is an error, because somebody may have cut it.
#[tokio::test]
async fn a_cut_stream_is_an_error() {
    let world = World::new();
    let (ours, theirs) = world.pair(FirstFlight::empty()).await;
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    theirs.write_all(ANSWER).await.unwrap();
    theirs.io_mut().shutdown().await.unwrap();
    let mut answer = Vec::new();
    assert_eq!(ours.read_to_end(&mut answer).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(answer, ANSWER);
    ours.io_mut().shutdown().await.unwrap();
    assert_eq!(theirs.read(&mut [0; 9]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

/// After its close_notify an end can still read.
#[tokio::test]
async fn a_half_close_leaves_the_other_direction_open() {
    let world = World::new();
    let (ours, theirs) = world.pair(FirstFlight::empty()).await;
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    ours.shutdown().await.unwrap();
    assert_eq!(theirs.read(&mut [0; 9]).await.unwrap(), 0);
    theirs.write_all(ANSWER).await.unwrap();
    theirs.shutdown().await.unwrap();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, ANSWER);
}

#[tokio::test]
async fn a_megabyte_each_way_arrives() {
    let world = World::new();
    let body: Vec<u8> = (0..1 << 20).map(|n: u32| ((n * 7) >> 3) as u8).collect();
    let data = FirstFlight::safely_replayable(&body);
    let (ours, theirs) = wire();
    let site = site();
    let serve = async {
        let mut theirs = world.acceptor.accept_over(theirs).await.unwrap();
        let mut got = vec![0; body.len()];
        theirs.read_exact(&mut got).await.unwrap();
        theirs.write_all(&got).await.unwrap();
        theirs.shutdown().await.unwrap();
    };
    let ask = async {
        let mut ours = world.connector.connect_over(ours, &site, data).await.unwrap();
        let mut got = Vec::new();
        ours.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, body);
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a_server_of_another_name_or_authority_is_not_trusted() {
    let world = World::new();
    let (ours, theirs) = wire();
    let other = "www.example.net:443".parse().unwrap();
    let (ours, theirs) =
        tokio::join!(world.connector.connect_over(ours, &other, safe()), world.acceptor.accept_over(theirs));
    assert!(matches!(ours.unwrap_err(), ConnectError::Certificate(_)));
    // The server was ready to answer; the alert comes when it reads.
    assert!(theirs.unwrap().read(&mut [0; 9]).await.is_err());

    let stranger = Ca::new().connector().build().unwrap();
    let other = World { connector: stranger, ..world };
    assert!(matches!(other.pair(safe()).await.0.unwrap_err(), ConnectError::Certificate(_)));
}

#[tokio::test]
async fn client_certificates_come_before_anything_runs() {
    let ca = Ca::new();
    let roots = Arc::new(ca.roots());
    let client = ca.certify("client.example.com");
    let known = || ca.connector().client_certificate(client.chain(), client.key()).build().unwrap();
    let unknown = || ca.connector().build().unwrap();
    let required = ca.acceptor().clients(ClientCertificates::Required(Arc::clone(&roots))).build().unwrap();
    let mut world = World { connector: known(), acceptor: required.clone(), ca: Ca::new() };
    for _ in 0..2 {
        let (ours, theirs) = world.visit(safe()).await;
        assert_eq!(theirs.peer_certificates().unwrap(), client.chain());
        assert_eq!(ours.handshake().early, Early::None, "no early data with client certificates");
    }
    world.connector = unknown();
    let (ours, theirs) = world.pair(once()).await;
    assert!(matches!(theirs.unwrap_err(), AcceptError::Client(_)));
    // The client was finished first; it learns of the refusal when it reads.
    assert!(ours.unwrap().read(&mut [0; 9]).await.is_err());

    world.acceptor = ca.acceptor().clients(ClientCertificates::Optional(roots)).build().unwrap();
    let (_, theirs) = world.visit(safe()).await;
    assert!(theirs.peer_certificates().is_none());
    world.connector = known();
    let (ours, theirs) = wire();
    let hello = world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), safe()).unwrap();
    let mut ours = ours;
    ours.write_all(hello.bytes()).await.unwrap();
    let accepting = world.acceptor.accept_over(theirs);
    let waited = tokio::time::timeout(Duration::from_millis(50), accepting).await;
    assert!(waited.is_err(), "accept waits for the client's Finished");
}

#[tokio::test]
async fn a_server_without_our_group_asks_for_another_hello() {
    // The client offers the hybrid alone in its share; this server wants P-256 of a client that has it.
    let ca = Ca::new();
    let provider = rustls::crypto::CryptoProvider {
        kx_groups: vec![rustls::crypto::aws_lc_rs::kx_group::SECP256R1],
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    let made = ca.certify(NAME);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(made.chain(), made.key())
        .unwrap();
    config.max_early_data_size = 100;
    let config = Arc::new(config);
    let connector = ca.connector().build().unwrap();
    for retried in [true, false] {
        let (ours, theirs) = wire();
        let config = Arc::clone(&config);
        let server = tokio::spawn(serve_by_rustls(theirs, config));
        let mut ours = connector.connect_over(ours, &site(), safe()).await.unwrap();
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, ANSWER);
        assert_eq!(ours.handshake().retried, retried, "the connector remembers the server's group");
        server.await.unwrap();
    }
}

/// A server by rustls alone.
async fn serve_by_rustls(mut io: common::Recorded, config: Arc<ServerConfig>) {
    use std::io::{Read, Write};
    let mut server = ServerConnection::new(config).unwrap();
    let mut piece = vec![0; 4096];
    let (mut got, mut answered) = (Vec::new(), false);
    while !answered || server.wants_write() {
        let mut out = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut out).unwrap();
        }
        io.write_all(&out).await.unwrap();
        if answered {
            break;
        }
        let count = io.read(&mut piece).await.unwrap();
        assert!(count > 0);
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        if let Some(mut early) = server.early_data() {
            early.read_to_end(&mut got).unwrap();
        }
        let _ = server.reader().read_to_end(&mut got);
        if got == REQUEST && !server.is_handshaking() {
            server.writer().write_all(ANSWER).unwrap();
            server.send_close_notify();
            answered = true;
        }
    }
    io.shutdown().await.unwrap();
}

#[tokio::test]
async fn our_server_asks_a_client_without_its_groups_share() {
    use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1MLKEM768, X25519};
    let world = World::new();
    // The share is of the first group, which the server does not have.
    let provider = rustls::crypto::CryptoProvider {
        kx_groups: vec![SECP256R1MLKEM768, X25519],
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(world.ca.roots())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), NAME.try_into().unwrap()).unwrap();
    let (mut ours, theirs) = wire();
    let serving = tokio::spawn(async move { world.acceptor.accept_over(theirs).await.unwrap() });
    let mut piece = vec![0; 4096];
    while client.is_handshaking() {
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out).unwrap();
        }
        ours.write_all(&out).await.unwrap();
        let count = ours.read(&mut piece).await.unwrap();
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert_eq!(client.handshake_kind(), Some(rustls::HandshakeKind::FullWithHelloRetryRequest));
    // The server was not finished behind its HelloRetryRequest.
    let served = serving.await.unwrap();
    assert!(served.is_early() && served.handshake().retried);
}

#[tokio::test]
async fn the_hybrid_is_offered_where_it_fits() {
    let length = |hybrid, in_syn| {
        let world = World::with(|connector| connector.hybrid(hybrid), |acceptor| acceptor);
        let network = NetworkId::UNKNOWN;
        let departure = if in_syn { Departure::in_syn(network) } else { Departure::elsewhere(network) };
        let hello = world.connector.hello(&site(), departure, safe()).unwrap();
        hello.bytes().len()
    };
    for (hybrid, in_syn, long) in [
        (Hybrid::Prefer, true, false),
        (Hybrid::Prefer, false, true),
        (Hybrid::Require, true, true),
        (Hybrid::Never, false, false),
    ] {
        assert_eq!(length(hybrid, in_syn) > 1200, long, "{hybrid:?} {in_syn}");
    }
    let (ours, theirs) = World::new().visit(safe()).await;
    assert!(ours.handshake().hybrid && theirs.handshake().hybrid);
    let never = World::with(|connector| connector.hybrid(Hybrid::Never), |acceptor| acceptor);
    let (ours, theirs) = never.visit(safe()).await;
    assert!(!ours.handshake().hybrid && !theirs.handshake().hybrid && !ours.handshake().retried);
    let require = World::with(|connector| connector.hybrid(Hybrid::Require), |acceptor| acceptor);
    assert!(require.visit(safe()).await.0.handshake().hybrid);
}

/// The sizes in the documentation.
#[tokio::test]
async fn a_hello_fits_into_a_syn() {
    let world = World::with(|connector| connector.http1(), |acceptor| acceptor.alpn([b"http/1.1"]));
    let network = NetworkId([1; 16]);
    let full = world.connector.hello(&site(), Departure::in_syn(network), safe()).unwrap();
    let hybrid = world.connector.hello(&site(), Departure::elsewhere(network), safe()).unwrap();
    let (ours, theirs) = wire();
    let (ours, theirs) = tokio::join!(full.finish_over(ours), world.acceptor.accept_over(theirs));
    let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
    let length = first_write(&ours.io().writes).len();
    exchange(&mut ours, &mut theirs, REQUEST).await;
    let resumed = world.connector.hello(&site(), Departure::in_syn(network), once()).unwrap();
    let early = world.connector.hello(&site(), Departure::in_syn(network), safe()).unwrap();
    let server: usize = theirs.io().writes.lock().unwrap()[0].len();
    println!(
        "X25519 {length}, hybrid {}, resumed {}, with {} B of early data {}, server's flight {server}",
        hybrid.bytes().len(),
        resumed.bytes().len(),
        early.early(),
        early.bytes().len()
    );
    assert!(length < 300 && resumed.bytes().len() < 400 && early.bytes().len() < 500);
}

#[tokio::test]
async fn protocols_are_agreed_on() {
    let both =
        World::with(|connector| connector.alpn(["h2", "http/1.1"]), |acceptor| acceptor.alpn(["http/1.1"]));
    let (ours, theirs) = both.visit(FirstFlight::empty()).await;
    assert_eq!((ours.alpn(), theirs.alpn()), (Some(&b"http/1.1"[..]), Some(&b"http/1.1"[..])));
    // Data is in the first protocol, so no other one is offered.
    let (ours, _) = both.pair(safe()).await;
    assert!(matches!(ours.unwrap_err(), ConnectError::Refused(_)));
    let h2 = World::with(|connector| connector.h2(), |acceptor| acceptor);
    assert_eq!(h2.visit(safe()).await.0.alpn(), None);
    assert_eq!(h2.visit(safe()).await.1.early_bytes(), REQUEST.len() as u64);
}

#[tokio::test]
async fn tickets_stay_on_their_network_and_can_be_forgotten() {
    let world = World::new();
    let network = |n| Departure::elsewhere(NetworkId([n; 16]));
    let hello = world.connector.hello(&site(), network(1), safe()).unwrap();
    let (ours, theirs) = wire();
    let (ours, theirs) = tokio::join!(hello.finish_over(ours), world.acceptor.accept_over(theirs));
    exchange(&mut ours.unwrap(), &mut theirs.unwrap(), REQUEST).await;
    let resumes = |n, site| world.connector.hello(&site, network(n), safe()).unwrap().resumes();
    assert!(!resumes(2, site()) && !resumes(1, "www.example.com:444".parse().unwrap()));
    // A ticket of one way is good on the other.
    let departure = Departure::in_syn(NetworkId([1; 16]));
    let hello = world.connector.hello(&site(), departure, safe()).unwrap();
    assert_eq!(hello.early(), REQUEST.len());
    world.connector.forget();
    assert!(!resumes(1, site()));
}

#[tokio::test]
async fn a_server_without_tickets_makes_full_handshakes() {
    let world = World::with(|connector| connector, |acceptor| acceptor.tickets(Tickets::None));
    for _ in 0..2 {
        let (ours, _) = world.visit(safe()).await;
        assert!(!ours.handshake().resumed && ours.tickets() == 0);
    }
}

#[tokio::test]
async fn members_of_a_farm_resume_each_others_sessions_without_early_data() {
    let tickets = || {
        Tickets::Farm(Arc::new(FarmTickets::new(&[7; 32], 0, Duration::from_secs(86_400), Time::system())))
    };
    let world = World::with(|connector| connector, |acceptor| acceptor.tickets(tickets()));
    world.visit(safe()).await;
    let other = World { acceptor: world.ca.acceptor().tickets(tickets()).build().unwrap(), ..world };
    let (ours, theirs) = other.visit(safe()).await;
    assert!(ours.handshake().resumed && theirs.handshake().resumed);
    assert_eq!((ours.handshake().early, theirs.early_bytes()), (Early::None, 0));
}

#[tokio::test]
async fn members_with_one_store_take_each_others_early_data_once() {
    let store = Arc::new(MemorySessions::default());
    let tickets = Tickets::Sessions(store.clone());
    let world = World::with(|connector| connector, |acceptor| acceptor.tickets(tickets.clone()));
    world.visit(safe()).await;
    assert_eq!(store.len(), 2);
    let other = World { acceptor: world.ca.acceptor().tickets(tickets).build().unwrap(), ..world };
    let (ours, theirs) = other.visit(safe()).await;
    assert_eq!((ours.handshake().early, theirs.early_bytes()), (Early::Accepted, REQUEST.len() as u64));
}

#[tokio::test]
async fn bytes_that_were_read_already_come_first() {
    let world = World::new();
    world.visit(safe()).await;
    let (mut ours, mut theirs) = wire();
    let hello = world.connector.hello(&site(), Departure::elsewhere(NetworkId::UNKNOWN), safe()).unwrap();
    ours.write_all(hello.bytes()).await.unwrap();
    let mut read = vec![0; hello.bytes().len()];
    theirs.read_exact(&mut read).await.unwrap();
    let mut served = world.acceptor.accept_behind(theirs, read).await.unwrap();
    served.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
    assert_eq!(served.early_bytes(), REQUEST.len() as u64);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    use firstflight_tls::{Acceptor, ConfigError, Connector};
    assert!(matches!(Acceptor::builder().build().unwrap_err(), ConfigError::NoCertificate));
    let none = Connector::builder().roots(RootCertStore::empty()).build();
    assert!(matches!(none.unwrap_err(), ConfigError::NoRoots));
    let ca = Ca::new();
    let (one, other) = (ca.certify(NAME), ca.certify(NAME));
    let mixed = Acceptor::builder().certificate(one.chain(), other.key()).build();
    assert!(matches!(mixed.unwrap_err(), ConfigError::Rustls(_)));
}
