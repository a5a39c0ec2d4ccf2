//! The tests of one connection, in one program. Each module is about one subject. The module `common` has what several
//! need.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

mod preamble;
mod retire;
mod transition_table;
