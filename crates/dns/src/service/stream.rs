//! Queries over TCP: each behind its length of two bytes (RFC 1035 §4.2.2, RFC 7766).

use super::{PAUSE, QUERY_MAX, Shared};
use crate::front::Transport;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

/// Queries of one connection: a resolver opens another one then.
const QUERIES: usize = 256;

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<()>) {
    let mut connections = Connections::default();
    loop {
        let full = connections.tasks.len() >= shared.limits.connections;
        tokio::select! {
            accepted = listener.accept(), if !full => match accepted {
                Ok((stream, from)) => connections.add(stream, from, &shared),
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
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    clients: HashMap<Id, IpAddr>,
    shares: HashMap<IpAddr, usize>,
}

impl Connections {
    fn add(&mut self, stream: TcpStream, from: SocketAddr, shared: &Arc<Shared>) {
        let client = share(from.ip());
        let count = self.shares.entry(client).or_default();
        if *count >= shared.limits.per_client {
            tracing::debug!(%from, "too many connections of one client");
            return;
        }
        *count += 1;
        let task = self.tasks.spawn(serve(stream, from, Arc::clone(shared)));
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

async fn serve(mut stream: TcpStream, from: SocketAddr, shared: Arc<Shared>) {
    for _ in 0..QUERIES {
        match tokio::time::timeout(shared.limits.patience, answer_one(&mut stream, from, &shared)).await {
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

/// Answers one query; false when there is nothing more to answer.
async fn answer_one(stream: &mut TcpStream, from: SocketAddr, shared: &Shared) -> io::Result<bool> {
    let mut len = [0; 2];
    match stream.read_exact(&mut len).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let mut buffer = vec![0; QUERY_MAX];
    let Some(query) = buffer.get_mut(..usize::from(u16::from_be_bytes(len))) else { return Ok(false) };
    stream.read_exact(query).await?;
    let Some(answer) = shared.handle(from, Transport::Tcp, query) else { return Ok(false) };
    let mut framed = Vec::with_capacity(2 + answer.len());
    framed.extend((answer.len() as u16).to_be_bytes());
    framed.extend_from_slice(&answer);
    let written = stream.write_all(&framed).await;
    shared.hand_over();
    written?;
    Ok(true)
}
