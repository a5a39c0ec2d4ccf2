//! axum.

use crate::incoming::{Accept, Incoming, Peer, ServerStream};
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::net::SocketAddr;

/// The address of an accepted connection is that of the client. If the connection was over before the address was known,
/// it is the unspecified one.
impl<A: Accept> Listener for Incoming<A> {
    type Io = ServerStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let stream = self.accept().await;
        let addr = stream.peer().addr();
        (stream, addr.unwrap_or_else(|| SocketAddr::from(([0; 4], 0))))
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener().local_addr()
    }
}

/// For `into_make_service_with_connect_info::<Peer>()`. Handlers then take `ConnectInfo<Peer>`.
impl<A: Accept> Connected<IncomingStream<'_, Incoming<A>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Incoming<A>>) -> Self {
        stream.io().peer()
    }
}
