//! One TCP connection, sans-IO (RFC 9293 and companions): bytes and time in, segments and events out.
//!
//! A [`Connection`] never reads a clock, draws a random number or touches a socket. It knows no credentials:
//! the layer above decides who may skip the handshake and passes that in as plain data ([`SynPlan`],
//! [`ChildPlan`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod board;
pub mod buffer;
mod chunk;
pub mod config;
pub mod congestion;
mod connection;
pub mod error;
mod flight;
mod pacing;
mod paws;
pub mod plan;
mod plpmtud;
mod push;
mod quick_ack;
mod rack;
mod ranges;
mod rate;
mod receive;
mod recovery;
mod reopening;
pub mod rtt;
mod send;
mod stamps;
pub mod state;
mod straight;
pub mod time_wait;
pub mod timers;
pub mod transition;
mod usage;

pub use buffer::Pool;
pub use config::{Config, EcnPolicy, Keepalive};
pub use connection::{
    CongestionState, Connection, ConnectionFacts, Disposition, DropReason, Endpoints, Readiness, Totals,
    Variables, follows,
};
pub use error::{CloseReason, IoError};
pub use plan::{ChildPlan, Resolution, SynAckReport, SynPlan};
pub use stamps::{Milestone, Stamp};
pub use time_wait::{TimeWait, TimeWaitAction};
pub use transition::{StateName, Transition, Trigger};
