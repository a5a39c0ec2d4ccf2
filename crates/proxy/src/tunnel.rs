//! Tunnels, of CONNECT and of SOCKS: when the client is told yes, and what happens then.

use crate::event::{Event, Protocol};
use crate::failure::Failure;
use crate::first::First;
use crate::reach::Place;
use crate::relay::{Traffic, relay, reset};
use crate::shared::{Shared, Stopping};
use bytes::Bytes;
use firstflight::{Authority, Stream};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A tunnel to which the client may be told yes.
pub(crate) struct Tunnel {
    shared: Arc<Shared>,
    server: Authority,
    protocol: Protocol,
    state: State,
}

enum State {
    /// The yes is early: the name resolved, there is a credential, and the last connect succeeded. So the client's first
    /// bytes ride in the first packet.
    Early(Place),
    /// The yes is true.
    Connected(Stream),
}

/// The client's end, once it was told yes.
pub(crate) struct Near {
    pub tcp: TcpStream,
    /// What was read of it behind the request.
    pub read: Bytes,
}

impl Tunnel {
    /// Finds out what to tell the client. Without good reason for an early yes this connects first.
    ///
    /// # Errors
    /// The client is to be told no.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        server: Authority,
        protocol: Protocol,
    ) -> Result<Self, Failure> {
        let place = Place::find(shared, &server, protocol).await?;
        let state = match place.outlook().await.is_good() {
            true => State::Early(place),
            false => State::Connected(place.connect(false).await?),
        };
        Ok(Self { shared: Arc::clone(shared), server, protocol, state })
    }

    /// Carries the client's bytes, after the yes. If there is no connection after an early yes, or the connection fails,
    /// the client's is reset: it never gets bytes that the server did not send.
    pub(crate) async fn run(self, mut near: Near) {
        let Self { shared, server, protocol, state } = self;
        let traffic = Traffic::default();
        let carried = async {
            let mut far = match state {
                State::Connected(far) => far,
                State::Early(place) => match begin(&shared, place, &mut near, &traffic).await? {
                    Some(far) => far,
                    // It is in the log already.
                    None => return Ok(false),
                },
            };
            // Behind the first flight, or behind a yes that was true.
            far.write_all(&near.read).await?;
            traffic.sent.fetch_add(near.read.len() as u64, Ordering::Relaxed);
            relay(&shared, &mut near.tcp, &mut far, &traffic).await.map(|()| true)
        };
        let result: io::Result<bool> = carried.await;
        if !matches!(result, Ok(true)) {
            reset(&near.tcp);
        }
        if matches!(result, Ok(false)) {
            return;
        }
        let [sent, received] = [&traffic.sent, &traffic.received].map(|count| count.load(Ordering::Relaxed));
        shared.board.carried(&server, sent, received, firstflight::unix_ms());
        shared.listener.tell(&Event::Closed {
            protocol,
            server: server.to_string(),
            sent,
            received,
            error: result.err().map(|error| error.to_string()),
        });
    }
}

/// Connects after an early yes, with what the client says first. What did not ride is left in `near.read`. `None` if the
/// server is not reached.
async fn begin(
    shared: &Shared,
    place: Place,
    near: &mut Near,
    traffic: &Traffic,
) -> io::Result<Option<Stream>> {
    let read = std::mem::take(&mut near.read).into();
    let first = tokio::select! {
        first = First::read(&mut near.tcp, read, shared.early_data) => first?,
        () = shared.stopping(Stopping::Now) => return Ok(None),
    };
    let Some(first) = first else { return Ok(place.connect(true).await.ok()) };
    let connected = tokio::select! {
        connected = place.connect_with(&first) => connected,
        () = shared.stopping(Stopping::Now) => return Ok(None),
    };
    let Ok(far) = connected else { return Ok(None) };
    let rest = first.rest();
    traffic.sent.fetch_add(first.sent() as u64, Ordering::Relaxed);
    near.read = Bytes::copy_from_slice(rest);
    Ok(Some(far))
}
