//! Requirements of loss recovery (RFC 6298, RFC 6675, RFC 8985) that no other file covers.

use crate::peer::{Peer, Seg, seg};
use firstflight_stack::ConnId;
use firstflight_tcp::congestion::Algorithm;

const MSS: u32 = 1_000;
/// Round-trip time of the path, ms.
const RTT: u64 = 100;

/// An open connection with SACK.
fn open() -> (Peer, ConnId) {
    let mut p = Peer::with(|c| c.tcp.set_congestion(Algorithm::NewReno));
    p.handshake_ms = RTT;
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(MSS as u16).sack_ok());
    (p, id)
}

fn nth(n: u32) -> u32 {
    1 + n * MSS
}

fn ack(n: u32) -> Seg {
    seg().seq(1).ack(nth(n))
}

fn sack(n: u32, from: u32, to: u32) -> Seg {
    ack(n).sack(&[(nth(from), nth(to))])
}

/// RFC 8985 §6.2 step 4: the reordering window grows by a quarter of the smallest round-trip time, and never beyond
/// the smoothed one.
/// smoothed one.
//= rfc8985 3.3.2-c 3.3.2-d 4-c test
#[test]
fn each_round_with_a_duplicate_makes_more_patient_up_to_the_round_trip() {
    let (mut p, id) = open();
    let mut next = 0;
    for quarters in 1..=6 {
        p.write(id, &[0; 3 * MSS as usize]);
        p.drain();
        p.pass(RTT);
        p.send(sack(next, next + 1, next + 3));
        let srtt = p.stack.info(id).unwrap().rtt.unwrap();
        let patience = (quarters * RTT / 4).min(srtt.as_millis() as u64);
        let now = p.ms();
        let again = p.sends_at(now + patience + 10, &[now + patience]);
        assert_eq!(again[0].seq, nth(next), "with {quarters} quarters");
        // The segment was only late, and arrives a second time.
        next += 3;
        p.send(ack(next));
        p.send(sack(next, next - 3, next - 2));
    }
}

/// RFC 8985 §7.2: with two SYN-ACKs in flight, nothing was measured.
//= rfc8985 7.2-b test
#[test]
fn without_a_round_trip_time_the_probe_waits_a_second() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(MSS as u16).sack_ok());
    p.at(1_010);
    p.drain();
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    assert_eq!(p.stack.info(id).unwrap().rtt, None);
    p.write(id, &[0; MSS as usize]);
    let now = p.ms();
    assert_eq!(p.drain().len(), 1);
    // The timeout would come after 3 s (RFC 6298 §5.7).
    let probe = p.sends_at(now + 1_500, &[now + 1_000]);
    assert_eq!(probe[0].seq, 1);
}

/// RFC 6675 §5: segments behind the end of a recovery that were SACKed in it are not sent again.
//= rfc6675 5-f test
#[test]
fn what_was_sacked_is_remembered_when_a_recovery_ends() {
    let (mut p, id) = open();
    p.write(id, &[0; 14 * MSS as usize]);
    assert_eq!(p.drain().len(), 10);
    p.pass(RTT);
    // Segment 0 is lost. The first segments after it cause new ones to be sent.
    for end in 2..=10 {
        p.send(sack(0, 1, end));
    }
    let sent = p.drain();
    let new: Vec<u32> = sent.iter().map(|g| g.seq).filter(|seq| *seq >= nth(10)).collect();
    assert!(new.len() >= 3, "{sent:?}");
    p.pass(RTT);
    // Segment 10 is lost, too, and those after it have arrived when the first recovery ends.
    let end = 10 + new.len() as u32;
    p.send(sack(10, 11, end));
    p.pass(RTT);
    let again: Vec<u32> = p.drain().iter().map(|g| g.seq).filter(|seq| *seq < nth(end)).collect();
    assert!(again.contains(&nth(10)), "{again:?}");
    assert!(again.iter().all(|seq| *seq == nth(10)), "{again:?}");
}

/// RFC 6298 §3: at least one measurement in a round trip, so the estimate follows a path that gets longer.
//= rfc6298 3-c test
#[test]
fn every_round_trip_is_measured() {
    let (mut p, id) = open();
    let mut last = p.stack.info(id).unwrap().rtt.unwrap();
    for n in 1..=8 {
        p.write(id, &[0; MSS as usize]);
        p.drain();
        p.pass(250);
        p.send(ack(n));
        let srtt = p.stack.info(id).unwrap().rtt.unwrap();
        assert!(srtt > last, "{srtt:?} after {last:?}");
        last = srtt;
    }
}
