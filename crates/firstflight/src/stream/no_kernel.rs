//! In the place of `kernel.rs` where the kernel's TCP is not built in.

pub(crate) use super::connection::Absent as KernelStream;
pub(super) use std::convert::Infallible as Times;
