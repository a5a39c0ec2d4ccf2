use super::*;

#[test]
fn ends_are_kept_until_they_are_acknowledged() {
    let mut push = Push::default();
    push.note(SeqNum::new(10));
    push.note(SeqNum::new(20));
    assert!(push.ends_at(SeqNum::new(10)) && !push.ends_at(SeqNum::new(15)));
    push.acknowledged(SeqNum::new(10));
    assert!(!push.ends_at(SeqNum::new(10)) && push.ends_at(SeqNum::new(20)));
}

#[test]
fn the_last_of_several_is_told() {
    let mut push = Push::default();
    let now = Instant::from_millis(1);
    let told: alloc::vec::Vec<bool> = (0..5).map(|i| push.leaves(now, i == 4, || 2)).collect();
    assert_eq!(told, [false, true, false, true, false]);
    assert!(!push.leaves(now, false, || 2));
    assert!(!push.leaves(Instant::from_millis(2), true, || 2));
}

/// `tcp_tso_autosize` of Linux 6.6: with ten segments in 100 ms a burst has two segments, in 1 ms half the
/// window.
#[test]
fn bursts_are_as_long_as_the_way_allows() {
    let ms = |ms| Some(Duration::from_millis(ms));
    assert_eq!(burst(1000, 10_000, 2, ms(100), ms(100)), 2);
    assert_eq!(burst(1000, 10_000, 2, ms(1), ms(1)), 5);
    assert_eq!(burst(1000, 10_000, 10, ms(100), ms(100)), 5);
    assert_eq!(burst(1000, 10_000, 2, None, None), 5);
    assert_eq!(burst(1460, 1460, 2, ms(100), ms(100)), 1);
}

#[test]
fn many_small_writes_take_no_more_memory() {
    let mut push = Push::default();
    (0..1000).for_each(|i| push.note(SeqNum::new(i)));
    assert_eq!(push.0.as_ref().unwrap().list.len(), MOST);
    assert!(push.ends_at(SeqNum::new(999)));
    push.acknowledged(SeqNum::new(1000));
    assert!(push.0.as_ref().unwrap().list.capacity() <= KEPT);
}
