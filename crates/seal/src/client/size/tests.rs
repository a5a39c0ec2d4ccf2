use super::*;
use proptest::prelude::*;

#[test]
fn the_sizes_of_the_specification() {
    assert_eq!(FlightRoom::OVERHEAD, 97);
    // A hello of 300 B in a SYN with 28 B of options (ASAP, SACK, window scale, timestamps) behind a block.
    let longest = |mss| FlightRoom::in_syn(mss, 28, 196).longest_request(300);
    assert_eq!([1460, 1420, 1280, 536].map(longest), [Some(839), Some(799), Some(659), None]);
    // A hybrid hello does not fit into a SYN, but into a SYN and a follower.
    assert_eq!(FlightRoom::in_syn(1460, 28, 196).plan(1480, 100), None);
    let plan = FlightRoom::in_udp(1176, 28, 196).plan(1480, 100).unwrap();
    assert_eq!((plan.total % 256, plan.in_syn, plan.fits_syn()), (0, 952, false));
}

proptest! {
    #[test]
    fn a_plan_holds_what_it_is_for(mss in 0u16..9000, block in prop_oneof![Just(0usize), 196usize..400], hello in 0usize..3000, request in 0usize..20_000) {
        for room in [FlightRoom::in_syn(mss, 20, block), FlightRoom::in_udp(mss, 20, block), FlightRoom::on_connection()] {
            if let Some(Plan { total, in_syn }) = room.plan(hello, request) {
                prop_assert!(total >= 97 + hello + request && total <= HEAD + MAX_N && in_syn <= total);
                prop_assert!(total == in_syn || total % 256 == 0);
                prop_assert!(total <= room.syn + room.followers);
            }
            if let Some(longest) = room.longest_request(hello) {
                prop_assert!(room.plan(hello, longest).is_some() && room.plan(hello, longest + 1).is_none());
            }
        }
    }
}
