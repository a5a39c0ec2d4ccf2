use super::*;

const NOW: Instant = Instant::from_secs(1_000_000);

fn many(limits: &mut RateLimits, client: IpAddr, now: Instant) -> u32 {
    (0..1000).take_while(|_| limits.take(client, now).is_ok()).count() as u32
}

#[test]
fn an_address_has_its_burst_and_then_its_rate() {
    let mut limits = RateLimits::new(Limits::default());
    let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
    assert_eq!(many(&mut limits, one, NOW), 60);
    assert_eq!(limits.take(one, NOW), Err(Duration::from_secs(1)));
    assert_eq!(many(&mut limits, other, NOW), 60);
    assert_eq!(many(&mut limits, one, NOW + Duration::from_secs(10)), 10);
    assert_eq!(many(&mut limits, one, NOW + Duration::from_secs(3600)), 60);
}

#[test]
fn ipv6_prefixes_are_counted_together() {
    let mut limits = RateLimits::new(Limits::default());
    let in_64 = |n: u128| IpAddr::V6((0x2001_0db8_u128 << 96 | n).into());
    // All addresses of one /64, all /64s of one /56, and all /56s of one /48 are counted together.
    let total = |limits: &mut RateLimits, step: u128| -> u32 {
        (0..100).map(|n| many(limits, in_64(n * step), NOW)).sum()
    };
    assert_eq!(total(&mut limits, 1), 60);
    assert_eq!(total(&mut RateLimits::new(Limits::default()), 1 << 64), 120);
    assert_eq!(total(&mut RateLimits::new(Limits::default()), 1 << 72), 480);
    assert_eq!(total(&mut RateLimits::new(Limits::default()), 1 << 80), 100 * 60);
    // A request that the /48's limit refuses does not count for the /64.
    let mut full = RateLimits::new(Limits::default());
    total(&mut full, 1 << 72);
    let unused = in_64(9 << 72);
    assert!(full.take(unused, NOW).is_err());
    assert_eq!(many(&mut full, unused, NOW + Duration::from_secs(60)), 60);
}

/// Together the members allow what one would, but for what is rounded up, and for a pool at once.
#[test]
fn members_share_the_limits() {
    let part = Limits::default().share(NonZeroU16::new(7).unwrap());
    assert_eq!(part.v4, Rate { burst: 9, per_minute: 9 });
    assert_eq!(part.v6[2], Rate { burst: 69, per_minute: 69 });
    assert_eq!(part.signatures_per_second, Limits::default().signatures_per_second);
    assert_eq!(Limits::default().share(NonZeroU16::MIN), Limits::default());
    let few = Limits { v4: Rate { burst: 3, per_minute: 0 }, ..Limits::default() };
    assert_eq!(few.share(NonZeroU16::MAX).v4, Rate { burst: 3, per_minute: 0 });
    let least = Limits::default().share(NonZeroU16::MAX);
    assert_eq!(least.v4, Rate { burst: 8, per_minute: 1 });
}

#[test]
fn memory_is_bounded() {
    let prefixes = NonZeroUsize::new(100).unwrap();
    let mut limits = RateLimits::new(Limits { prefixes, ..Limits::default() });
    for n in 0..10_000_u32 {
        let _ = limits.take(IpAddr::V4(n.into()), NOW);
    }
    assert_eq!(limits.len(), 100);
}

#[test]
fn signatures_have_a_budget() {
    let limits = Limits { signatures_per_second: 1000, ..Limits::default() };
    let mut limits = RateLimits::new(limits);
    let mut spent = 0;
    for ms in 0..10_000 {
        while limits.afford(2, NOW + Duration::from_millis(ms)).is_ok() {
            spent += 2;
        }
    }
    assert!((10_000..=10_102).contains(&spent), "{spent}");
    let none = Limits { signatures_per_second: 0, ..Limits::default() };
    assert!(RateLimits::new(none).afford(1, NOW).is_err());
}
