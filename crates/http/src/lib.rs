//! What a program between two HTTP peers has to get right, once: for the gateway, the proxy and the file server. And what a
//! client needs that has one request for each connection.
//!
//! | module | what |
//! |---|---|
//! | [`conn`] | a connection as hyper gets it: framing, times, and a close in stages |
//! | [`directory`] | the files of a directory |
//! | [`fields`] | fields of one hop, trailers, cookies (RFC 9110 §7.6.1) |
//! | [`framing`] | a reader of requests that leads hyper (RFC 9112) |
//! | [`forwarded`] | fields about the client (RFC 7239) |
//! | [`url`] | what a client needs to know of a URL |
//! | [`target`] | for which host a request is (RFC 9112 §3.2) |
//! | [`http2`] | a server's connection of HTTP/2 (RFC 9113) |
//! | [`body`] | the body of a request |
//! | [`hello`] | where a ClientHello ends, and the name that it asks for |
//! | [`proxy_header`] | who the client is, in front of a connection's bytes |
//! | [`text`] | text from a peer in a line for people |
//! | [`trace`] | the trace that a request belongs to (W3C Trace Context) |
//! | [`response`] | what the head of a response says about its body (RFC 9112 §6) |
//! | [`login`] | logins that belong to a connection: NTLM, Negotiate |
//! | [`own_pages`] | requests for a program's own pages, which no other site may make |
//! | [`heard`] | counts what passes a stream |
//! | [`observed`] | a stream that hyper has, and its owner still sees |
//! | [`exchange`] | one request over a connection of its own |
//! | [`redirect`] | where a redirect leads, and what the next request may carry (RFC 9110 §15.4) |
//! | [`resend`] | when a request may be sent again (RFC 9110 §9.2.2) |
//! | [`idle`] | connections that are kept for further requests |
//! | [`pump`] | copies both directions of a tunnel |
#![forbid(unsafe_code)]

pub mod body;
pub mod conn;
pub mod directory;
pub mod exchange;
pub mod fields;
pub mod forwarded;
pub mod framing;
pub mod heard;
pub mod hello;
pub mod http2;
pub mod idle;
pub mod label;
pub mod login;
pub mod observed;
pub mod own_pages;
pub mod patience;
pub mod proxy_header;
pub mod pump;
pub mod redirect;
pub mod resend;
pub mod response;
pub mod target;
pub mod text;
pub mod trace;
pub mod url;
