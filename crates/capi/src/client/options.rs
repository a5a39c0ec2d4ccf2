//! Settings of a client.

use crate::boundary::Structure;

/// `struct ff_client_options`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ff_client_options {
    /// `sizeof(struct ff_client_options)` of the caller.
    pub size: usize,
    /// 16 bytes, or null.
    pub network: *const u8,
    /// 1: no Fast Open.
    pub plain: i32,
    /// 0.
    pub reserved: i32,
}

// SAFETY: `repr(C)`; a `usize`, a pointer and two words of four bytes leave no padding, and take any bytes.
unsafe impl Structure for ff_client_options {
    const LEAST: usize = size_of::<Self>();
}
