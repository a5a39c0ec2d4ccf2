//! In the place of `by_engine.rs` where no engine is built in.

use super::transport::{Finish, RaceLost};
use super::{Authority, Shared};
use crate::cache::CredentialCache;
use crate::first_flight::Flights;
use crate::stream::Way;
use std::net::SocketAddr;

/// There is none.
#[derive(Debug, Clone)]
pub(super) enum ByEngine {}

impl ByEngine {
    pub(super) fn use_cache(&self, _: CredentialCache) {
        match *self {}
    }
}

impl Shared {
    pub(super) fn cookie(&self, addresses: &[SocketAddr]) -> Option<Way> {
        self.kernel.has_cookie(addresses).then_some(Way::Kernel)
    }

    #[allow(clippy::unused_self, reason = "there is no engine")]
    pub(super) fn follow_engine(&self) {}

    #[allow(clippy::unused_self, reason = "there is no engine")]
    pub(super) fn forget_by_engine(&self) {}

    pub(super) async fn race_by_engine(
        &self,
        _: &Authority,
        _: &[SocketAddr],
        _: Flights<'_>,
        _: bool,
        _: bool,
    ) -> Option<Result<Finish, RaceLost>> {
        match *self.by_engine.as_ref()? {}
    }
}
