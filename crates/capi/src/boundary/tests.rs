use super::*;

#[test]
fn a_panic_is_an_error_number() {
    assert_eq!(guarded(|| panic!("a fault")), -libc::ENOTRECOVERABLE);
    assert_eq!(guarded(|| Err(WRONG)), -libc::EINVAL);
    assert_eq!(guarded(|| Ok(7)), 7);
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Later {
    size: usize,
    first: u64,
    second: u64,
    third: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Now {
    size: usize,
    first: u64,
    second: u64,
}

// SAFETY: `repr(C)`, without padding, of integers.
unsafe impl Structure for Now {
    const LEAST: usize = 16;
}

#[test]
fn structures_of_older_and_newer_programs_are_filled_as_far_as_they_go() {
    let own = Now { size: 0, first: 1, second: 2 };
    let mut later = Later { size: 32, first: 9, second: 9, third: 9 };
    // SAFETY: `later` has the size that it says.
    assert_eq!(unsafe { own.give((&raw mut later).cast()) }, Ok(()));
    assert_eq!(later, Later { size: 32, first: 1, second: 2, third: 0 });
    let mut older = Now { size: 16, first: 9, second: 9 };
    // SAFETY: `older` has more than the size that it says.
    assert_eq!(unsafe { own.give(&raw mut older) }, Ok(()));
    assert_eq!(older, Now { size: 16, first: 1, second: 9 }, "not behind its size");
    // SAFETY: as before.
    assert_eq!(unsafe { Now::take(&raw const older) }, Ok(Now { size: 16, first: 1, second: 0 }));
    for size in [0, 15, 1 << 40] {
        older.size = size;
        // SAFETY: a size that is wrong is not used.
        assert_eq!(unsafe { own.give(&raw mut older) }, Err(WRONG), "{size}");
    }
    // SAFETY: null is allowed.
    assert_eq!(unsafe { own.give(std::ptr::null_mut()) }, Err(WRONG));
}

#[test]
fn addresses_of_wrong_lengths_and_families_are_refused() {
    let good = SockAddr::from("192.0.2.1:80".parse::<SocketAddr>().unwrap());
    // SAFETY: `good` has its length, and less than it is read of it.
    let of = |len| unsafe { address(good.as_ptr().cast(), len) };
    assert_eq!(of(good.len()), Ok("192.0.2.1:80".parse().unwrap()));
    assert_eq!(of(good.len() - 1), Err(WRONG));
    let six = SockAddr::from("[2001:db8::1]:80".parse::<SocketAddr>().unwrap());
    // SAFETY: as before.
    let of = |len| unsafe { address(six.as_ptr().cast(), len) };
    assert_eq!(of(six.len()), Ok("[2001:db8::1]:80".parse().unwrap()));
    assert_eq!(of(six.len() - 1), Err(WRONG));
    let path = SockAddr::unix("/tmp/a-path-that-is-long-enough").unwrap();
    // SAFETY: as before.
    assert_eq!(unsafe { address(path.as_ptr().cast(), path.len()) }, Err(Errno(libc::EAFNOSUPPORT)));
}
