//! A client with a certificate, against a hand-made server.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::certified::{NOW_MS, certificate_with, certified};
use crate::peer::{Got, PORT, Peer};
use firstflight_credential::Outcome;
use firstflight_stack::{ConnId, ConnectConfig};
use firstflight_wire::Instant;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, Hint, Reply, Status};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{OptionBytes, Segment};
use std::time::Duration;

pub(crate) const DATA: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
/// The number after block and [`DATA`].
pub(crate) const AFTER: u32 = 1 + BLOCK_LEN as u32 + DATA.len() as u32;

/// A connect that was started.
pub(crate) struct Visit {
    pub id: ConnId,
    pub syn: Got,
    /// The client's port.
    pub port: u16,
    /// The tag of the block, if it has one.
    pub tag: [u8; 2],
}

impl Visit {
    /// The option of a SYN-ACK that accepts it.
    pub(crate) fn accepted(&self) -> Vec<u8> {
        reply_with(Status::Accepted, self.tag)
    }
}

/// Connects with a certificate for a day and [`DATA`], which may run twice, to a server that is known to take
/// certificates.
#[track_caller]
pub(crate) fn visit(p: &mut Peer, tune: impl FnOnce(&mut ConnectConfig)) -> Visit {
    visit_with(p, DATA, tune)
}

/// A connect whose data must not run twice, its block in flight.
pub(crate) fn once() -> (Peer, Visit) {
    let mut p = Peer::new();
    let flight = visit(&mut p, |config| {
        config.replay_safe = false;
        config.asap.as_mut().unwrap().once = true;
    });
    (p, flight)
}

#[track_caller]
pub(crate) fn visit_with(p: &mut Peer, data: &[u8], tune: impl FnOnce(&mut ConnectConfig)) -> Visit {
    p.drain();
    p.port = PORT;
    let address = p.local().ip();
    let certificate = certificate_with(1, 2, address, (NOW_MS / 1000) as u32, 200_000, 1);
    let now = Instant::ZERO + Duration::from_millis(p.ms());
    let asap = Some(certified(certificate, now));
    let mut config = ConnectConfig::default().asap(asap).replay_safe(true);
    tune(&mut config);
    let id = p.connect_with(data, &config);
    let syn = p.expect();
    let tag = syn.data.get(124..126).map_or([0; 2], |tag| tag.try_into().unwrap());
    Visit { id, port: p.local_port, tag, syn }
}

pub(crate) fn reply_with(status: Status, tag: [u8; 2]) -> Vec<u8> {
    OptionBytes::from(Reply { status, tag, hint: Hint::None }).as_slice().to_vec()
}

/// Whether a segment offers a block; `None`: it offers nothing.
#[track_caller]
pub(crate) fn asap_option(got: &Got) -> Option<bool> {
    let ip = Packet::parse(&got.packet).unwrap();
    let segment = Segment::parse(ip.payload).unwrap();
    let option = AsapOption::parse(segment.options.asap()?).expect("an option that nobody can read");
    if let AsapOption::Block { len, .. } = option {
        assert_eq!(usize::from(len), BLOCK_LEN);
    } else {
        assert!(got.data.is_empty(), "a probe with a payload");
    }
    Some(matches!(option, AsapOption::Block { .. }))
}

/// The reply in a SYN-ACK.
pub(crate) fn reply(got: &Got) -> Option<Reply> {
    let ip = Packet::parse(&got.packet).unwrap();
    Segment::parse(ip.payload).unwrap().options.asap().and_then(Reply::parse)
}

pub(crate) fn outcome(p: &Peer, id: ConnId) -> Outcome {
    p.stack.info(id).unwrap().outcome
}

/// The connection ends, and its memory is freed.
pub(crate) fn end(p: &mut Peer, id: ConnId) {
    p.abort(id);
    p.release(id);
    p.drain();
    assert_eq!(p.stack.connections(), 0);
}
