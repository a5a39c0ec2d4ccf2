//! Messages over TCP: each behind its length of two bytes, as in the DNS (RFC 1035 §4.2.2, RFC 7766).

use crate::sockets::{Messages, PAUSE};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

/// What is allowed over TCP, at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Connections at once.
    pub connections: usize,
    /// Of those, from one IPv4 address or IPv6 /64.
    pub per_client: usize,
    /// How long a client may take for each message and its answer.
    pub patience: Duration,
}

impl StreamLimits {
    /// 512 connections, so many from one client, and 5 s.
    #[must_use]
    pub const fn per_client(per_client: usize) -> Self {
        Self { connections: 512, per_client, patience: Duration::from_secs(5) }
    }
}

pub(crate) async fn accept<M: Messages>(
    listener: TcpListener,
    messages: Arc<M>,
    limits: StreamLimits,
    mut stopped: watch::Receiver<()>,
) {
    let mut connections = Connections::new(limits);
    loop {
        let full = connections.tasks.len() >= limits.connections;
        tokio::select! {
            accepted = listener.accept(), if !full => match accepted {
                Ok((stream, from)) => connections.add(stream, from, &messages),
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(ended) = connections.tasks.join_next_with_id() => connections.remove(ended),
            _ = stopped.changed() => break,
        }
    }
    drop(listener);
    while let Some(ended) = connections.tasks.join_next_with_id().await {
        connections.remove(ended);
    }
}

/// The connections of one listener, no more of one client than its share.
struct Connections {
    limits: StreamLimits,
    tasks: JoinSet<()>,
    clients: HashMap<Id, IpAddr>,
    shares: HashMap<IpAddr, usize>,
}

impl Connections {
    fn new(limits: StreamLimits) -> Self {
        Self { limits, tasks: JoinSet::new(), clients: HashMap::new(), shares: HashMap::new() }
    }

    fn add<M: Messages>(&mut self, stream: TcpStream, from: SocketAddr, messages: &Arc<M>) {
        let client = share(from.ip());
        let count = self.shares.entry(client).or_default();
        if *count >= self.limits.per_client {
            tracing::debug!(%from, "too many connections of one client");
            return;
        }
        *count += 1;
        let task = self.tasks.spawn(serve(stream, from, Arc::clone(messages), self.limits.patience));
        self.clients.insert(task.id(), client);
    }

    fn remove(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        let Some(client) = self.clients.remove(&id) else { return };
        if let Some(count) = self.shares.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.shares.remove(&client);
            }
        }
    }
}

/// Whom connections are counted for: an IPv4 address, or an IPv6 /64.
fn share(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(client) => IpAddr::V6((client.to_bits() & !(u128::MAX >> 64)).into()),
        client => client,
    }
}

async fn serve<M: Messages>(mut stream: TcpStream, from: SocketAddr, messages: Arc<M>, patience: Duration) {
    for _ in 0..M::PER_CONNECTION {
        match tokio::time::timeout(patience, answer_one(&mut stream, from, &*messages)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => break,
            Ok(Err(error)) => {
                tracing::debug!(%from, %error, "a connection ended");
                return;
            }
            Err(_) => {
                tracing::debug!(%from, "a client took too long");
                return;
            }
        }
    }
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.shutdown()).await;
}

/// Answers one message; false when there is nothing more to answer.
async fn answer_one<M: Messages>(stream: &mut TcpStream, from: SocketAddr, messages: &M) -> io::Result<bool> {
    let mut len = [0; 2];
    match stream.read_exact(&mut len).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let mut buffer = vec![0; M::LARGEST];
    let Some(message) = buffer.get_mut(..usize::from(u16::from_be_bytes(len))) else { return Ok(false) };
    stream.read_exact(message).await?;
    let Some(answer) = messages.handle_stream(from, message) else { return Ok(false) };
    let mut framed = Vec::with_capacity(2 + answer.len());
    framed.extend((answer.len() as u16).to_be_bytes());
    framed.extend_from_slice(&answer);
    let written = stream.write_all(&framed).await;
    messages.answered();
    written?;
    Ok(true)
}
