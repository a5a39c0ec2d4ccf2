//! Requests inside lookups: an attempt of the racer over an engine in UDP, with lookups, resolvers and servers of the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod certified;
mod dns_path;
mod dns_path_limits;
mod limits;

use crate::client::transport::engine::EngineTcp;
use crate::client::transport::{self, RaceLost};
use crate::dns_path::{DnsPath, Report, Server};
use crate::first_flight::{FirstFlight, Flights};
use crate::stream::Stream;
use firstflight_stack::ConnectConfig;
use std::io;
use std::net::{IpAddr, SocketAddr};

impl DnsPath {
    /// Runs the race of a connect to `server`, whose addresses `lookup` finds, as a client does.
    async fn connect<F>(
        &self,
        server: Server<'_>,
        lookup: impl Fn() -> F + Sync,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<(Stream, Report)>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send,
    {
        let tcp = EngineTcp::new(self.endpoint(), config.clone(), Flights::Given(first));
        let transports = self.transport(server, tcp);
        let addresses = async {
            let found = self.or_ask_again(lookup().await, &lookup).await?;
            Ok(found.into_iter().map(|ip| SocketAddr::new(ip, server.port)).collect())
        };
        let result = Box::pin(transport::run(&transports, addresses)).await;
        let report = transports.into_report();
        match result {
            Ok(finish) => Ok((finish.stream, report)),
            Err(RaceLost { lookup: Some(error), .. }) => Err(error),
            Err(RaceLost { error, .. }) => Err(error.into()),
        }
    }
}
