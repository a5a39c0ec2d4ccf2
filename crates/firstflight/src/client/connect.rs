//! A connect, as its caller describes it before it begins.

use super::{Authority, BadAuthority, Client, ClientError, FoundAddresses, ToAuthority};
use crate::first_flight::{FirstFlight, Flights, MakeFlight};
use crate::lazy::{self, LazyStream, ReplaySafety};
use crate::stream::Stream;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

/// A connect that [`Client::connect`] describes. It begins when it is awaited.
#[must_use = "a connect begins when it is awaited"]
pub struct Connect<'a> {
    client: Client,
    server: Result<Authority, BadAuthority>,
    place: Option<ServerPlace>,
    filter: Option<Filter>,
    flights: Flights<'a>,
}

/// The addresses of those given to which a connect may go, or why it may go to none.
pub(crate) type Filter = Arc<dyn Fn(&[SocketAddr]) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// A connect with a first flight of its own for each attempt ([`Connect::made_by`]).
#[must_use = "a connect begins when it is awaited"]
#[derive(Debug)]
pub struct ConnectMade<'a>(Connect<'a>);

/// Where a server is: addresses that the caller knows, best one first, or those that [`Client::look_up`] found.
#[derive(Debug, Clone)]
pub struct ServerPlace(FoundAddresses);

impl From<&[SocketAddr]> for ServerPlace {
    fn from(addresses: &[SocketAddr]) -> Self {
        Self(FoundAddresses::known(addresses.to_vec()))
    }
}

impl From<Vec<SocketAddr>> for ServerPlace {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self(FoundAddresses::known(addresses))
    }
}

impl From<SocketAddr> for ServerPlace {
    fn from(address: SocketAddr) -> Self {
        Self(FoundAddresses::known(vec![address]))
    }
}

impl<const N: usize> From<[SocketAddr; N]> for ServerPlace {
    fn from(addresses: [SocketAddr; N]) -> Self {
        Self(FoundAddresses::known(addresses.to_vec()))
    }
}

impl From<&FoundAddresses> for ServerPlace {
    fn from(found: &FoundAddresses) -> Self {
        Self(found.clone())
    }
}

impl<'a> Connect<'a> {
    pub(super) fn new(client: &Client, server: &impl ToAuthority, first: FirstFlight<'a>) -> Self {
        let (client, server) = (client.clone(), server.to_authority());
        Self { client, server, place: None, filter: None, flights: Flights::Given(first) }
    }

    /// Connects to these addresses, best one first, and looks up none.
    pub fn at(mut self, place: impl Into<ServerPlace>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// Connects only to those addresses that `filter` returns of the server's, or fails with its error. For a program that
    /// connects for others, and may not reach every address that a name has. An address is asked about when it is known, also
    /// if the first flight travels inside the lookup.
    pub fn only_to(
        mut self,
        filter: impl Fn(&[SocketAddr]) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// By TCP only, as [`Client::tcp_only`].
    pub fn tcp_only(mut self) -> Self {
        self.client = self.client.tcp_only();
        self
    }

    /// With a first flight of its own for each attempt, in place of the one that was given. The result has the number of the
    /// attempt that won, too, as `flights` got it.
    pub fn made_by(mut self, flights: &'a dyn MakeFlight) -> ConnectMade<'a> {
        self.flights = Flights::Made(flights);
        ConnectMade(self)
    }

    /// A stream that connects with its first write, which is the first flight in place of the one that was given. `safety`
    /// says whether that write may be executed twice. A request for an upgrade of HTTP/1.1 goes by TCP.
    ///
    /// ```no_run
    /// # use firstflight::{Authority, Client, FirstFlight, LazyStream, ReplaySafety};
    /// # use tokio::io::AsyncWriteExt;
    /// async fn ask(client: &Client, server: Authority) -> std::io::Result<LazyStream> {
    ///     let mut stream = client.connect(server, FirstFlight::empty()).lazy(ReplaySafety::ByMethod);
    ///     stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    ///     Ok(stream)
    /// }
    /// ```
    #[must_use]
    pub fn lazy(self, safety: ReplaySafety) -> LazyStream {
        let Self { client, server, place, filter, .. } = self;
        LazyStream::new(move |first: Vec<u8>| async move {
            let client = if lazy::is_upgrade(&first) { client.tcp_only() } else { client };
            let flights = Flights::Given(safety.flight(&first));
            let connect = Connect { client, server, place, filter, flights };
            Ok(connect.run().await?.0)
        })
    }

    async fn run(self) -> Result<(Stream, u32), ClientError> {
        let Self { client, server, place, filter, flights } = self;
        let server = server?;
        match place {
            Some(ServerPlace(found)) => {
                let found = found.only(filter.as_ref()).map_err(|error| no_address(&server, error))?;
                client.reach(&server, &found, flights).await
            }
            None => client.connect_by_name(&server, flights, filter.as_ref()).await,
        }
    }
}

fn no_address(server: &Authority, error: io::Error) -> ClientError {
    ClientError::Lookup { server: server.clone(), error }
}

impl Client {
    /// Looks up a server, and connects to it.
    pub(super) async fn find_and_reach(
        &self,
        server: &Authority,
        flights: Flights<'_>,
        filter: Option<&Filter>,
    ) -> Result<(Stream, u32), ClientError> {
        let found = self.find(server, Instant::now(), false).await?;
        let only = |found: FoundAddresses| found.only(filter).map_err(|error| no_address(server, error));
        let found = only(found)?;
        match self.reach(server, &found, flights).await {
            // Nobody has waited for the other family yet. What has left does not go again.
            Err(error) if found.is_partial && (error.lets_once_leave() || flights.are_replayable(true)) => {
                let mut others = only(self.find(server, found.began, true).await?)?;
                others.addresses.retain(|address| !found.addresses.contains(address));
                if others.addresses.is_empty() {
                    Err(error)
                } else {
                    self.reach(server, &others, flights).await
                }
            }
            reached => reached,
        }
    }
}

impl FoundAddresses {
    /// Those of its addresses that `filter` returns.
    fn only(mut self, filter: Option<&Filter>) -> io::Result<Self> {
        if let Some(filter) = filter {
            self.addresses = filter(&self.addresses)?;
        }
        Ok(self)
    }
}

impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("server", &self.server)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl<'a> IntoFuture for Connect<'a> {
    type Output = Result<Stream, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.run().await.map(|(stream, _)| stream) })
    }
}

impl<'a> IntoFuture for ConnectMade<'a> {
    type Output = Result<(Stream, u32), ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.run())
    }
}
