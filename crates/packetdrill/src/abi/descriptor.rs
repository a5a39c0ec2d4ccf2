//! Descriptors of sockets. They are real ones, so that no other file gets their numbers.

use libc::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Marks the descriptors that are ours, so that the replaced libc calls can pass on all others without a lock.
static OURS: [AtomicBool; 1024] = [const { AtomicBool::new(false) }; 1024];

pub(super) fn is_ours(fd: c_int) -> bool {
    usize::try_from(fd).ok().and_then(|fd| OURS.get(fd)).is_some_and(|ours| ours.load(Ordering::Relaxed))
}

fn mark(fd: c_int, ours: bool) {
    if let Some(place) = usize::try_from(fd).ok().and_then(|fd| OURS.get(fd)) {
        place.store(ours, Ordering::Relaxed);
    }
}

pub(super) fn make() -> Result<c_int, c_int> {
    // SAFETY: eventfd2 takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_eventfd2, 0, 0) } as c_int;
    if fd < 0 {
        return Err(libc::EMFILE);
    }
    mark(fd, true);
    Ok(fd)
}

pub(super) fn close(fd: c_int) -> c_int {
    mark(fd, false);
    // SAFETY: close takes an integer. This is not libc's function, which is replaced by ours.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

pub(super) fn close_all() {
    for fd in 0..OURS.len() as c_int {
        if is_ours(fd) {
            close(fd);
        }
    }
}
