#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

#[test]
fn each_worker_knows_its_number_and_others_do_not() {
    let workers = Workers::start(2).unwrap();
    assert_eq!((workers.here(), workers.count()), (None, 2));
    let (said, hear) = mpsc::channel();
    for index in 0..3 {
        let (own, said) = (workers.clone(), said.clone());
        workers.spawn(index, async move { said.send((index, own.here())) });
    }
    drop(said);
    let mut heard: Vec<_> = hear.iter().collect();
    heard.sort_unstable();
    assert_eq!(heard, [(0, Some(0)), (1, Some(1)), (2, Some(0))]);
}

#[test]
fn threads_end_with_the_last_handle() {
    let workers = Workers::start_unpinned(1).unwrap();
    let (kept, ended) = mpsc::channel::<()>();
    workers.spawn(0, async move {
        let _kept = kept;
        std::future::pending::<()>().await;
    });
    drop(workers.clone());
    assert_eq!(ended.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
    drop(workers);
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn impossible_numbers_are_refused() {
    for count in [0, Workers::MOST + 1] {
        assert_eq!(Workers::start(count).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert!(Workers::on(Vec::new()).is_none());
}
