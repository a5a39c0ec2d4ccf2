//! Tests of what a client knows of servers that publish.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

fn published() -> Published {
    let key = firstflight_credential::asap::PrivateKey::from_seed(&[1; 32]);
    Published::in_udp(9, 1200, &[key.public().id()]).unwrap()
}

/// A network's resolver says what it likes.
#[tokio::test]
async fn a_record_found_on_one_network_is_not_used_on_another() {
    let settings = Settings { no_records: true, ..Settings::default() };
    let kernel = Kernel::default();
    let asap = Asap::new(settings, None, None, true, &kernel, None);
    let server: Authority = "www.example.com:80".parse().unwrap();
    let move_to = |n| {
        kernel.move_to(NetworkId([n; 16]));
        asap.move_to(NetworkId([n; 16]));
    };
    move_to(1);
    asap.question(&server).answer(Some(Some(published())));
    assert!(asap.records.known(&server).is_some());
    move_to(2);
    assert!(asap.records.known(&server).is_none(), "the other network's record is used");
    // It is known again where it was found.
    move_to(1);
    assert!(asap.records.known(&server).is_some());
}

/// The next process has the record at once, as long as it counts, on the same network.
#[test]
fn a_record_outlives_the_process_on_its_network() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let server: Authority = "www.example.com:80".parse().unwrap();
    let start = |n| {
        let kernel = Kernel::on(NetworkId([n; 16]));
        assert!(kernel.use_cache(CredentialCache::open(&path).unwrap()));
        let settings = Settings { no_records: true, ..Settings::default() };
        let asap = Asap::new(settings, None, None, true, &kernel, None);
        (kernel, asap)
    };
    let (kernel, asap) = start(1);
    let mut short = published();
    short.ttl = 600;
    asap.question(&server).answer(Some(Some(short.clone())));
    kernel.memory().records().0.set_losses(NetworkId([1; 16]), |_| 2);
    kernel.save();
    let (kernel, asap) = start(1);
    let lost: Vec<_> = kernel.memory().records().0.iter().map(|(_, known)| known.lost).collect();
    assert_eq!(lost, [2]);
    let known = asap.records.known(&server).unwrap();
    assert_eq!((&known.bytes, known.udp_port), (&short.bytes, Some(9)));
    assert!((590..=600).contains(&known.ttl), "{}", known.ttl);
    let (_kernel, asap) = start(2);
    assert!(asap.records.known(&server).is_none(), "the other network's record is used");
}
