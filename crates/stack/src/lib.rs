//! Many TCP connections over one link, sans-IO: packets and time in, packets and events out.
//!
//! [`Stack`] finds the connection of a packet in O(1), keeps listeners, ports and timers, answers packets that
//! belong to no connection, and owns the first-flight path: a SYN for a listener goes through
//! [`firstflight_credential::admit`] and nowhere else.
//!
//! Poll in this order after any `handle_*` call or command: [`Stack::poll_event`] (then let the application handle
//! the events), [`Stack::poll_job`] and [`Stack::poll_verifications`], [`Stack::poll_transmit`] until it returns
//! `None`, then [`Stack::poll_timeout`]. Read the events before transmitting, so that the application's answer
//! rides with the acknowledgement.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod addresses;
mod asap;
mod client;
pub mod config;
mod encapsulation;
mod env;
mod event;
mod flow;
mod flows;
mod fragments;
mod isn;
mod journal;
mod output;
mod owners;
mod queue;
mod random;
mod server;
mod shard;
mod stack;

pub use asap::certificates::Verifications;
pub use asap::lookup::{FirstData, InLookupSyn};
pub use asap::relayed::RelayedFlight;
pub use asap::state::VerifierMessage;
pub use client::connect::ConnectError;
pub use config::{
    Certified, Config, ConnectConfig, EncapsulationConfig, Limits, ListenConfig, ResponsePolicy,
    UnknownResponsePolicy,
};
pub use event::{ConnId, ConnectionInfo, Event, Job, JobId, ListenerId, PacketDrop, Trace};
pub use firstflight_tcp::{CloseReason, IoError, Milestone, Readiness, Stamp, StateName, Variables};
pub use fragments::FragmentLimits;
pub use journal::counters::{Counters, Outcomes};
pub use owners::FlowOwners;
pub use server::listeners::ListenError;
pub use shard::{ComesHere, Misdirected, ShardConfig, Visits};
pub use stack::Stack;
pub use stack::gauges::Gauges;
