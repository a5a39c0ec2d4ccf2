//! axum.

use crate::incoming::{Accept, Incoming, Peer, ServerStream};
#[cfg(feature = "tls")]
use crate::tls_incoming::{TlsIncoming, TlsServerStream};
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
        let addr = address(&stream.peer());
        (stream, addr)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener().local_addr()
    }
}

fn address(peer: &Peer) -> SocketAddr {
    peer.addr().unwrap_or_else(|| SocketAddr::from(([0; 4], 0)))
}

/// For `into_make_service_with_connect_info::<Peer>()`. Handlers then take `ConnectInfo<Peer>`.
impl<A: Accept> Connected<IncomingStream<'_, Incoming<A>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Incoming<A>>) -> Self {
        stream.io().peer()
    }
}

/// The address of a connection is as that of one without TLS.
#[cfg(feature = "tls")]
impl<A: Accept> Listener for TlsIncoming<A> {
    type Io = TlsServerStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let stream = self.accept().await;
        let addr = address(&stream.peer());
        (stream, addr)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener().local_addr()
    }
}

/// As without TLS.
#[cfg(feature = "tls")]
impl<A: Accept> Connected<IncomingStream<'_, TlsIncoming<A>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsIncoming<A>>) -> Self {
        stream.io().peer()
    }
}
