//! Messages over TCP. A length of two bytes precedes each message, as in the DNS (RFC 1035 §4.2.2, RFC 7766).

use crate::connections::Connections;
use crate::sockets::{Messages, PAUSE};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinSet};

/// The limits of TCP connections at one address.
///
/// When a limit is reached, the connection within it that has been idle for longest ends: see `Connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// The most connections at one time.
    pub connections: usize,
    /// The most connections from one network: an IPv4 /24 or IPv6 /56.
    pub per_network: usize,
    /// The most connections from one IPv4 address or IPv6 /64.
    pub per_client: usize,
    /// How long a client may take for each message and its answer.
    pub patience: Duration,
}

impl StreamLimits {
    /// 512 connections, 128 from one network, `per_client` from one client, and 5 s.
    #[must_use]
    pub const fn per_client(per_client: usize) -> Self {
        Self { connections: 512, per_network: 128, per_client, patience: Duration::from_secs(5) }
    }
}

pub(crate) async fn accept<M: Messages>(
    listener: TcpListener,
    messages: Arc<M>,
    limits: StreamLimits,
    mut stopped: watch::Receiver<()>,
) {
    let mut open = OpenStreams::new(limits);
    loop {
        tokio::select! {
            // Handle ended tasks before new connections.
            biased;
            _ = stopped.changed() => break,
            Some(ended) = open.tasks.join_next_with_id() => open.remove(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => open.add(stream, from, &messages, stopped.clone()).await,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    while let Some(ended) = open.tasks.join_next_with_id().await {
        open.remove(ended);
    }
}

/// The open connections of one listener, a task for each.
struct OpenStreams {
    limits: StreamLimits,
    tasks: JoinSet<()>,
    aborts: HashMap<Id, AbortHandle>,
    /// The tasks note here when a message came.
    table: Arc<Mutex<Connections<Id>>>,
}

impl OpenStreams {
    fn new(limits: StreamLimits) -> Self {
        let table = Arc::new(Mutex::new(Connections::new(limits)));
        Self { limits, tasks: JoinSet::new(), aborts: HashMap::new(), table }
    }

    async fn add<M: Messages>(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        messages: &Arc<M>,
        stopped: watch::Receiver<()>,
    ) {
        let victim = lock(&self.table).make_room(from.ip());
        if let Some(abort) = victim.and_then(|id| self.aborts.remove(&id)) {
            tracing::debug!(%from, "an idle connection makes way");
            abort.abort();
        }
        // An aborted task counts until it has run once more. It only waits for its socket, so that happens at
        // once.
        while self.tasks.len() >= self.limits.connections
            && let Some(ended) = self.tasks.join_next_with_id().await
        {
            self.remove(ended);
        }
        let (messages, table) = (Arc::clone(messages), Arc::clone(&self.table));
        let patience = self.limits.patience;
        let task = self.tasks.spawn(async move {
            let active = || lock(&table).active(tokio::task::id());
            serve(stream, from, &*messages, patience, active, stopped).await;
        });
        lock(&self.table).add(task.id(), from.ip());
        self.aborts.insert(task.id(), task);
    }

    fn remove(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        self.aborts.remove(&id);
        lock(&self.table).remove(id);
    }
}

fn lock(table: &Mutex<Connections<Id>>) -> MutexGuard<'_, Connections<Id>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve<M: Messages>(
    mut stream: TcpStream,
    from: SocketAddr,
    messages: &M,
    patience: Duration,
    active: impl Fn(),
    mut stopped: watch::Receiver<()>,
) {
    for _ in 0..M::PER_CONNECTION {
        let answering = answer_one(&mut stream, from, messages, &active, &mut stopped);
        match tokio::time::timeout(patience, answering).await {
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

/// Answers one message. False when no further message will be answered.
async fn answer_one<M: Messages>(
    stream: &mut TcpStream,
    from: SocketAddr,
    messages: &M,
    active: impl Fn(),
    stopped: &mut watch::Receiver<()>,
) -> io::Result<bool> {
    let mut len = [0; 2];
    let read = tokio::select! {
        // A message that has arrived is answered even after the stop.
        biased;
        read = stream.read_exact(&mut len) => read,
        _ = stopped.changed() => return Ok(false),
    };
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let mut buffer = vec![0; M::LARGEST];
    let Some(message) = buffer.get_mut(..usize::from(u16::from_be_bytes(len))) else { return Ok(false) };
    stream.read_exact(message).await?;
    active();
    let Some(answer) = messages.handle_stream(from, message) else { return Ok(false) };
    let mut framed = Vec::with_capacity(2 + answer.len());
    framed.extend((answer.len() as u16).to_be_bytes());
    framed.extend_from_slice(&answer);
    let written = stream.write_all(&framed).await;
    messages.answered();
    written?;
    Ok(true)
}

#[cfg(test)]
mod tests;
