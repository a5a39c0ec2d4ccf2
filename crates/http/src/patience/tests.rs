use super::*;
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_too_long_is_given_up() {
    let began = Instant::now();
    assert_eq!(timeout(Duration::from_secs(60), std::future::pending::<()>()).await, Err(TooLate));
    assert!(began.elapsed() < Duration::from_secs(61));
}

/// What came while the program stood still is taken before the time counts as over.
#[tokio::test(start_paused = true)]
async fn a_program_that_stood_still_looks_first() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let waits = tokio::spawn(timeout(Duration::from_secs(60), told));
    tokio::task::yield_now().await;
    advance(Duration::from_secs(70)).await;
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    tell.send(7).unwrap();
    assert_eq!(waits.await.unwrap(), Ok(Ok(7)));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_stood_still_gives_up_a_second_later() {
    let waits = tokio::spawn(timeout(Duration::from_secs(60), std::future::pending::<()>()));
    tokio::task::yield_now().await;
    advance(Duration::from_secs(70)).await;
    let woke = Instant::now();
    assert_eq!(waits.await.unwrap(), Err(TooLate));
    assert!(woke.elapsed() <= Duration::from_millis(1_001));
}
