use super::*;

const NOW: Instant = Instant::from_secs(1000);

fn limiter(per_second: u32, networks: usize) -> RateLimiter {
    RateLimiter::new(RateLimit {
        per_second: per_second.try_into().unwrap(),
        networks: networks.try_into().unwrap(),
    })
}

fn count(limiter: &mut RateLimiter, to: &str, kind: Kind, now: Instant, tries: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..tries {
        counts[limiter.judge(to.parse().unwrap(), kind, now) as usize] += 1;
    }
    counts
}

#[test]
fn above_the_limit_every_second_one_is_cut_and_the_others_dropped() {
    let mut limiter = limiter(100, 10);
    assert_eq!(count(&mut limiter, "192.0.2.1", Kind::Positive, NOW, 120), [100, 10, 10]);
    // The limit is that of the network, not of the address, and of one kind only.
    assert_eq!(count(&mut limiter, "192.0.2.200", Kind::Positive, NOW, 2), [0, 1, 1]);
    assert_eq!(count(&mut limiter, "192.0.2.1", Kind::NoName, NOW, 100), [100, 0, 0]);
    assert_eq!(count(&mut limiter, "192.0.3.1", Kind::Positive, NOW, 100), [100, 0, 0]);
    let later = NOW + Duration::from_millis(100);
    assert_eq!(count(&mut limiter, "::ffff:192.0.2.1", Kind::Positive, later, 12), [10, 1, 1]);
}

#[test]
fn an_ipv6_network_is_a_56() {
    let mut limiter = limiter(4, 10);
    assert_eq!(count(&mut limiter, "2001:db8:0:100::1", Kind::NoData, NOW, 4), [4, 0, 0]);
    assert_eq!(count(&mut limiter, "2001:db8:0:1ff::1", Kind::NoData, NOW, 1), [0, 1, 0]);
    assert_eq!(count(&mut limiter, "2001:db8:0:200::1", Kind::NoData, NOW, 4), [4, 0, 0]);
}

#[test]
fn memory_is_bounded() {
    let mut limiter = limiter(4, 100);
    for n in 0..10_000_u32 {
        limiter.judge(IpAddr::V4((n << 8).into()), Kind::Positive, NOW);
    }
    assert_eq!(limiter.len(), 100);
}
