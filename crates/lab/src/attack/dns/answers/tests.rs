use super::*;

/// Upper bounds of the bytes for each byte of one query, in the order of the kinds.
const MOST: [f64; KINDS.len()] = [1.18, 1.18, 2.0, 3.0, 3.0, 2.0, 3.0, 3.0, 1.0, 1.0, 4.0, 30.0, 1.0, 60.0];

#[test]
fn what_comes_back_is_bounded_for_every_kind_of_query() {
    for (kind, most) in KINDS.iter().zip(MOST) {
        let (one, flood) = kind.run(1).unwrap();
        println!("seed 1, {}: {one:?} {flood:?}", kind.name);
        assert!(one.bytes_out > 0 && flood.bytes_out > 0);
        assert!(one.factor() <= most, "{}: {one:?}", kind.name);
        // Over TCP the address is proved. Over UDP it is not: a network gets 500 answers a second. Beyond that,
        // every second answer is empty and not longer than its query.
        if kind.transport == Transport::Udp {
            let answers = f64::from(500 * (SECONDS + 1)) * one.bytes_out as f64;
            let bound = answers + 0.5 * flood.bytes_in as f64;
            assert!(flood.bytes_out as f64 <= bound, "{}: {flood:?}", kind.name);
        }
    }
}
