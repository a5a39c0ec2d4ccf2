//! The extension module `firstflight._native`. It does what needs the kernel's interfaces and the client's memory. The package
//! in `python/firstflight` has the API and its documentation.
#![cfg(unix)]

mod connecting;
mod descriptor;

use pyo3::prelude::*;

/// What the package `firstflight` is made of. It has no stable interface.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::connecting::{Client, Connecting};
    #[pymodule_export]
    use super::descriptor::{confirmed, fd_outcome, host_check, prepare, reason_text, set_keys};
}

/// An error of the system: Python chooses the class by the number.
fn system(error: &std::io::Error) -> PyErr {
    use pyo3::exceptions::{PyOSError, PyTimeoutError};
    match error.raw_os_error() {
        // The text of Rust ends with the number, which Python shows in front.
        Some(number) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text))
        }
        None if error.kind() == std::io::ErrorKind::TimedOut => PyTimeoutError::new_err(error.to_string()),
        None => PyOSError::new_err(error.to_string()),
    }
}
