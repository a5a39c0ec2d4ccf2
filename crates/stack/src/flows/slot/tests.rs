use super::*;
use firstflight_wire::SeqNum;
use std::format;

#[test]
fn nothing_is_left_of_the_connection_before() {
    let tcp = Arc::new(firstflight_tcp::Config::default());
    let ends = || Endpoints {
        local_port: 80,
        remote_port: 40_000,
        isn: SeqNum::new(7),
        ts_offset: 5,
        default_mss: 536,
        path_mss: 1460,
        probe: [0; 3],
    };
    let now = Instant::from_secs(3);
    let key = |n: u8| FlowKey::of([10, 0, 0, n].into(), 80, [10, 0, 1, n].into(), 40_000);
    let (before, after) = (key(1), key(2));
    let begin = |slot: &mut Slot, key, hash, owner, outcome| {
        slot.renew(&tcp, Beginning { ends: ends(), key, hash, owner, outcome, now });
    };
    let mut slot = Slot::default();
    begin(&mut slot, &before, 1, Owner::SecondAttempt(3), Outcome::Accepted);
    (slot.side, slot.stage, slot.shown) = (OpeningSide::Client, SlotStage::Ended, ShownCertificate::ByFront);
    slot.marks = SlotMarks(u8::MAX);
    (slot.turn, slot.event) = (InQueue::Yes, InQueue::Yes);
    slot.pending = Some(Box::default());
    slot.network_error = Some(IcmpErrorKind::HostUnreachable);
    slot.ready = Readiness::CLOSED;
    slot.retire(&mut Pool::new(0));
    let mut fresh = Slot::default();
    for slot in [&mut slot, &mut fresh] {
        begin(slot, &after, 2, Owner::Nobody, Outcome::Undecided);
    }
    assert_eq!(format!("{slot:#?}"), format!("{fresh:#?}"));
}
