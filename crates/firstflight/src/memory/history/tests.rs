use super::*;

fn way(n: u16) -> HistoryWay {
    let remote = SocketAddr::from(([10, 0, 0, 1], n));
    HistoryWay::new(NetworkId::UNKNOWN, remote, None)
}

#[test]
fn a_lost_race_counts_for_ten_minutes_or_until_it_is_won() {
    let mut history = History::default();
    let now = Instant::from_secs(100);
    history.lost(way(1), now);
    history.lost(way(2), now);
    history.won(&way(2));
    assert!(history.is_slow(&way(1), now + REMEMBERED - Duration::from_nanos(1)));
    assert!(!history.is_slow(&way(1), now + REMEMBERED));
    assert!(!history.is_slow(&way(2), now));
}

#[test]
fn it_belongs_to_a_network_and_a_encapsulation() {
    let mut history = History::default();
    let now = Instant::from_secs(100);
    history.lost(way(1), now);
    assert!(!history.is_slow(&HistoryWay { network: NetworkId([1; 16]), ..way(1) }, now));
    assert!(!history.is_slow(&HistoryWay { encapsulation: Some(4433), ..way(1) }, now));
    history.leave(NetworkId([1; 16]));
    assert!(history.is_slow(&way(1), now));
    history.leave(NetworkId::UNKNOWN);
    assert!(!history.is_slow(&way(1), now));
}

#[test]
fn memory_is_bounded() {
    let mut history = History::default();
    let now = Instant::from_secs(100);
    for n in 0..=CAPACITY as u16 {
        history.lost(way(n), now);
    }
    assert_eq!(history.lost.len(), CAPACITY);
    assert!(!history.is_slow(&way(0), now) && history.is_slow(&way(1), now));
}
