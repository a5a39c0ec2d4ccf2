//! Where lines about connects go.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// `ff_log`: what gets the lines.
pub type ff_log = Option<unsafe extern "C" fn(level: c_int, line: *const c_char, user: *mut c_void)>;

/// A connect failed.
pub const FF_LOG_ERROR: c_int = 1;
/// What became of a connect.
pub const FF_LOG_INFO: c_int = 2;

#[derive(Clone, Copy)]
struct Target {
    call: unsafe extern "C" fn(c_int, *const c_char, *mut c_void),
    user: *mut c_void,
}

// SAFETY: the pointer is not used here. It is given to the program's function, which may be called from each thread that
// calls the library, as the header says.
unsafe impl Send for Target {}

static TARGET: Mutex<Option<Target>> = Mutex::new(None);

/// `ff_set_log`: see `firstflight.h`.
///
/// # Safety
/// `call` may be called from each thread that calls the library, with `user`, until another call replaces it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_set_log(call: ff_log, user: *mut c_void) {
    let target = call.map(|call| Target { call, user });
    *TARGET.lock().unwrap_or_else(PoisonError::into_inner) = target;
}

/// Gives the program a line, if it wants them. `line` is made only then.
pub(crate) fn log(level: c_int, line: impl FnOnce() -> String) {
    // The lock is released before the call: the program may call `ff_set_log` from there.
    let target = *TARGET.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Target { call, user }) = target else { return };
    let Ok(line) = CString::new(line().replace('\0', " ")) else { return };
    // SAFETY: the caller of `ff_set_log` has promised that `call` may be called with `user`. The line ends with a zero byte, and
    // outlives the call.
    unsafe { call(level, line.as_ptr(), user) };
}
