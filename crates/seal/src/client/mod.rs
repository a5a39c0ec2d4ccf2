//! The client (7, 8.3).

pub(crate) mod draft;
pub(crate) mod failures;
pub(crate) mod outcome;
pub(crate) mod reason;
pub(crate) mod sent;
pub(crate) mod size;
pub(crate) mod trust;
