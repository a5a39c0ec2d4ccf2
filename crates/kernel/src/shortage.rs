//! What this machine may be short of.

use std::io;

/// Whether an error says that this machine is short of something, such as descriptors or memory. It tells nothing of what was
/// asked for.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let short =
        matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS));
    short || error.kind() == io::ErrorKind::OutOfMemory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_told_from_other_errors() {
        assert!(is_shortage(&io::Error::from_raw_os_error(libc::EMFILE)));
        assert!(is_shortage(&io::ErrorKind::OutOfMemory.into()));
        assert!(!is_shortage(&io::Error::from_raw_os_error(libc::ECONNREFUSED)));
    }
}
