//! What a program between two HTTP peers has to get right, once: for the gateway, the proxy and the file server.
//!
//! | module | what |
//! |---|---|
//! | [`directory`] | the files of a directory |
//! | [`fields`] | fields of one hop, trailers, cookies (RFC 9110 §7.6.1) |
//! | [`forwarded`] | fields about the client (RFC 7239) |
//! | [`target`] | for which host a request is (RFC 9112 §3.2) |
//! | [`hello`] | where a ClientHello ends, and the name that it asks for |
//! | [`text`] | text from a peer in a line for people |
//! | [`pump`] | copies both directions of a tunnel |
#![forbid(unsafe_code)]

pub mod directory;
pub mod fields;
pub mod forwarded;
pub mod hello;
pub mod pump;
pub mod target;
pub mod text;
