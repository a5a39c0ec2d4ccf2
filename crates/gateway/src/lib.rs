//! A reverse proxy that accepts connections in one round trip: by Fast Open on the kernel's TCP, and in UDP with certificates
//! (ASAP). It stands in front of servers that nobody changes, and forwards bytes, TLS, or requests of HTTP/1.1 and HTTP/2.
//! `docs/gateway.md` describes it.
//!
//! What a client sends before it is confirmed may be a copy of another connection's first flight. Such bytes wait, except for
//! what may run twice: a ClientHello, a request that the configuration allows, or everything for a service that is declared
//! replay-safe. Backends get early requests with `Early-Data: 1` (RFC 8470).
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use firstflight_gateway::{Config, Gateway};
//! let config = Config::read("gateway.toml".as_ref())?;
//! let gateway = Gateway::start(config, std::io::stdout()).await?;
//! tokio::signal::ctrl_c().await?;
//! gateway.drain().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`run`] and [`run_text`] are the whole life of the command, with signals and privileges.
#![forbid(unsafe_code)]

mod admin_pages;
mod backend;
mod budget;
mod client;
pub mod config;
mod connection;
mod counted;
mod device;
mod error;
mod farm;
mod gateway;
mod health_check;
mod http;
mod l4;
mod limits;
mod listening;
mod log;
mod metrics;
mod names;
mod run;
mod site;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
#[path = "tests/testing.rs"]
mod testing;
mod verifying;

pub use config::{Config, ConfigError};
pub use error::GatewayError;
pub use firstflight_daemon::ExitKind;
pub use gateway::Gateway;
pub use health_check::{HealthError, is_alive};
pub use run::{Checked, RunError, check, run, run_text};
