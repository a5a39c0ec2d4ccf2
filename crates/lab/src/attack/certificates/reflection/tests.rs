use super::*;

const SEED: u64 = 1;

fn run(reflection: Reflection) -> Reflected {
    let reflected = reflection.run(SEED).unwrap();
    println!("seed {SEED}, {reflection:?}: {reflected:?}");
    reflected
}

#[test]
fn what_reaches_a_victim_depends_on_who_vouches() {
    for (name, reflection) in ROWS {
        let wide = reflection.own || (reflection.vantage >= 3 && reflection.age == YOUNG);
        let resets = run(Reflection { resets: true, ..reflection });
        let bound = match (reflection.certificate, wide) {
            (false, _) => 52,
            // Ten segments of 1,460 bytes (RFC 6928), with headers, and the SYN-ACK.
            (true, true) => 10 * 1500 + 52,
            (true, false) => 3 * resets.sent,
        };
        assert!(resets.first <= bound, "{name}: {resets:?}");
        // Two more SYN-ACKs. The data is not repeated before the client's ACK.
        let silent = run(reflection);
        assert!(silent.first <= bound + 2 * 52, "{name}: {silent:?}");
        assert_eq!(silent.accepted, if reflection.certificate { 2 } else { 0 });
        assert!(!wide || silent.first > 10 * silent.sent, "the limit would not be felt: {silent:?}");
    }
}

/// A victim's RST puts the key on the block list: the second SYN is answered like any SYN.
#[test]
fn a_victims_reset_bars_the_key() {
    for (name, reflection) in ROWS.into_iter().filter(|(_, reflection)| reflection.certificate) {
        let resets = run(Reflection { resets: true, ..reflection });
        assert_eq!((resets.accepted, resets.second), (1, 52), "{name}");
    }
}
