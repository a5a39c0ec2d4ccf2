use super::*;

#[test]
fn both_ends_compute_the_same_owner_and_flows_spread() {
    for count in [1, 2, 3, 4, 256] {
        let shard = ShardConfig::new(0, count, [7; 16]).unwrap();
        let mut flows = alloc::vec![0_u32; count];
        for port in 1024..=65_535 {
            assert_eq!(shard.owner(port, 443), shard.owner(443, port));
            flows[shard.owner(port, 443)] += 1;
        }
        let fair = 64_512 / count as u32;
        assert!(flows.iter().all(|n| *n > fair / 2 && *n < fair * 2), "{flows:?}");
    }
}

#[test]
fn another_seed_gives_other_owners() {
    let [a, b] = [1, 2].map(|seed| ShardConfig::new(0, 2, [seed; 16]).unwrap());
    let alike = (1024..=65_535).filter(|port| a.owner(*port, 443) == b.owner(*port, 443)).count();
    assert!((20_000..44_000).contains(&alike), "{alike}");
}

#[test]
fn places_that_do_not_exist() {
    for (index, count) in [(0, 0), (2, 2), (0, 257)] {
        assert_eq!(ShardConfig::new(index, count, [0; 16]), None);
    }
    let text = alloc::format!("{:?}", ShardConfig::new(1, 4, [0xab; 16]).unwrap());
    assert_eq!(text, "ShardConfig(1 of 4)");
}

#[test]
fn packets_for_others_are_bounded() {
    let mut shard = Shard::new(ShardConfig::new(0, 2, [7; 16]).unwrap());
    let packet = [1; 1500];
    let kept = (0..1000).filter(|_| shard.push(1, Visits::default(), &packet)).count();
    assert_eq!(kept, MOST_BYTES / packet.len());
    let mut polled = 0;
    while let Some(next) = shard.poll() {
        assert_eq!((next.shard, next.packet), (1, &packet[..]));
        polled += 1;
    }
    assert_eq!(polled, kept);
    assert!(shard.push(1, Visits::default(), &packet), "the room is free again");
}
