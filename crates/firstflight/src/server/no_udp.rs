//! In the place of `udp.rs` where UDP is not built in.

use super::{Served, ServerBuilder};
use crate::endpoint::Endpoint;
use firstflight_link::Link;
use std::io;
use std::net::SocketAddr;

/// There are none.
#[derive(Debug, Default)]
pub(super) struct Settings {}

pub(super) fn serve(
    builder: &ServerBuilder,
    _: &[SocketAddr],
    _: impl FnOnce(crate::Config, Box<dyn Link>) -> Endpoint,
) -> io::Result<Option<Served>> {
    let Settings {} = &builder.udp;
    Ok(None)
}
