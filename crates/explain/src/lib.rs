//! What a capture shows of first flights.
#![forbid(unsafe_code)]

pub mod asap;
pub mod picture;
pub mod record;
mod time;
