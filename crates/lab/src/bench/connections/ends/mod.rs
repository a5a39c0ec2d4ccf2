//! Both ends of each way. A request's first byte says whether the server closes the connection behind its response, or
//! leaves it open.

pub mod engine;
pub mod kernel;
pub mod quic;
pub mod secure;
pub mod tls;

use super::process::Cable;
use super::way::ConnectWay;
use crate::bench::{REQUEST, RESPONSE};
use serde_json::Value;
use std::any::Any;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first byte of a request whose connection stays open.
const STAYS: u8 = b'i';

/// How a first flight ended, for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlightEnd {
    /// The server had the request before the handshake was complete.
    Accepted,
    /// It left with the first packet, and the server did not take it early.
    Refused(&'static str),
    /// It left with the first packet, which got no answer.
    Lost(&'static str),
    /// It was kept back until the handshake was complete.
    KeptBack(&'static str),
}

/// One connection of the client.
pub struct Visit {
    /// From the connect to the end of the response.
    pub took: Duration,
    /// What became of its first flight.
    pub fate: FlightEnd,
    /// A connection that stays open.
    pub held: Option<OpenConnection>,
}

/// Keeps a connection open.
pub type OpenConnection = Box<dyn Any + Send>;
/// A visit under way.
pub type Visiting<'a> = Pin<Box<dyn Future<Output = io::Result<Visit>> + Send + 'a>>;

pub trait Client: Send + Sync {
    /// Connects, sends the request and reads the response. The connection is then closed, or, with a number, left open:
    /// it is the one with that number. Visits with the same `slot` do not overlap.
    fn visit(&self, slot: usize, stays: Option<usize>) -> Visiting<'_>;

    /// Called before each measurement.
    fn refresh(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the server as tasks of this runtime. Returns what the client needs to know. `busy_poll` is for our engine.
pub fn serve(way: ConnectWay, work: Duration, busy_poll: Duration, cable: Cable) -> io::Result<Value> {
    match way {
        ConnectWay::UdpCard => engine::serve_on_card(cable, work, busy_poll),
        ConnectWay::UdpHandshake | ConnectWay::FastOpen | ConnectWay::Asap => {
            engine::serve(way, work, busy_poll)
        }
        ConnectWay::Tcp => kernel::serve(work),
        ConnectWay::TcpFastOpen => kernel::serve_fast_open(work),
        ConnectWay::Tls => tls::serve(work),
        ConnectWay::Quic | ConnectWay::QuicZeroRtt => quic::serve(way, work),
    }
}

/// A client of the server that said `server`, with this many addresses. `busy_poll` is for our engine.
pub fn client(
    way: ConnectWay,
    server: &Value,
    addresses: u8,
    busy_poll: Duration,
    cable: Cable,
) -> io::Result<Box<dyn Client>> {
    Ok(match way {
        ConnectWay::UdpCard => Box::new(engine::Engines::on_card(cable, server, addresses, busy_poll)?),
        ConnectWay::UdpHandshake | ConnectWay::FastOpen | ConnectWay::Asap => {
            Box::new(engine::Engines::new(way, server, addresses, busy_poll)?)
        }
        ConnectWay::Tcp | ConnectWay::TcpFastOpen => Box::new(kernel::Sockets::new(way, server)?),
        ConnectWay::Tls => Box::new(tls::Sessions::new(server)?),
        ConnectWay::Quic | ConnectWay::QuicZeroRtt => Box::new(quic::Connections::new(way, server)?),
    })
}

/// A number that the server said.
fn said(server: &Value, name: &str) -> io::Result<u16> {
    let number = server.get(name).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| invalid(format!("the server named no {name}")))
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// The request of a connection that stays open or not.
fn request(stays: bool) -> [u8; REQUEST.len()] {
    let mut request = REQUEST;
    if stays {
        request[0] = STAYS;
    }
    request
}

/// Whether this is a request, and its connection stays open.
fn stays(request: &[u8]) -> io::Result<bool> {
    match request.split_first() {
        Some((first, rest)) if rest == &REQUEST[1..] && (*first == REQUEST[0] || *first == STAYS) => {
            Ok(*first == STAYS)
        }
        _ => Err(invalid("not the request")),
    }
}

/// The server's work for a request, beside TCP's.
fn busy(work: Duration) {
    let start = Instant::now();
    while start.elapsed() < work {
        std::hint::spin_loop();
    }
}

/// A server's connection: reads the request, answers, closes and waits for the client's end.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, work: Duration) -> io::Result<()> {
    let mut buffer = [0; REQUEST.len()];
    stream.read_exact(&mut buffer).await?;
    let stays = stays(&buffer)?;
    busy(work);
    stream.write_all(&RESPONSE).await?;
    if stays {
        stream.flush().await?;
        // It ends with the client's process, without ceremony.
        let _ = stream.read(&mut buffer).await;
        return Ok(());
    }
    stream.shutdown().await?;
    match stream.read(&mut buffer).await? {
        0 => Ok(()),
        _ => Err(invalid("more than a request")),
    }
}

/// A client's connection: reads the response, and the end if the server closes, and closes.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    stays: bool,
    since: Instant,
) -> io::Result<Duration> {
    let mut buffer = [0; RESPONSE.len() + 1];
    let mut got = 0;
    while got < RESPONSE.len() || !stays {
        match stream.read(buffer.get_mut(got..).unwrap_or_default()).await? {
            0 => break,
            more => got += more,
        }
    }
    let took = since.elapsed();
    if buffer.get(..got) != Some(&RESPONSE) {
        return Err(invalid("not the response"));
    }
    if !stays {
        stream.shutdown().await?;
    }
    Ok(took)
}

/// An error of a server's connection, which is not the server's end.
fn report<E: std::fmt::Display>(result: Result<(), E>) {
    if let Err(error) = result {
        crate::output::complain(&format_args!("a connection of the server: {error}"));
    }
}
