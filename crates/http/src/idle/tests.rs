use super::*;

#[derive(Debug, PartialEq)]
struct Fake(u32, &'static str);

impl Kept for Fake {
    fn is_closed(&self) -> bool {
        self.1 == "closed"
    }

    fn is_ready(&self) -> bool {
        self.1 == "ready"
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_one_is_first_and_old_ones_are_closed() {
    let (idle, minute) = (Idle::default(), Duration::from_secs(60));
    idle.put(Fake(1, "ready"), 3);
    tokio::time::advance(minute / 2).await;
    idle.put(Fake(2, "ready"), 3);
    idle.put(Fake(3, "busy"), 3);
    idle.put(Fake(4, "closed"), 3);
    assert_eq!(idle.take(minute), Some(Fake(2, "ready")));
    tokio::time::advance(minute / 2).await;
    assert_eq!(idle.take(minute), None, "one is busy, one is old");
    assert_eq!(idle.len(), 1);
    idle.close_idle(Duration::ZERO);
    assert!(idle.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_more_are_kept_than_allowed() {
    let idle = Idle::default();
    for n in 1..=4 {
        idle.put(Fake(n, "ready"), 2);
    }
    let within = Duration::from_secs(1);
    assert_eq!((idle.take(within), idle.take(within)), (Some(Fake(4, "ready")), Some(Fake(3, "ready"))));
    idle.put(Fake(5, "ready"), 0);
    assert!(idle.is_empty() && !idle.close_one());
}
