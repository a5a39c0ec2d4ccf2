use super::model::{Plan, SERVICES};
use super::{CaptureSite, write};

fn capture(seed: u64, requests: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write(&Plan::new(seed, requests), CaptureSite::Client, &mut out, seed).unwrap();
    out
}

#[test]
fn a_seed_gives_the_same_capture_and_another_one_another() {
    assert!(capture(3, 500) == capture(3, 500));
    assert!(capture(3, 500) != capture(4, 500));
}

/// The paper: cold requests 8 to 28 %, all 5 to 7 % except for mail; a third of the requests on new connections.
#[test]
fn the_plan_has_the_papers_shares() {
    for seed in 1..6 {
        let plan = Plan::new(seed, 20_000);
        for (service, sums) in
            SERVICES.iter().zip(&plan.sums).filter(|(service, _)| !service.name.contains("web"))
        {
            let (cold, all) = (sums.cold_share(), sums.all_share());
            assert!((0.08..=0.2801).contains(&cold), "{}: {cold}", service.name);
            assert!((0.05..=0.0701).contains(&all) == (service.name != "mail"), "{}: {all}", service.name);
        }
        let new = plan.all().new_share();
        assert!((0.33..0.36).contains(&new), "{new}");
    }
}

#[test]
fn packets_are_in_order_and_of_the_length_that_they_say() {
    let file = capture(1, 300);
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut before, mut count) = (24, 0, 0);
    while at < file.len() {
        let time = u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4));
        assert!(time >= before, "packet {count}");
        let (captured, length) = (word(at + 8), word(at + 12));
        assert!(captured <= 160 && captured <= length);
        (before, at, count) = (time, at + 16 + captured as usize, count + 1);
    }
    assert!(count > 1500 && at == file.len());
}
