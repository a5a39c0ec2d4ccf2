//! An ordinary connect of the kernel's TCP to the first address that answers.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long an address is tried alone before the next one is tried as well (RFC 8305 §5).
const HEAD_START: Duration = Duration::from_millis(250);

/// A connection, and how long its own handshake took.
pub(super) struct Connected {
    pub(super) stream: TcpStream,
    pub(super) took: Duration,
}

/// Connects to one of the addresses, the best one first.
/// Errors: that of the first address that failed, with the address.
pub(super) async fn connect(addresses: &[SocketAddr]) -> Result<Connected, (SocketAddr, io::Error)> {
    let mut attempts = FuturesUnordered::new();
    let mut left = addresses.iter().copied();
    let mut failed = None;
    attempts.extend(left.next().map(attempt));
    loop {
        let more = left.len() > 0;
        tokio::select! {
            Some(ended) = attempts.next() => match ended {
                Ok(connected) => return Ok(connected),
                Err(error) => {
                    failed.get_or_insert(error);
                    attempts.extend(left.next().map(attempt));
                }
            },
            () = tokio::time::sleep(HEAD_START), if more => attempts.extend(left.next().map(attempt)),
            else => break,
        }
    }
    let none = || (SocketAddr::from(([0; 4], 0)), io::Error::other("there is no address"));
    Err(failed.unwrap_or_else(none))
}

async fn attempt(address: SocketAddr) -> Result<Connected, (SocketAddr, io::Error)> {
    let began = Instant::now();
    match TcpStream::connect(address).await {
        Ok(stream) => Ok(Connected { stream, took: began.elapsed() }),
        Err(error) => Err((address, error)),
    }
}
