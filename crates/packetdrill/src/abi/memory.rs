//! Memory behind the pointers that C gives, and results for C: return values and `errno`.

use crate::address;
use libc::{EFAULT, EINVAL, c_int, c_void, iovec, sockaddr, socklen_t, ssize_t};
use std::net::SocketAddr;
use std::{ptr, slice};

pub(super) fn fail(error: c_int) -> c_int {
    // SAFETY: the calling thread's errno exists.
    unsafe { *libc::__errno_location() = error };
    -1
}

pub(super) fn done(result: Result<(), c_int>) -> c_int {
    result.map_or_else(fail, |()| 0)
}

pub(super) fn count(result: Result<usize, c_int>) -> ssize_t {
    result.map_or_else(|error| fail(error) as ssize_t, |n| n as ssize_t)
}

pub(super) fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], c_int> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(EFAULT),
        // SAFETY: the caller says that this many bytes are valid, and waits until this function returns.
        _ => Ok(unsafe { slice::from_raw_parts(at.cast(), len) }),
    }
}

pub(super) fn put(at: *mut c_void, bytes: &[u8]) {
    if !at.is_null() && !bytes.is_empty() {
        // SAFETY: callers cut `bytes` to the space that the C caller has at `at`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len()) };
    }
}

/// Whether an address has no family.
pub(super) fn is_unspecified(at: *const sockaddr, len: socklen_t) -> bool {
    let family = bytes(at.cast(), len as usize).ok().and_then(|bytes| bytes.first_chunk());
    family.is_some_and(|family| u16::from_ne_bytes(*family) == libc::AF_UNSPEC as u16)
}

pub(super) fn parse_address(at: *const sockaddr, len: socklen_t) -> Result<SocketAddr, c_int> {
    address::parse(bytes(at.cast(), len as usize)?)
}

pub(super) fn put_address(at: *mut sockaddr, room: *mut socklen_t, address: SocketAddr, v6: bool) {
    if at.is_null() || room.is_null() {
        return;
    }
    let address = address::emit(address, v6);
    // SAFETY: the caller gives the length of its space, and reads the address's length.
    let len = unsafe { room.replace(address.len() as socklen_t) } as usize;
    put(at.cast(), address.get(..len.min(address.len())).unwrap_or_default());
}

pub(super) fn vectors<'a>(at: *const iovec, n: usize) -> Result<&'a [iovec], c_int> {
    match (at.is_null(), n) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(EFAULT),
        (_, 1025..) => Err(EINVAL),
        // SAFETY: as in `bytes`.
        _ => Ok(unsafe { slice::from_raw_parts(at, n) }),
    }
}

pub(super) fn gather(vectors: &[iovec]) -> Result<Vec<u8>, c_int> {
    let mut all = Vec::new();
    for vector in vectors {
        if isize::try_from(vector.iov_len).is_err() {
            return Err(EINVAL);
        }
        all.extend_from_slice(bytes(vector.iov_base, vector.iov_len)?);
    }
    Ok(all)
}

pub(super) fn room(vectors: &[iovec]) -> Result<usize, c_int> {
    vectors.iter().try_fold(0usize, |sum, vector| {
        sum.checked_add(vector.iov_len).filter(|sum| isize::try_from(*sum).is_ok()).ok_or(EINVAL)
    })
}

pub(super) fn scatter(vectors: &[iovec], mut data: &[u8]) {
    for vector in vectors {
        let (front, rest) = data.split_at(vector.iov_len.min(data.len()));
        put(vector.iov_base, front);
        data = rest;
    }
}
