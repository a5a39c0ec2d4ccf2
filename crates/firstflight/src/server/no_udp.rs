//! In the place of `udp.rs` where UDP is not built in.

use super::{Policies, Served, ServerBuilder};
use std::io;
use std::net::SocketAddr;

/// There are none.
#[derive(Debug, Default)]
pub(super) struct Settings {}

pub(super) fn serve(builder: &ServerBuilder, _: &[SocketAddr], _: &Policies) -> io::Result<Option<Served>> {
    let Settings {} = &builder.udp;
    Ok(None)
}
