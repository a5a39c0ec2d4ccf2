#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

const NOW: Instant = Instant::from_secs(1_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn server(port: u16) -> NamedServer {
    NamedServer::new(NetworkId([1; 16]), "www.XYZ.com", port)
}

#[test]
fn a_record_that_is_asked_for_again_replaces_what_was_known_at_once() {
    let mut records = Records::default();
    let later = |seconds| NOW + Duration::from_secs(seconds);
    let known = |records: &Records| {
        records.get(&server(80), later(1000)).and_then(|known| known.parameter.as_deref().map(<[u8]>::to_vec))
    };
    let losses = |records: &Records| records.iter().filter(|(_, known)| known.lost > 0).count();
    records.learn(server(80), Some(&[1]), DAY, NOW);
    records.set_losses(NetworkId([1; 16]), |parameter| u32::from(parameter == [1]) * 2);
    assert!(losses(&records) == 1 && records.may_ask_again(&server(80), NOW));
    // An unchanged record: neither its expiry nor its losses change.
    records.learn_again(&server(80), Some((&[1], Duration::from_secs(1))), later(600));
    assert_eq!((known(&records), losses(&records)), (Some(vec![1]), 1));
    // At most once in ten minutes.
    assert!(!records.may_ask_again(&server(80), later(1199)));
    assert!(records.may_ask_again(&server(80), later(1200)));
    // Another port is another server.
    records.learn_again(&server(81), None, later(600));
    assert_eq!(known(&records), Some(vec![1]));
    records.learn_again(&server(80), Some((&[2], DAY)), later(700));
    assert_eq!((known(&records), losses(&records)), (Some(vec![2]), 0));
    assert!(!records.may_ask_again(&server(80), later(701)));
    records.learn_again(&server(80), None, later(800));
    assert_eq!(known(&records), None);
}

#[test]
fn a_record_counts_for_its_ttl_and_at_most_a_day_on_its_network() {
    let mut records = Records::default();
    records.learn(server(80), Some(&[1]), Duration::from_secs(60), NOW);
    records.learn(server(81), Some(&[1]), DAY * 9, NOW);
    assert!(records.get(&server(80), NOW + Duration::from_secs(59)).is_some());
    assert!(records.get(&server(80), NOW + Duration::from_secs(60)).is_none());
    assert!(records.get(&server(81), NOW + DAY).is_none());
    assert!(records.get(&NamedServer { network: NetworkId([2; 16]), ..server(80) }, NOW).is_none());
}

#[test]
fn memory_is_bounded() {
    let mut records = Records::default();
    for port in 0..=CAPACITY as u16 {
        records.learn(server(port), None, Duration::from_secs(60 + u64::from(port)), NOW);
    }
    assert_eq!(records.known.len(), CAPACITY);
    assert!(records.get(&server(0), NOW).is_none() && records.get(&server(1), NOW).is_some());
}
