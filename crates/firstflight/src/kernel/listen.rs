//! The kernel's listeners.

pub use firstflight_kernel::ListenConfig;

use crate::listener::Listener;
use std::io;
use std::net::SocketAddr;

/// Starts to listen. Without privileges and without an engine, but the namespace must allow Fast Open at servers
/// ([`Setting::server`](crate::kernel::Setting::server)), which Linux does not by default: it then says so in the log, once, and listens without.
///
/// The kernel has no replay guard. A first flight may be executed twice if the network duplicates its SYN: see
/// [`Stream::is_early`](crate::Stream::is_early).
///
/// # Errors
/// When the address cannot be used, or the cookie function of the keys is not Linux'.
///
/// # Panics
/// Outside a tokio runtime with I/O.
pub fn listen(local: SocketAddr, config: ListenConfig) -> io::Result<Listener> {
    let wanted = config.pending > 0;
    let listener = firstflight_kernel::Listener::bind(local, config)?;
    report(&listener, wanted);
    Ok(listener.into())
}

/// Takes a socket that listens already, as one that holds a port beside an engine on a network card. It has the filter that
/// it came with if [`ListenConfig::keep_filter`] says so.
///
/// # Errors
/// When the cookie function of the keys is not Linux', and the system's.
///
/// # Panics
/// Outside a tokio runtime with I/O.
pub fn adopt(socket: std::net::TcpListener, config: ListenConfig) -> io::Result<Listener> {
    let wanted = config.pending > 0;
    let listener = firstflight_kernel::Listener::adopt(socket, config)?;
    report(&listener, wanted);
    Ok(listener.into())
}

/// Says once if the namespace does not allow what is `wanted`.
pub(crate) fn report(listener: &firstflight_kernel::Listener, wanted: bool) {
    if wanted && !listener.grants_cookies() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            tracing::warn!(
                "this network namespace does not allow Fast Open at servers: set net.ipv4.tcp_fastopen to 3"
            );
        });
    }
}
