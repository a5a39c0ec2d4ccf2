//! `Client` and `Server`: each way, and what happens when one gives no answer. Each test has a namespace of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::site;
use super::site::{Certified, Executed, REQUEST, answer, bind, block, once, ready, safely};
use crate::namespace::{in_namespace, nft};
use firstflight::credential::asap::{AcceptedBlock, ClientCertificate, PrivateKey, TrustStore, Trusted};
use firstflight::credential::{Outcome, Reason};
use firstflight::record::Published;
use firstflight::verifier::{self, KeptCertificate, KeptError, NotUsed, Patience, PoolSite, Wanted};
use firstflight::{
    AttemptInfo, Authority, Client, ClientError, ConnectAnyError, FirstFlight, MakeFlight, Server, Way,
};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn serve(server: Server) -> Executed {
    site::serve(server, |request, _| assert_eq!(request, REQUEST))
}

async fn certified() -> Certified {
    site::certified(|request, _| assert_eq!(request, REQUEST)).await
}

#[test]
fn two_lines_are_enough_on_the_kernels_tcp() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        assert!(server.grants_cookies());
        assert_eq!(server.udp_port(), Some(at.port()));
        let mut executed = serve(server);
        let client = Client::new();
        for (expected, early) in
            [(Outcome::Handshake(Reason::NoCredential), false), (Outcome::Accepted, true)]
        {
            let stream = answer(client.connect(at.to_string(), safely()).await).await;
            assert_eq!((stream.way(), stream.outcome()), (Way::Kernel, expected));
            assert!(stream.times().is_some());
            assert_eq!(executed.recv().await, Some(early));
        }
    });
}

/// The zone stays with the address through the server's choice of a port, the race and the client's memory.
#[test]
fn link_local_addresses_keep_their_zone() {
    in_namespace("3", || async {
        let add = ["-6", "address", "add", "fe80::1/64", "dev", "lo", "nodad"];
        assert!(std::process::Command::new("ip").args(add).status().unwrap().success());
        let mut listen = "[fe80::1%lo]:80".parse::<Authority>().unwrap().address().unwrap();
        listen.set_port(0);
        let server = Server::builder().address(listen).bind().unwrap();
        let port = server.local_addrs()[0].port();
        let mut executed = serve(server);
        let client = Client::new();
        // A SYN that the kernel has to send again, because the address is that new, asks for no cookie.
        for visit in 0.. {
            let stream = answer(client.connect(format!("[fe80::1%lo]:{port}"), safely()).await).await;
            assert!(matches!(stream.peer_addr().unwrap(), SocketAddr::V6(peer) if peer.scope_id() == 1));
            let early = executed.recv().await.unwrap();
            assert!(visit > 0 || !early, "there was no cookie yet");
            if early {
                break;
            }
            assert!(visit < 5, "no cookie is used");
        }
    });
}

#[test]
fn a_server_is_named_in_any_form() {
    in_namespace("3", || async {
        let (server, authority) = bind().await;
        let at = server.local_addrs()[0];
        let port = at.port();
        let _executed = serve(server);
        let client = Client::new();
        answer(client.connect(authority.to_string(), safely()).await).await;
        answer(client.connect(("127.0.0.1", port), safely()).await).await;
        answer(client.connect((at.ip(), port), safely()).await).await;
        answer(client.connect(at, safely()).await).await;
        answer(client.connect(&authority, safely()).await).await;
        let error = client.connect(("127.0.0.1", 0), safely()).await.unwrap_err();
        assert!(matches!(error, ClientError::Authority(_)), "{error}");
    });
}

#[test]
fn a_server_listens_at_the_first_address_that_can_be_used() {
    in_namespace("3", || async {
        let (other, _) = bind().await;
        let taken = other.local_addrs()[0];
        let free: SocketAddr = "127.0.0.2:0".parse().unwrap();
        // Nobody's here.
        let nowhere: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let server = Server::bind([nowhere, taken, free]).await.unwrap();
        assert_eq!((server.local_addrs().len(), server.local_addrs()[0].ip()), (1, free.ip()));
        let error = Server::bind(&[nowhere, taken][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        let error = Server::bind(&[nowhere][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable, "{error}");
        assert_eq!(Server::bind(&[][..]).await.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    });
}

/// The zone is an interface's name or number. Nothing looks such a text up.
#[test]
fn a_server_listens_at_text_with_a_zone() {
    in_namespace("3", || async {
        let add = ["-6", "address", "add", "fe80::1/64", "dev", "lo", "nodad"];
        assert!(std::process::Command::new("ip").args(add).status().unwrap().success());
        for host in ["[fe80::1%lo]", "[fe80::1%1]"] {
            let server = Server::bind(format!("{host}:0")).await.unwrap();
            let at = server.local_addrs()[0];
            assert!(matches!(at, SocketAddr::V6(at) if at.scope_id() == 1));
            let _executed = serve(server);
            answer(Client::new().connect(format!("{host}:{}", at.port()), safely()).await).await;
        }
        let server = Server::bind(("fe80::1%lo", 0)).await.unwrap();
        assert!(matches!(server.local_addrs()[0], SocketAddr::V6(at) if at.scope_id() == 1));
        let error = Server::bind("[fe80::1%no-such-device]:80").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("has a zone that cannot be used"), "{error}");
    });
}

/// A first flight for a SYN is made before the SYN leaves, and one behind a handshake after it.
#[test]
fn the_first_syn_leaves_when_its_flight_is_made() {
    struct Late(Mutex<Vec<Instant>>);
    impl MakeFlight for Late {
        fn is_replayable(&self, _: bool) -> bool {
            true
        }
        fn make(&self, _: &AttemptInfo) -> io::Result<Vec<u8>> {
            let began = Instant::now();
            // So that the clock moves.
            while Instant::now() == began {}
            self.0.lock().unwrap().push(Instant::now());
            Ok(REQUEST.to_vec())
        }
    }
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let mut executed = serve(server);
        let (server, off) = (at, Client::builder().off(true).build().unwrap());
        for (client, before) in [(Client::new(), true), (off, false)] {
            let flights = Late(Mutex::default());
            let (stream, _) = client.connect(&server, FirstFlight::empty()).made_by(&flights).await.unwrap();
            let first_syn = stream.times().unwrap().first_syn;
            answer(Ok(stream)).await;
            assert_eq!(executed.recv().await, Some(false));
            assert_eq!(flights.0.lock().unwrap()[0] <= first_syn, before);
        }
    });
}

#[test]
fn a_certificate_makes_the_first_contact_fast() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = ready(site.client).await;
        let stream = answer(client.connect(&site.at, safely()).await).await;
        assert_eq!((stream.way(), stream.outcome()), (Way::Udp, Outcome::Accepted));
        assert_eq!(stream.race(), None);
        assert_eq!(site.executed.recv().await, Some(true));
        // What leaves a request's shape goes by TCP.
        let stream = answer(client.tcp_only().connect(&site.at, safely()).await).await;
        assert_eq!(stream.way(), Way::Kernel);
    });
}

#[test]
fn blocked_udp_costs_one_race_and_is_remembered() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = ready(site.client).await;
        if !block(site.udp_port) {
            return;
        }
        let stream = answer(client.connect(&site.at, safely()).await).await;
        assert_eq!(stream.way(), Way::Kernel);
        assert!(stream.race().is_some_and(|race| race.data_left_twice()));
        assert_eq!(site.executed.recv().await, Some(false));
        // The next one does not try UDP, and has no race.
        let stream = answer(client.connect(&site.at, safely()).await).await;
        assert_eq!((stream.way(), stream.race()), (Way::Kernel, None));
    });
}

#[test]
fn what_must_not_run_twice_leaves_by_one_way_only() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = ready(site.client.servers_run_once(true)).await;
        // UDP has not answered on this network, so it goes by TCP, after the handshake.
        let stream = answer(client.connect(&site.at, once()).await).await;
        assert_eq!(stream.way(), Way::Kernel);
        assert_eq!(site.executed.recv().await, Some(false));
        answer(client.connect(&site.at, safely()).await).await;
        assert_eq!(site.executed.recv().await, Some(true));
        // Now it has.
        let stream = answer(client.connect(&site.at, once()).await).await;
        assert_eq!((stream.way(), stream.outcome()), (Way::Udp, Outcome::Accepted));
        assert_eq!(site.executed.recv().await, Some(true));
        // Once it has left, it does not leave again.
        if !block(site.udp_port) {
            return;
        }
        let connect = client.connect(&site.at, once());
        match tokio::time::timeout(Duration::from_secs(8), connect).await {
            Err(_) => {}
            Ok(Ok(stream)) => panic!("connected by {:?}", stream.way()),
            Ok(Err(error)) => assert!(error.maybe_delivered(), "{error}"),
        }
        assert!(site.executed.try_recv().is_err(), "executed by another way");
    });
}

/// An order that can only run behind a credential block, as a sealed one. The error says whether it may have run.
#[test]
fn a_made_order_that_was_reset_is_maybe_delivered() {
    static RESETS: AtomicBool = AtomicBool::new(false);
    struct Order;
    impl MakeFlight for Order {
        fn is_replayable(&self, certified: bool) -> bool {
            !certified
        }
        fn make(&self, _: &AttemptInfo) -> io::Result<Vec<u8>> {
            Ok(REQUEST.to_vec())
        }
    }
    in_namespace("3", || async {
        let mut site = site::certified(|_, stream| {
            if RESETS.load(Ordering::Relaxed) {
                // The SYN-ACK was lost, and the reset is not.
                nft("flush ruleset");
                stream.abort();
            }
        })
        .await;
        let client = ready(site.client.servers_run_once(true)).await;
        answer(client.connect(&site.at, safely()).await).await;
        assert_eq!(site.executed.recv().await, Some(true));
        let rule = format!(
            "add table inet t; add chain inet t c {{ type filter hook input priority 0; }}; \
             add rule inet t c udp sport {} drop",
            site.udp_port
        );
        if !nft(&rule) {
            return;
        }
        RESETS.store(true, Ordering::Relaxed);
        let error = client.connect(&site.at, FirstFlight::empty()).made_by(&Order).await.unwrap_err();
        assert_eq!(site.executed.recv().await, Some(true));
        assert!(error.maybe_delivered() && error.to_string().starts_with("maybe delivered: "), "{error}");
        // By the kernel's TCP it has no block, so it cannot have run.
        let error = client
            .tcp_only()
            .connect("127.0.0.1:1080", FirstFlight::empty())
            .made_by(&Order)
            .await
            .unwrap_err();
        assert!(!error.to_string().starts_with("maybe delivered"), "{error}");
    });
}

#[test]
fn refused_udp_falls_back_at_once_and_order_is_not_lost() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let key = PrivateKey::from_seed(&[1; 32]);
        let record = Published::in_udp(closed, 1200, &[key.public().id()]).unwrap();
        let client = ready(site.client.record(site.at.clone(), record)).await;
        // An ICMP error answers: nothing listens at that port.
        let stream = answer(client.connect(&site.at, safely()).await).await;
        assert_eq!(stream.way(), Way::Kernel);
        assert_eq!(site.executed.recv().await, Some(false));
    });
}

/// Each attempt of a connect has a first flight of its own, and one behind a credential block knows the block.
#[test]
fn a_flight_is_made_for_each_attempt() {
    static BLOCKS: Mutex<Vec<AcceptedBlock>> = Mutex::new(Vec::new());
    struct Numbered;
    impl MakeFlight for Numbered {
        fn is_replayable(&self, _: bool) -> bool {
            true
        }
        fn make(&self, info: &AttemptInfo) -> io::Result<Vec<u8>> {
            assert_eq!(info.block.is_some(), info.way == Way::Udp);
            if let Some(block) = info.block {
                assert_eq!(info.mss, Some(1200));
                BLOCKS.lock().unwrap().push(block);
            }
            Ok(format!("flight{}", info.attempt).into_bytes())
        }
    }
    in_namespace("3", || async {
        let mut site = site::certified(|request, stream| match stream.accepted_block() {
            Some(block) => {
                assert_eq!(request, *b"flight0");
                assert!(BLOCKS.lock().unwrap().contains(&block));
            }
            None => assert_eq!(request, *b"flight1"),
        })
        .await;
        let client = ready(site.client).await;
        let (stream, number) =
            client.connect(&site.at, FirstFlight::empty()).made_by(&Numbered).await.unwrap();
        assert_eq!((answer(Ok(stream)).await.way(), number), (Way::Udp, 0));
        assert_eq!(site.executed.recv().await, Some(true));
        if !block(site.udp_port) {
            return;
        }
        let (stream, number) =
            client.connect(&site.at, FirstFlight::empty()).made_by(&Numbered).await.unwrap();
        assert_eq!((answer(Ok(stream)).await.way(), number), (Way::Kernel, 1));
        assert_eq!(site.executed.recv().await, Some(false));
        let blocks = BLOCKS.lock().unwrap();
        assert!(matches!(&blocks[..], [one, other] if one.request_id != other.request_id));
    });
}

/// The kernel's first flight races with an ordinary SYN also if UDP fails at once, as it does when a clone was closed.
#[test]
fn udp_that_cannot_begin_leaves_a_whole_race() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = ready(site.client).await;
        answer(client.tcp_only().connect(&site.at, safely()).await).await;
        let port = site.at.port();
        let drop = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add rule ip t c tcp dport {port} tcp flags & (syn | ack) == syn meta length > 74 drop"
        );
        if !nft(&drop) {
            eprintln!("skipped: there is no nft command");
            return;
        }
        client.clone().close().await;
        let stream = answer(client.connect(&site.at, safely()).await).await;
        assert!(stream.way() == Way::Kernel && stream.race().is_some(), "{}", stream.outcome());
        assert_eq!(site.executed.recv().await, Some(false));
    });
}

/// A caller that must answer for a connect before it knows how it ends.
#[test]
fn the_outlook_is_good_with_a_cookie_and_an_answer() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let mut executed = serve(server);
        let client = Client::new();
        let addresses = client.look_up(&at).await.unwrap().addresses().to_vec();
        assert_eq!(addresses, [at.to_string().parse().unwrap()]);
        assert_eq!(client.outlook(&at, &addresses).await, firstflight::ServerKnowledge::default());
        // Without data, as for a client that has not spoken yet.
        let stream = client.connect(&at, FirstFlight::empty()).await.unwrap();
        drop(stream);
        let outlook = client.outlook(&at, &addresses).await;
        assert_eq!((outlook.credential, outlook.answered), (Some(Way::Kernel), true));
        assert!(client.clone().outlook(&at, &addresses).await.is_good(), "a clone");
        let stream = answer(client.connect(&at, safely()).at(&addresses[..]).await).await;
        assert_eq!(stream.outcome(), Outcome::Accepted);
        assert_eq!(executed.recv().await, Some(true));
        // Another client shares the kernel's cookie, and has no contact of its own. One that uses no cookies has none.
        let outlook = Client::new().outlook(&at, &addresses).await;
        assert_eq!((outlook.credential, outlook.answered), (Some(Way::Kernel), false));
        let off = Client::builder().off(true).build().unwrap();
        assert_eq!(off.outlook(&at, &addresses).await.credential, None);
        client.forget();
        assert!(!client.outlook(&at, &addresses).await.answered);
    });
}

#[test]
fn the_outlook_ends_with_a_connect_that_fails() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let client = Client::new();
        let addresses = client.look_up(&at).await.unwrap().addresses().to_vec();
        drop(client.connect(&at, FirstFlight::empty()).await.unwrap());
        assert!(client.outlook(&at, &addresses).await.is_good());
        drop(server);
        // A process that another test starts may have the socket until it runs its own program.
        while tokio::net::TcpStream::connect(addresses[0]).await.is_ok() {}
        assert!(client.connect(&at, safely()).at(&addresses[..]).await.is_err());
        let outlook = client.outlook(&at, &addresses).await;
        assert!(!outlook.answered && !outlook.is_good());
    });
}

#[test]
fn a_certificate_is_a_credential_for_the_outlook() {
    in_namespace("3", || async {
        let site = certified().await;
        let client = ready(site.client).await;
        let addresses = client.look_up(&site.at).await.unwrap().addresses().to_vec();
        let outlook = client.outlook(&site.at, &addresses).await;
        assert_eq!((outlook.credential, outlook.answered), (Some(Way::Udp), false));
        assert_eq!(client.tcp_only().outlook(&site.at, &addresses).await.credential, None);
        let stream = answer(client.connect(&site.at, safely()).at(&addresses[..]).await).await;
        assert_eq!(stream.way(), Way::Udp);
        assert!(client.outlook(&site.at, &addresses).await.is_good());
    });
}

#[test]
fn a_certificate_in_a_file_is_renewed_beside_the_connects() {
    in_namespace("3", || async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("certificate");
        let issuer = site::verifier(&PrivateKey::from_seed(&[1; 32])).await;
        let key = PrivateKey::generate(&mut verifier::secure_rng().unwrap());
        let wanted = Wanted { key, wished: 60, old: None };
        let new = verifier::obtain(&issuer, wanted, &Patience::default()).await.unwrap();
        // As if it had been obtained a while ago: it is due, and not over.
        let (lasts, ago) = (new.body().lasts(), Duration::from_secs(13));
        let obtained = new.obtained() - (lasts - ago);
        let key = PrivateKey::from_seed(&new.key().to_seed());
        let old = ClientCertificate::new(*new.body(), *new.verifier(), new.address(), key, obtained).unwrap();
        let public = old.key().public();
        drop(KeptCertificate::create(&path, old, site::NETWORK, Some(issuer.address)).unwrap());

        let home = PoolSite::new("127.0.0.1");
        let kept = KeptCertificate::open(&path).unwrap();
        let builder = Client::builder().no_resolver();
        let client = builder.kept_certificate(kept, &home, site::NETWORK).unwrap().build().unwrap();
        assert!(client.prepare_for(&["127.0.0.1:80".parse().unwrap()], Duration::from_secs(20)).await);
        assert!(matches!(KeptCertificate::open(&path), Err(KeptError::Held(_))), "it is the client's");
        client.close().await;
        let kept = KeptCertificate::open(&path).unwrap();
        assert_ne!(kept.certificate().key().public(), public);
        assert_eq!((kept.site(), kept.network()), (Some(&home), site::NETWORK));
        // Another site's client does not get it.
        let other = Client::builder().kept_certificate(kept, &PoolSite::new("127.0.0.2"), site::NETWORK);
        assert!(matches!(other, Err(KeptError::Refused(_, NotUsed::OtherSite(_)))));
    });
}

#[test]
fn off_and_private_clients_send_ordinary_syns() {
    in_namespace("3", || async {
        for builder in [Client::builder().off(true), Client::builder().private(true)] {
            let (server, at) = bind().await;
            let mut executed = serve(server);
            let client = builder.build().unwrap();
            for _ in 0..2 {
                let stream = answer(client.connect(&at, safely()).await).await;
                assert_eq!(stream.outcome(), Outcome::Handshake(Reason::NotRequested));
                assert_eq!(executed.recv().await, Some(false));
            }
        }
    });
}

#[test]
fn a_udp_port_of_another_program_leaves_tcp_alone() {
    in_namespace("3", || async {
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = other.local_addr().unwrap();
        let server = Server::bind(at).await.unwrap();
        assert_eq!(server.udp_port(), None);
        let mut executed = serve(server);
        answer(Client::new().connect(at, safely()).await).await;
        assert_eq!(executed.recv().await, Some(false));
        // A port that the caller named is required.
        let builder = Server::builder().address("127.0.0.1:0".parse().unwrap()).udp_port(at.port());
        assert_eq!(builder.bind().unwrap_err().kind(), io::ErrorKind::AddrInUse);
    });
}

#[test]
fn a_drained_server_loses_no_connection_whose_data_was_acknowledged() {
    in_namespace("3", || async {
        let (mut server, at) = bind().await;
        let client = Client::new();
        // The first one gets the cookie.
        let (first, accepted) = tokio::join!(client.connect(&at, safely()), server.accept());
        drop((first.unwrap(), accepted.unwrap()));
        let mut open = Vec::new();
        for _ in 0..8 {
            open.push(client.connect(&at, safely()).await.unwrap());
        }
        let (waiting, rest) = server.drain();
        rest.unwrap();
        assert_eq!(waiting.len(), open.len());
        for mut stream in waiting {
            let mut request = [0; REQUEST.len()];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"answer").await.unwrap();
            stream.shutdown().await.unwrap();
        }
        for stream in open {
            answer(Ok(stream)).await;
        }
    });
}

#[test]
fn what_is_wrong_is_said() {
    in_namespace("3", || async {
        let client = Client::new();
        let error = client.connect("nonsense", safely()).await.unwrap_err();
        assert!(matches!(error, ClientError::Authority(_)), "{error}");
        let error = client.connect("no.such.host.invalid:80", safely()).await.unwrap_err();
        assert!(matches!(error, ClientError::Lookup { .. }), "{error}");
        assert!(error.source().unwrap().is::<io::Error>());
        // Below the ports that the kernel gives to clients: a client with this very port would reach itself.
        let closed: SocketAddr = "127.0.0.1:1080".parse().unwrap();
        let error = client.connect(closed, once()).await.unwrap_err();
        assert!(!error.maybe_delivered(), "{error}");
        let source = error.source().unwrap().downcast_ref::<ConnectAnyError>().unwrap();
        assert_eq!(source.attempts[0].error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);
        assert!(Server::builder().bind().is_err());
        let nameless = Server::builder().address(closed).identity("not a name");
        let key = PrivateKey::from_seed(&[1; 32]);
        let trust = Arc::new(TrustStore::new([Trusted::new(key.public())]).unwrap());
        assert!(nameless.trust(trust).bind().unwrap_err().to_string().contains("not a host name"));
    });
}
