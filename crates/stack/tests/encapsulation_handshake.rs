//! TCP in UDP: how connections open without state at the server, and with data in the SYN.

use crate::peer::{CLIENT_PORT, PORT, Peer, Seg, key, policy, seg};
use firstflight_stack::{Config, ConnectConfig, ConnectError, EncapsulationConfig};
use firstflight_wire::ip::Packet;
use firstflight_wire::udp::Datagram;

/// The stack's UDP port.
const OURS: u16 = 4433;
/// The peer's UDP port.
const THEIRS: u16 = 5000;

fn encapsulation(config: &mut Config) {
    config.encapsulation = Some(EncapsulationConfig::new(OURS));
}

fn on(v6: bool) -> Peer {
    let mut p = if v6 { Peer::v6(encapsulation) } else { Peer::with(encapsulation) };
    p.outer = Some((THEIRS, OURS));
    p
}

fn new() -> Peer {
    on(false)
}

fn udp_payload(packet: &[u8]) -> &[u8] {
    let ip = Packet::parse(packet).unwrap();
    Datagram::parse(ip.payload).unwrap().payload
}

// --- SYN cookies ---------------------------------------------------------------------------------

#[test]
fn a_syn_cookie_is_good_behind_its_own_udp_port_only() {
    for v6 in [false, true] {
        let mut p = on(v6);
        let listener = p.listen_with(|c| c.syn_backlog = 0);
        p.send(seg().syn().mss(1176));
        p.expect().syn_ack();
        assert_eq!(p.stack.counters().syn_cookies_sent, 1);
        for wrong in [Some((THEIRS + 1, OURS)), None] {
            p.outer = wrong;
            p.send(seg().seq(1).ack(1));
            p.expect().is_rst();
            p.nothing_to_accept(listener);
        }
        p.outer = Some((THEIRS, OURS));
        p.send(seg().seq(1).ack(1).data(b"late"));
        let id = p.accept(listener);
        assert_eq!(p.read(id), b"late");
        let info = p.stack.info(id).unwrap();
        assert_eq!((info.mss, info.encapsulation), (1176, Some(THEIRS)), "its table knows the base datagram");
    }
}

// --- Fast Open -----------------------------------------------------------------------------------

fn first_flight(p: &Peer, data: &[u8]) -> Seg {
    seg().syn().mss(1176).cookie(p.cookie_of(key(1)).as_bytes()).data(data)
}

#[test]
fn a_server_takes_a_first_flight_in_udp() {
    for v6 in [false, true] {
        let mut p = on(v6);
        let listener = p.listen_with(|c| c.fast_open = Some(policy(key(1), 10)));
        let syn = first_flight(&p, b"GET / HTTP/1.0");
        p.send(syn.clone());
        p.expect().syn_ack().ack(15);
        let id = p.accept(listener);
        assert_eq!(p.read(id), b"GET / HTTP/1.0");
        p.write(id, b"200");
        p.expect().seq(1).ack(15);
        // The client retransmits it unchanged: it makes no second child, and gets the first answer again.
        p.pass(100);
        p.send(syn);
        p.drain();
        p.nothing_to_accept(listener);
        assert_eq!((p.stack.counters().first_flights_accepted, p.stack.connections()), (1, 1));
    }
}

/// The stack gets a cookie of the peer for the encapsulation.
fn fetch_cookie(p: &mut Peer) {
    let id = p.connect(b"", true);
    p.expect().is_syn();
    p.send(seg().syn().ack(1).mss(1176).cookie(&[7; 8]).option(&[1, 1]));
    p.drain();
    p.abort(id);
    p.drain();
}

#[test]
fn a_client_sends_a_plain_syn_behind_its_first_flight() {
    let mut p = new();
    fetch_cookie(&mut p);
    let id = p.connect(&[b'a'; 2000], true);
    let first = p.expect().is_syn();
    // The base datagram without the room for options.
    assert_eq!(first.data.len(), 1176 - 40);
    assert!(udp_payload(&first.packet).len() <= 1200);
    p.pass(1_100);
    p.expect().is_syn().empty().no_fast_open();
    // The first SYN had arrived.
    p.send(seg().syn().ack(1 + 1136).mss(1176));
    p.drain();
    assert!(p.stack.info(id).unwrap().outcome.is_accepted());
}

/// What routers do to TCP's options says nothing about UDP, so what is learnt on one is not used on the other.
#[test]
fn what_is_learnt_in_udp_is_not_used_on_raw_ip() {
    let mut p = new();
    fetch_cookie(&mut p);
    p.outer = None;
    let raw = p.connect(b"data", true);
    let syn = p.expect().is_syn().empty();
    assert!(matches!(syn.fast_open, Some(firstflight_wire::tcp::FastOpen::Request(_))));
    p.abort(raw);
    p.outer = Some((THEIRS, OURS));
    p.connect(b"data", true);
    assert_eq!(p.expect().is_syn().data, b"data");
}

#[test]
fn a_second_attempt_is_for_raw_ip_only() {
    let mut p = new();
    fetch_cookie(&mut p);
    p.port = PORT;
    let config = ConnectConfig::default().fast_open(true).replay_safe(true).encapsulation(Some(THEIRS));
    p.connect_with(b"data", &config);
    p.pass(10_000);
    let syns = p.drain();
    assert!(syns.len() > 2 && syns.iter().all(|got| got.outer.is_some()));
    assert!(syns.iter().skip(1).all(|got| got.data.is_empty()));
    assert_eq!(p.stack.counters().second_attempts, 0);
}

#[test]
fn a_port_in_use_towards_one_udp_port_is_free_towards_another() {
    let mut p = new();
    let local = std::net::SocketAddr::new(p.local().ip(), CLIENT_PORT);
    let remote = std::net::SocketAddr::new(p.remote().ip(), PORT);
    let mut connect = |encapsulation| {
        let config = ConnectConfig::default().encapsulation(encapsulation).local(Some(local));
        p.stack.connect(remote, b"", &config, p.now).map(|_| ())
    };
    assert_eq!(connect(Some(THEIRS)), Ok(()));
    assert_eq!(connect(Some(THEIRS)), Err(ConnectError::LocalInUse));
    assert_eq!(connect(Some(THEIRS + 1)), Ok(()));
    assert_eq!(connect(None), Ok(()));
}

/// The SYN-ACK is retransmitted once, but the half-open connection accepts the client's ACK for as long as the
/// client's packets may need on a lossy path.
#[test]
fn a_half_open_connection_takes_a_late_ack() {
    let mut p = new();
    let listener = p.listen();
    p.send(seg().syn().mss(1176));
    p.expect().syn_ack();
    p.pass(1_100);
    p.expect().syn_ack();
    p.pass(12_000);
    p.quiet();
    p.send(seg().seq(1).ack(1).data(b"late"));
    let id = p.accept(listener);
    assert_eq!(p.read(id), b"late");
}
