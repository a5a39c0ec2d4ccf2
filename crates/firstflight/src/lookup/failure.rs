//! Why a name has no addresses.

use firstflight_kernel::is_shortage;
use std::io;

/// Why a name has no addresses. All that wait for it are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    code: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        Self { code: error.raw_os_error(), kind: error.kind(), text: error.to_string() }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure.code {
            Some(code) => Self::from_raw_os_error(code),
            None => Self::new(failure.kind, failure.text),
        }
    }
}

impl Failure {
    /// Whether this machine is short of something, so that nothing is known of the name.
    pub(super) fn is_shortage(&self) -> bool {
        is_shortage(&self.clone().into())
    }
}
