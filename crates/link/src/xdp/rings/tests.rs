use super::*;

const SIZE: u32 = 8;
const AT: libc::xdp_ring_offset = libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 128, flags: 72 };

/// The two ends of a ring in memory, whose counters begin at `start`. The kernel's end is played by the other type.
fn ends(start: u32) -> (Producer<u64>, Consumer<u64>) {
    let file = tempfile();
    let map = || Map::of(&file, NonZeroUsize::new(4096).unwrap(), 0, true).unwrap();
    let ring = || Ring::within(map(), SIZE, &AT).unwrap();
    let begin = ring();
    begin.counter(begin.producer).store(start, Ordering::Relaxed);
    begin.counter(begin.consumer).store(start, Ordering::Relaxed);
    (Producer::new(ring()), Consumer::new(ring()))
}

fn tempfile() -> std::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: a terminated name.
    let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new.
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.set_len(4096).unwrap();
    file
}

/// Entries arrive in order, at every fill level, while the counters wrap.
#[test]
fn counters_wrap() {
    for start in [0, u32::MAX - 2 * SIZE, u32::MAX - 1, u32::MAX] {
        let (mut producer, mut consumer) = ends(start);
        let (mut next, mut expected) = (0_u64, 0_u64);
        for burst in (1..=SIZE).cycle().take(40) {
            for _ in 0..burst {
                assert!(producer.put(next), "there is room");
                next += 1;
            }
            assert_eq!(consumer.take(), None, "what is not published is not seen");
            producer.publish();
            assert_eq!(producer.waiting(), burst);
            while let Some(entry) = consumer.take() {
                assert_eq!(entry, expected);
                expected += 1;
            }
            assert_eq!(next, expected);
            consumer.release();
            assert_eq!(producer.waiting(), 0);
        }
    }
}

#[test]
fn a_full_ring_takes_nothing_until_slots_are_released() {
    let (mut producer, mut consumer) = ends(u32::MAX - 3);
    for entry in 0..u64::from(SIZE) {
        assert!(producer.put(entry));
    }
    producer.publish();
    assert!(!producer.put(99));
    assert_eq!(consumer.take(), Some(0));
    assert!(!producer.put(99), "the slot is not released");
    consumer.release();
    assert!(producer.put(99));
    assert!(!producer.put(100));
}

#[test]
fn offsets_outside_the_memory_are_refused() {
    let map = || Map::anonymous(NonZeroUsize::new(4096).unwrap()).unwrap();
    assert!(Ring::<u64>::within(map(), 3, &AT).is_err(), "no power of two");
    assert!(Ring::<u64>::within(map(), 1024, &AT).is_err(), "too many entries");
    assert!(Ring::<u64>::within(map(), SIZE, &libc::xdp_ring_offset { flags: 4094, ..AT }).is_err());
}
