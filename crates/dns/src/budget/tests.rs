use super::*;

#[test]
fn so_many_a_second_and_a_tenth_at_once() {
    let mut budget = Budget::new(NonZeroU32::new(1000).unwrap());
    let now = Instant::from_secs(1000);
    let mut taken = 0;
    while budget.take(now) {
        taken += 1;
    }
    assert_eq!(taken, 100);
    for ms in 1..=10_000 {
        while budget.take(now + Duration::from_millis(ms)) {
            taken += 1;
        }
    }
    assert_eq!(taken, 100 + 10_000);
}

/// User 0 makes attempts all the time. Users 1 and 2 make one each every 20 ms, which always succeed.
#[test]
fn nobody_uses_up_what_others_need() {
    let mut budget = SharedBudget::new(NonZeroU32::new(1000).unwrap());
    let (mut greedy, mut others, mut asked) = (0, 0, 0);
    for ms in 0..10_000 {
        let now = Instant::from_secs(1000) + Duration::from_millis(ms);
        for _ in 0..5 {
            greedy += u32::from(budget.take(0, now));
        }
        if ms % 20 == 0 {
            asked += 2;
            others += u32::from(budget.take(1, now)) + u32::from(budget.take(2, now));
        }
    }
    assert_eq!((others, asked), (1000, 1000));
    // The rest is used too, up to a tenth of a second.
    assert!((9_000..=9_100).contains(&greedy), "{greedy}");
}

#[test]
fn those_who_share_a_budget_are_forgotten_for_others() {
    let mut budget = SharedBudget::new(NonZeroU32::new(1000).unwrap());
    for who in 0..10_000 {
        let _ = budget.take(who, Instant::from_secs(1000));
    }
    assert_eq!(budget.shares.len(), 1024);
}

#[test]
fn one_a_second_is_one_at_once() {
    let mut budget = Budget::new(NonZeroU32::MIN);
    let now = Instant::from_secs(1000);
    assert!(budget.take(now) && !budget.take(now));
    assert!(!budget.take(now + Duration::from_millis(999)));
    assert!(budget.take(now + Duration::from_secs(1)));
}
