//! Control messages (`struct cmsghdr`), as bytes.

use super::memory::put;
use libc::{MSG_CTRUNC, c_int, msghdr};

/// Level, type and data of a control message.
pub(super) type Control = (c_int, c_int, Vec<u8>);

/// Length of the header in front of a control message: its length, level and type.
const HEADER: usize = size_of::<usize>() + 2 * size_of::<c_int>();

/// Writes the control messages into the caller's buffer, in order, as far as it holds them.
pub(super) fn put_controls(message: &mut msghdr, controls: &[Control]) {
    let mut bytes: Vec<u8> = Vec::new();
    for (level, kind, data) in controls {
        let len = HEADER + data.len();
        if message.msg_control.is_null() || bytes.len() + len > message.msg_controllen {
            message.msg_flags |= MSG_CTRUNC;
            break;
        }
        bytes.extend(len.to_ne_bytes());
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()).min(message.msg_controllen), 0);
    }
    put(message.msg_control, &bytes);
    message.msg_controllen = bytes.len();
}
