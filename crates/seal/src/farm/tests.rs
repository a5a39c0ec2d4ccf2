use super::*;
use crate::fixtures::{NAME, NOW, name, rng};

fn farm() -> Farm {
    Farm::generate(name(NAME), 86_400, 3600, NOW, &mut rng(1)).unwrap()
}

#[test]
fn members_have_the_same_keys_and_forget_the_old_ones() {
    let (one, mut two) = (farm(), farm());
    for day in 0..10 {
        let now = NOW + day * 86_400;
        assert_eq!(one.keys(now).unwrap().record(now), two.keys(now).unwrap().record(now));
        two.advance(now).unwrap();
    }
    assert!(two.index() >= one.index() + 8);
    assert_eq!(two.keys(NOW).unwrap_err(), ChainFault::Behind);
    assert_eq!(two.ticket_secret(one.index()).unwrap_err(), ChainFault::Behind);
    let later = two.index() + 3;
    assert_eq!(*two.ticket_secret(later).unwrap(), *one.ticket_secret(later).unwrap());
}

#[test]
fn keys_open_before_and_after_their_period() {
    let farm = farm();
    let turn = (farm.index() + 1) * 86_400;
    let lens =
        [turn - 301, turn - 300, turn, turn + 7199, turn + 7200].map(|now| farm.keys(now).unwrap().len());
    assert_eq!(lens, [1, 2, 2, 2, 1]);
    let id = |now| farm.keys(now).unwrap().record(now).unwrap().entries()[0].key_id();
    assert_eq!(id(turn - 300), id(turn - 301), "a key is published in its period only");
    assert_ne!(id(turn), id(turn - 1));
}

#[test]
fn a_clock_far_ahead_destroys_nothing() {
    let mut farm = farm();
    let far = NOW + 500 * 86_400;
    assert!(matches!(farm.advance(far), Err(ChainFault::TooFar(_))));
    assert!(farm.keys(NOW).is_ok() && farm.keys(far).is_err());
    let (short, long) = (Farm::generate(name(NAME), 3599, 0, NOW, &mut rng(1)), 86_400);
    assert_eq!(short.unwrap_err(), FarmError::Period);
    let above = Farm::generate(name(NAME), long, long + 1, NOW, &mut rng(1));
    assert_eq!(above.unwrap_err(), FarmError::TtlAbovePeriod);
    assert!(!format!("{farm:?}").contains("chain"));
}

/// Whatever the times of a farm are: each key that a client may use opens, at every member, for as long as it may be used
/// and the hour behind it; members publish the same key; and a key that is over opens nowhere.
#[test]
fn every_key_that_clients_may_use_opens() {
    for period in [3600, 3899, 3900, 3901, 7200, 10_000, 43_200, 86_400] {
        for ttl in [0, 1, 300, 3599, 3600, period / 2, period - 1, period] {
            let Ok(farm) = Farm::generate(name(NAME), period, ttl, NOW, &mut rng(1)) else {
                assert!(ttl > period);
                continue;
            };
            let (period, ttl) = (u64::from(period), u64::from(ttl));
            let first = (farm.index() + 5) * period;
            let edges = [0, 300, 3600, ttl, ttl + 3600, period - 300, period / 2];
            let times = edges.iter().flat_map(|edge| [edge - edge.min(&1), *edge, edge + 1]);
            for now in times.map(|edge| first + edge) {
                let keys = farm.keys(now).unwrap();
                for i in farm.index()..farm.index() + 8 {
                    let begins = i * period;
                    let opens = begins <= now + Farm::LEAD && now < begins + period + ttl + KeySet::GRACE;
                    let id = NonZeroU8::MIN.saturating_add((i % 255) as u8);
                    assert_eq!(keys.knows(id, now), opens, "key {i} at {now}: period {period}, TTL {ttl}");
                    if now / period == i {
                        let published = keys.record(now).unwrap();
                        assert_eq!(published.entries()[0].key_id(), id);
                        assert!(published.usable(now).is_some(), "a client uses it");
                    }
                }
            }
        }
    }
}
