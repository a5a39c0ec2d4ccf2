//! In the place of `asap.rs` where certificates are not built in.

use super::by_engine::ByEngine;
use super::connect::Filter;
use super::transport::kernel::KernelTcp;
use super::transport::{Finish, RaceLost};
use super::{Authority, Client, ClientError};
use crate::first_flight::Flights;
use crate::kernel::Kernel;
use crate::stream::{Stream, Way};
use firstflight_credential::NetworkId;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// There are none.
#[derive(Debug, Default)]
pub(super) struct Settings;

/// None can be named.
#[derive(Debug)]
pub(super) struct Resolver;

/// There is none.
#[derive(Debug)]
pub(super) enum Asap {}

/// There is none.
pub(super) enum RecordQuestion {}

#[allow(clippy::unused_self, reason = "there are no settings")]
impl Settings {
    pub(super) fn keep_in(&mut self, _: Option<&PathBuf>) {}

    pub(super) fn find_none(&mut self) {}

    pub(super) fn resolver(&self) -> Resolver {
        Resolver
    }

    pub(super) fn start(
        self,
        _: Option<NetworkId>,
        _: bool,
        _: &Kernel,
        _: Option<&ByEngine>,
    ) -> Option<Asap> {
        None
    }
}

impl RecordQuestion {
    pub(super) async fn wait(self, _: Duration) {
        match self {}
    }
}

impl Asap {
    pub(super) fn has_credential(&self, _: &Authority, _: &[SocketAddr]) -> Option<Way> {
        match *self {}
    }

    pub(super) async fn race(
        &self,
        _: &Authority,
        _: &[SocketAddr],
        _: KernelTcp<'_>,
    ) -> Result<Finish, RaceLost> {
        match *self {}
    }

    #[allow(dead_code, reason = "there may be no engine")]
    pub(super) async fn race_by_engine(
        &self,
        _: &ByEngine,
        _: &Authority,
        _: &[SocketAddr],
        _: Flights<'_>,
        _: bool,
    ) -> Result<Finish, RaceLost> {
        match *self {}
    }

    #[allow(dead_code, reason = "there may be no engine")]
    pub(super) fn udp_port(&self, _: &Authority) -> Option<u16> {
        match *self {}
    }

    pub(super) fn move_to(&self, _: NetworkId) {
        match *self {}
    }

    pub(super) fn handle_visit(&self, _: &Authority, _: &Stream, _: bool) {
        match *self {}
    }

    pub(super) fn moved(&self) {
        match *self {}
    }

    pub(super) fn leave_unknown(&self) {
        match *self {}
    }

    pub(super) fn forget(&self) {
        match *self {}
    }

    pub(super) async fn remember(&self) {
        match *self {}
    }

    pub(super) async fn close(&self) {
        match *self {}
    }
}

/// Nobody is to know of a visit.
pub(super) const fn is_hidden(_: &Flights<'_>) -> bool {
    true
}

#[allow(clippy::unused_self, clippy::unused_async, reason = "there is nobody to ask")]
impl Client {
    pub(super) fn ask(&self, _: &Authority) -> Option<RecordQuestion> {
        None
    }

    pub(super) async fn ask_resolver(
        &self,
        _: &Authority,
        _: &str,
        _: bool,
    ) -> Option<io::Result<(Vec<IpAddr>, bool)>> {
        let Resolver = self.shared.resolver;
        None
    }

    /// Connects to a server whose address is not known.
    pub(super) async fn connect_by_name(
        &self,
        server: &Authority,
        flights: Flights<'_>,
        filter: Option<&Filter>,
    ) -> Result<(Stream, u32), ClientError> {
        self.find_and_reach(server, flights, filter).await
    }
}
