//! In the place of `carriage.rs` where requests inside lookups are not built in.

/// There is none.
#[derive(Debug)]
pub(crate) enum Report {}
