//! A receiver that closes its window and opens it again, packet by packet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use firstflight_stack::{CloseReason, ConnId, StateName};
use peer::{Peer, seg};

// --- closed ---------------------------------------------------------------------------------------

/// A connection whose peer has filled our window of 2,000 bytes.
fn closed() -> (Peer, ConnId) {
    let mut p = Peer::with(|c| c.tcp.receive_buffer = 2_000);
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1_000));
    p.send(seg().seq(1).ack(1).bytes(1_000));
    p.send(seg().seq(1_001).ack(1).bytes(1_000));
    let full = p.drain().pop().unwrap();
    assert_eq!((full.ack, full.window), (2_001, 0));
    (p, id)
}

/// A FIN needs no room in the buffer: one for a closed window is taken (RFC 9293 §3.10.7.4 takes no numbers at all), so
/// that its sender is done, and the application finds the end as soon as it has read.
#[test]
fn a_fin_into_a_closed_window_is_taken() {
    let (mut p, id) = closed();
    // Text does not fit, with or without a FIN behind it.
    p.send(seg().seq(2_001).ack(1).bytes(10).fin());
    p.expect().is_ack().ack(2_001).win(0);
    assert_eq!(p.state(id), StateName::Established);
    // The FIN alone does.
    p.send(seg().seq(2_001).ack(1).fin());
    p.expect().is_ack().ack(2_002).win(0);
    assert_eq!(p.state(id), StateName::CloseWait);
    // Again, because that was lost.
    p.send(seg().seq(2_001).ack(1).fin());
    p.expect().is_ack().ack(2_002);
    let mut out = [0; 3_000];
    assert_eq!(p.stack.read(id, &mut out, p.now), Ok(2_000));
    assert_eq!(p.stack.read(id, &mut out, p.now), Ok(0), "the end");
    p.shutdown(id);
    p.expect().is_fin().seq(1).ack(2_002);
    p.send(seg().seq(2_002).ack(2));
    assert_eq!((p.reason(id), p.stack.buffer_bytes()), (Some(CloseReason::Finished), 0));
}

/// The same when text that is there comes again in front of the FIN, because its acknowledgement was lost.
#[test]
fn a_fin_behind_old_text_is_taken_into_a_closed_window() {
    let (mut p, id) = closed();
    p.send(seg().seq(1_001).ack(1).bytes(1_000).fin());
    p.expect().is_ack().ack(2_002).win(0);
    assert_eq!((p.state(id), p.read(id).len()), (StateName::CloseWait, 2_000));
}
