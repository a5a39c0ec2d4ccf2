//! What opens the connections of a connect: a client, or an engine of the caller's.

use super::Connector;
use super::attempt::Hellos;
use crate::error::ConnectError;
use crate::stream::TlsStream;
use firstflight::{Authority, Client, ClientError, ConnectConfig, Endpoint, FirstFlight, Found, Stream};
use std::io;
use std::net::SocketAddr;

/// What opens connections.
#[derive(Clone, Copy)]
pub(crate) enum Dial<'a> {
    /// With the server's addresses, best one first; without them the client looks them up.
    Client(&'a Client, Option<&'a [SocketAddr]>),
    /// The client has looked up the addresses already.
    Found(&'a Client, &'a Found),
    Engine {
        endpoint: &'a Endpoint,
        remote: SocketAddr,
        config: &'a ConnectConfig,
    },
}

/// Why there is no connection.
pub(super) enum Undialled {
    Client(ClientError),
    Engine(io::Error),
}

impl Undialled {
    /// Whether the first flight may be at the server.
    pub(super) fn maybe_delivered(&self) -> bool {
        match self {
            Self::Client(error) => error.maybe_delivered(),
            // Its SYN has left.
            Self::Engine(_) => true,
        }
    }

    /// Whether a SYN was answered by a RST, which may be because of the data in it. Otherwise nothing has answered, also no
    /// SYN without data.
    pub(super) fn is_refused(&self) -> bool {
        let refused = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
        };
        match self {
            Self::Client(ClientError::Connect { error, .. }) => {
                error.attempts.iter().any(|attempt| refused(&attempt.error))
            }
            Self::Client(_) => false,
            Self::Engine(error) => refused(error),
        }
    }
}

impl From<Undialled> for io::Error {
    fn from(error: Undialled) -> Self {
        match error {
            Undialled::Client(error) => error.into(),
            Undialled::Engine(error) => error,
        }
    }
}

impl From<Undialled> for ConnectError {
    fn from(error: Undialled) -> Self {
        match error {
            Undialled::Client(error) => error.into(),
            Undialled::Engine(error) => Self::Io(error),
        }
    }
}

impl Dial<'_> {
    /// Opens a connection. Returns the number of the attempt that it belongs to, too.
    pub(super) async fn open(
        &self,
        server: &Authority,
        hellos: &Hellos<'_>,
    ) -> Result<(Stream, u32), Undialled> {
        match *self {
            Self::Client(client, addresses) => {
                let connected = match addresses {
                    Some(addresses) => {
                        client.connect(server, FirstFlight::empty()).at(addresses).made_by(hellos).await
                    }
                    None => client.connect(server, FirstFlight::empty()).made_by(hellos).await,
                };
                connected.map_err(Undialled::Client)
            }
            Self::Found(client, found) => client
                .connect(server, FirstFlight::empty())
                .at(found)
                .made_by(hellos)
                .await
                .map_err(Undialled::Client),
            Self::Engine { endpoint, remote, config } => {
                let connected = endpoint.connect_made(remote, hellos, config).await;
                connected.map(|stream| (stream, 0)).map_err(Undialled::Engine)
            }
        }
    }
}

impl Connector {
    /// Like [`Connector::connect_to`], by an engine of the caller's, for example on a TUN device. `remote` is the server's
    /// address, and `config` has the settings of [`Endpoint::connect`]: Fast Open, a certificate, the carrier. The
    /// ClientHello, early data or sealed request are the engine's first flight.
    ///
    /// With a certificate in `config`, a sealed request is bound to it, and may run early at the first contact. Give the
    /// payload that the server takes in a SYN ([`Certified::mss`](firstflight::Certified::mss)): without it a flight has at
    /// most 1,024 bytes on IP.
    ///
    /// ```no_run
    /// # use firstflight::{ConnectConfig, Endpoint, FirstFlight};
    /// # use firstflight_tls::{ConnectError, Connector};
    /// async fn ask(connector: &Connector, endpoint: &Endpoint) -> Result<(), ConnectError> {
    ///     let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\nHost: www.example.com\r\n\r\n");
    ///     let (remote, config) = ("192.0.2.1:443".parse().unwrap(), ConnectConfig::default().fast_open(true));
    ///     let server = "www.example.com:443".parse()?;
    ///     let stream = connector.connect_by(endpoint, remote, &server, request, &config).await?;
    ///     println!("{:?}, {:?}", stream.handshake(), stream.seal_outcome());
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// See [`ConnectError`].
    ///
    /// # Panics
    /// Outside a tokio runtime with time, unless the [`time`](crate::ConnectorBuilder::time) is virtual.
    pub async fn connect_by(
        &self,
        endpoint: &Endpoint,
        remote: SocketAddr,
        server: &Authority,
        data: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> Result<TlsStream<Stream>, ConnectError> {
        self.reach(Dial::Engine { endpoint, remote, config }, server, data, true).await
    }
}
