//! What counts as evidence that a path drops what follows a first flight: a FIN or RST out of order (Linux' third
//! and fourth sign). And what does not count: above all, packets that others can forge.

use crate::peer::primed::{AFTER, DATA, failures, primed, primed_by, with_cookie};
use crate::peer::{PORT, Peer, Seg, seg};
use firstflight_stack::{CloseReason, ConnId, ConnectConfig};

/// Bytes that the server sent and the path dropped.
const RESPONSE: u32 = 100;
/// The number after them.
const BEHIND: u32 = 1 + RESPONSE;

/// An accepted first flight, with nothing received since.
fn accepted() -> (Peer, ConnId) {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect()).data(DATA);
    p.send(seg().syn().ack(AFTER).mss(1_460));
    p.expect().is_ack().seq(AFTER).ack(1).empty();
    (p, id)
}

/// A RST of the server with a number after the dropped response. The stack challenges it (RFC 5961 §3.2).
#[track_caller]
fn reset_ahead(p: &mut Peer) {
    p.send(seg().seq(BEHIND).rst());
    p.expect().is_ack().seq(AFTER).ack(1).empty();
}

/// The server's connection is gone: its host answers the challenge ACK with the number that it acknowledges.
//= rfc5961 3.2-c test
#[test]
fn a_reset_behind_the_response_that_is_confirmed_is_a_failure() {
    let (mut p, id) = accepted();
    reset_ahead(&mut p);
    assert_eq!(failures(&p), 0, "one RST may be forged");
    p.send(seg().seq(1).rst());
    assert_eq!((p.reason(id), failures(&p)), (Some(CloseReason::Reset), 1));
    p.release(id);
    assert_eq!(failures(&p), 1, "one failure");
    p.connect(DATA, true);
    p.expect().is_syn().empty().no_fast_open();
}

#[test]
fn a_fin_behind_the_response_is_a_failure_when_the_connection_is_over_without_it() {
    for aborted in [false, true] {
        let (mut p, id) = accepted();
        p.send(seg().seq(BEHIND).ack(AFTER).fin());
        p.expect().is_ack().ack(1);
        assert_eq!(failures(&p), 0, "it may only have overtaken the response");
        if aborted {
            p.abort(id);
        }
        p.release(id);
        p.drain();
        assert_eq!(failures(&p), 1, "aborted: {aborted}");
        p.connect(DATA, true);
        p.expect().is_syn().empty().no_fast_open();
    }
}

/// The server acknowledges more of the request, with a number after its response: the same evidence.
#[test]
fn an_acknowledgement_behind_the_response_is_a_failure_too() {
    let (mut p, id) = accepted();
    p.write(id, b"more");
    p.expect().data(b"more");
    p.send(seg().seq(BEHIND).ack(AFTER + 4));
    p.send(seg().seq(1).rst());
    p.release(id);
    assert_eq!(failures(&p), 1);
}

/// The failures that are remembered after these segments arrive and the application gives up.
fn ends_with(segments: &[Seg]) -> u32 {
    let (mut p, id) = accepted();
    for segment in segments {
        p.send(segment.clone());
    }
    p.drain();
    p.read(id);
    p.release(id);
    p.drain();
    failures(&p)
}

/// Each of these happens on good paths too, or can be forged by an attacker who knows only the ports.
#[test]
fn what_does_not_count() {
    let answer = || seg().seq(1).ack(AFTER).bytes(RESPONSE as usize);
    let fin = || seg().seq(BEHIND).ack(AFTER).fin();
    let cases: [(&str, Vec<Seg>); 9] = [
        ("nothing", vec![]),
        ("a server that resets before it says anything", vec![seg().seq(1).rst()]),
        ("a forged RST in the window", vec![seg().seq(BEHIND).rst()]),
        ("many of them", (1..60).map(|n| seg().seq(n * 1_000).rst()).collect()),
        ("one outside", vec![seg().seq(1 << 30).rst(), seg().seq(1).rst()]),
        ("a forged RST, then the response", vec![seg().seq(5_000).rst(), answer(), seg().seq(BEHIND).rst()]),
        ("a FIN that overtook the response", vec![fin(), answer()]),
        ("a FIN with a guessed acknowledgement", vec![seg().seq(BEHIND).ack(1 << 30).fin()]),
        (
            "a hole in the response, then a RST",
            vec![seg().seq(51).ack(AFTER).bytes(50), seg().seq(BEHIND).rst(), seg().seq(1).rst()],
        ),
    ];
    for (what, segments) in cases {
        assert_eq!(ends_with(&segments), 0, "{what}");
    }
}

/// A server that reads everything and closes: its FIN was lost, and its acknowledgement has a number that is one
/// ahead.
#[test]
fn a_lost_fin_is_no_response() {
    let ends: [&[Seg]; 3] = [
        &[seg().seq(2).ack(AFTER + 1), seg().seq(1).ack(AFTER + 1).fin()],
        &[seg().seq(2).ack(AFTER + 1)],
        &[seg().seq(2).rst(), seg().seq(1).rst()],
    ];
    for segments in ends {
        let (mut p, id) = accepted();
        p.shutdown(id);
        p.expect().is_fin().seq(AFTER);
        for segment in segments {
            p.send(segment.clone());
        }
        p.drain();
        p.abort(id);
        p.release(id);
        p.drain();
        assert_eq!(failures(&p), 0, "{segments:?}");
    }
}

/// The response overtook the SYN-ACK, and was too early for us. Then the server resets.
#[test]
fn a_response_in_front_of_the_syn_ack_was_not_swallowed() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect()).data(DATA);
    p.send(seg().seq(1).ack(AFTER).bytes(RESPONSE as usize));
    p.drain();
    p.send(seg().syn().ack(AFTER).mss(1_460));
    p.expect().is_ack().seq(AFTER).ack(1).empty();
    reset_ahead(&mut p);
    p.send(seg().seq(1).rst());
    p.release(id);
    assert_eq!(failures(&p), 0);
}

/// With timestamps a FIN needs one that is not older than the SYN-ACK's.
#[test]
fn a_fin_with_an_old_timestamp_does_not_count() {
    for (value, count) in [(999, 0), (1_001, 1)] {
        let mut p = primed_by(Peer::new(), seg().mss(1_460).ts(900), 10);
        let id = p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
        p.send(seg().syn().ack(AFTER).mss(1_460).ts(1_000));
        p.expect().is_ack();
        p.send(seg().seq(BEHIND).ack(AFTER).fin().ts(value));
        p.drain();
        p.release(id);
        assert_eq!(failures(&p), count, "{value}");
    }
}

/// An ordinary connection says nothing about first flights.
#[test]
fn without_a_first_flight_it_says_nothing() {
    let mut p = primed();
    let id = p.connect(DATA, false);
    p.expect();
    p.send(seg().syn().ack(1).mss(1_460));
    p.expect().data(DATA);
    p.send(seg().seq(BEHIND).rst());
    p.send(seg().seq(1).rst());
    p.release(id);
    assert_eq!(failures(&p), 0);
}

/// After the application has released a connection, its response is not read. That does not mean that the path dropped
/// it.
#[test]
fn a_response_that_nobody_waits_for_is_no_failure() {
    let (mut p, id) = accepted();
    p.release(id);
    p.send(seg().seq(BEHIND).ack(AFTER).fin());
    p.send(seg().seq(1).ack(AFTER).bytes(RESPONSE as usize));
    p.drain();
    assert_eq!(failures(&p), 0);
}

/// If the data may run twice, a FIN with a number after the response shows what the probe's answer would have
/// shown, so the second attempt does not wait for a second probe.
#[test]
fn the_fallback_sequence_believes_the_fin() {
    for fin in [false, true] {
        let mut p = primed();
        // A path that has passed first flights is not probed early.
        let id = p.connect(DATA, true);
        p.expect();
        p.send(seg().syn().ack(AFTER).mss(1_460).data(b"response"));
        p.expect();
        crate::peer::primed::end_at(&mut p, id, 9);
        let config = ConnectConfig::default().fast_open(true).replay_safe(true);
        p.port = PORT;
        p.connect_with(DATA, &config);
        let start = p.ms();
        p.expect();
        p.send(seg().syn().ack(AFTER).mss(1_460));
        p.expect().is_ack();
        if fin {
            p.send(seg().seq(BEHIND).ack(AFTER).fin());
            p.expect().is_ack().ack(1);
        }
        p.at(start + 1_200);
        let syns = p.drain().into_iter().filter(|got| got.flags.contains(firstflight_wire::tcp::Flags::SYN));
        assert_eq!(syns.count(), usize::from(fin), "fin: {fin}");
    }
}
