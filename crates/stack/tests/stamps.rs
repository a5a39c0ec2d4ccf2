//! When the bytes that an application chose left, and when the peer acknowledged them (`Stack::stamp`).

use crate::peer::primed::{AFTER, DATA, primed, with_cookie};
use crate::peer::{Peer, seg};
use firstflight_stack::{ConnId, Milestone, Readiness};
use firstflight_wire::Instant;
use std::time::Duration;

/// An open connection whose segments hold 1,000 bytes.
fn open() -> (Peer, ConnId) {
    let mut p = Peer::with(|config| config.tcp.set_timestamps(false));
    let id = p.open_active(seg().mss(1000));
    (p, id)
}

/// The times that are to be taken: bytes up to the chosen one, what happened, when.
fn stamps(p: &mut Peer, id: ConnId) -> Vec<(u64, Milestone, Instant)> {
    std::iter::from_fn(|| p.stack.poll_stamp(id)).map(|s| (s.offset, s.milestone, s.at)).collect()
}

#[test]
fn the_last_byte_of_a_write_is_followed_until_it_is_acknowledged() {
    let (mut p, id) = open();
    p.stack.write(id, &[7; 11_000], p.now).unwrap();
    assert_eq!(p.stack.stamp(id, p.now), Some(11_000));
    p.pump();
    assert_eq!(p.drain().len(), 10, "the initial window");
    assert_eq!(stamps(&mut p, id), []);
    p.pass(10);
    p.send(seg().seq(1).ack(10_001));
    p.expect().is_ack().seq(10_001).len(1000);
    let sent = p.now;
    assert!(p.saw(id, Readiness::STAMPED));
    assert_eq!(stamps(&mut p, id), [(11_000, Milestone::Sent, sent)]);
    p.events.clear();
    p.pass(10);
    p.send(seg().seq(1).ack(11_001));
    assert!(p.saw(id, Readiness::STAMPED));
    assert_eq!(stamps(&mut p, id), [(11_000, Milestone::Acknowledged, p.now)]);
    assert_eq!(p.stack.stamp(id, p.now), None, "there is nothing to wait for");
}

/// A driver may send between the write and the question.
#[test]
fn a_byte_that_has_left_before_it_is_chosen_has_its_time_too() {
    let (mut p, id) = open();
    p.write(id, &[7; 2000]);
    let sent = p.now;
    p.pass(5);
    assert_eq!(p.stack.stamp(id, p.now), Some(2000));
    p.write(id, &[7; 500]);
    assert_eq!(p.stack.stamp(id, p.now), Some(2500));
    let later = p.now;
    p.drain();
    p.pass(10);
    p.send(seg().seq(1).ack(2001));
    assert_eq!(
        stamps(&mut p, id),
        [
            (2000, Milestone::Sent, sent),
            (2500, Milestone::Sent, later),
            (2000, Milestone::Acknowledged, p.now)
        ]
    );
}

/// Half of the segment is acknowledged, and the other half later.
#[test]
fn a_repetition_has_no_time_and_a_part_acknowledges_nothing() {
    let (mut p, id) = open();
    p.write(id, &[7; 1000]);
    let sent = p.now;
    assert_eq!(p.stack.stamp(id, p.now), Some(1000));
    p.expect().len(1000);
    p.pass(2_000);
    assert!(!p.drain().is_empty(), "it is sent again");
    p.send(seg().seq(1).ack(501));
    assert_eq!(stamps(&mut p, id), [(1000, Milestone::Sent, sent)]);
    p.send(seg().seq(1).ack(1001));
    assert_eq!(stamps(&mut p, id), [(1000, Milestone::Acknowledged, p.now)]);

    // A byte that is chosen after it was sent again has no certain time.
    p.write(id, &[7; 1000]);
    p.pass(2_000);
    assert_eq!(p.stack.stamp(id, p.now), Some(2000));
    p.drain();
    p.send(seg().seq(1).ack(2001));
    assert_eq!(stamps(&mut p, id), [(2000, Milestone::Acknowledged, p.now)]);
}

#[test]
fn a_request_in_the_syn_has_its_times() {
    for accepted in [true, false] {
        let mut p = primed();
        let id = p.connect(DATA, true);
        with_cookie(p.expect()).data(DATA);
        let (sent, written) = (p.now, DATA.len() as u64);
        p.pass(5);
        assert_eq!(p.stack.stamp(id, p.now), Some(written));
        assert_eq!(stamps(&mut p, id), [(written, Milestone::Sent, sent)]);
        p.pass(5);
        p.send(seg().syn().ack(if accepted { AFTER } else { 1 }).mss(1460));
        p.drain();
        if !accepted {
            assert_eq!(stamps(&mut p, id), []);
            p.pass(10);
            p.send(seg().seq(1).ack(AFTER));
        }
        assert_eq!(stamps(&mut p, id), [(written, Milestone::Acknowledged, p.now)]);
    }
}

/// The timer has fired, and the repetition has not left yet.
#[test]
fn a_syn_that_is_to_be_sent_again_has_the_time_of_its_first_copy() {
    let mut p = primed();
    let id = p.connect(DATA, true);
    with_cookie(p.expect()).data(DATA);
    let (sent, written) = (p.now, DATA.len() as u64);
    p.now += Duration::from_secs(2);
    p.stack.handle_timeout(p.now);
    assert_eq!(p.stack.stamp(id, p.now), Some(written));
    p.pump();
    assert!(p.expect().is_syn().data.is_empty(), "it is sent again, without the data");
    assert_eq!(stamps(&mut p, id), [(written, Milestone::Sent, sent)]);
}

#[test]
fn times_that_nobody_takes_are_bounded() {
    let (mut p, id) = open();
    let mut most = 0;
    for n in 0..100 {
        p.write(id, b"x");
        most += u32::from(p.stack.stamp(id, p.now).is_some());
        p.send(seg().seq(1).ack(2 + n));
    }
    p.drain();
    assert_eq!((most, stamps(&mut p, id).len()), (64, 128));
    p.write(id, b"x");
    assert_eq!(p.stack.stamp(id, p.now), Some(101));
}
