//! The TCP of this project on tokio: endpoints with their drivers, listeners, and what follows files and stores.

#[cfg(feature = "xdp")]
pub(crate) mod card;
pub(crate) mod driver;
pub(crate) mod endpoint;
mod flights;
pub(crate) mod jobs;
pub mod keys;
pub(crate) mod listener;
pub(crate) mod mailboxes;
#[cfg_attr(not(feature = "asap"), path = "engine/no_verifier.rs")]
pub(crate) mod own_verifier;
pub(crate) mod random;
pub(crate) mod renewed;
pub mod serial_file;
pub(crate) mod shared;
pub(crate) mod store;
pub(crate) mod time;
pub mod trust;
pub(crate) mod workers;
