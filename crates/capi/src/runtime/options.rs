//! Settings of layer C.

use crate::boundary::{Errno, Structure, WRONG};
use std::ffi::{CStr, c_char};

/// `struct ff_start_options`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ff_start_options {
    /// `sizeof(struct ff_start_options)` of the caller.
    pub size: usize,
    /// The file of the client's memory, or null.
    pub memory: *const c_char,
    /// The address of a verifier, or null.
    pub verifier: *const c_char,
    /// Its key, 64 hexadecimal digits.
    pub verifier_key: *const c_char,
    /// The file of the certificates, or null.
    pub certificates: *const c_char,
    /// Servers in UDP of which no resolver is asked, or null.
    pub servers: *const c_char,
    /// 1: no Fast Open and no UDP.
    pub plain: i32,
    /// 1: what must not run twice may ride in UDP: the servers execute requests once.
    pub servers_run_once: i32,
}

// SAFETY: `repr(C)`; a `usize`, pointers and two words of four bytes leave no padding, and take any bytes.
unsafe impl Structure for ff_start_options {
    const LEAST: usize = size_of::<Self>();
}

/// `struct ff_server_options`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ff_server_options {
    /// `sizeof(struct ff_server_options)` of the caller.
    pub size: usize,
    /// Where to listen, with commas.
    pub addresses: *const c_char,
    /// Keys of the cookies, or null.
    pub keys: *const u8,
    /// 0, 16 or 32.
    pub keys_len: usize,
    /// The file of the trusted verifiers, or null.
    pub trust: *const c_char,
    /// The server's names, with commas, or null.
    pub names: *const c_char,
    /// How many first flights wait for their ACK at most.
    pub queue: u32,
    /// The UDP port; 0: that of TCP; -1: none.
    pub udp_port: i32,
    /// `FF_MAY_RUN_TWICE` or `FF_RUN_ONCE`.
    pub safety: i32,
    /// 0.
    pub reserved: i32,
}

// SAFETY: `repr(C)`; a `usize`, pointers, a `usize` and four words of four bytes leave no padding, and take any bytes.
unsafe impl Structure for ff_server_options {
    const LEAST: usize = size_of::<Self>();
}

/// A caller's text; `None` if it is null.
///
/// # Safety
/// `at` is null, or ends with a zero byte and does not change for `'a`.
pub(super) unsafe fn text<'a>(at: *const c_char) -> Result<Option<&'a str>, Errno> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller of this function promises.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map(Some).map_err(|_| WRONG)
}

/// The parts of a text between commas.
pub(super) fn parts(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|part| !part.is_empty())
}

/// A number that is 0 or 1.
pub(super) fn yes(number: i32) -> Result<bool, Errno> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WRONG),
    }
}
