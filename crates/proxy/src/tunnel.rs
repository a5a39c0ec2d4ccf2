//! Tunnels, of CONNECT and of SOCKS: when the client is told yes, and what happens then.

use crate::client_end::Near;
use crate::event::{Event, Protocol};
use crate::failure::Failure;
use crate::first::FirstClientData;
use crate::reach::AllowedServer;
use crate::relay::relay;
use crate::shared::{Shared, Stopping};
use bytes::Bytes;
use firstflight::{Authority, Stream};
use firstflight_http::pump::{Copied, Traffic};
use std::io;
use std::sync::Arc;

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
    Early(AllowedServer),
    /// The yes is true.
    Connected(Stream),
}

/// The client, once it was told yes.
pub(crate) struct ConfirmedClient {
    pub near: Near,
    /// What was read of it behind the request.
    pub read: Bytes,
}

impl Tunnel {
    /// Finds out what to tell the client. Without good reason for an early yes this connects first.
    /// Errors: the client is to be told no.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        server: Authority,
        protocol: Protocol,
    ) -> Result<Self, Failure> {
        let waiting = shared.waiting(protocol, &server);
        let state = async {
            let mut place = AllowedServer::find(shared, &server, protocol).await?;
            match place.outlook().await.is_good() {
                true => Ok(State::Early(place)),
                false => Ok(State::Connected(place.connect(false).await?)),
            }
        };
        let state = state.await;
        waiting.over();
        Ok(Self { shared: Arc::clone(shared), server, protocol, state: state? })
    }

    /// Carries the client's bytes, after the yes. If there is no connection after an early yes, or the connection fails,
    /// the client's is reset: it never gets bytes that the server did not send.
    pub(crate) async fn run(self, mut client: ConfirmedClient) {
        let Self { shared, server, protocol, state } = self;
        let traffic = Traffic::default();
        let carried = async {
            let mut far = match state {
                State::Connected(far) => far,
                State::Early(place) => match begin(&shared, place, &mut client, &traffic).await? {
                    Some(far) => far,
                    // It is in the log already.
                    None => return Ok(false),
                },
            };
            // Behind the first flight, or behind a yes that was true.
            let first = std::mem::take(&mut client.read);
            relay(&shared, &mut client.near, &mut far, first, &traffic).await.map(|()| true)
        };
        let result: io::Result<bool> = carried.await;
        if !matches!(result, Ok(true)) {
            client.near.reset();
        }
        if matches!(result, Ok(false)) {
            return;
        }
        let Copied { up: sent, down: received } = traffic.copied();
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

/// Connects after an early yes, with what the client says first. What did not ride is left in `client.read`. `None` if the
/// server is not reached, or the client has left.
async fn begin(
    shared: &Arc<Shared>,
    place: AllowedServer,
    client: &mut ConfirmedClient,
    traffic: &Traffic,
) -> io::Result<Option<Stream>> {
    let read = std::mem::take(&mut client.read).into();
    let first = tokio::select! {
        first = FirstClientData::read(&mut client.near, read, shared.early_data) => first?,
        () = shared.stopping(Stopping::Now) => return Ok(None),
    };
    let waiting = shared.waiting(place.protocol, &place.server);
    let said = first.is_some();
    let connecting = async {
        match &first {
            Some(first) => place.connect_with(first).await,
            None => place.connect(true).await,
        }
    };
    let connected = tokio::select! {
        connected = connecting => connected,
        () = client.near.left(said) => return Ok(None),
        () = shared.stopping(Stopping::Now) => return Ok(None),
    };
    waiting.over();
    let Ok(far) = connected else { return Ok(None) };
    if let Some(first) = first {
        traffic.add_up(first.sent() as u64);
        client.read = Bytes::copy_from_slice(first.rest());
    }
    Ok(Some(far))
}
