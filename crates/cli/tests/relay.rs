//! `firstflight serve --relay-listen`: a name server hands over a first flight, and a client that sent nothing to the
//! server gets its answer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests: they fail by panicking")]

use firstflight_credential::asap::{ClientCertificate, Identity, PrivateKey, certify};
use firstflight_dns::relay::MAX_RELAY;
use firstflight_dns::{Boot, ConnectionInfo, RelayKey, RelaySender, ReplyKey, create_relay_key};
use firstflight_wire::asap::{CertificateFlags, Hint, Reply};
use firstflight_wire::carrier::Carried;
use firstflight_wire::tcp::Segment;
use firstflight_wire::{Instant, SeqNum};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REQUEST: &[u8] = b"GET /hello HTTP/1.0\r\n\r\n";

/// Files of one test, which vanish with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firstflight-relay-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// A port that was free a moment ago.
fn free() -> SocketAddr {
    UdpSocket::bind((LOCAL, 0)).unwrap().local_addr().unwrap()
}

fn verifier() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// A server with a file `hello` that trusts [`verifier`] and shares `key` with a front.
fn serve(dir: &Dir, key: &RelayKey) -> (Killed, SocketAddr, SocketAddr) {
    std::fs::create_dir(dir.path("www")).unwrap();
    std::fs::write(dir.path("www/hello"), "as you like").unwrap();
    let trust = format!("[[verifier]]\nkey = \"{}\"\nown = true\n", verifier().public());
    std::fs::write(dir.path("trust"), trust).unwrap();
    create_relay_key(&PathBuf::from(dir.path("relay")), 1, key).unwrap();
    let (udp, relay) = (free(), free());
    let mut child = Command::new(env!("CARGO_BIN_EXE_firstflight"))
        .args(["serve", "--udp", &udp.to_string(), "--root", &dir.path("www"), "--first-start"])
        .args(["--trust", &dir.path("trust"), "--relay-listen", &relay.to_string()])
        .args(["--relay-key", &dir.path("relay")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    (Killed(child), udp, relay)
}

/// What a front sends: `client`'s request, under `key`.
fn datagram(client: SocketAddr, server: SocketAddr, key: &RelayKey, id: u8) -> Vec<u8> {
    let secret = PrivateKey::from_seed(&[2; 32]);
    let begins = (unix_ms() / 1000) as u32 - 5;
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let body = certify(&verifier(), &secret.public(), LOCAL, begins, 1800, flags).unwrap();
    let certificate =
        ClientCertificate::new(body, verifier().public(), LOCAL, secret, Instant::ZERO).unwrap();
    let identity = Identity::address(server.ip(), server.port());
    let block = certificate.request_by_front(&identity, REQUEST, [id; 8], Instant::from_millis(5000));
    let ci = ConnectionInfo {
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
    };
    let mut sender = RelaySender::new(key, 1, 1, Boot((unix_ms() / 1000) as u32 + u32::from(id)));
    let mut out = [0; MAX_RELAY];
    let len = sender.emit(&ci, &reply_key(), LOCAL, unix_ms(), &mut out).unwrap();
    out[..len].to_vec()
}

fn reply_key() -> ReplyKey {
    ReplyKey::from_bytes(&[9; 16])
}

#[test]
fn a_client_that_sent_nothing_gets_its_answer() {
    let dir = Dir::new("answer");
    let key = RelayKey::from_bytes(&[3; 32]);
    let (_server, udp, relay) = serve(&dir, &key);
    let client = UdpSocket::bind((LOCAL, 0)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let front = UdpSocket::bind((LOCAL, 0)).unwrap();
    let at = client.local_addr().unwrap();
    // Who does not have the key is not heard.
    front.send_to(&datagram(at, udp, &RelayKey::from_bytes(&[4; 32]), 1), relay).unwrap();
    front.send_to(&datagram(at, udp, &key, 2), relay).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"as you like") {
        let mut bytes = [0; 2000];
        let (len, from) = client.recv_from(&mut bytes).unwrap();
        assert_eq!(from, udp);
        let Ok(Carried::Segment(segment)) = Carried::parse(&bytes[..len]) else { panic!() };
        let segment = Segment::parse(segment).unwrap();
        assert_eq!(segment.dst_port, 50_002, "an answer to what was not sealed");
        if let Some(reply) = segment.options.asap().and_then(Reply::parse) {
            let Hint::Proof(proof) = reply.hint else { panic!("{reply:?}") };
            assert!(reply_key().verifies(from, segment.seq, reply.status, &proof));
        }
        answer.extend_from_slice(segment.payload);
    }
    assert!(answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn what_is_wrong_about_fronts_is_told_in_one_line() {
    let dir = Dir::new("wrong");
    std::fs::write(dir.path("trust"), format!("[[verifier]]\nkey = \"{}\"\n", verifier().public())).unwrap();
    let told = |udp: &str, key: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_firstflight"))
            .args(["serve", "--udp", udp, "--root", &dir.path(""), "--identity", "www.example.com"])
            .args(["--trust", &dir.path("trust"), "--relay-listen", "127.0.0.1:0", "--relay-key", key])
            .output()
            .unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), complaint.lines().count()), (Some(2), 1), "{complaint}");
        complaint
    };
    assert!(told("127.0.0.1:0", &dir.path("none")).contains("cannot be read"));
    std::fs::write(dir.path("open"), "relay 1 00").unwrap();
    assert!(told("127.0.0.1:0", &dir.path("open")).contains("0600"));
    create_relay_key(&PathBuf::from(dir.path("key")), 1, &RelayKey::from_bytes(&[3; 32])).unwrap();
    assert!(told("0.0.0.0:0", &dir.path("key")).contains("--relay-seen-as"));
}
