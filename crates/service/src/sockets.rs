//! UDP and TCP on the same addresses.

use crate::stream::{self, StreamLimits};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How many ports are tried to find one that is free for both protocols, if the caller leaves the choice.
const ATTEMPTS: usize = 16;
/// Pause after an error of a socket, because the cause may be a lack of memory.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Answers messages. All sockets share one, so its implementation must lock its state, and only for a short
/// time.
pub trait Messages: Send + Sync + 'static {
    /// The longest message, bytes. A longer datagram is passed on cut to one byte more than this. A longer
    /// message of a stream ends the stream.
    const LARGEST: usize;
    /// The most messages of one TCP connection. A client with more opens another connection.
    const PER_CONNECTION: usize;
    /// An answer's bytes, at most 65,535.
    type Answer: Deref<Target = [u8]> + Send;

    /// The answer to a datagram, to be sent to its source.
    fn handle_datagram(&self, from: SocketAddr, message: &[u8]) -> Option<Self::Answer>;

    /// The answer to a message of a stream. Without an answer the connection is closed.
    fn handle_stream(&self, from: SocketAddr, message: &[u8]) -> Option<Self::Answer>;

    /// Called after the answer was sent, if there was one, for work that the client need not wait for.
    fn answered(&self) {}
}

/// Sockets that are bound but do not serve yet. The caller can now drop privileges, and read files after
/// that.
#[derive(Debug)]
pub struct Sockets {
    listening: Vec<(UdpSocket, TcpListener)>,
}

impl Sockets {
    /// Listens at all `addresses`, with UDP and TCP. The unspecified address works on hosts with one address
    /// of the family. On other hosts list the addresses one by one, so that answers come from the address
    /// that was asked.
    ///
    /// # Errors
    /// The address at which listening failed, and why. The caller is at fault.
    pub async fn bind(addresses: &[SocketAddr]) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listening = Vec::new();
        for &address in addresses {
            listening.push(bind(address).await.map_err(|error| (address, error))?);
        }
        Ok(Self { listening })
    }

    /// The addresses at which it listens, with the ports that were chosen for port 0.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.iter().filter_map(|(_, tcp)| tcp.local_addr().ok()).collect()
    }

    /// Answers until `stop` is ready. Then it accepts nothing new, and gives open connections the time that
    /// one message may take.
    pub async fn run<M: Messages>(
        self,
        messages: Arc<M>,
        limits: StreamLimits,
        stop: impl Future<Output = ()>,
    ) {
        let (stopping, stopped) = watch::channel(());
        let mut tasks = JoinSet::new();
        for (udp, tcp) in self.listening {
            tasks.spawn(datagrams(udp, Arc::clone(&messages), stopped.clone()));
            tasks.spawn(stream::accept(tcp, Arc::clone(&messages), limits, stopped.clone()));
        }
        drop(stopped);
        stop.await;
        tracing::info!("stopping");
        drop(stopping);
        let all = async { while tasks.join_next().await.is_some() {} };
        // Connections that are still open then are dropped with the set.
        let _ = tokio::time::timeout(limits.patience, all).await;
    }
}

/// Both sockets, on the same port.
async fn bind(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let mut attempt = 1;
    loop {
        let tcp = TcpListener::bind(address).await?;
        match UdpSocket::bind(tcp.local_addr()?).await {
            Ok(udp) => return Ok((udp, tcp)),
            // The port that was chosen for TCP is not free for UDP, so try another one.
            Err(error) if address.port() != 0 || attempt == ATTEMPTS => return Err(error),
            Err(_) => attempt += 1,
        }
    }
}

async fn datagrams<M: Messages>(socket: UdpSocket, messages: Arc<M>, mut stopped: watch::Receiver<()>) {
    let mut buffer = vec![0; M::LARGEST + 1];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            _ = stopped.changed() => return,
        };
        match received {
            Ok((len, from)) => {
                let message = buffer.get(..len).unwrap_or_default();
                if let Some(answer) = messages.handle_datagram(from, message)
                    // The socket buffer is full. The client will ask again.
                    && let Err(error) = socket.try_send_to(&answer, from)
                {
                    tracing::debug!(%from, %error, "an answer was not sent");
                }
                messages.answered();
            }
            // The cause is an ICMP error about an answer, or a lack of memory.
            Err(error) => {
                tracing::debug!(%error, "nothing was received");
                if error.kind() != io::ErrorKind::ConnectionRefused {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
