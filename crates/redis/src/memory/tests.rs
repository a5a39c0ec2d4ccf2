#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::time::Duration;

const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:1ff3b09d694c63bc9b5f21474f46c33d1a5975aa\r\n\
    # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\
    master_replid:8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb\r\n# Stats\r\nevicted_keys:0\r\n";

#[test]
fn a_process_has_two_names() {
    let process = Identity::process(INFO).unwrap();
    assert_eq!(process, "1ff3b09d694c63bc8371b4fb1155b71f");
    let promoted = INFO.replace("8371", "0000");
    assert_ne!(Identity::process(&promoted).unwrap(), process);
    let replica = INFO.replace("master\r", "slave\r");
    assert_eq!(Identity::process(&replica), Err(Anonymous::Replica));
    for lacking in ["role", "run_id", "master_replid", "evicted_keys"] {
        let info = INFO.replace(&format!("{lacking}:"), "other:");
        assert_eq!(Identity::process(&info), Err(Anonymous::Incomplete), "{lacking}");
    }
}

#[test]
fn a_process_that_threw_keys_away_is_another_one() {
    let evicted = INFO.replace("evicted_keys:0", "evicted_keys:26");
    assert_eq!(Identity::process(&evicted).unwrap(), "1ff3b09d694c63bc8371b4fb1155b71f-1a");
    let unreadable = INFO.replace("evicted_keys:0", "evicted_keys:x");
    assert_eq!(Identity::process(&unreadable), Err(Anonymous::Incomplete));
}

#[test]
fn a_mark_names_its_process() {
    assert!(Identity::is_of("p-1/00ff", "p-1"));
    assert!(
        !Identity::is_of("p-1/00ff", "p") && !Identity::is_of("q/00ff", "p") && !Identity::is_of("p", "p")
    );
    assert_eq!(Identity::new("p-1/00ff".to_owned()).to_string(), "00ff");
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_comes_back_begins_anew() {
    let (a, b) = (Identity::new("a/1".to_owned()), Identity::new("b/2".to_owned()));
    let start = Instant::now();
    let later = |s| start + Duration::from_secs(s);
    let mut memories = Memories::default();
    assert_eq!(memories.met(&a, start), start);
    assert_eq!(memories.met(&a, later(5)), start, "a lost connection is not a lost memory");
    assert_eq!(memories.met(&b, later(10)), later(10));
    assert_eq!(memories.met(&a, later(20)), later(20), "it may lack what the other took");
}
