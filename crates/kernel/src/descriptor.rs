//! Sockets that another part of the program made and keeps: what became of their first flights, and what Fast Open needs
//! of them. Nothing here needs a runtime, and no state is kept between two calls.
//!
//! ```no_run
//! # fn look() -> std::io::Result<()> {
//! use firstflight_kernel::descriptor;
//! let listener = std::net::TcpListener::bind("0.0.0.0:8080")?;
//! descriptor::prepare(&listener, 256, &[])?;
//! let (stream, _) = listener.accept()?;
//! println!("{}", descriptor::accepted(&stream)?.outcome);
//! # Ok(())
//! # }
//! ```

use crate::connect::{Carry, begin_on};
#[cfg(feature = "server")]
use crate::info::Arrived;
use crate::info::{ClientFail, ConnectFacts, TcpInfo};
#[cfg(feature = "server")]
use crate::listener::early_bytes;
use crate::setting::Setting;
#[cfg(feature = "server")]
use crate::syn::SynFlight;
use crate::sys;
use firstflight_credential::{Outcome, Reason};
#[cfg(feature = "server")]
use firstflight_wire::tcp::FastOpen;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;

/// What the kernel says of a connection now.
///
/// # Errors
/// The system's. [`io::ErrorKind::Unsupported`] on other systems than Linux.
pub fn info(socket: &impl sys::Handle) -> io::Result<TcpInfo> {
    Ok(TcpInfo::parse(&sys::tcp_info(socket)?))
}

/// The outcome at a client. Any code may have made the connect, with `MSG_FASTOPEN`, `TCP_FASTOPEN_CONNECT` or neither.
///
/// Only who made the connect knows what it asked for. So an accepted part is [`Outcome::Accepted`], and without any trace of
/// Fast Open the reason is [`Reason::SystemDisabled`] if the namespace switches it off ([`Setting::client`]), or else
/// [`Reason::NotRequested`]. [`Outcome::Undecided`] before the handshake is complete, and of a connection that is over.
///
/// # Errors
/// As [`info`].
pub fn connected(socket: &impl sys::Handle) -> io::Result<(Outcome, TcpInfo)> {
    let info = info(socket)?;
    let outcome = match info.client_fail {
        _ if info.syn_data => Outcome::Accepted,
        _ if !info.confirmed => Outcome::Undecided,
        ClientFail::None => {
            let off = Setting::read().is_ok_and(|setting| !setting.client);
            Outcome::Handshake(if off { Reason::SystemDisabled } else { Reason::NotRequested })
        }
        _ => ConnectFacts::Given { given: 1, taken: 1 }.outcome(&info),
    };
    Ok((outcome, info))
}

/// Sends a SYN to `remote` on a socket that is not connected. If the socket blocks, so does this, until the handshake is
/// complete. Returns what was asked of the kernel: the caller sends the data from [`ConnectFacts::taken`] on.
///
/// # Errors
/// The system's. A connect that goes on is no error.
pub fn connect_on(
    socket: &impl sys::Handle,
    remote: SocketAddr,
    carry: Carry<'_>,
) -> io::Result<ConnectFacts> {
    begin_on(&SockRef::from(socket), remote, carry)
}

/// What became of the first flight of a connection that a listener returned. Call it once, soon after the accept: the kernel
/// gives the headers of a SYN once, and without them early bytes and reasons are less exact. It keeps them only if the
/// listener was [prepared](prepare).
///
/// Only the listener's owner knows its keys and its queue. So [`Reason::StaleOrWrongCredential`] stands for a full queue, and
/// for a listener without Fast Open, too.
///
/// # Errors
/// As [`info`].
#[cfg(feature = "server")]
pub fn accepted(socket: &impl sys::Handle) -> io::Result<Arrived> {
    let info = info(socket)?;
    let saved = sys::saved_syn(socket);
    let asked = saved.as_ref().ok().and_then(SynFlight::of);
    if info.syn_data {
        let early = early_bytes(asked.as_ref(), &info);
        return Ok(Arrived { outcome: Outcome::Accepted, early, info });
    }
    let reason = match asked {
        None => Reason::Unknown,
        Some(SynFlight { option: None, .. }) => Reason::NotRequested,
        Some(_) if Setting::read().is_ok_and(|setting| !setting.server) => Reason::SystemDisabled,
        Some(SynFlight { option: Some(FastOpen::Request(_)), .. }) => Reason::NoCredential,
        Some(SynFlight { data: 0, .. }) => Reason::NoData,
        Some(_) => Reason::StaleOrWrongCredential,
    };
    Ok(Arrived { outcome: Outcome::Handshake(reason), early: 0, info })
}

/// Lets a listening socket, before or after it listens, grant cookies and take data in SYNs of clients that have one. At most
/// `queue` such connections wait for their ACK at one time; 0 switches Fast Open off. `keys` are those of the cookies: 16
/// bytes, or 32 with a backup, or none for the namespace's. Returns whether the namespace lets listeners grant cookies
/// ([`Setting::server`]).
///
/// # Errors
/// The system's: `EINVAL` for keys of another length.
#[cfg(feature = "server")]
pub fn prepare(socket: &impl sys::Handle, queue: u32, keys: &[u8]) -> io::Result<bool> {
    if !keys.is_empty() {
        // The keys come first: with others, a SYN would get a cookie that is worth nothing later.
        set_keys(socket, keys)?;
    }
    sys::fast_open_queue(socket, queue)?;
    // Without the SYNs' headers the reasons are less exact.
    let _ = sys::save_syns(socket);
    Ok(Setting::read().map_or(true, |setting| setting.server))
}

/// Replaces the keys of a listening socket's cookies, from the next SYN on: 16 bytes, or 32 with a backup.
///
/// # Errors
/// The system's: `EINVAL` for keys of another length.
#[cfg(feature = "server")]
pub fn set_keys(socket: &impl sys::Handle, keys: &[u8]) -> io::Result<()> {
    sys::set_keys(socket, keys)
}
