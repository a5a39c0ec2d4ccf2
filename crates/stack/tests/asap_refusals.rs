//! Every reason for which a server refuses a block, and the order of the checks: cheap ones first
//! (`docs/spec/asap.md` §§7.2, 7.4).

use crate::certified::{NOW_MS, Request, certificate_from, certificate_with, request, request_to, verifier};
use crate::flights::{
    AFTER, CLIENT, DATA, Server, client, flight, flight_at, reply, server, server_with, syn, trusting,
};
use crate::peer::{CLIENT_PORT, Seg, seg};
use firstflight_credential::asap::{ClientCertificate, Identity, TrustStore, Trusted};
use firstflight_credential::{GuardKey, Outcome, PendingLimit, Reason, ReplayTable, Window};
use firstflight_stack::{PacketDrop, StateName};
use firstflight_wire::Clock;
use firstflight_wire::asap::{Hint, Reply, Status};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const NOW_S: u32 = (NOW_MS / 1000) as u32;

fn address() -> IpAddr {
    CLIENT.parse().unwrap()
}

/// A certificate by verifier `by` that began `ago` seconds before the start.
fn began(ago: u32) -> ClientCertificate {
    certificate_from(1, 2, address(), NOW_S - ago)
}

/// Request 5 under `certificate`, made at the start, which is `ago` seconds after the certificate's beginning.
fn under(certificate: &ClientCertificate, ago: u32) -> Seg {
    syn(&request(certificate, 5, DATA, u64::from(ago) * 1000))
}

/// A block that is refused before any signature is verified becomes an ordinary handshake, and no permit is kept.
#[track_caller]
fn ordinary(mut s: Server, syn: Seg, status: Status, reason: Reason) -> Reply {
    let reply = s.refuses(syn, status);
    assert_eq!((s.signatures(), s.pending.pending()), (0, 0));
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 0);
    assert_eq!(s.p.stack.counters().first_flights_refused, 1);
    s.p.send(seg().seq(1).ack(1).data(DATA));
    let id = s.p.accept(s.listener);
    assert_eq!((s.p.state(id), s.p.read(id)), (StateName::Established, DATA.to_vec()));
    assert_eq!(s.p.stack.info(id).unwrap().outcome, Outcome::Handshake(reason));
    reply
}

/// A block that is refused because of a signature or an encoding: no state is kept, and no other client suffers.
#[track_caller]
fn forged(s: &mut Server, syn: Seg, status: Status, signatures: u64) {
    let (before, cookies) = (s.signatures(), s.p.stack.counters().syn_cookies_sent);
    let connections = s.p.stack.connections();
    s.refuses(syn, status);
    assert_eq!(s.signatures() - before, signatures);
    assert_eq!(s.p.stack.counters().syn_cookies_sent, cookies + 1);
    assert_eq!((s.p.stack.connections(), s.pending.pending()), (connections, 0));
}

/// Another flow.
fn next(s: &mut Server) {
    let port = s.p.port + 1;
    s.p.flow(port, 77);
}

// --- step 1: policy and room ---------------------------------------------------------------------------------

#[test]
fn disabled() {
    let s = server_with(|_| {}, |_| {}, |listen| listen.asap = None);
    let reply = ordinary(s, flight(5), Status::Disabled, Reason::Policy);
    assert_eq!(reply.tag, [0; 2]);
}

#[test]
fn overloaded_by_the_budget() {
    let s = server_with(|config| config.limits.asap.per_second = 0, |_| {}, |_| {});
    let reply = ordinary(s, flight(5), Status::Overloaded, Reason::Overloaded);
    assert_eq!(reply, Reply { status: Status::Overloaded, tag: [5, 5], hint: Hint::None });
}

/// Of 50 signatures that are saved up for new certificates, one network may have half at once: 12 first flights.
/// The server reports whose share was used up.
#[test]
fn overloaded_by_the_share_of_one_network() {
    let mut s = server_with(|config| config.limits.asap.per_second = 1000, |_| {}, |_| {});
    for n in 0..12 {
        s.p.send(flight(n));
        next(&mut s);
    }
    s.p.quiet();
    let port = s.p.port;
    s.p.send(flight(99));
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((Status::Overloaded, [99, 99])));
    assert_eq!(s.p.stack.counters().server.count(Outcome::Handshake(Reason::NetworkLimit)), 1);
    assert_eq!(s.verify(), 12);
    s.p.drain();
    s.p.flow(port + 1, 77);
    s.p.moves_to("10.9.0.2");
    let other = crate::certified::certificate(1, 3, "10.9.0.2".parse().unwrap());
    let got = s.asks(syn(&request(&other, 5, DATA, 0)));
    assert_eq!(reply(&got).unwrap().status, Status::Accepted, "another network has its own");
}

#[test]
fn overloaded_by_the_pending_limit() {
    let s = trusting(|asap| asap.pending = Arc::new(PendingLimit::new(0)));
    ordinary(s, flight(5), Status::Overloaded, Reason::PendingLimit);
}

#[test]
fn overloaded_by_the_whole_servers_limit() {
    let whole = Arc::new(PendingLimit::new(0));
    let s = trusting(|asap| asap.pending = Arc::new(PendingLimit::new(9).within(whole)));
    ordinary(s, flight(5), Status::Overloaded, Reason::ServerLimit);
}

#[test]
fn overloaded_by_one_clients_limit() {
    let mut s = trusting(|asap| asap.pending = Arc::new(PendingLimit::with_clients(9, 1)));
    s.accepts(flight(5));
    next(&mut s);
    assert_eq!(s.refuses(flight(6), Status::Overloaded).tag, [6, 6]);
    assert_eq!((s.pending.pending(), s.signatures()), (1, 2));
}

#[test]
fn overloaded_by_a_full_lot() {
    for (number, bytes) in [(1, 1 << 20), (9, 300)] {
        let limit = |config: &mut firstflight_stack::Config| {
            (config.limits.deferred, config.limits.deferred_bytes) = (number, bytes);
        };
        let mut s = server_with(limit, |_| {}, |_| {});
        s.p.send(flight(5));
        s.p.quiet();
        next(&mut s);
        s.p.send(flight(6));
        let got = s.p.expect().syn_ack().ack(1);
        assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((Status::Overloaded, [6, 6])));
        assert_eq!((s.pending.pending(), s.verify()), (1, 1));
        s.p.expect().syn_ack();
    }
}

#[test]
fn overloaded_by_the_verifiers_rate() {
    let trusted = Trusted { per_second: Some(0), ..Trusted::new(verifier(1).public()) };
    let mut s = trusting(|asap| asap.trust = Arc::new(TrustStore::new([trusted]).unwrap()));
    assert_eq!(s.refuses(flight(5), Status::Overloaded).tag, [5, 5]);
    assert_eq!((s.signatures(), s.pending.pending()), (2, 0));
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 0, "it is no forgery");
}

#[test]
fn a_full_accept_queue_drops_it() {
    let mut s = server_with(|_| {}, |_| {}, |listen| listen.backlog = 0);
    s.p.send(flight(5));
    s.p.quiet();
    assert_eq!((s.verify(), s.pending.pending()), (0, 0));
    assert_eq!(s.p.stack.counters().dropped(PacketDrop::AcceptQueueFull), 1);
}

// --- step 2: encoding ----------------------------------------------------------------------------------------

/// Requests with a malformed option or block, and what is wrong with each.
fn malformed() -> Vec<(String, Request)> {
    let right = || request(&client(), 5, DATA, 0);
    let mut all = Vec::new();
    let mut with = |what: String, change: &dyn Fn(&mut Request)| {
        let mut request = right();
        change(&mut request);
        all.push((what, request));
    };
    for bit in 1..8 {
        with(format!("option flag {bit}"), &|r| r.option[5] |= 1 << bit);
    }
    for form in [0x01, 0x21, 0xf1, 0x10, 0x12, 0x13, 0x1f] {
        with(format!("version and form {form:#x}"), &|r| r.option[4] = form);
    }
    for len in [0u16, 1, 195, (AFTER as u16), u16::MAX] {
        with(format!("L = {len}"), &|r| r.option[6..8].copy_from_slice(&len.to_be_bytes()));
    }
    // Data where padding should be.
    with("L = 197".into(), &|r| r.option[7] = 197);
    with("a payload that is too short".into(), &|r| r.payload.truncate(195));
    with("no payload".into(), &|r| r.payload.clear());
    with("an option that is too long".into(), &|r| {
        r.option.push(0);
        r.option[1] = 9;
    });
    with("an option that is too short".into(), &|r| {
        r.option.pop();
        r.option[1] = 7;
    });
    for at in [0, 1] {
        with(format!("magic {at}"), &|r| r.payload[at] ^= 1);
    }
    for bit in 0..8 {
        with(format!("version or algorithm, bit {bit}"), &|r| r.payload[2] ^= 1 << bit);
        with(format!("block flag {bit}"), &|r| r.payload[3] |= 1 << bit);
    }
    for bit in 5..8 {
        with(format!("certificate flag {bit}"), &|r| r.payload[44] |= 1 << bit);
    }
    all
}

#[test]
fn malformed_in_any_way() {
    let mut s = server();
    for (what, request) in malformed() {
        eprintln!("{what}");
        forged(&mut s, syn(&request), Status::Malformed, 0);
        next(&mut s);
    }
    let count = malformed().len() as u64;
    assert_eq!(s.p.stack.counters().blocks_forged, count);
    // None of them has used the request up, and they did not switch first flights off.
    s.accepts(flight(5));
}

/// A right guess at the SYN cookie of this flow. It is taken from a listener with the same secret and no backlog,
/// which answers every SYN with a cookie.
fn right_guess(port: u16, mss: u16) -> Vec<u8> {
    let mut pressed = server_with(|_| {}, |_| {}, |listen| listen.syn_backlog = 0);
    pressed.p.flow(port, 77);
    pressed.p.send(seg().syn().mss(mss));
    pressed.p.expect().syn_ack();
    pressed.p.packet(&seg().seq(1).ack(1).data(b"nobody asked for this"))
}

fn wrong_block() -> Request {
    let mut request = request(&client(), 5, DATA, 0);
    request.payload[0] ^= 1;
    request
}

/// An off-path attacker sends one wrong block, and then ACKs from another address that guess at a SYN cookie. The
/// listener does not accept them, because it sent no cookie to that flow, or another one.
#[test]
fn one_wrong_block_opens_no_check_of_syn_cookies() {
    let mut s = server();
    let guess = right_guess(CLIENT_PORT + 9, 1460);
    s.p.inject(&guess);
    s.p.expect().is_rst();
    s.p.flow(CLIENT_PORT, 77);
    forged(&mut s, syn(&wrong_block()), Status::Malformed, 0);
    s.p.inject(&guess);
    s.p.expect().is_rst();
    // On the flow that was answered only that one cookie is right, of the sixteen that a listener under pressure
    // accepts.
    s.p.inject(&right_guess(CLIENT_PORT, 1200));
    s.p.expect().is_rst();
    assert_eq!((s.p.stack.connections(), s.p.stack.counters().syn_cookies_good), (0, 0));
    s.p.at(60_000);
    s.p.send(seg().seq(1).ack(1).data(DATA));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
}

/// More wrong blocks than are remembered are a flood. Then any SYN cookie is accepted during its lifetime.
#[test]
fn a_flood_of_wrong_blocks_opens_the_check_of_syn_cookies() {
    let flood = |count: u16, ms: u64| {
        let mut s = server();
        for n in 0..count {
            s.p.flow(1000 + n, 77);
            s.refuses(syn(&wrong_block()), Status::Malformed);
        }
        s.p.at(ms);
        // With 65 blocks, the first one's cookie is no longer remembered.
        s.p.flow(1000, 77);
        s.p.send(seg().seq(1).ack(1));
        s.p.drain();
        s.p.inject(&right_guess(CLIENT_PORT + 9, 1460));
        s.p.stack.counters().syn_cookies_good
    };
    assert_eq!(flood(64, 0), 1, "each comes back");
    assert_eq!(flood(65, 0), 2, "all come back, and others");
    assert_eq!(flood(65, 128_000), 0, "it is over");
}

/// Without ASAP the block is neither checked nor delivered.
#[test]
fn malformed_and_disabled() {
    for (what, request) in malformed().into_iter().filter(|(_, request)| !request.payload.is_empty()) {
        eprintln!("{what}");
        let s = server_with(|_| {}, |_| {}, |listen| listen.asap = None);
        ordinary(s, syn(&request), Status::Disabled, Reason::Policy);
    }
}

// --- steps 3 to 6: what the certificate says -----------------------------------------------------------------

#[test]
fn unknown_verifier() {
    let stranger = crate::certified::certificate(7, 2, address());
    let told = ordinary(
        server(),
        syn(&request(&stranger, 5, DATA, 0)),
        Status::UnknownVerifier,
        Reason::UntrustedVerifier,
    );
    assert_eq!(told.hint, Hint::Trusts(NOW_S, verifier(1).public().id()));
    // A client that has no room for the hint is not sent one.
    let mut short = request(&stranger, 6, DATA, 0);
    short.option[5] = 0;
    let told = ordinary(server(), syn(&short), Status::UnknownVerifier, Reason::UntrustedVerifier);
    assert_eq!(told, Reply { status: Status::UnknownVerifier, tag: [6, 6], hint: Hint::None });
    // No verifier is trusted, so there is none to name.
    let nobody = trusting(|asap| asap.trust = Arc::default());
    let told = ordinary(nobody, flight(5), Status::UnknownVerifier, Reason::UntrustedVerifier);
    assert_eq!(told.hint, Hint::Time(NOW_S));
}

#[test]
fn address_mismatch() {
    let other = crate::certified::certificate(1, 2, "10.0.0.3".parse().unwrap());
    let syn = syn(&request(&other, 5, DATA, 0));
    let told = ordinary(server(), syn, Status::AddressMismatch, Reason::AddressMismatch);
    assert_eq!(told.hint, Hint::Sees(NOW_S, Ipv4Addr::new(10, 0, 0, 2)));
}

#[test]
fn address_mismatch_over_ipv6() {
    let mut p = crate::peer::Peer::v6(|_| {});
    let listener = p.listen_with(|config| config.asap = Some(crate::certified::policy(&[1])));
    let mut s = Server { p, listener, pending: Arc::new(PendingLimit::new(1)) };
    let told = s.refuses(flight(5), Status::AddressMismatch);
    assert_eq!(told.hint, Hint::Time(NOW_S), "an IPv6 address has no room");
    s.p.flow(CLIENT_PORT + 1, 7);
    let right = crate::certified::certificate(1, 2, "fd00::2".parse().unwrap());
    s.accepts(syn(&request(&right, 5, DATA, 0)));
}

#[test]
fn wrong_identity() {
    for other in [Identity::name("www.example.net", 80), Identity::name("www.example.com", 443)] {
        let request = request_to(&other, &client(), 5, DATA, 0);
        ordinary(server(), syn(&request), Status::WrongIdentity, Reason::WrongIdentity);
    }
}

/// The tag finds the identity, but the signature covers all of it.
#[test]
fn an_identity_with_the_same_tag_is_another_one() {
    let other = Identity::name("www.example.net", 80);
    let mut request = request_to(&other, &client(), 5, DATA, 0);
    request.payload[114..118].copy_from_slice(&crate::certified::identity().tag());
    forged(&mut server(), syn(&request), Status::BadSignature, 2);
}

/// A server that trusts verifier 1 within these bounds.
fn bounded(change: impl FnOnce(&mut Trusted)) -> Server {
    let mut trusted = Trusted::new(verifier(1).public());
    change(&mut trusted);
    trusting(|asap| asap.trust = Arc::new(TrustStore::new([trusted]).unwrap()))
}

#[test]
fn prefix_not_allowed() {
    let s = bounded(|trusted| trusted.prefixes = vec!["10.0.0.4/30".parse().unwrap()]);
    ordinary(s, flight(5), Status::Policy, Reason::Policy);
    bounded(|trusted| trusted.prefixes = vec!["10.0.0.0/30".parse().unwrap()]).accepts(flight(5));
}

#[test]
fn too_few_vantage_points() {
    let by = |vantage| under(&certificate_with(1, 2, address(), NOW_S, 1800, vantage), 0);
    let three = || bounded(|trusted| trusted.min_vantage = 3);
    ordinary(three(), by(2), Status::Policy, Reason::Policy);
    three().accepts(by(3));
}

#[test]
fn too_long_a_duration() {
    let hour = || bounded(|trusted| trusted.longest = Duration::from_secs(3600));
    let lasting = |duration| under(&certificate_with(1, 2, address(), NOW_S, duration, 1), 0);
    ordinary(hour(), lasting(3601), Status::Policy, Reason::Policy);
    hour().accepts(lasting(3600));
}

#[test]
fn expired_by_its_end() {
    let told = ordinary(server(), under(&began(1801), 1801), Status::Expired, Reason::Expired);
    assert_eq!(told.hint, Hint::Time(NOW_S));
    // The last second of its lifetime is valid.
    server().accepts(under(&began(1800), 1800));
}

#[test]
fn expired_by_its_age() {
    let young = || bounded(|trusted| trusted.oldest = Duration::from_secs(600));
    ordinary(young(), under(&began(601), 601), Status::Expired, Reason::Expired);
    young().accepts(under(&began(600), 600));
}

#[test]
fn not_yet_valid() {
    let ahead = |seconds| syn(&request(&certificate_from(1, 2, address(), NOW_S + seconds), 5, DATA, 0));
    ordinary(server(), ahead(61), Status::NotYetValid, Reason::ClockSkew);
    // A certificate that begins sooner is accepted, but its requests are from the future.
    ordinary(server(), ahead(60), Status::OutsideWindow, Reason::ClockSkew);
    server().accepts(ahead(10));
}

/// A minute back, ten seconds ahead, both included.
#[test]
fn outside_the_window() {
    let made = |ms: i64| {
        let after = u64::try_from(300_000 + ms).unwrap();
        syn(&request(&began(300), 5, DATA, after))
    };
    for (ms, inside) in [(-60_001, false), (-60_000, true), (10_000, true), (10_001, false)] {
        if inside {
            server().accepts(made(ms));
        } else {
            let told = ordinary(server(), made(ms), Status::OutsideWindow, Reason::ClockSkew);
            assert_eq!(told.hint, Hint::Time(NOW_S));
        }
    }
}

/// A request cannot be older or younger than its certificate, whatever the window says.
#[test]
fn outside_the_certificates_time() {
    let late = certificate_with(1, 2, address(), NOW_S - 100, 95, 1);
    ordinary(server(), under(&late, 90), Status::Expired, Reason::Expired);
    let ending = certificate_with(1, 2, address(), NOW_S - 100, 101, 1);
    ordinary(server(), under(&ending, 105), Status::Expired, Reason::Expired);
    server().accepts(under(&ending, 101));
}

/// If the clock may be wrong by more than requests may be ahead, it cannot tell old requests from new ones.
#[test]
fn an_uncertain_clock_takes_nothing() {
    let with = |uncertainty| {
        let mut s = server();
        let mono = s.p.now;
        s.p.stack.handle_clock(Clock { mono, unix_ms: NOW_MS, uncertainty });
        s
    };
    let much = with(Duration::from_millis(10_001));
    ordinary(much, flight(5), Status::OutsideWindow, Reason::ClockSkew);
    with(Duration::from_secs(10)).accepts(flight(5));
    // A clock that was never set cannot either.
    let mut s = server();
    let clock = Clock { mono: s.p.now, unix_ms: 0, uncertainty: Duration::MAX };
    s.p.stack.handle_clock(clock);
    s.refuses(flight(5), Status::NotYetValid);
    assert_eq!(s.signatures(), 0);
}

// --- step 7: the guard ---------------------------------------------------------------------------------------

#[test]
fn replayed() {
    let mut s = server();
    s.accepts(flight(5));
    next(&mut s);
    assert_eq!(s.refuses(flight(5), Status::Replayed).tag, [5, 5]);
    assert_eq!((s.signatures(), s.pending.pending()), (2, 1), "seen before anything is verified");
    // The guard remembers the request, not the key.
    next(&mut s);
    s.accepts(flight(6));
}

#[test]
fn guard_floor_after_a_start() {
    let guard = ReplayTable::new(GuardKey::from_bytes([4; 16]), Window::REQUESTS, 1 << 20, NOW_MS);
    let mut s = trusting(|asap| asap.guard = Arc::new(guard));
    assert_eq!(s.refuses(flight(5), Status::GuardFloor).tag, [5, 5]);
    assert_eq!((s.signatures(), s.pending.pending()), (0, 0));
    next(&mut s);
    s.p.at(10_000);
    // The previous process may have accepted requests up to ten seconds ahead.
    s.refuses(flight_at(6, 10_000), Status::GuardFloor);
    s.p.drain();
    next(&mut s);
    s.p.at(10_001);
    s.accepts(flight_at(7, 10_001));
}

// --- steps 9 and 10: signatures ------------------------------------------------------------------------------

/// Request 5 with one bit of the byte at `at` of its payload changed.
fn bent(at: usize) -> Seg {
    let mut request = request(&began(100), 5, DATA, 100_000);
    request.payload[at] ^= 1;
    syn(&request)
}

#[test]
fn bad_certificate_signature() {
    let mut s = server();
    for at in [48, 111] {
        forged(&mut s, bent(at), Status::BadSignature, 1);
        next(&mut s);
    }
    assert_eq!(s.p.stack.counters().blocks_forged, 2);
    // The rightly signed request is accepted, and first flights are not switched off.
    s.accepts(flight(5));
}

#[test]
fn bad_request_signature() {
    let mut s = server();
    for at in [132, 195] {
        // The certificate is verified once.
        let signatures = if at == 132 { 2 } else { 1 };
        forged(&mut s, bent(at), Status::BadSignature, signatures);
        next(&mut s);
    }
    s.accepts(flight(5));
}

/// Nothing that is signed can be changed: key, times, flags, id, and the data.
#[test]
fn everything_is_signed() {
    // The certificate's: client key, valid_from, flags, duration.
    for (at, signatures) in [(8, 1), (39, 1), (43, 1), (44, 1), (47, 1)] {
        forged(&mut server(), bent(at), Status::BadSignature, signatures);
    }
    // The request's: t_req, id, the data's first and last byte.
    let end = 196 + DATA.len() - 1;
    for at in [123, 124, 131, 196, end] {
        forged(&mut server(), bent(at), Status::BadSignature, 2);
    }
    let mut longer = request(&client(), 5, DATA, 0);
    longer.payload.push(0);
    forged(&mut server(), syn(&longer), Status::BadSignature, 2);
    longer.payload.truncate(196 + DATA.len() - 1);
    forged(&mut server(), syn(&longer), Status::BadSignature, 2);
    // L: a byte of padding moves the data.
    let mut padded = request(&client(), 5, DATA, 0);
    padded.option[7] += 1;
    padded.payload.insert(196, 0);
    forged(&mut server(), syn(&padded), Status::BadSignature, 2);
}

/// The SYN cookie for a forged first flight opens a connection like any other. Its data was not delivered before.
#[test]
fn a_forged_first_flight_may_go_on_by_handshake() {
    let mut s = server();
    let got = s.asks(bent(132)).ack(1);
    s.p.send(seg().seq(1).ack(1).data(DATA));
    let id = s.p.accept(s.listener);
    assert_eq!((s.p.read(id), s.p.state(id)), (DATA.to_vec(), StateName::Established));
    assert_eq!(reply(&got).unwrap().status, Status::BadSignature);
    assert_eq!(s.p.stack.counters().syn_cookies_good, 1);
}

#[test]
fn a_flood_of_forged_blocks_keeps_nothing_and_stops_nobody() {
    let mut s = server();
    for n in 0..2000 {
        // Each from another network.
        s.p.moves_to(&format!("10.{}.{}.2", 1 + n / 250, n % 250));
        let theirs = crate::certified::certificate(1, 3 + (n % 250) as u8, s.p.remote().ip());
        let mut request = request(&theirs, 5, DATA, 0);
        request.payload[140] ^= 1;
        forged(&mut s, syn(&request), Status::BadSignature, 2);
        s.p.pass(2);
    }
    assert_eq!(s.p.stack.connections(), 0);
    s.p.moves_to(CLIENT);
    s.accepts(flight_at(5, s.p.ms()));
}

// --- step 11, and after it -------------------------------------------------------------------------------------

/// An id that the guard has set stays set, even if there was no room for the connection.
#[test]
fn an_id_stays_used_when_the_connection_finds_no_room() {
    for full in [PacketDrop::AcceptQueueFull, PacketDrop::TooManyConnections] {
        let mut s = server_with(
            |config| {
                if full == PacketDrop::TooManyConnections {
                    config.limits.connections = 1;
                }
            },
            |_| {},
            |listen| {
                if full == PacketDrop::AcceptQueueFull {
                    listen.backlog = 1;
                }
            },
        );
        s.p.send(flight(5));
        next(&mut s);
        s.p.send(flight(6));
        assert_eq!(s.verify(), 2);
        assert_eq!(s.p.drain().len(), 1);
        assert_eq!((s.p.stack.counters().dropped(full), s.pending.pending()), (1, 1));
        let id = s.p.accept(s.listener);
        s.p.nothing_to_accept(s.listener);
        s.p.abort(id);
        s.p.release(id);
        s.p.drain();
        next(&mut s);
        s.refuses(flight(6), Status::Replayed);
        assert_eq!(s.pending.pending(), 0);
    }
}

// --- the order -----------------------------------------------------------------------------------------------

/// A first flight that is wrong in everything from some step on is refused because of that step: no more expensive
/// check is made.
#[test]
fn the_first_thing_wrong_decides() {
    // From the last step to the first, each wrong thing is added to those before. `seen`: the id of a request that was accepted,
    // which decides before every other thing, as long as the identity is the server's.
    let other = Identity::name("www.example.net", 80);
    for seen in [true, false] {
        let id = if seen { 5 } else { 6 };
        let or = |status| if seen { Status::Replayed } else { status };
        let mut wrong = request(&client(), id, DATA, 0);
        let mut s = server();
        s.accepts(flight(5));
        let mut check = |request: &Request, status| {
            next(&mut s);
            let got = s.asks(syn(request)).ack(1);
            assert_eq!(reply(&got).unwrap().status, status);
        };
        // Signed wrongly.
        wrong.payload[140] ^= 1;
        check(&wrong, or(Status::BadSignature));
        let old = request(&began(1900), id, DATA, 1_900_000);
        wrong.payload[..132].copy_from_slice(&old.payload[..132]);
        check(&wrong, or(Status::Expired));
        wrong.payload[112] ^= 1;
        check(&wrong, or(Status::AddressMismatch));
        wrong.payload[4] ^= 1;
        check(&wrong, or(Status::UnknownVerifier));
        let elsewhere = request_to(&other, &began(1900), id, DATA, 1_900_000);
        wrong.payload[114..118].copy_from_slice(&elsewhere.payload[114..118]);
        check(&wrong, Status::UnknownVerifier);
        wrong.payload[4] ^= 1;
        check(&wrong, Status::AddressMismatch);
        wrong.payload[112] ^= 1;
        check(&wrong, Status::WrongIdentity);
        wrong.payload[3] = 1;
        check(&wrong, Status::Malformed);
        assert_eq!(s.pending.pending(), 1);
        assert_eq!(
            s.signatures(),
            if seen { 2 } else { 3 },
            "of the first one, and of the one that is signed wrongly"
        );
    }
}
