use super::*;

const SEED: u64 = 1;

/// Only datagrams that the front has just sent are accepted, honest clients are not affected, and the counters
/// distinguish why a datagram was dropped.
#[test]
fn datagrams_without_the_key_or_sent_before_do_nothing() {
    for (name, datagrams) in ROWS {
        let (outcome, counters, sent) = Flood { datagrams, seconds: 4 }.run(SEED).unwrap();
        println!("seed {SEED}, {name}: {sent} sent, {outcome:?}, {counters:?}");
        assert_eq!((outcome.served, outcome.twice, outcome.handed_again), (outcome.honest, 0, 0), "{name}");
        assert_eq!(counters.accepted, outcome.honest as u64, "{name}");
        let refused = match datagrams {
            Datagrams::Nothing => 0,
            Datagrams::OtherKey => counters.unknown_key,
            Datagrams::WrongKey => counters.forged,
            Datagrams::Copies | Datagrams::NewTime => {
                assert!(counters.replayed > 0);
                counters.replayed + counters.old_boot + counters.forged
            }
            Datagrams::Altered => counters.forged + counters.behind + counters.old_boot,
            Datagrams::OldBoot => {
                // Until the server has learnt of the restart, they count as copies.
                assert!(counters.old_boot * 10 >= sent * 8, "{name}: {counters:?}");
                counters.old_boot + counters.replayed
            }
        };
        assert_eq!(refused, sent, "{name}: {counters:?}");
    }
}
