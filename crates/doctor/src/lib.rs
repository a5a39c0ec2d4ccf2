//! What a machine, its network and servers do with first flights, and what to do about it. Linux.
//!
//! A [`Doctor`] looks at the settings, counters, firewall and clock of this machine; it asks verifiers in UDP, and visits servers.
//! Its [`Report`] has a [`Line`] for each finding: with a [`Verdict`], a sentence, and advice if it is not ok. For each
//! address of a server it also says what first flights [gain](Gain) there.
//!
//! ```
//! use firstflight_doctor::{Doctor, Subject, Verdict};
//!
//! # #[tokio::main] async fn main() {
//! // Also `server("192.0.2.1:443".parse()?)`, which visits a server.
//! let report = Doctor::new().examine().await;
//! for group in &report.groups {
//!     for line in group.lines.iter().filter(|line| line.finding.entry().verdict == Verdict::Problem) {
//!         println!("{}: {} {:?}", group.subject, line.detail, line.finding.entry().advice);
//!     }
//! }
//! assert_eq!(report.groups[0].subject, Subject::Machine);
//! # }
//! ```
//!
//! With the feature `measure` the module `measure` says how much first flights would save of visits to a site.
#![forbid(unsafe_code)]

mod asap;
mod card;
mod catalogue;
mod command;
mod examine;
mod gain;
mod hops;
mod http;
mod machine;
#[cfg(feature = "measure")]
pub mod measure;
mod netstat;
mod network;
mod report;
mod rules;
mod server;
mod tcp_metrics;

pub use catalogue::{Entry, Finding, Verdict};
pub use examine::{Data, Doctor, Server};
pub use gain::Gain;
pub use report::{Group, Line, Report, Subject};
