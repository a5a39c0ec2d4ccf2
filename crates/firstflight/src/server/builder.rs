//! Settings of a server.

use super::{Server, inherited, udp};
use crate::credential::KeyRing;
use crate::kernel::listen::report;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// First flights that may wait for their client's ACK.
const PENDING: u32 = 256;

/// Settings of a [`Server`].
///
/// ```no_run
/// # async fn serve(trust: std::sync::Arc<firstflight::credential::asap::TrustStore>) -> std::io::Result<()> {
/// let server = firstflight::Server::builder()
///     .address("0.0.0.0:443".parse().unwrap())
///     .udp_port(4433)
///     .trust(trust)
///     .identity("www.example.com")
///     .bind()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct ServerBuilder {
    addresses: Vec<SocketAddr>,
    pub(super) keys: Option<Arc<KeyRing>>,
    pub(super) pending: u32,
    backlog: u32,
    pub(super) share_port: bool,
    send_timeout: Option<Duration>,
    keep_alive: Option<Duration>,
    in_stages: bool,
    pub(super) udp: udp::Settings,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            keys: None,
            pending: PENDING,
            backlog: crate::ListenConfig::BACKLOG as u32,
            share_port: false,
            send_timeout: None,
            keep_alive: None,
            in_stages: true,
            udp: udp::Settings::default(),
        }
    }
}

impl ServerBuilder {
    /// Listens at this address; call it again for further ones, all with one port. `0.0.0.0` is every IPv4 address, and
    /// `[::]` every IPv6 address.
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// The keys of the cookies. All servers at one address need the same, on all ports: clients keep one cookie for an
    /// address. Without them the kernel uses the namespace's, which last until the machine restarts, and UDP has new ones
    /// at each start. Linux uses the first backup of a ring, and only Linux' cookie function.
    pub fn keys(mut self, keys: Arc<KeyRing>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// How many first flights may wait for their client's ACK, on the kernel's TCP and in UDP. 0 switches Fast Open off.
    /// The default is 256.
    pub const fn pending(mut self, pending: u32) -> Self {
        self.pending = pending;
        self
    }

    /// How many connections may wait to be accepted.
    pub const fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog;
        self
    }

    /// The kernel's TCP: resets a connection whose peer has acknowledged nothing of waiting data for this long. The default
    /// is the system's, many minutes. The engine's is in its settings.
    pub const fn send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = Some(timeout);
        self
    }

    /// The kernel's TCP: asks a peer from which nothing has come for this long whether it is still there, and resets the
    /// connection when four questions, each a quarter of this time apart, have no answer. The default is never. The engine's
    /// is in its settings.
    pub const fn keep_alive(mut self, after: Duration) -> Self {
        self.keep_alive = Some(after);
        self
    }

    /// Whether streams that are dropped before their client has closed end in stages: first the sending direction, and the
    /// rest when the client closes, sends nothing for five seconds, or after thirty ([`Lingering`](crate::Lingering)). At most 256
    /// connections at a time do; further ones close at once. The default is true. Programs that count their connections
    /// close them themselves, and say false. [`Stream::lingering`](crate::Stream::lingering) and
    /// [`Stream::abort`](crate::Stream::abort) end one stream in another way.
    pub const fn in_stages(mut self, in_stages: bool) -> Self {
        self.in_stages = in_stages;
        self
    }

    /// Several servers may share the TCP port (`SO_REUSEPORT`), with the same keys. UDP is then off, unless
    /// [`ServerBuilder::udp_port`] names a port of this server's own.
    pub const fn share_port(mut self, share: bool) -> Self {
        self.share_port = share;
        self
    }

    /// Starts to listen.
    ///
    /// If the namespace does not allow Fast Open at servers, this is logged once, and the kernel's TCP is served without
    /// ([`Server::grants_cookies`]). If the UDP port belongs to another program, this is logged, and TCP alone is served
    /// ([`Server::udp_port`]).
    ///
    /// # Errors
    /// When there is no address, an address cannot be used, an identity is not a host name, or the system has no random
    /// numbers.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub fn bind(self) -> io::Result<Server> {
        self.bind_by(crate::Endpoint::new)
    }

    pub(super) fn bind_by(
        mut self,
        start: impl FnOnce(crate::Config, Box<dyn firstflight_link::Link>) -> crate::Endpoint,
    ) -> io::Result<Server> {
        let listeners = self.listen_by_kernel()?;
        let in_udp = udp::serve(&self, &self.addresses, start)?;
        Ok(Server::new(listeners, in_udp, self.in_stages))
    }

    /// The kernel's listeners. Their addresses then have the port that the system chose.
    fn listen_by_kernel(&mut self) -> io::Result<Vec<firstflight_kernel::Listener>> {
        let Some(&first) = self.addresses.first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "name an address to listen at"));
        };
        let mut listeners = Vec::new();
        let mut port = first.port();
        for address in &mut self.addresses {
            if !matches!(address.port(), 0) && address.port() != port {
                let text = format!("{address} has another port than {first}: all addresses need the same");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            // The port that the system chose is the same for all.
            let mut at = *address;
            at.set_port(port);
            let named = |error: io::Error| io::Error::new(error.kind(), format!("TCP {at}: {error}"));
            let config = firstflight_kernel::ListenConfig::default()
                .pending(self.pending)
                .backlog(self.backlog)
                .keys(self.keys.clone())
                .share_port(self.share_port)
                .user_timeout(self.send_timeout)
                .keep_alive(self.keep_alive);
            let listener = match inherited::tcp(at) {
                Some(listener) => firstflight_kernel::Listener::adopt(listener, config),
                None => firstflight_kernel::Listener::bind(at, config),
            };
            let listener = listener.map_err(named)?;
            report(&listener, self.pending > 0);
            port = listener.local_addr().port();
            *address = listener.local_addr();
            listeners.push(listener);
        }
        Ok(listeners)
    }
}
