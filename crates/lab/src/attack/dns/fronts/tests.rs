use super::*;

const SEED: u64 = 1;

/// Without the key nothing changes. With it, an attacker can send fragments as any resolver can, up to a limit.
#[test]
fn datagrams_for_a_front_do_nothing_without_the_key_and_little_with_it() {
    for (name, flood) in ROWS {
        let Happened { outcome, counters, sent, answered } = flood.run(4, SEED).unwrap();
        println!("seed {SEED}, {name}: {sent} sent, {outcome:?}, {counters:?}");
        assert_eq!((outcome.twice, outcome.handed_again, answered), (0, 0, outcome.fragments), "{name}");
        let dropped = &counters.datagrams;
        match flood {
            Flood::StolenKey => {
                // At most 8,000 a second. An attacker that impersonates a front owns that front's share.
                assert!(counters.over_budget_in > 0 && counters.taken <= 4 * 8_000 + 800, "{name}");
                continue;
            }
            Flood::Nothing | Flood::Strays => assert_eq!(dropped.forged, 0, "{name}"),
            Flood::WrongKey => assert_eq!(dropped.forged, sent, "{name}"),
            Flood::Copies => assert_eq!(dropped.replayed, sent, "{name}"),
            Flood::Altered => assert_eq!(dropped.forged + dropped.behind, sent, "{name}"),
        }
        assert_eq!(outcome.served, outcome.honest, "{name}");
    }
}
