//! Connecting to one of several addresses (Happy Eyeballs, RFC 8305).

use crate::attempts::ConnectAnyError;
use crate::client::transport;
use crate::client::transport::engine::EngineTcp;
use crate::endpoint::Endpoint;
use crate::first_flight::{FirstFlight, Flights};
use crate::stream::Stream;
use firstflight_stack::ConnectConfig;
use firstflight_wire::setters;
use std::future::ready;
use std::net::SocketAddr;
use std::time::Duration;

/// RFC 8305 §5: the recommended and the minimum delay between two attempts.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
const MIN_ATTEMPT_DELAY: Duration = Duration::from_millis(10);

/// Settings of [`Endpoint::connect_any`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectAnyConfig {
    /// Settings of the attempts. Only the first attempt uses Fast Open. A local address and a certificate are used
    /// only for addresses of their own family.
    pub connect: ConnectConfig,
    /// How long an attempt may take before the next one starts in parallel. The default is 250 ms; values below 10 ms
    /// count as 10 ms (RFC 8305 §5).
    pub attempt_delay: Duration,
}

setters! {
    ConnectAnyConfig {
        connect: ConnectConfig,
        attempt_delay: Duration,
    }
}

impl Default for ConnectAnyConfig {
    fn default() -> Self {
        Self { connect: ConnectConfig::default(), attempt_delay: ATTEMPT_DELAY }
    }
}

impl Endpoint {
    /// Connects to the first of `addresses` that answers, and sends `first` there (Happy Eyeballs, RFC 8305).
    ///
    /// The caller gives the addresses with the best one first. The attempts alternate between the address families.
    /// The next attempt starts when one fails or when [`ConnectAnyConfig::attempt_delay`] has passed. An address that
    /// failed, or that lost to a later one, is tried after the others for ten minutes on that network (RFC 8305 §4).
    /// So an unreachable first address costs its delay once; after that, the data goes to an address that works. The
    /// first connection whose handshake completes wins. The other attempts are aborted; a peer that answers one of
    /// them gets a RST. [`Stream::peer_addr`] is the winner's address.
    ///
    /// **Which connection gets the data.** Data that is [`FirstFlight::at_most_once`] is sent only on the winner,
    /// after its handshake. It rides in a SYN only if there is one address and the server is known to execute it once
    /// ([`Certified::once`](crate::Certified::once)). Data that is [`FirstFlight::safely_replayable`] rides in the SYN of the *first* attempt,
    /// if Fast Open is requested and a cookie is known. All other attempts are ordinary handshakes without data
    /// ([`Reason::NotFirstAddress`](crate::credential::Reason::NotFirstAddress)), because the paper's SYN with data must not be multiplied. If another attempt
    /// wins before the first server has answered, the first server may have executed the data. The data is then sent
    /// again on the winner, which the caller has allowed, and [`Stream::outcome`] is `Handshake(Unknown)`. If the
    /// first attempt is also complete when the winner is chosen, the first attempt wins.
    ///
    /// # Errors
    /// When every attempt has failed; the error contains all their errors. Dropping the future aborts the attempts.
    ///
    /// ```
    /// # use firstflight::{ConnectAnyConfig, Endpoint, FirstFlight, Stream};
    /// async fn ask(endpoint: &Endpoint, addresses: &[std::net::SocketAddr]) -> std::io::Result<Stream> {
    ///     let mut config = ConnectAnyConfig::default();
    ///     config.connect.fast_open = true;
    ///     let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
    ///     Ok(endpoint.connect_any(addresses, request, &config).await?)
    /// }
    /// ```
    pub async fn connect_any(
        &self,
        addresses: &[SocketAddr],
        first: FirstFlight<'_>,
        config: &ConnectAnyConfig,
    ) -> Result<Stream, ConnectAnyError> {
        let delay = config.attempt_delay.max(MIN_ATTEMPT_DELAY);
        let tcp = EngineTcp::new(self, config.connect.clone(), Flights::Given(first)).attempt_delay(delay);
        let result = Box::pin(transport::run(&tcp, ready(Ok(addresses.to_vec())))).await;
        result.map(|finish| finish.stream).map_err(|lost| lost.error)
    }
}
