use super::*;

#[test]
fn neither_side_gets_the_last_descriptors() {
    assert_eq!(shares(1_000_000, 10_000), (10_000, 989_744));
    assert_eq!(shares(20_256, 10_000), (10_000, 10_000));
    assert_eq!(shares(2_048, 10_000), (896, 896));
    assert_eq!(shares(64, 10_000), (24, 24));
    assert_eq!(shares(1, 10_000), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_descriptor_waits_for_one() {
    let all = Arc::new(Semaphore::new(1));
    let second = Duration::from_secs(1);
    let held = take_of(&all, second, || {}).await;
    assert!(held.is_some());
    assert!(take_of(&all, second, || {}).await.is_none());
    // One that nobody uses is closed instead.
    assert!(take_of(&all, second, || drop(held)).await.is_some());
}
