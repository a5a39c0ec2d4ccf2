use super::*;
use alloc::format;
use proptest::prelude::*;

#[test]
fn an_empty_ring_owns_nothing_and_the_pool_recycles() {
    let mut pool = Pool::new(1 << 20);
    let mut ring = Ring::default();
    assert_eq!(ring.push(&mut pool, 100, &[1; 200]), 100);
    assert_eq!(pool.outstanding(), 2048);
    ring.consume(&mut pool, 100, false);
    assert_eq!(pool.outstanding(), 0);
    assert!(pool.free[0].len() == 1 && ring.data.is_empty());
}

#[test]
fn debug_shows_no_bytes() {
    let (mut pool, mut ring) = (Pool::new(1 << 20), Ring::default());
    ring.push(&mut pool, 10_000, &[254; 3_000]);
    assert_eq!(format!("{ring:?}"), "Ring { len: 3000, room: 4096, .. }");
    ring.clear(&mut pool);
    assert_eq!(format!("{pool:?}"), "Pool { outstanding: 0, limit: 1048576, free: 4096, .. }");
}

#[test]
fn the_pool_limit_holds() {
    let mut pool = Pool::new(4096);
    let (mut a, mut b) = (Ring::default(), Ring::default());
    assert_eq!(a.push(&mut pool, 10_000, &[1; 2048]), 2048);
    // Only as many bytes as there is memory for are appended.
    assert_eq!(b.push(&mut pool, 10_000, &[1; 4096]), 2048);
    assert_eq!(b.push(&mut pool, 10_000, &[1; 2048]), 0);
    assert_eq!(a.push(&mut pool, 10_000, &[1; 1]), 0);
}

proptest! {
    #[test]
    fn behaves_like_a_queue(ops in proptest::collection::vec((0usize..5000, 0usize..5000), 1..60)) {
        let mut pool = Pool::new(1 << 24);
        let mut ring = Ring::default();
        let mut model = std::collections::VecDeque::new();
        let mut next = 0u8;
        for (write, read) in ops {
            let bytes: Vec<u8> = (0..write).map(|_| { next = next.wrapping_add(1); next }).collect();
            let n = ring.push(&mut pool, 9000, &bytes);
            prop_assert_eq!(n, write.min(9000 - model.len()));
            model.extend(&bytes[..n]);
            let take = read.min(ring.len());
            let mut out = vec![0; take];
            ring.copy_to(0, &mut out);
            let want: Vec<u8> = model.drain(..take).collect();
            prop_assert_eq!(out, want);
            ring.consume(&mut pool, take, false);
        }
    }
}
