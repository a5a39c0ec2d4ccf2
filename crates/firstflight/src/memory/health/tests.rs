use super::*;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server in a network of its own.
fn another() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Ipv4Addr::from_bits(NEXT.fetch_add(1 << 8, Ordering::Relaxed)).into()
}

/// Four names of one site, which publishes UDP and does not answer there.
#[test]
fn one_network_of_servers_switches_udp_off_for_no_other() {
    let now = Instant::from_secs(1000);
    for site in ["192.0.2.", "2001:db8::"] {
        let mut health = Health::default();
        for n in 1..100 {
            health.lost(format!("{site}{n}").parse().unwrap(), now);
            assert!(health.allows(true, now) && !health.allows(false, now));
        }
        health.lost("198.51.100.1".parse().unwrap(), now);
        assert!(!health.allows(true, now));
    }
}

#[test]
fn udp_pauses_after_two_lost_races_and_longer_each_time() {
    let (mut health, mut now) = (Health::default(), Instant::from_secs(1000));
    assert!(health.allows(true, now));
    health.lost(another(), now);
    assert!(health.allows(true, now));
    for pause in [600, 1200, 2400, 4800, 7200, 7200] {
        health.lost(another(), now);
        assert!(!health.allows(true, now + Duration::from_secs(pause - 1)));
        now += Duration::from_secs(pause);
        assert!(health.allows(true, now));
    }
    health.answered(now);
    health.lost(another(), now);
    assert!(health.allows(true, now));
}

#[test]
fn where_udp_answered_lately_it_pauses_after_four_lost_races() {
    let (mut health, mut now) = (Health::default(), Instant::from_secs(1000));
    for _ in 0..2 {
        health.answered(now);
        for _ in 0..3 {
            now += Duration::from_secs(1);
            health.lost(another(), now);
            assert!(health.allows(true, now), "UDP pauses although it works");
            assert!(!health.allows(false, now), "what is not sent again goes where UDP was silent");
        }
    }
    health.lost(another(), now);
    for pause in [600, 1200] {
        assert!(!health.allows(true, now + Duration::from_secs(pause - 1)));
        now += Duration::from_secs(pause);
        assert!(health.allows(true, now));
        health.lost(another(), now);
    }
    // An answer that is older is not one lately.
    health.answered(now);
    now += LATELY;
    health.lost(another(), now);
    assert!(health.allows(true, now));
    health.lost(another(), now);
    assert!(!health.allows(true, now));
}

#[test]
fn a_pause_counts_on_its_network_and_when_the_host_comes_back() {
    let (mut networks, now) = (Networks::default(), Instant::from_secs(1000));
    let [home, cafe] = [1, 2].map(|n| NetworkId([n; 16]));
    networks.answered(cafe, now);
    networks.lost(home, another(), now);
    networks.lost(home, another(), now);
    assert!(!networks.allows(home, true, now) && networks.allows(cafe, false, now));
    for network in [home, cafe] {
        networks.left(network);
    }
    assert!(!networks.allows(home, true, now) && !networks.allows(cafe, false, now));
    assert_eq!(
        networks.pauses().map(|(network, pause)| (network, pause.pauses)).collect::<Vec<_>>(),
        [(home, 1)]
    );
    // Nothing of an unknown network stays.
    networks.lost(NetworkId::UNKNOWN, another(), now);
    networks.lost(NetworkId::UNKNOWN, another(), now);
    networks.left(NetworkId::UNKNOWN);
    assert!(networks.allows(NetworkId::UNKNOWN, true, now));
    for n in 0..200 {
        networks.silent(NetworkId([n; 16]));
    }
    assert_eq!(networks.health.len(), NETWORKS);
}

#[test]
fn what_must_not_run_twice_needs_an_answer_within_ten_minutes() {
    let (mut health, now) = (Health::default(), Instant::from_secs(1000));
    assert!(!health.allows(false, now));
    health.answered(now);
    assert!(health.allows(false, now + LATELY - Duration::from_nanos(1)));
    assert!(!health.allows(false, now + LATELY));
}
