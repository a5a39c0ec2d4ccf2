use super::*;

#[test]
fn a_flood_from_one_network_leaves_a_part_for_others() {
    let mut budget = OpeningBudget::new(NonZeroU32::new(1000).unwrap());
    let (flood, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    let (mut greedy, mut honest) = (0, 0);
    for ms in 0..10_000 {
        let now = Instant::from_secs(1000) + Duration::from_millis(ms);
        greedy += (0..5).filter(|_| budget.take(flood, now)).count();
        honest += usize::from(ms % 20 == 0 && budget.take(other, now));
    }
    assert_eq!(honest, 500);
    assert!((500..=10_000).contains(&greedy), "{greedy}");
    assert!(budget.networks.len() <= 2);
    for n in 0..5000u32 {
        let _ = budget.take(IpAddr::from((n << 16).to_be_bytes()), Instant::from_secs(1000));
        let _ = budget.take(IpAddr::from((n << 8).to_be_bytes()), Instant::from_secs(1000));
    }
    assert!(budget.networks.len() <= 1024 && budget.regions.len() <= 1024);
}

/// The same address has one place in both of its forms, and IPv4 shares none with IPv6.
#[test]
fn places() {
    let [four, mapped, six]: [IpAddr; 3] =
        ["192.0.2.1", "::ffff:192.0.2.77", "c000:200::1"].map(|text| text.parse().unwrap());
    assert_eq!(place(four), place(mapped));
    assert!(place(four).0 != place(six).0 && place(four).1 != place(six).1);
}
