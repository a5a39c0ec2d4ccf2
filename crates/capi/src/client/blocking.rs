//! The connect that blocks.

use super::{FF_MOST_FDS, ff_client, ff_conn, start};
use crate::boundary::{Errno, Structure as _, guarded};
use crate::outcome::ff_outcome;
use firstflight::credential::{Outcome, Reason};
use std::ffi::{c_char, c_int};
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::time::{Duration, Instant};

/// `ff_connect`: see `firstflight.h`.
///
/// # Safety
/// As `ff_connect_start`; `outcome` is null, or a structure as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_connect(
    client: *const ff_client,
    list: *const libc::addrinfo,
    name: *const c_char,
    data: *const u8,
    len: usize,
    safety: c_int,
    timeout_ms: c_int,
    outcome: *mut ff_outcome,
) -> c_int {
    guarded(|| {
        if !outcome.is_null() {
            // SAFETY: as the caller of this function promises.
            unsafe { ff_outcome::check(outcome) }?;
        }
        let time = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        // SAFETY: as the caller of this function promises.
        let mut conn = unsafe { start(client, list, name, (data, len), safety) }?;
        // SAFETY: as the caller of this function promises, and `start` has looked at the pointer.
        let data = unsafe { crate::boundary::bytes(data, len) }?;
        let result = run(&mut conn, data, deadline);
        if !outcome.is_null() {
            // SAFETY: as the caller of this function promises.
            unsafe { conn.told.give(outcome) }?;
        }
        Ok(result?.into_raw_fd())
    })
}

/// Connects, and sends the rest of the data.
fn run(conn: &mut ff_conn, data: &[u8], deadline: Option<Instant>) -> Result<TcpStream, Errno> {
    while !conn.step()? {
        let mut fds = [NONE; FF_MOST_FDS];
        let mut count = 0;
        for (place, wanted) in fds.iter_mut().zip(conn.wanted()) {
            *place = wanted;
            count += 1;
        }
        if is_late(deadline) {
            if conn.maybe_delivered() {
                conn.told = unknown();
            }
            return Err(Errno(libc::ETIMEDOUT));
        }
        let left = left_ms(deadline);
        let most = match (conn.timeout_ms(), left) {
            (-1, left) => left,
            (next, -1) => next,
            (next, left) => next.min(left),
        };
        wait(fds.get_mut(..count).unwrap_or_default(), most)?;
    }
    let (mut stream, sent) = conn.take()?;
    let result = send(&mut stream, data.get(sent..).unwrap_or_default(), deadline);
    if result.is_err() && !data.is_empty() {
        // Some of it has left.
        conn.told = unknown();
    }
    result?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A server may have run the data.
fn unknown() -> ff_outcome {
    ff_outcome::of(Outcome::Handshake(Reason::Unknown), 0, None)
}

const NONE: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };

fn is_late(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// The time until then in ms, rounded up; -1 for ever.
fn left_ms(deadline: Option<Instant>) -> c_int {
    deadline.map_or(-1, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    })
}

fn send(stream: &mut TcpStream, mut rest: &[u8], deadline: Option<Instant>) -> Result<(), Errno> {
    while !rest.is_empty() {
        // The standard library sends with `MSG_NOSIGNAL`.
        match stream.write(rest) {
            Ok(taken) => rest = rest.get(taken..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_late(deadline) {
                    return Err(Errno(libc::ETIMEDOUT));
                }
                let fd = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
                wait(&mut [fd], left_ms(deadline))?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until something happens to one of the descriptors, a signal comes, or time is up.
fn wait(fds: &mut [libc::pollfd], timeout_ms: c_int) -> Result<(), Errno> {
    // SAFETY: the pointer has as many entries as its length says, which the system reads and writes.
    let result = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
    match result {
        0.. => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error.into()),
        },
    }
}
