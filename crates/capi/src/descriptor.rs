//! Layer A: any descriptor of the kernel's TCP. No state is kept.

use crate::boundary::{Errno, Structure, WRONG, address, bytes, descriptor, guarded, length};
use crate::outcome::ff_outcome;
use firstflight::credential::Reason;
use firstflight_kernel::descriptor as kernel;
use firstflight_kernel::{Carry, Setting};
use std::ffi::c_int;

/// The descriptor connected to a server.
pub const FF_CLIENT: c_int = 1;
/// A listener returned the descriptor.
pub const FF_SERVER: c_int = 2;
/// The server may run the data twice without harm.
pub const FF_MAY_RUN_TWICE: c_int = 1;
/// The server must not run the data twice.
pub const FF_RUN_ONCE: c_int = 2;

/// `struct ff_host`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ff_host {
    /// `sizeof(struct ff_host)` of the caller.
    pub size: usize,
    /// 1 if connects may use Fast Open.
    pub client: i32,
    /// 1 if listeners may.
    pub server: i32,
    /// 1 if connects send data without a cookie.
    pub without_cookie: i32,
    /// For how long the kernel switches Fast Open off at first after a black hole, seconds; 0: never.
    pub blackhole_secs: u32,
}

// SAFETY: `repr(C)`; a `usize` and an even number of words of four bytes leave no padding; integers take any bytes.
unsafe impl Structure for ff_host {
    const LEAST: usize = size_of::<Self>();
}

/// Whether data may be run twice.
pub(crate) fn may_run_twice(safety: c_int) -> Result<bool, Errno> {
    match safety {
        FF_MAY_RUN_TWICE => Ok(true),
        FF_RUN_ONCE => Ok(false),
        _ => Err(WRONG),
    }
}

/// `ff_fd_outcome`: see `firstflight.h`.
///
/// # Safety
/// `out` is null, or a structure as the header says. The descriptor is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_fd_outcome(fd: c_int, side: c_int, out: *mut ff_outcome) -> c_int {
    guarded(|| {
        // A wrong structure is refused before the kernel gives the SYN's headers, which it does once.
        // SAFETY: as the caller of this function promises.
        unsafe { ff_outcome::check(out) }?;
        // SAFETY: as the caller of this function promises.
        let socket = unsafe { descriptor(fd) }?;
        let told = match side {
            FF_CLIENT => {
                let (outcome, info) = kernel::connected(&socket)?;
                ff_outcome::of(outcome, 0, Some(&info))
            }
            FF_SERVER => {
                let arrived = kernel::accepted(&socket)?;
                ff_outcome::of(arrived.outcome, arrived.early, Some(&arrived.info))
            }
            _ => return Err(WRONG),
        };
        // SAFETY: as the caller of this function promises.
        unsafe { told.give(out) }?;
        Ok(told.accepted)
    })
}

/// `ff_fd_confirmed`: see `firstflight.h`.
///
/// # Safety
/// The descriptor is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_fd_confirmed(fd: c_int) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let info = kernel::info(&unsafe { descriptor(fd) }?)?;
        if info.closed { Err(Errno(libc::ENOTCONN)) } else { Ok(info.confirmed.into()) }
    })
}

/// `ff_fd_connect`: see `firstflight.h`.
///
/// # Safety
/// `to` has `to_len` bytes, and `data` has `len`. The descriptor is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_fd_connect(
    fd: c_int,
    to: *const libc::sockaddr,
    to_len: libc::socklen_t,
    data: *const u8,
    len: usize,
    safety: c_int,
) -> c_int {
    guarded(|| {
        let twice = may_run_twice(safety)?;
        // SAFETY: as the caller of this function promises.
        let socket = unsafe { descriptor(fd) }?;
        // SAFETY: as the caller of this function promises.
        let remote = unsafe { address(to, to_len) }?;
        // SAFETY: as the caller of this function promises.
        let carry = match unsafe { bytes(data, len) }? {
            [] => Carry::Request(Reason::NoData),
            _ if !twice => Carry::Request(Reason::NotReplaySafe),
            data => Carry::Data(data),
        };
        length(kernel::connect_on(&socket, remote, carry)?.taken())
    })
}

/// `ff_listen_prepare`: see `firstflight.h`.
///
/// # Safety
/// `keys` has `keys_len` bytes. The descriptor is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_listen_prepare(fd: c_int, queue: u32, keys: *const u8, keys_len: usize) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let (socket, keys) = unsafe { (descriptor(fd)?, bytes(keys, keys_len)?) };
        if !matches!(keys.len(), 0 | 16 | 32) {
            return Err(WRONG);
        }
        Ok(kernel::prepare(&socket, queue, keys)?.into())
    })
}

/// `ff_listen_set_keys`: see `firstflight.h`.
///
/// # Safety
/// `keys` has `keys_len` bytes. The descriptor is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_listen_set_keys(fd: c_int, keys: *const u8, keys_len: usize) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let (socket, keys) = unsafe { (descriptor(fd)?, bytes(keys, keys_len)?) };
        if !matches!(keys.len(), 16 | 32) {
            return Err(WRONG);
        }
        kernel::set_keys(&socket, keys)?;
        Ok(0)
    })
}

/// `ff_host_check`: see `firstflight.h`.
///
/// # Safety
/// `out` is null, or a structure as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_host_check(out: *mut ff_host) -> c_int {
    guarded(|| {
        let setting = Setting::read()?;
        let host = ff_host {
            size: size_of::<ff_host>(),
            client: setting.client.into(),
            server: setting.server.into(),
            without_cookie: setting.without_cookie.into(),
            blackhole_secs: u32::try_from(setting.blackhole_secs).unwrap_or(u32::MAX),
        };
        // SAFETY: as the caller of this function promises.
        unsafe { host.give(out) }?;
        Ok(0)
    })
}
