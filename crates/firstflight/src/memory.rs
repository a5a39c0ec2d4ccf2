//! What is remembered of servers, paths, names and resolvers, each on the local network where it was learnt. What was
//! learnt on one network is not used on another.
//!
//! One file for each subject, without I/O. [`file`] keeps all of it in one file for later runs, and is the only part that
//! blocks; the tasks that call it are elsewhere. Nothing here needs an async runtime.

pub(crate) mod closed;
#[cfg(feature = "client")]
pub(crate) mod contacts;
#[cfg(feature = "cache")]
pub(crate) mod file;
#[cfg(not(feature = "cache"))]
#[path = "memory/no_file.rs"]
pub(crate) mod file;
pub(crate) mod health;
pub(crate) mod history;
#[cfg(feature = "client")]
pub(crate) mod kernel;
#[cfg(feature = "dns")]
pub(crate) mod losses;
pub(crate) mod records;
