//! First flights that a front delivers, for tests of a server.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::certified::{self, Request, identity};
use crate::flights::{CLIENT, DATA, Server, client, server_with, syn};
use crate::peer::{Got, Seg};
use firstflight_credential::PendingLimit;
use firstflight_credential::asap::{AsapPolicy, ClientCertificate, Identity, ReplyKey};
use firstflight_stack::{EncapsulationConfig, ListenConfig, RelayedFlight};
use firstflight_wire::Instant;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, Encapsulation, Reply};
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{OptionBytes, Segment};
use firstflight_wire::udp::Datagram;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The stack's UDP port, and the client's.
pub(crate) const OURS: u16 = 4433;
pub(crate) const THEIRS: u16 = 5000;
pub(crate) const NOW_S: u32 = (certified::NOW_MS / 1000) as u32;

pub(crate) fn key() -> ReplyKey {
    ReplyKey::from_bytes(&[5; 16])
}

pub(crate) fn address() -> IpAddr {
    CLIENT.parse().unwrap()
}

pub(crate) fn server_of(asap: impl FnOnce(&mut AsapPolicy)) -> Server {
    server_listening(|_| {}, asap)
}

pub(crate) fn server_listening(
    listen: impl FnOnce(&mut ListenConfig),
    asap: impl FnOnce(&mut AsapPolicy),
) -> Server {
    let tune = |config: &mut firstflight_stack::Config| {
        config.encapsulation = Some(EncapsulationConfig::new(OURS).probe(false));
    };
    let both = |policy: &mut AsapPolicy| {
        policy.relayed = Some(Arc::new(PendingLimit::with_clients(64, 4)));
        asap(policy);
    };
    let mut server = server_with(tune, both, listen);
    server.p.outer = Some((THEIRS, OURS));
    server
}

pub(crate) fn server() -> Server {
    server_of(|_| {})
}

/// Request number `id`, signed for delivery by a front, `ms` after the certificate came.
pub(crate) fn by_front(certificate: &ClientCertificate, to: &Identity, id: u8, ms: u64) -> Request {
    let now = Instant::ZERO + Duration::from_millis(ms);
    let block = certificate.request_by_front(to, DATA, [id; 8], now);
    let option = AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 };
    Request {
        option: OptionBytes::from(option).as_slice().to_vec(),
        payload: [&block.to_bytes()[..], DATA].concat(),
    }
}

pub(crate) fn relayed(id: u8) -> Seg {
    syn(&by_front(&client(), &identity(), id, 0))
}

/// The same request, sent directly.
pub(crate) fn direct(id: u8) -> Seg {
    let block = client().request(Encapsulation::Udp, &identity(), DATA, [id; 8], Instant::ZERO);
    let option = AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 };
    let option = OptionBytes::from(option).as_slice().to_vec();
    syn(&Request { option, payload: [&block.to_bytes()[..], DATA].concat() })
}

/// A front delivers `seg`, which would have come from the peer's address.
pub(crate) fn hand_over(s: &mut Server, seg: &Seg) {
    defer(s, seg);
    s.verify();
}

/// A front delivers `seg`, which then waits for its verification.
pub(crate) fn defer(s: &mut Server, seg: &Seg) {
    let packet = s.p.packet(seg);
    let ip = Packet::parse(&packet).unwrap();
    let datagram = Datagram::parse(ip.payload).unwrap();
    let Ok(Carried::Segment(segment)) = Carried::parse(datagram.payload) else { panic!() };
    let client = SocketAddr::new(ip.src, THEIRS);
    let flight = RelayedFlight { client, server: ip.dst, segment, key: key(), seen_as: None };
    s.p.stack.handle_relayed(s.p.now, flight);
}

pub(crate) fn reply(got: &Got) -> Reply {
    let ip = Packet::parse(&got.packet).unwrap();
    let datagram = Datagram::parse(ip.payload).unwrap();
    let Ok(Carried::Segment(segment)) = Carried::parse(datagram.payload) else { panic!() };
    Reply::parse(Segment::parse(segment).unwrap().options.asap().unwrap()).unwrap()
}
