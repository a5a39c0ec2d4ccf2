//! Any descriptor of the kernel's TCP.
#![allow(unsafe_code, reason = "descriptors of Python are numbers")]

use crate::system;
use firstflight::credential::{Outcome, Reason};
use firstflight_kernel::descriptor as kernel;
use firstflight_kernel::{Setting, TcpInfo};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::{BorrowedFd, RawFd};

/// Outcome, reason, accepted, confirmed, early bytes, round-trip time in seconds, segments sent again.
pub(crate) type OutcomeTuple = (&'static str, &'static str, bool, bool, u32, f64, u32);

/// An outcome with what the kernel says of the connection.
pub(crate) fn told(outcome: Outcome, early: u32, info: Option<&TcpInfo>) -> OutcomeTuple {
    let reason = outcome.reason().map_or("none", Reason::as_str);
    let (confirmed, rtt) = info.map_or((false, 0.0), |info| (info.confirmed, info.srtt.as_secs_f64()));
    let again = info.map_or(0, |info| info.retransmissions);
    (outcome.as_str(), reason, outcome.is_accepted(), confirmed, early, rtt, again)
}

/// A descriptor of the program.
fn descriptor<'a>(fd: RawFd) -> PyResult<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(system(&std::io::Error::from_raw_os_error(9)));
    }
    // SAFETY: it is not -1. It is used for calls of the system while the interpreter is held, and one that is not open is an
    // error of theirs.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

#[pyfunction]
pub(crate) fn fd_outcome(fd: RawFd, server: bool) -> PyResult<OutcomeTuple> {
    let socket = descriptor(fd)?;
    if server {
        let arrived = kernel::accepted(&socket).map_err(|error| system(&error))?;
        return Ok(told(arrived.outcome, arrived.early, Some(&arrived.info)));
    }
    let (outcome, info) = kernel::connected(&socket).map_err(|error| system(&error))?;
    Ok(told(outcome, 0, Some(&info)))
}

/// Whether the client's ACK has come; `None` if the connection is over.
#[pyfunction]
pub(crate) fn confirmed(fd: RawFd) -> PyResult<Option<bool>> {
    let info = kernel::info(&descriptor(fd)?).map_err(|error| system(&error))?;
    Ok((!info.closed).then_some(info.confirmed))
}

#[pyfunction]
pub(crate) fn prepare(fd: RawFd, queue: u32, keys: &[u8]) -> PyResult<bool> {
    if !matches!(keys.len(), 0 | 16 | 32) {
        return Err(PyValueError::new_err("keys are 16 bytes, or 32 with a backup"));
    }
    kernel::prepare(&descriptor(fd)?, queue, keys).map_err(|error| system(&error))
}

#[pyfunction]
pub(crate) fn set_keys(fd: RawFd, keys: &[u8]) -> PyResult<()> {
    if !matches!(keys.len(), 16 | 32) {
        return Err(PyValueError::new_err("keys are 16 bytes, or 32 with a backup"));
    }
    kernel::set_keys(&descriptor(fd)?, keys).map_err(|error| system(&error))
}

/// Whether connects and listeners may use Fast Open.
#[pyfunction]
pub(crate) fn host_check() -> PyResult<(bool, bool)> {
    let setting = Setting::read().map_err(|error| system(&error))?;
    Ok((setting.client, setting.server))
}

/// A sentence for a reason; empty for one that is not known.
#[pyfunction]
pub(crate) fn reason_text(reason: &str) -> String {
    let found = Reason::ALL.iter().find(|one| one.as_str() == reason);
    found.map(Reason::to_string).unwrap_or_default()
}
