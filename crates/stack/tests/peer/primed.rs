//! A stack that has visited the peer before, and has a cookie from it.

use super::{Got, Peer, Seg, seg};
use firstflight_credential::Outcome;
use firstflight_stack::ConnId;
use firstflight_wire::tcp::{FastOpen, FastOpenForm};

pub(crate) const COOKIE: [u8; 8] = *b"cookie!!";
pub(crate) const DATA: &[u8] = b"GET / HTTP/1.0";
/// The number after [`DATA`].
pub(crate) const AFTER: u32 = 1 + DATA.len() as u32;

/// A stack that has a cookie from the peer: `syn_ack` granted it after `rtt` ms.
pub(crate) fn primed_by(mut p: Peer, syn_ack: Seg, rtt: u64) -> Peer {
    let id = p.connect(b"", true);
    assert_eq!(p.expect().is_syn().fast_open, Some(FastOpen::Request(FastOpenForm::Standard)));
    p.pass(rtt);
    p.send(syn_ack.syn().ack(1).cookie(&COOKIE));
    p.expect().is_ack();
    end(&mut p, id);
    p
}

pub(crate) fn primed() -> Peer {
    primed_by(Peer::new(), seg().mss(1460), 10)
}

/// The peer resets the connection, and its memory is freed.
pub(crate) fn end(p: &mut Peer, id: ConnId) {
    end_at(p, id, 1);
}

/// Like [`end`], with the number of the RST, for a peer that has sent data.
pub(crate) fn end_at(p: &mut Peer, id: ConnId, seq: u32) {
    p.send(seg().seq(seq).rst());
    p.release(id);
    assert_eq!(p.stack.connections(), 0);
}

/// Number of failures that are remembered, of all servers together.
pub(crate) fn failures(p: &Peer) -> u32 {
    p.stack.credentials().iter().map(|(_, _, entry)| entry.failures.count).sum()
}

pub(crate) fn outcome(p: &Peer, id: ConnId) -> Outcome {
    p.stack.info(id).unwrap().outcome
}

#[track_caller]
pub(crate) fn with_cookie(got: Got) -> Got {
    match got.fast_open {
        Some(FastOpen::Cookie(FastOpenForm::Standard, cookie)) => assert_eq!(cookie.as_bytes(), COOKIE),
        _ => panic!("no cookie in {got:?}"),
    }
    got.is_syn()
}
