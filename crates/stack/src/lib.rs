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

mod answered;
mod armed;
mod asap;
mod carrier;
mod challenged;
mod client;
mod clients;
pub mod config;
mod counters;
mod egress;
mod event;
mod flow;
mod follower;
mod fragments;
mod gauges;
mod icmp;
mod ingress;
pub mod isn;
mod journal;
mod ladder;
mod lifecycle;
mod listener;
mod listeners;
mod offer;
mod output;
mod parked;
pub mod ports;
mod queue;
mod random;
mod rebinding;
mod relayed;
mod slab;
mod slot;
mod socket;
mod stack;
mod starved;
mod stateless;
mod syn_ack;
pub mod syn_cookie;
mod time_wait;
pub mod wheel;

pub use armed::ArmedSyn;
pub use asap::Verifications;
pub use config::{CarrierConfig, Certified, Config, ConnectConfig, Limits, ListenConfig, ResponsePolicy};
pub use counters::{Counters, Outcomes};
pub use event::{ConnId, ConnectionInfo, Drop, Event, Job, JobId, ListenerId, Trace};
pub use firstflight_tcp::{CloseReason, IoError, Readiness, StateName, Variables};
pub use fragments::FragmentLimits;
pub use gauges::Gauges;
pub use relayed::RelayedFlight;
pub use socket::{ConnectError, ListenError};
pub use stack::Stack;
