#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use firstflight::credential::Serial;

#[test]
fn slots_are_those_of_redis() {
    // From the specification, and of `CLUSTER KEYSLOT`.
    assert_eq!(slot_of("123456789"), 0x31c3);
    assert_eq!(slot_of("foo"), 12_182);
}

#[test]
fn each_cell_has_slots_of_its_own() {
    for cell in 0..CELLS {
        assert_eq!(usize::from(slot(cell)) * CELLS / usize::from(SLOTS), cell);
    }
    assert!(scope("farm", 3).starts_with("farm:{") && scope("farm", 3).ends_with('}'));
}

const fn redeem(serial: Serial) -> JobRequest {
    JobRequest::Redeem { serial, flight: None }
}

#[test]
fn questions_are_spread_evenly() {
    let mut counts = vec![0; CELLS];
    for counter in 0..100_000 {
        counts[of_request(&redeem(Serial::new(7, counter + 1).unwrap()))] += 1;
    }
    assert!(counts.iter().all(|count| (60..160).contains(count)), "{counts:?}");
    let serial = Serial::new(7, 9).unwrap();
    assert_eq!(of_request(&redeem(serial)), of_request(&JobRequest::Activate { serial }));
}
