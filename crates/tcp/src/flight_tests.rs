use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn seq(n: u32) -> SeqNum {
    // Close to the wrap of the sequence numbers.
    SeqNum::new(n.wrapping_sub(500))
}

/// Ten segments of 100 bytes, from 0 on, sent one a millisecond.
fn ten() -> Flight {
    let mut flight = Flight::default();
    for n in 0..10 {
        flight.push(seq(n * 100), seq((n + 1) * 100), at(u64::from(n)), &mut Boards::default());
    }
    flight
}

fn sacked(flight: &mut Flight, start: u32, end: u32) -> Vec<u32> {
    let mut lens = Vec::new();
    flight.sack(seq(start)..seq(end), |sent| lens.push(sent.len()));
    lens
}

#[test]
fn a_record_is_small() {
    assert!(size_of::<Sent>() <= 24);
    assert!(size_of::<Flight>() <= 24, "{}", size_of::<Flight>());
}

#[test]
fn counts_follow_what_happens() {
    let mut flight = ten();
    assert_eq!((flight.pipe(), flight.len()), (1000, 10));
    assert_eq!(sacked(&mut flight, 300, 500), [100, 100]);
    assert_eq!(sacked(&mut flight, 300, 500), [] as [u32; 0]);
    assert_eq!((flight.pipe(), flight.sacked(), flight.sacked_segments()), (800, 200, 2));
    flight.mark(|sent| Some(sent.start.lt(seq(300))));
    assert_eq!((flight.pipe(), flight.lost(), flight.waiting()), (500, 300, 300));
    assert_eq!(flight.next_waiting(100), Some((seq(0), seq(100))));
    flight.repeat(seq(0), seq(100), at(20));
    assert_eq!((flight.pipe(), flight.lost(), flight.waiting(), flight.again()), (600, 300, 200, 100));
    // The retransmission is lost, too.
    flight.mark(|sent| Some(sent.at == at(20)));
    assert_eq!((flight.pipe(), flight.waiting(), flight.again()), (500, 300, 0));
    assert_eq!(flight.next_waiting(100), Some((seq(0), seq(100))));
    let mut seen = Vec::new();
    flight.acknowledge(seq(450), |sent| seen.push((sent.len(), sent.marks.has(SegmentMarks::REPEATED))));
    assert_eq!(seen, [(100, true), (100, false), (100, false)]);
    assert_eq!((flight.pipe(), flight.sacked(), flight.sacked_segments(), flight.lost()), (500, 50, 1, 0));
    flight.acknowledge(seq(1000), |_| ());
    assert_eq!((flight.pipe(), flight.len()), (0, 0));
    let mut boards = Boards::default();
    flight.release(&mut boards);
    assert!(matches!(flight.records, Records::None));
    // The next flight reuses its memory.
    flight.push(seq(0), seq(1), at(1), &mut boards);
    flight.push(seq(1), seq(2), at(1), &mut boards);
    assert_eq!((flight.pipe(), flight.len(), flight.waiting()), (2, 2, 0));
}

#[test]
fn a_part_of_a_segment_is_none() {
    let mut flight = ten();
    assert_eq!(sacked(&mut flight, 350, 520), [100]);
    assert_eq!(sacked(&mut flight, 620, 680), [] as [u32; 0]);
    assert_eq!((flight.len(), flight.sacked()), (10, 100));
    // A segment that is sent again in smaller pieces has one record for each piece.
    flight.mark(|_| Some(true));
    assert_eq!(flight.next_waiting(30), Some((seq(0), seq(30))));
    flight.repeat(seq(0), seq(30), at(30));
    assert_eq!(flight.next_waiting(30), Some((seq(30), seq(60))));
    assert_eq!(sacked(&mut flight, 0, 30), [30]);
}

#[test]
fn small_segments_go_again_together() {
    let mut flight = ten();
    flight.mark(|sent| Some(sent.start.lt(seq(400))));
    assert_eq!(flight.next_waiting(250), Some((seq(0), seq(200))));
    flight.repeat(seq(0), seq(200), at(30));
    assert_eq!((flight.again(), flight.waiting()), (200, 200));
    assert_eq!(flight.next_waiting(1000), Some((seq(200), seq(400))));
}

#[test]
fn what_is_taken_back_is_under_way_again() {
    let mut flight = ten();
    sacked(&mut flight, 0, 1000);
    assert_eq!(flight.pipe(), 0);
    flight.renege();
    flight.mark(|_| Some(true));
    assert_eq!((flight.pipe(), flight.waiting()), (0, 1000));
    flight.unmark_lost();
    assert_eq!((flight.pipe(), flight.waiting()), (1000, 0));
    assert_eq!(flight.next_waiting(100), None);
}

/// An application that writes single bytes does not make the list long.
#[test]
fn crumbs_are_bounded() {
    let mut flight = Flight::default();
    for n in 0..100_000 {
        flight.push(seq(n), seq(n + 1), at(1), &mut Boards::default());
    }
    assert!(flight.len() <= MANY + 1);
    assert_eq!(flight.pipe(), 100_000);
    for n in 0..50_000 {
        sacked(&mut flight, 2 * n, 2 * n + 1);
    }
    assert!(flight.len() <= MANY + 1);
    flight.acknowledge(seq(100_000), |_| ());
    assert_eq!((flight.pipe(), flight.len()), (0, 0));
}

/// Counts the sums again from the records.
fn counted(flight: &Flight) -> (u32, u32, u32, u32, u32, u32) {
    let mut sums = (0, 0, 0, 0, 0, 0);
    let mut end = None;
    for sent in (0..flight.len()).filter_map(|i| flight.get(i)) {
        assert!(sent.start.lt(sent.end) && end.is_none_or(|end| end == sent.start));
        end = Some(sent.end);
        let len = sent.len();
        let add = |on: bool| if on { len } else { 0 };
        sums.0 += len;
        sums.1 += add(sent.marks.has(SegmentMarks::SACKED));
        sums.2 += add(sent.marks.has(SegmentMarks::LOST));
        sums.3 += add(sent.marks.has(SegmentMarks::AGAIN));
        sums.4 += add(sent.marks.waits());
        sums.5 += u32::from(sent.marks.has(SegmentMarks::SACKED));
    }
    sums
}

proptest! {
    /// After any sequence of events, the sums are those of the records.
    #[test]
    fn sums_are_exact(steps in prop::collection::vec((0u8..9, 0u32..2000, 1u32..400), 1..120)) {
        let mut flight = Flight::default();
        let (mut una, mut nxt) = (0, 0);
        for (n, (what, from, len)) in (0u64..).zip(steps) {
            let start = una + from.min(nxt - una);
            let end = (start + len).min(nxt);
            match what {
                0..=2 => {
                    flight.push(seq(nxt), seq(nxt + len), at(n), &mut Boards::default());
                    nxt += len;
                }
                3 => flight.acknowledge(seq(end), |_| ()),
                4 => flight.sack(seq(start)..seq(end), |_| ()),
                5 => flight.mark(|sent| Some(sent.start.lt(seq(end)))),
                6 => {
                    if let Some((start, end)) = flight.next_waiting(len) {
                        flight.repeat(start, end, at(n));
                    }
                }
                7 if start < end => flight.repeat(seq(start), seq(end), at(n)),
                8 if from % 4 == 0 => flight.renege(),
                8 if from % 4 == 1 => flight.unmark_lost(),
                _ => flight.mark_first(),
            }
            if what == 3 {
                una = end;
            }
            let (sacked, segments) = (flight.sacked(), flight.sacked_segments());
            let sums = (flight.bytes(), sacked, flight.lost(), flight.again(), flight.waiting(), segments);
            prop_assert_eq!(sums, counted(&flight));
            prop_assert_eq!(flight.bytes(), nxt - una);
            let pipe = (flight.bytes() + flight.again()).saturating_sub(flight.sacked() + flight.lost());
            prop_assert_eq!(flight.pipe(), pipe);
            prop_assert!(flight.waiting() == 0 || flight.next_waiting(100).is_some());
        }
    }
}
