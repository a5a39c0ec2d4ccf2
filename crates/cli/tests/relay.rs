//! `[dns.relay]` of the gateway: a name server relays a first flight, and a client that sent nothing to the server gets its
//! answer. With `[dns]` `listen` the name server inside the gateway does this, too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program;
use crate::program::{Running, fails};
use crate::server;
use firstflight_credential::asap::{ClientCertificate, Identity, PrivateKey, certify};
use firstflight_dns::relay::MAX_RELAY;
use firstflight_dns::service::secure_rng;
use firstflight_dns::{
    Attempt, Boot, ConnectionInfo, DnsPathKey, DnsPathKeyFile, Echo, FragmentQuery, Fragments, RelayKey,
    RelaySender, ReplyKey, create_relay_key, seal,
};
use firstflight_wire::asap::{CertificateFlags, DnsPathParam, Hint, Reply, Zone};
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::tcp::Segment;
use firstflight_wire::{Instant, SeqNum};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::{NonZeroU8, NonZeroU16};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REQUEST: &[u8] = b"GET /hello HTTP/1.0\r\n\r\n";

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// A port that was free a moment ago.
fn free() -> SocketAddr {
    (LOCAL, program::sockets(&["127.0.0.1"]).0).into()
}

fn verifier() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// A server with a file `hello` that trusts [`verifier`] and shares `key` with a front.
fn serve_front(dir: &Dir, key: &RelayKey, args: &[&str]) -> (Running, SocketAddr, SocketAddr) {
    create_relay_key(&PathBuf::from(dir.path("relay")), 1, key).unwrap();
    let relay = free();
    let (at, file) = (relay.to_string(), dir.path("relay"));
    let (server, udp) = serve(dir, &[&["--relay-listen", &at, "--relay-key", &file], args].concat());
    (server, udp, relay)
}

/// A server with a file `hello` that trusts [`verifier`], and its address. It logs to the file `log`.
fn serve(dir: &Dir, args: &[&str]) -> (Running, SocketAddr) {
    std::fs::create_dir(dir.path("www")).unwrap();
    std::fs::write(dir.path("www/hello"), "as you like").unwrap();
    let trust = format!("# begin\n[[verifier]]\nkey = \"{}\"\nown = true\n# end\n", verifier().public());
    std::fs::write(dir.path("trust"), trust).unwrap();
    let udp = free();
    let (address, root, trust) = (udp.to_string(), dir.path("www"), dir.path("trust"));
    let fixed = ["--udp", &address, "--root", &root, "--first-start", "--trust", &trust];
    let file = server::file(dir, &[&fixed, args].concat());
    let mut server = Running::start_logging(&["gateway", &file], &dir.path("log"));
    server.address();
    (server, udp)
}

/// `client`'s request, in connection `id`.
fn first_flight(client: SocketAddr, server: SocketAddr, id: u8) -> ConnectionInfo<'static> {
    let secret = PrivateKey::from_seed(&[2; 32]);
    let begins = (unix_ms() / 1000) as u32 - 5;
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let body = certify(&verifier(), &secret.public(), LOCAL, begins, 1800, flags).unwrap();
    let certificate =
        ClientCertificate::new(body, verifier().public(), LOCAL, secret, Instant::ZERO).unwrap();
    let identity = Identity::address(server.ip(), server.port());
    let block = certificate.request_by_front(&identity, REQUEST, [id; 8], Instant::from_millis(5000));
    ConnectionInfo {
        address: client.ip(),
        outer_port: NonZeroU16::new(client.port()).unwrap(),
        source_port: NonZeroU16::new(50_000 + u16::from(id)).unwrap(),
        destination_port: NonZeroU16::new(server.port()).unwrap(),
        isn: SeqNum::new(7),
        window: 0xffff,
        mss: 1176,
        window_scale: None,
        sack_permitted: true,
        block,
        data: REQUEST,
    }
}

/// A front's datagram: `client`'s request, under `key`.
fn datagram(client: SocketAddr, server: SocketAddr, key: &RelayKey, id: u8) -> Vec<u8> {
    datagram_at(unix_ms(), client, server, key, id)
}

/// The datagram of a front whose clock shows `now`.
fn datagram_at(now: u64, client: SocketAddr, server: SocketAddr, key: &RelayKey, id: u8) -> Vec<u8> {
    let ci = first_flight(client, server, id);
    let mut sender = RelaySender::new(key, 1, 1, Boot((unix_ms() / 1000) as u32 + u32::from(id)));
    let mut out = [0; MAX_RELAY];
    let len = sender.emit(&ci, &reply_key(), LOCAL, now, &mut out).unwrap();
    out[..len].to_vec()
}

fn reply_key() -> ReplyKey {
    ReplyKey::from_bytes(&[9; 16])
}

/// Checks that `client`, which sent nothing to the server, gets an answer to its connection `id`: the proof in the
/// reply is under `key`, and the file arrives.
fn gets_its_answer(client: &UdpSocket, server: SocketAddr, id: u8, key: &ReplyKey) {
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (mut answer, mut proofs) = (Vec::new(), 0);
    while !answer.ends_with(b"as you like") {
        let mut bytes = [0; 2000];
        let (len, from) = client.recv_from(&mut bytes).unwrap();
        assert_eq!(from, server);
        let Ok(Carried::Segment(segment)) = Carried::parse(&bytes[..len]) else { panic!() };
        let segment = Segment::parse(segment).unwrap();
        assert_eq!(segment.dst_port, 50_000 + u16::from(id), "an answer to what was not sealed");
        if let Some(reply) = segment.options.asap().and_then(Reply::parse) {
            let Hint::Proof(proof) = reply.hint else { panic!("{reply:?}") };
            assert!(key.verifies(from, segment.seq, reply.status, &proof));
            proofs += 1;
        }
        answer.extend_from_slice(segment.payload);
    }
    assert!(answer.starts_with(b"HTTP/1.") && proofs > 0, "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_client_that_sent_nothing_gets_its_answer() {
    let dir = Dir::new("answer");
    let key = RelayKey::from_bytes(&[3; 32]);
    let (_server, udp, relay) = serve_front(&dir, &key, &[]);
    let client = UdpSocket::bind((LOCAL, 0)).unwrap();
    let front = UdpSocket::bind((LOCAL, 0)).unwrap();
    let at = client.local_addr().unwrap();
    // A datagram from a sender without the key is ignored.
    front.send_to(&datagram(at, udp, &RelayKey::from_bytes(&[4; 32]), 1), relay).unwrap();
    front.send_to(&datagram(at, udp, &key, 2), relay).unwrap();
    gets_its_answer(&client, udp, 2, &reply_key());
}

/// One scrape of the metrics at `at`. Their port was free a moment ago; if it is in use, the server tries it again.
fn counts(at: SocketAddr) -> String {
    let mut stream = None;
    program::until(|| {
        stream = TcpStream::connect(at).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_front_whose_clock_is_wrong_is_named_and_counted() {
    let dir = Dir::new("clock");
    let key = RelayKey::from_bytes(&[3; 32]);
    let metrics = TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap();
    let (_server, udp, relay) = serve_front(&dir, &key, &["--metrics", &metrics.to_string()]);
    let client = UdpSocket::bind((LOCAL, 0)).unwrap();
    let front = UdpSocket::bind((LOCAL, 0)).unwrap();
    let at = client.local_addr().unwrap();
    let counted = |outcome: &str| {
        let line = format!("firstflight_relay_datagrams_total{{outcome=\"{outcome}\"}} 1\n");
        program::until(|| counts(metrics).contains(&line));
    };
    front.send_to(&datagram_at(unix_ms() - 3_600_000, at, udp, &key, 1), relay).unwrap();
    counted("time");
    front.send_to(&datagram(at, udp, &RelayKey::from_bytes(&[4; 32]), 2), relay).unwrap();
    counted("forged");
    front.send_to(&datagram(at, udp, &key, 3), relay).unwrap();
    counted("taken");
    gets_its_answer(&client, udp, 3, &reply_key());
    let text = counts(metrics);
    for line in [
        "firstflight_relay_datagrams_total{outcome=\"replayed\"} 0\n",
        "firstflight_relay_clock_checks_total{outcome=\"genuine\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let log = std::fs::read_to_string(dir.path("log")).unwrap();
    let clock = format!("the clock of front 1 (relay key 1) at {}", front.local_addr().unwrap());
    let told: Vec<&str> = log.lines().filter(|line| line.contains(&clock)).collect();
    assert_eq!(told.len(), 2, "{log}");
    assert!(told[0].contains(" s behind this server's") && told[0].contains("NTP"), "{log}");
    assert!(told[1].contains("agrees with this server's again"), "{log}");
}

#[test]
fn a_server_takes_first_flights_from_names_that_it_is_asked_for() {
    let dir = Dir::new("names");
    let key = DnsPathKey::from_bytes(&[5; 32]).unwrap();
    let (id, public) = (NonZeroU8::new(7).unwrap(), key.public());
    let file = DnsPathKeyFile { id, key, former: Vec::new() };
    file.create(&PathBuf::from(dir.path("dns-path"))).unwrap();
    let zone = "@ 60 IN SOA ns host 1 2 3 4 5\n@ 60 IN NS ns\nns 60 IN A 192.0.2.53\n";
    std::fs::write(dir.path("zone"), zone).unwrap();
    // The metrics also use a port that was free a moment ago.
    let metrics = TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap();
    let (mut server, udp) = serve(
        &dir,
        &[
            "--dns-listen",
            "127.0.0.1:0",
            "--dns-path-zone",
            "f.xyz.com",
            "--dns-path-key",
            &dir.path("dns-path"),
            "--dns-zone",
            &dir.path("zone"),
            "--dns-origin",
            "xyz.com",
            "--metrics",
            &metrics.to_string(),
        ],
    );
    let line = server.line();
    let names = line.strip_prefix("listening on ").and_then(|rest| rest.strip_suffix(" for names")).unwrap();
    let names: SocketAddr = names.parse().unwrap();
    assert!(server.line().starts_with("DNS-path zone f.xyz.com., dns-path-key 7:"));

    let (client, resolver) = (UdpSocket::bind((LOCAL, 0)).unwrap(), UdpSocket::bind((LOCAL, 0)).unwrap());
    resolver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let zone = Zone::new(b"\x01f\x03xyz\x03com\x00").unwrap();
    let to = DnsPathParam { key_id: id, key: public, zone };
    let mut rng = secure_rng().unwrap();
    let (sealed, reply) = seal(&first_flight(client.local_addr().unwrap(), udp, 3), &to, &mut rng).unwrap();
    let labels: Vec<_> = Fragments::split(&sealed, Attempt::default(), true).labels().collect();
    // First all fragments but one, with the parity, then all of them again: copies are answered and not forwarded.
    for label in labels.iter().skip(1).chain(&labels) {
        let query = FragmentQuery::new(9, label, zone).unwrap();
        resolver.send_to(query.as_bytes(), names).unwrap();
        let mut answer = [0; 512];
        let len = resolver.recv(&mut answer).unwrap();
        assert_eq!(query.read_answer(&answer[..len]), Some(Echo::Answered));
        // The address at which clients reach the server.
        assert!(answer[..len].ends_with(&[0, 4, 127, 0, 0, 1]));
    }
    gets_its_answer(&client, udp, 3, &reply);
    let text = counts(metrics);
    for line in [
        "firstflight_dns_sets_total{outcome=\"completed\"} 1",
        "firstflight_dns_first_flights_total{outcome=\"relayed\"} 1",
        "firstflight_first_flights_total{side=\"server\",outcome=\"accepted\",reason=\"\"} 1",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
    }
    let lines = server.stop();
    let n = 2 * labels.len() - 1;
    let says = format!(
        "names:         {n} queries, {n} answers ({n} to fragments); first flights: 1 put together, 1 taken"
    );
    assert!(lines.contains(&says), "{lines:?}");
}

/// Queries `label` at `names`, which answers immediately.
fn ask(resolver: &UdpSocket, names: SocketAddr, label: &[u8; 63], zone: Zone<'_>) {
    let query = FragmentQuery::new(9, label, zone).unwrap();
    resolver.send_to(query.as_bytes(), names).unwrap();
    let mut answer = [0; 512];
    let len = resolver.recv(&mut answer).unwrap();
    assert_eq!(query.read_answer(&answer[..len]), Some(Echo::Answered));
}

/// A zone with two name servers: a separate one, and the one inside the web server. Each gets half of the fragments.
#[test]
fn two_name_servers_of_a_zone_hand_over_what_is_spread_over_them() {
    let dir = Dir::new("two");
    let key = DnsPathKey::from_bytes(&[5; 32]).unwrap();
    let (id, public) = (NonZeroU8::new(7).unwrap(), key.public());
    let file = DnsPathKeyFile { id, key, former: Vec::new() };
    file.create(&PathBuf::from(dir.path("dns-path"))).unwrap();
    let shared = RelayKey::from_bytes(&[6; 32]);
    create_relay_key(&PathBuf::from(dir.path("fronts")), 1, &shared).unwrap();
    let (one, two) = (free().to_string(), free().to_string());
    let metrics = [0; 2].map(|_| TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap());
    let relay = free().to_string();
    create_relay_key(&PathBuf::from(dir.path("relay")), 1, &RelayKey::from_bytes(&[3; 32])).unwrap();
    let (mut server, udp) = serve(
        &dir,
        &[
            &["--relay-listen", &relay, "--relay-key", &dir.path("relay"), "--dns-listen", "127.0.0.1:0"][..],
            &["--dns-path-zone", "f.xyz.com", "--dns-path-key", &dir.path("dns-path")],
            &["--forward-listen", &one, "--forward-to", &two, "--forward-key", &dir.path("fronts")],
            &["--front-id", "1", "--dns-state", &dir.path("state1"), "--metrics", &metrics[0].to_string()],
        ]
        .concat(),
    );
    let line = server.line();
    let here = line.strip_prefix("listening on ").and_then(|rest| rest.strip_suffix(" for names")).unwrap();
    assert!(server.line().starts_with("DNS-path zone f.xyz.com."));
    assert_eq!(server.line(), format!("listening on {one} for the zone's other name servers"));
    let to = format!("{relay}={}", dir.path("relay"));
    let mut front = Running::start(
        &[
            &["dns", "--listen", "127.0.0.1:0", "--dns-path-zone", "f.xyz.com"][..],
            &["--dns-path-address", "127.0.0.1", "--key-file", &dir.path("dns-path"), "--relay", &to],
            &["--forward-listen", &two, "--forward-to", &one, "--forward-key", &dir.path("fronts")],
            &["--front-id", "2", "--state", &dir.path("state2"), "--metrics", &metrics[1].to_string()],
        ]
        .concat(),
    );
    let names: [SocketAddr; 2] = [here.parse().unwrap(), front.address().parse().unwrap()];
    let hear_each_other =
        || metrics.iter().all(|at| counts(*at).contains("firstflight_dns_fronts_alive 2\n"));
    while !hear_each_other() {
        std::thread::sleep(Duration::from_millis(20));
    }

    let resolver = UdpSocket::bind((LOCAL, 0)).unwrap();
    resolver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let zone = Zone::new(b"\x01f\x03xyz\x03com\x00").unwrap();
    let to = DnsPathParam { key_id: id, key: public, zone };
    let mut rng = secure_rng().unwrap();
    // The server accepts few first flights of one client at a time.
    for number in 1..=3 {
        let client = UdpSocket::bind((LOCAL, 0)).unwrap();
        let flight = first_flight(client.local_addr().unwrap(), udp, number);
        let (sealed, reply) = seal(&flight, &to, &mut rng).unwrap();
        let labels: Vec<_> = Fragments::split(&sealed, Attempt::default(), false).labels().collect();
        for (label, names) in labels.iter().zip(names.iter().cycle()) {
            ask(&resolver, *names, label, zone);
        }
        gets_its_answer(&client, udp, number, &reply);
    }
    let all = metrics.map(counts);
    for text in &all {
        assert!(text.contains("firstflight_dns_forward_dropped_total{reason=\"forged\"} 0\n"), "{text}");
        // Each front has fragments that the other one owns, or owns fragments that the other one got.
        assert!(
            !text.contains("firstflight_dns_forwarded_total{direction=\"out\"} 0\n")
                || !text.contains("firstflight_dns_forwarded_total{direction=\"in\"} 0\n"),
            "{text}"
        );
    }
    front.stop();
    server.stop();
}

#[test]
fn a_zone_of_the_name_server_in_it_is_read_again() {
    let dir = Dir::new("zone");
    let file =
        DnsPathKeyFile { id: NonZeroU8::MIN, key: DnsPathKey::from_bytes(&[5; 32]).unwrap(), former: vec![] };
    file.create(&PathBuf::from(dir.path("dns-path"))).unwrap();
    let text = "$TTL 60\n@ IN SOA ns host 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.53\n";
    let (zone, key) = (dir.file("zone", text), dir.path("dns-path"));
    let listen = ["--dns-listen", "127.0.0.1:0", "--dns-path-zone", "f.xyz.com", "--dns-path-key", &key];
    let (mut server, _) =
        serve(&dir, &[&listen[..], &["--dns-zone", &zone, "--dns-origin", "xyz.com"]].concat());
    std::fs::write(&zone, text.replace("host 1", "host 7")).unwrap();
    server.signal("HUP");
    server.line_is("zone xyz.com. read again, serial 7");
    server.stop();
}

#[test]
fn mistakes_about_fronts_are_reported_in_one_line() {
    let dir = Dir::new("wrong");
    std::fs::write(
        dir.path("trust"),
        format!("# begin\n[[verifier]]\nkey = \"{}\"\n# end\n", verifier().public()),
    )
    .unwrap();
    let refused = |ip: &str, args: &[&str], says: &str| {
        let (root, trust) = (dir.path(""), dir.path("trust"));
        let at = format!("{ip}:{}", free().port());
        let fixed = ["--listen", &at, "--root", &root, "--identity", "www.example.com", "--trust", &trust];
        fails(&["gateway", &server::file(&dir, &[&fixed, args].concat())], 2, says);
    };
    let from_fronts = |ip: &str, key: &str, says: &str| {
        refused(ip, &["--relay-listen", "127.0.0.1:0", "--relay-key", key], says);
    };
    from_fronts("127.0.0.1", &dir.path("none"), "cannot be read");
    std::fs::write(dir.path("open"), "relay 1 00").unwrap();
    from_fronts("127.0.0.1", &dir.path("open"), "0600");
    create_relay_key(&PathBuf::from(dir.path("key")), 1, &RelayKey::from_bytes(&[3; 32])).unwrap();
    from_fronts("0.0.0.0", &dir.path("key"), "seen_as");

    // The key file that the name server in it lacks.
    let file =
        DnsPathKeyFile { id: NonZeroU8::MIN, key: DnsPathKey::from_bytes(&[5; 32]).unwrap(), former: vec![] };
    file.create(&PathBuf::from(dir.path("dns-path"))).unwrap();
    let naming = |ip: &str, key: &str, args: &[&str], says: &str| {
        let listen = ["--dns-listen", "127.0.0.1:0", "--dns-path-zone", "f.xyz.com", "--dns-path-key"];
        refused(ip, &[&listen[..], &[&dir.path(key)], args].concat(), says);
    };
    naming("127.0.0.1", "none", &[], "make one with `firstflight dns keygen`");
    naming("[::1]", "dns-path", &[], "needs dns_path_address");
    naming("0.0.0.0", "dns-path", &[], "seen_as");
    naming("127.0.0.1", "dns-path", &["--dns-origin", "xyz.com"], "missing field `file`");
    for (args, lacks) in [
        (&["--dns-path-zone", "f.xyz.com"][..], "needs listen"),
        (&["--dns-listen", "127.0.0.1:0"], "needs dns_path_zone and dns_path_key"),
        (&["--relay-seen-as", "127.0.0.1:9"], "needs listen"),
        (&["--forward-listen", "127.0.0.1:0"], "missing field `to`"),
        (&["--dns-state", "x"], "missing field `listen`"),
    ] {
        refused("127.0.0.1", args, lacks);
    }
}
