//! What every function does with its arguments and its result.

use socket2::{SockAddr, SockAddrStorage};
use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error number of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// An argument is wrong.
pub const WRONG: Errno = Errno(libc::EINVAL);

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        let by_kind = || match error.kind() {
            io::ErrorKind::Unsupported => libc::ENOTSUP,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => libc::EINVAL,
            io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            io::ErrorKind::NotConnected => libc::ENOTCONN,
            io::ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
            io::ErrorKind::AddrInUse => libc::EADDRINUSE,
            io::ErrorKind::PermissionDenied => libc::EACCES,
            io::ErrorKind::NotFound => libc::ENOENT,
            io::ErrorKind::OutOfMemory => libc::ENOMEM,
            _ => libc::EIO,
        };
        Self(error.raw_os_error().unwrap_or_else(by_kind))
    }
}

/// Runs a function's body. An error is its negative number. A panic ends here, and is `-ENOTRECOVERABLE`: what the function
/// had in hand may be damaged.
pub fn guarded(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(Errno(number))) => -number,
        Err(_) => -libc::ENOTRECOVERABLE,
    }
}

/// A length as a result.
pub fn length(len: usize) -> Result<c_int, Errno> {
    c_int::try_from(len).map_err(|_| Errno(libc::EMSGSIZE))
}

/// A caller's descriptor.
///
/// # Safety
/// If it is open, it stays open for `'a`.
pub unsafe fn descriptor<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: it is not -1. The caller promises that it stays open; one that is not open is an error of the system.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A caller's bytes. Null is allowed if there are none.
///
/// # Safety
/// `data` has `len` bytes that do not change for `'a`, or `len` is 0.
pub unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], Errno> {
    match (len, data.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(WRONG),
        (1..=MOST_BYTES, false) => {
            // SAFETY: the pointer is not null, and the caller promises that it has that many bytes, which do not change. They
            // are fewer than `isize::MAX`.
            Ok(unsafe { std::slice::from_raw_parts(data, len) })
        }
        _ => Err(Errno(libc::EMSGSIZE)),
    }
}

/// The longest data of a first flight.
const MOST_BYTES: usize = c_int::MAX as usize;

/// A caller's address of IPv4 or IPv6.
///
/// # Safety
/// `address` is null, or has `len` bytes that can be read.
pub unsafe fn address(address: *const libc::sockaddr, len: libc::socklen_t) -> Result<SocketAddr, Errno> {
    let size = len as usize;
    if address.is_null() || !(size_of::<libc::sockaddr_in>()..=size_of::<SockAddrStorage>()).contains(&size) {
        return Err(WRONG);
    }
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the caller promises `size` bytes at `address`, and `storage` has at least as many. Any bytes are a valid value of
    // it. The two do not overlap, because `storage` is new.
    unsafe {
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut storage).cast::<u8>(), size);
    }
    // SAFETY: all bytes of `storage` are set, the first `len` of them by the caller.
    let address = unsafe { SockAddr::new(storage, len) };
    let short = address.is_ipv6() && size < size_of::<libc::sockaddr_in6>();
    if short {
        return Err(WRONG);
    }
    address.as_socket().ok_or(Errno(libc::EAFNOSUPPORT))
}

/// A structure of C that begins with its size. Programs compiled with another version have another size.
///
/// # Safety
/// The type is `repr(C)`, begins with a `usize`, has no padding, and any bytes are a valid value of it.
pub unsafe trait Structure: Copy {
    /// The size in the first version. Callers have at least that.
    const LEAST: usize;

    /// Whether a structure is one to be given: what it has behind its size need not be set.
    ///
    /// # Safety
    /// `out` is null, or points to a structure whose first member is its size.
    unsafe fn check(out: *const Self) -> Result<usize, Errno> {
        // SAFETY: as the caller of this function promises.
        let size = unsafe { size_at(out) }?;
        if size < Self::LEAST { Err(WRONG) } else { Ok(size) }
    }

    /// Gives the caller as much of the structure as its own has room for. What a newer caller's has more becomes zero.
    ///
    /// # Safety
    /// `out` is null, or points to a structure whose first member is its size, with that many bytes that can be written.
    unsafe fn give(self, out: *mut Self) -> Result<(), Errno> {
        // SAFETY: as the caller of this function promises.
        let size = unsafe { Self::check(out) }?;
        let (own, first) = (size_of::<Self>(), size_of::<usize>());
        let from = (&raw const self).cast::<u8>();
        let to = out.cast::<u8>();
        // SAFETY: both have at least `own.min(size)` bytes, which are at least `first`, and `self` is a copy, so that they do
        // not overlap. The size itself stays as it is.
        unsafe { std::ptr::copy_nonoverlapping(from.add(first), to.add(first), own.min(size) - first) };
        // SAFETY: the caller's has `size` bytes, and `size` is larger than `own` if anything is written.
        unsafe { std::ptr::write_bytes(to.add(own.min(size)), 0, size.saturating_sub(own)) };
        Ok(())
    }

    /// Takes as much of the caller's structure as it has. What it lacks is zero.
    ///
    /// # Safety
    /// `given` is null, or points to a structure whose first member is its size, with that many bytes that can be read.
    unsafe fn take(given: *const Self) -> Result<Self, Errno> {
        // SAFETY: as the caller of this function promises.
        let size = unsafe { Self::check(given) }?;
        let mut own = std::mem::MaybeUninit::<Self>::zeroed();
        // SAFETY: both have at least that many bytes, and `own` is new, so that they do not overlap.
        unsafe {
            let len = size.min(size_of::<Self>());
            std::ptr::copy_nonoverlapping(given.cast::<u8>(), own.as_mut_ptr().cast::<u8>(), len);
        }
        // SAFETY: any bytes are a valid value of the type, and all of them are set.
        Ok(unsafe { own.assume_init() })
    }
}

/// The size at the beginning of a structure. More than a page is nonsense: the caller has not set it.
///
/// # Safety
/// `at` is null, or has a `usize` that can be read.
unsafe fn size_at<T>(at: *const T) -> Result<usize, Errno> {
    if at.is_null() || !at.cast::<usize>().is_aligned() {
        return Err(WRONG);
    }
    // SAFETY: the pointer is not null and aligned, and the caller promises a `usize` there.
    let size = unsafe { at.cast::<usize>().read() };
    if size > 4096 { Err(WRONG) } else { Ok(size) }
}

#[cfg(test)]
mod tests;
