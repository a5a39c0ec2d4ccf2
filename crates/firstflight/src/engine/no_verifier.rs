//! In the place of `own_verifier.rs`: no server has a verifier.
#![cfg_attr(not(feature = "server"), allow(dead_code, reason = "of servers"))]

use crate::credential::ReplayGuard;
use crate::credential::asap::{AsapPolicy, TrustError, TrustStore};
use crate::endpoint::Endpoint;
use firstflight_stack::{ListenError, ListenerId, Stack};
use firstflight_wire::Instant;
use std::io;
use std::num::NonZeroU16;
use std::sync::Arc;

/// There is none.
#[derive(Debug, Clone)]
pub(crate) enum OwnVerifier {}

impl OwnVerifier {
    pub(crate) const fn members(&self) -> NonZeroU16 {
        match *self {}
    }
}

impl Endpoint {
    pub(crate) const fn verify(&self, verifier: &OwnVerifier) -> io::Result<()> {
        match *verifier {}
    }
}

#[derive(Debug, Default)]
pub(crate) struct VerifierDesk {}

#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with a verifier")]
impl VerifierDesk {
    pub(crate) const fn hand_over(&self, _: &mut Stack) {}

    pub(crate) const fn trust(
        &self,
        _: Option<&mut AsapPolicy>,
    ) -> Result<Option<Arc<TrustStore>>, ListenError> {
        Ok(None)
    }

    pub(crate) fn begin(&mut self, _: ListenerId, _: Arc<TrustStore>, _: Arc<dyn ReplayGuard>) {}

    pub(crate) const fn end(&mut self, _: ListenerId) {}

    pub(crate) fn reload(
        &mut self,
        _: ListenerId,
        trust: &Arc<TrustStore>,
    ) -> Result<Arc<TrustStore>, TrustError> {
        Ok(Arc::clone(trust))
    }

    pub(crate) const fn clock_was_refused(&mut self, _: Instant) {}
}
