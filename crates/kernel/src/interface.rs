//! Network interfaces by name.

use crate::sys;

/// The number of the interface with this name. `None` if there is none, or the system has no such names.
#[must_use]
pub fn interface(name: &str) -> Option<u32> {
    sys::interface(&std::ffi::CString::new(name).ok()?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_numbers() {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        assert_eq!(interface("lo"), index.trim().parse().ok());
        assert_eq!(interface("no-such-one"), None);
        assert_eq!(interface("lo\0"), None);
        assert_eq!(interface(""), None);
    }
}
