use super::*;

#[test]
fn the_longest_prefix_counts() {
    let all = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32"].map(|text| {
        let (address, len) = text.split_once('/').unwrap();
        (bits_of(address.parse().unwrap()), len.parse().unwrap())
    });
    let prefixes = Prefixes::of(all.into_iter().collect());
    assert_eq!(prefixes.lens, [32, 16, 8, 0]);
    for (address, len) in
        [("192.0.2.1", 0), ("10.2.0.1", 8), ("10.1.9.9", 16), ("10.1.2.3", 32), ("10.1.2.4", 16)]
    {
        assert_eq!(prefixes.longest(bits_of(address.parse().unwrap())).1, len, "{address}");
    }
    assert_eq!(Prefixes::default().longest(7), (0, 0), "as if there were a default route");
}

#[test]
fn a_mask_has_any_length() {
    assert_eq!([0, 1, 127, 128].map(|len| masked(u128::MAX, len).count_ones()), [0, 1, 127, 128]);
}
