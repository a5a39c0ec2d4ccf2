//! From the name of a server to a connection: the addresses, which of them are allowed, and the first flight.

use crate::event::{Event, Protocol};
use crate::failure::Failure;
use crate::first::FirstClientData;
use crate::outcomes::Contact;
use crate::shared::Shared;
use firstflight::{Authority, FirstFlight, ServerKnowledge, Stream};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::{Instant as Timer, timeout_at};

/// A server that a client has named, and whose addresses are known and allowed.
pub(crate) struct AllowedServer {
    shared: Arc<Shared>,
    pub server: Authority,
    pub protocol: Protocol,
    addresses: Vec<SocketAddr>,
    /// When the connect is given up.
    until: Timer,
    /// The server was asked for a cookie before, and granted none.
    grants_none: bool,
}

impl AllowedServer {
    /// Looks up a server, and checks its addresses.
    pub(crate) async fn find(
        shared: &Arc<Shared>,
        server: &Authority,
        protocol: Protocol,
    ) -> Result<Self, Failure> {
        let until = Timer::now() + shared.limits.connect_timeout;
        let found = timeout_at(until, shared.client.look_up(server)).await;
        let addresses = match found {
            Ok(Ok(found)) => shared.rules().policy.filter(found.addresses()).map_err(Failure::Forbidden),
            Ok(Err(error)) => Err(Failure::Lookup(error)),
            Err(_) => Err(Failure::TimedOut),
        };
        let addresses = addresses.inspect_err(|failure| shared.failed(protocol, server, failure, false))?;
        let (shared, server) = (Arc::clone(shared), server.clone());
        Ok(Self { shared, server, protocol, addresses, until, grants_none: false })
    }

    /// What is known of the server.
    pub(crate) async fn outlook(&mut self) -> ServerKnowledge {
        let outlook = self.shared.client.outlook(&self.server, &self.addresses).await;
        self.grants_none = outlook.grants_none;
        self.shared.board.expect(&self.server, outlook, firstflight::unix_ms());
        outlook
    }

    /// Connects without data, and by TCP: nobody knows what will follow.
    pub(crate) async fn connect(&self, early_yes: bool) -> Result<Stream, Failure> {
        let client = self.shared.client.tcp_only();
        let connecting = client.connect(&self.server, FirstFlight::empty()).at(&self.addresses[..]);
        self.wait(connecting, early_yes).await
    }

    /// Connects with the first data of the client. The time until then does not count.
    pub(crate) async fn connect_with(mut self, first: &FirstClientData) -> Result<Stream, Failure> {
        self.until = Timer::now() + self.shared.limits.connect_timeout;
        let connecting = self
            .shared
            .client
            .connect(&self.server, FirstFlight::empty())
            .at(&self.addresses[..])
            .made_by(first);
        let connecting = async { connecting.await.map(|(stream, number)| first.sent_by(stream, number)) };
        self.wait(connecting, true).await
    }

    /// Connects to a server with a request of HTTP, which may travel inside the lookup of its address.
    pub(crate) async fn request(
        shared: &Arc<Shared>,
        server: &Authority,
        flight: FirstFlight<'_>,
    ) -> Result<Stream, Failure> {
        let place = Self {
            shared: Arc::clone(shared),
            server: server.clone(),
            protocol: Protocol::Http,
            addresses: Vec::new(),
            until: Timer::now() + shared.limits.connect_timeout,
            grants_none: false,
        };
        let rules = shared.rules();
        let connecting = shared.client.connect(server, flight).only_to(move |found| {
            let denied = |forbidden| io::Error::new(io::ErrorKind::PermissionDenied, forbidden);
            rules.policy.filter(found).map_err(denied)
        });
        place.wait(connecting, false).await
    }

    async fn wait(
        &self,
        connecting: impl IntoFuture<Output = Result<Stream, firstflight::ClientError>>,
        early_yes: bool,
    ) -> Result<Stream, Failure> {
        let began = Instant::now();
        let shared = &self.shared;
        let result = match timeout_at(self.until, connecting).await {
            Ok(Ok(stream)) => match stream.peer_addr().map(|at| (at, shared.rules().policy.check(at))) {
                Ok((at, Ok(()))) => Ok((stream, at)),
                Ok((_, Err(forbidden))) => Err(Failure::Forbidden(forbidden)),
                Err(error) => Err(Failure::Response(error.to_string())),
            },
            Ok(Err(error)) => Err(Failure::of(error)),
            Err(_) => Err(Failure::TimedOut),
        };
        match &result {
            Ok((stream, at)) => {
                // Answers of small messages must not wait for each other. It fails only when the connection is over.
                let _ = stream.set_nodelay(true);
                let contact = Contact::new(stream, early_yes, began.elapsed());
                let contact = if self.grants_none { contact.grants_none() } else { contact };
                shared.board.reached(&self.server, &contact, firstflight::unix_ms());
                shared.listener.tell(&Event::Connected {
                    protocol: self.protocol,
                    server: self.server.to_string(),
                    address: at.to_string(),
                    contact,
                });
            }
            Err(failure) => shared.failed(self.protocol, &self.server, failure, early_yes),
        }
        result.map(|(stream, _)| stream)
    }
}
