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

/// How often a free port for both protocols is looked for, if any port will do.
const ATTEMPTS: usize = 16;
/// Pause after a socket failed: it may be for want of memory.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Who answers messages. The same one for all sockets: it locks what it must, and not for long.
pub trait Messages: Send + Sync + 'static {
    /// Longest message, bytes. A longer datagram is handed over cut to one byte more; a longer message of a stream ends it.
    const LARGEST: usize;
    /// Messages of one TCP connection: who has more opens another one.
    const PER_CONNECTION: usize;
    /// An answer's bytes, at most 65,535.
    type Answer: Deref<Target = [u8]> + Send;

    /// The answer to a datagram, for whom it came from.
    fn handle_datagram(&self, from: SocketAddr, message: &[u8]) -> Option<Self::Answer>;

    /// The answer to a message of a stream; without one the connection is closed.
    fn handle_stream(&self, from: SocketAddr, message: &[u8]) -> Option<Self::Answer>;

    /// The answer has left, if there was one: time for what need not be waited for.
    fn answered(&self) {}
}

/// Sockets that are bound and not yet served: privileges can be dropped now, and files read after it.
#[derive(Debug)]
pub struct Sockets {
    listening: Vec<(UdpSocket, TcpListener)>,
}

impl Sockets {
    /// Listens at all `addresses`, with UDP and TCP. An address for all interfaces works on hosts with one
    /// address of the family; others name them one by one, so that answers come from where they were asked.
    ///
    /// # Errors
    /// The address that cannot be listened at, and why: whoever gave it is at fault.
    pub async fn bind(addresses: &[SocketAddr]) -> Result<Self, (SocketAddr, io::Error)> {
        let mut listening = Vec::new();
        for &address in addresses {
            listening.push(bind(address).await.map_err(|error| (address, error))?);
        }
        Ok(Self { listening })
    }

    /// Where it listens: the ports, where any would do.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.iter().filter_map(|(_, tcp)| tcp.local_addr().ok()).collect()
    }

    /// Answers until `stop` is ready; then takes nothing new, and gives connections under way the time that one
    /// message may take.
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
        // What is still open then is dropped with the set.
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
            // The port that was chosen for TCP is taken for UDP: there are others.
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
                    // A full socket buffer: the client asks again.
                    && let Err(error) = socket.try_send_to(&answer, from)
                {
                    tracing::debug!(%from, %error, "an answer was not sent");
                }
                messages.answered();
            }
            // An ICMP error about an answer, or no memory.
            Err(error) => {
                tracing::debug!(%error, "nothing was received");
                if error.kind() != io::ErrorKind::ConnectionRefused {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
