//! In the place of `fronts.rs` where certificates are not built in.

use super::Served;
use crate::credential::asap::AsapPolicy;
use std::io;
use std::net::SocketAddr;

/// There are none.
#[derive(Debug, Default)]
pub(super) struct Settings {}

/// No server gets first flights from them.
#[derive(Debug, Default)]
pub(super) struct Target {}

impl Settings {
    #[allow(dead_code, reason = "of servers in UDP")]
    pub(super) const fn are_wanted(&self) -> bool {
        false
    }

    pub(super) const fn admit(&self, _: Option<&mut AsapPolicy>) -> io::Result<()> {
        Ok(())
    }

    pub(super) const fn target(&self, _: &[SocketAddr], _: Option<&Served>) -> io::Result<Target> {
        Ok(Target {})
    }
}
