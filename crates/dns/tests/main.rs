//! The tests of the DNS path, in one program. Each module is about one subject.

mod corpus;
#[cfg(feature = "metrics")]
mod service;
