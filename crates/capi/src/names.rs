//! Versions and words.

use crate::outcome::{
    FF_OUTCOME_ACCEPTED, FF_OUTCOME_ACCEPTED_PART, FF_OUTCOME_ACCEPTED_REPLY_STRIPPED, FF_OUTCOME_HANDSHAKE,
    FF_OUTCOME_UNDECIDED, FF_REASON_NONE, reason,
};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// The version of the interface. It changes when programs have to be compiled again.
pub const FF_ABI: c_int = 0;

/// `ff_abi`: see `firstflight.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ff_abi() -> c_int {
    FF_ABI
}

/// `ff_version`: see `firstflight.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ff_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    VERSION.as_ptr().cast()
}

/// `ff_strerror`: see `firstflight.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ff_strerror(error: c_int) -> *const c_char {
    let text = match error.saturating_abs() {
        0 => c"no error",
        libc::EINVAL => c"an argument is wrong",
        libc::EBADF => c"not an open descriptor",
        libc::ENOTSOCK => c"the descriptor is no socket",
        libc::EAFNOSUPPORT => c"neither an IPv4 nor an IPv6 address",
        libc::EMSGSIZE => c"more data than the library takes",
        libc::ENOMEM => c"no memory",
        libc::EMFILE | libc::ENFILE => c"too many open files",
        libc::ENOTRECOVERABLE => c"a fault in the library: please report it",
        libc::EBUSY => c"the connect goes on",
        libc::EALREADY => c"the descriptor was taken",
        libc::EADDRNOTAVAIL => c"no address to connect to",
        libc::ECONNREFUSED => c"connection refused",
        libc::ECONNRESET => c"connection reset by the peer",
        libc::ECONNABORTED => c"connection aborted",
        libc::ETIMEDOUT => c"no answer in time",
        libc::EHOSTUNREACH => c"no route to the host",
        libc::ENETUNREACH => c"no route to the network",
        libc::EACCES | libc::EPERM => c"the system does not allow it",
        libc::ENOTCONN => c"not connected, or the connection is over",
        libc::EISCONN => c"already connected",
        libc::EINPROGRESS => c"a connect is under way",
        libc::EINTR => c"interrupted by a signal",
        libc::EPIPE => c"the connection is over",
        libc::ENOTSUP | libc::ENOPROTOOPT => c"the system cannot do it",
        libc::EADDRINUSE => c"another program listens there",
        libc::EAGAIN => c"nothing is there yet",
        libc::ECHILD => c"the object belongs to the parent process",
        libc::EIO => c"a file cannot be used",
        libc::ENOENT => c"the system does not say",
        _ => c"an error of the system: see errno(3) for its number",
    };
    text.as_ptr()
}

/// `ff_outcome_name`: see `firstflight.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ff_outcome_name(outcome: c_int) -> *const c_char {
    let name = match outcome {
        FF_OUTCOME_UNDECIDED => c"undecided",
        FF_OUTCOME_ACCEPTED => c"accepted",
        FF_OUTCOME_ACCEPTED_REPLY_STRIPPED => c"accepted-reply-stripped",
        FF_OUTCOME_ACCEPTED_PART => c"accepted-part",
        FF_OUTCOME_HANDSHAKE => c"handshake",
        _ => c"?",
    };
    name.as_ptr()
}

/// `ff_reason_name`: see `firstflight.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ff_reason_name(number: c_int) -> *const c_char {
    match (number, reason(number)) {
        (FF_REASON_NONE, _) => c"none".as_ptr(),
        (_, None) => c"?".as_ptr(),
        (_, Some(reason)) => kept(2 * number, || reason.as_str().to_owned()),
    }
}

/// `ff_reason_text`: see `firstflight.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ff_reason_text(number: c_int) -> *const c_char {
    match (number, reason(number)) {
        (FF_REASON_NONE, _) => c"".as_ptr(),
        (_, None) => c"?".as_ptr(),
        (_, Some(reason)) => kept(2 * number + 1, || reason.to_string()),
    }
}

/// A text with a zero byte at its end, made once and kept until the program ends.
fn kept(key: c_int, text: impl FnOnce() -> String) -> *const c_char {
    static TEXTS: Mutex<BTreeMap<c_int, &'static CStr>> = Mutex::new(BTreeMap::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let made = || -> &'static CStr { Box::leak(CString::new(text()).unwrap_or_default().into_boxed_c_str()) };
    texts.entry(key).or_insert_with(made).as_ptr()
}
