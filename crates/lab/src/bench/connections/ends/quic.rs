//! QUIC by quinn: a connection for each request, with a full handshake, or with the request as 0-RTT data.

use super::secure::{self, NAME, Tickets};
use super::{Client, FlightEnd, Visit, Visiting, busy, invalid, report, request, said, stays};
use crate::bench::connections::way::ConnectWay;
use crate::bench::{REQUEST, RESPONSE};
use nix::sys::socket::{setsockopt, sockopt};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, Incoming, RecvStream, ServerConfig, TokioRuntime,
    TransportConfig,
};
use rustls::client::Resumption;
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tasks of a client that each have tickets.
const SLOTS: usize = 64;
/// Bytes, what [`firstflight::link::UdpLink`] asks for.
const SOCKET_BUFFER: usize = 4 << 20;

/// No connection ends because it is idle.
fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(None);
    Arc::new(transport)
}

/// An endpoint on loopback. Its socket has as large buffers as the system allows, as our links have.
fn endpoint(server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    setsockopt(&socket, sockopt::RcvBuf, &SOCKET_BUFFER)?;
    setsockopt(&socket, sockopt::SndBuf, &SOCKET_BUFFER)?;
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))
}

/// Starts a server.
pub fn serve(way: ConnectWay, work: Duration) -> io::Result<Value> {
    let early = way == ConnectWay::QuicZeroRtt;
    let (config, certificate) = secure::server(early)?;
    let crypto = QuicServerConfig::try_from(config).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport());
    let endpoint = endpoint(Some(config))?;
    let port = endpoint.local_addr()?.port();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move { report(one(incoming, early, work).await) });
        }
    });
    Ok(json!({ "port": port, "certificate": certificate }))
}

/// A server's connection.
async fn one(incoming: Incoming, early: bool, work: Duration) -> io::Result<()> {
    let connecting = incoming.accept().map_err(io::Error::other)?;
    let connection = match early {
        true => match connecting.into_0rtt() {
            Ok((connection, _)) => connection,
            Err(connecting) => connecting.await?,
        },
        false => connecting.await?,
    };
    let (mut send, mut receive) = connection.accept_bi().await?;
    let stays = stays(&read(&mut receive, REQUEST.len()).await?)?;
    busy(work);
    send.write_all(&RESPONSE).await.map_err(io::Error::other)?;
    send.finish().map_err(io::Error::other)?;
    if stays {
        // For as long as the client keeps it.
        drop((send, receive));
    }
    connection.closed().await;
    Ok(())
}

async fn read(stream: &mut RecvStream, len: usize) -> io::Result<Vec<u8>> {
    stream.read_to_end(len).await.map_err(io::Error::other)
}

/// The client.
pub struct Connections {
    endpoint: Endpoint,
    server: SocketAddr,
    early: bool,
    slots: Vec<Slot>,
}

struct Slot {
    config: ClientConfig,
    tickets: Arc<Tickets>,
}

impl Connections {
    pub fn new(way: ConnectWay, server: &Value) -> io::Result<Self> {
        let endpoint = endpoint(None)?;
        let early = way == ConnectWay::QuicZeroRtt;
        let slots = (0..SLOTS).map(|_| Slot::new(server, early)).collect::<io::Result<_>>()?;
        Ok(Self { endpoint, server: (Ipv4Addr::LOCALHOST, said(server, "port")?).into(), early, slots })
    }

    /// A connection on which the request was answered, how long that took, and its first flight's fate.
    async fn connect(&self, slot: &Slot, request: &[u8]) -> io::Result<(Connection, Duration, FlightEnd)> {
        let since = Instant::now();
        let connecting = self.endpoint.connect_with(slot.config.clone(), self.server, NAME);
        let connecting = connecting.map_err(io::Error::other)?;
        let (connecting, fate) = match self.early {
            false => (connecting, FlightEnd::KeptBack("not-requested")),
            true => match connecting.into_0rtt() {
                Ok((connection, accepted)) => {
                    exchange(&connection, request).await?;
                    let took = since.elapsed();
                    let fate = if accepted.await {
                        FlightEnd::Accepted
                    } else {
                        FlightEnd::Refused("0-RTT rejected")
                    };
                    return Ok((connection, took, fate));
                }
                Err(connecting) => (connecting, FlightEnd::KeptBack("no-credential")),
            },
        };
        let connection = connecting.await?;
        exchange(&connection, request).await?;
        Ok((connection, since.elapsed(), fate))
    }
}

impl Slot {
    fn new(server: &Value, early: bool) -> io::Result<Self> {
        let tickets = Arc::new(Tickets::default());
        let mut config = secure::client(server)?;
        if early {
            config.enable_early_data = true;
            config.resumption = Resumption::store(Arc::clone(&tickets) as _);
        }
        let crypto = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        Ok(Self { config, tickets })
    }
}

async fn exchange(connection: &Connection, request: &[u8]) -> io::Result<()> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(request).await.map_err(io::Error::other)?;
    send.finish().map_err(io::Error::other)?;
    match read(&mut receive, RESPONSE.len()).await? == RESPONSE {
        true => Ok(()),
        false => Err(invalid("not the response")),
    }
}

impl Client for Connections {
    fn visit(&self, slot: usize, stays: Option<usize>) -> Visiting<'_> {
        Box::pin(async move {
            let slot = self.slots.get(slot % SLOTS).ok_or(io::ErrorKind::NotFound)?;
            let (connection, took, fate) = self.connect(slot, &request(stays.is_some())).await?;
            if self.early {
                slot.tickets.wait().await;
            }
            if stays.is_some() {
                return Ok(Visit { took, fate, held: Some(Box::new(connection)) });
            }
            connection.close(0_u32.into(), b"");
            Ok(Visit { took, fate, held: None })
        })
    }
}
