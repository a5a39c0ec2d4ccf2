//! Connects whose first flight is made for them.

use super::Endpoint;
use crate::first_flight::{FirstFlight, Flights, MakeFlight};
use crate::stream::Stream;
use firstflight_stack::ConnectConfig;
use std::io;
use std::net::SocketAddr;

impl Endpoint {
    /// Like [`Endpoint::connect`], with a first flight that is made for this connect: it may depend on the credential block
    /// that will be in front of it. The flight says whether it may be executed twice.
    ///
    /// # Errors
    /// As [`Endpoint::connect`], and those of [`MakeFlight::make`].
    pub async fn connect_made(
        &self,
        remote: SocketAddr,
        flight: &dyn MakeFlight,
        config: &ConnectConfig,
    ) -> io::Result<Stream> {
        let (mut config, network) = (config.clone(), self.shared.lock().stack.config().network);
        let flights = Flights::Made(flight);
        let replayable = flights.are_replayable(config.asap.is_some());
        if let (Some(name), Some(certified)) = (flights.block_name(), &mut config.asap) {
            // The server's own name is hidden.
            certified.identity = crate::credential::asap::Identity::name(name, remote.port());
        }
        let data = flights.by_engine(0, network, &mut config)?;
        let first = match replayable {
            true => FirstFlight::safely_replayable(&data),
            false => FirstFlight::at_most_once(&data),
        };
        self.connect(remote, first, &config).await
    }
}
