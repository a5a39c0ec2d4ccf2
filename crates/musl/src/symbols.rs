//! The names that C and LLVM call.

use core::ffi::c_int;

/// C's `memcpy`.
///
/// # Safety
/// As C says.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: by the caller.
    unsafe { super::copy(to, from, len) };
    to
}

/// C's `memmove`.
///
/// # Safety
/// As C says.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: by the caller.
    unsafe { super::copy(to, from, len) };
    to
}

/// C's `memcmp`.
///
/// # Safety
/// As C says.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, len: usize) -> c_int {
    // SAFETY: by the caller.
    unsafe { super::compare(left, right, len) as c_int }
}

/// What LLVM calls where only equality matters.
///
/// # Safety
/// As `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, len: usize) -> c_int {
    // SAFETY: by the caller.
    unsafe { super::compare(left, right, len) as c_int }
}
