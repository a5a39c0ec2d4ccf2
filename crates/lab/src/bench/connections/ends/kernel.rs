//! The kernel's TCP, with and without Fast Open.

use super::{Client, FlightEnd, Visit, Visiting, answer, ask, invalid, report, request, said};
use crate::bench::connections::way::ConnectWay;
use firstflight_kernel::{Carry, ListenConfig, Listener, connect};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Addresses of the server: a client has some 28,000 ports for each. The kernel waits for a second before it uses a
/// port again.
const ADDRESSES: usize = 64;
/// Connections that stay open, for each of the addresses.
const EACH: usize = 16_000;
/// Connections that may wait to be accepted, or for the ACK behind a SYN with data.
const BACKLOG: u32 = 4096;

/// The server's address for a visit.
pub fn address(visit: usize, stays: Option<usize>, port: u16) -> SocketAddr {
    let (net, host) = stays.map_or((1, visit % ADDRESSES), |number| (2, number / EACH));
    SocketAddr::from(([127, 0, net, host as u8 + 1], port))
}

/// Listens at all addresses.
pub fn listen() -> io::Result<(TcpListener, u16)> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    listener.set_nonblocking(true)?;
    // `std` listens with a backlog of 128.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(BACKLOG as i32)?)?;
    let port = listener.local_addr()?.port();
    Ok((TcpListener::from_std(listener)?, port))
}

/// Starts a server without Fast Open.
pub fn serve(work: Duration) -> io::Result<Value> {
    let (listener, port) = listen()?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(async move { report(answer(stream, work).await) });
                }
                Err(error) => crate::output::complain(&format_args!("accept: {error}")),
            }
        }
    });
    Ok(json!({ "port": port }))
}

/// Starts a server with Fast Open.
pub fn serve_fast_open(work: Duration) -> io::Result<Value> {
    let config = ListenConfig::default().pending(BACKLOG).backlog(BACKLOG);
    let listener = Listener::bind((Ipv4Addr::UNSPECIFIED, 0).into(), config)?;
    if !listener.grants_cookies() {
        return Err(invalid("net.ipv4.tcp_fastopen does not let servers use Fast Open"));
    }
    let port = listener.local_addr().port();
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    tokio::spawn(async move { report(answer(stream, work).await) });
                }
                Err(error) => crate::output::complain(&format_args!("accept: {error}")),
            }
        }
    });
    Ok(json!({ "port": port }))
}

/// The client.
pub struct Sockets {
    way: ConnectWay,
    port: u16,
    visits: AtomicUsize,
}

impl Sockets {
    pub fn new(way: ConnectWay, server: &Value) -> io::Result<Self> {
        Ok(Self { way, port: said(server, "port")?, visits: AtomicUsize::new(0) })
    }
}

impl Client for Sockets {
    fn visit(&self, _: usize, stays: Option<usize>) -> Visiting<'_> {
        Box::pin(async move {
            let at = address(self.visits.fetch_add(1, Ordering::Relaxed), stays, self.port);
            let request = request(stays.is_some());
            let since = Instant::now();
            if self.way == ConnectWay::Tcp {
                let mut stream = TcpStream::connect(at).await?;
                stream.write_all(&request).await?;
                let took = ask(&mut stream, stays.is_some(), since).await?;
                let fate = FlightEnd::KeptBack("not-requested");
                return Ok(Visit { took, fate, held: stays.map(|_| Box::new(stream) as _) });
            }
            let (mut stream, taken) = connect(at, None, Carry::Data(&request))?.established().await?;
            if let Some(rest) = request.get(taken..).filter(|rest| !rest.is_empty()) {
                stream.write_all(rest).await?;
            }
            let took = ask(&mut stream, stays.is_some(), since).await?;
            let outcome = stream.outcome();
            let fate = match outcome.is_accepted() {
                true => FlightEnd::Accepted,
                false => FlightEnd::Refused(outcome.reason().map_or("unknown", |reason| reason.as_str())),
            };
            Ok(Visit { took, fate, held: stays.map(|_| Box::new(stream) as _) })
        })
    }
}
