//! What every command that stays running does alike, once: `gateway`, `dns`, `verifier` and `proxy` use it.
//!
//! - [`Signals`] and [`Hangup`]: SIGHUP reads files again, SIGTERM and SIGINT end, SIGUSR1 and SIGUSR2 do nothing.
//! - [`become_user`]: gives up root once the ports are bound; [`will_become`]: that user's key files are read before, too.
//! - [`open_files`]: the limit of open files.
//! - [`manager`]: what the service manager gets to know: readiness, reloads, the end, the watchdog.
//! - [`process`]: the process itself in the metrics: its build, memory, files, processor time.
//! - [`Admin`]: the one listener of `/metrics`, `/healthz` and `/readyz`.
//! - [`config`]: files with settings, whose mistakes have a line and a key.
//! - [`ExitKind`]: exit codes: 2 for what the text of options and files decides, 1 for what may be otherwise in a minute.
//! - [`KeyFault`]: the messages about key files.
//!
//! How key files and state files are read and written is in the crate `files`, which has neither a runtime nor HTTP, so that
//! libraries can use it.
#![forbid(unsafe_code)]

mod admin;
pub mod config;
mod exit;
mod key_fault;
pub mod manager;
pub mod open_files;
pub mod process;
mod signals;
mod user;

pub use admin::{Admin, Ready, Shows};
pub use exit::ExitKind;
pub use key_fault::{KeyFault, unusable};
pub use signals::{Hangup, SignalRequest, Signals};
pub use user::{UserError, become_user, drop_privileges, will_become};
