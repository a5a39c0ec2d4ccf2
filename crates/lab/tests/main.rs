//! The tests of the laboratory, in one program. Each module is about one subject.

mod compare;
mod connections;
mod once;
mod output;
mod readers;
mod smoltcp_peer;
