//! A Redis for one test, and what stands in front of it and behind it.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod cluster;
pub(crate) mod farm;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod sentinel;
pub(crate) mod shown;
pub(crate) mod tap;

pub(crate) use process::Redis;
