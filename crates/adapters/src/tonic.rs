//! tonic.

use crate::incoming::{Peer, ServerStream};
use tonic::transport::server::Connected;

/// Each request has its [`Peer`] as an extension: `request.extensions().get::<Peer>()`.
impl Connected for ServerStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer()
    }
}

/// As without TLS.
#[cfg(feature = "tls")]
impl Connected for crate::tls_incoming::TlsServerStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer()
    }
}
