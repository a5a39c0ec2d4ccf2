//! Listening sockets with Fast Open.

use crate::info::TcpInfo;
use crate::setting::Setting;
use crate::stream::Stream;
#[cfg(target_os = "linux")]
use crate::stream::set_keep_alive;
use crate::syn::SynFlight;
use crate::sys;
use firstflight_credential::{Check, KeyRing, Outcome, Reason};
use firstflight_wire::setters;
use firstflight_wire::tcp::FastOpen;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use zeroize::Zeroizing;

/// Settings of a [`Listener`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ListenConfig {
    /// How many connections with data in the SYN may wait for their ACK at one time. 0 switches Fast Open off. The
    /// default is 256.
    pub pending: u32,
    /// How many connections may wait to be accepted. The default is 4,096; the kernel takes at most
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// The keys of the cookies. Without keys the kernel uses those of the namespace. All listeners of a port, and all
    /// servers of a farm, need the same. Linux uses the first backup of a ring and ignores further ones.
    pub keys: Option<Arc<KeyRing>>,
    /// Several listeners may share the port (`SO_REUSEPORT`).
    pub share_port: bool,
    /// A connection is reset when its peer has acknowledged nothing of waiting data for this long
    /// (`TCP_USER_TIMEOUT`). The default is the system's, many minutes.
    pub user_timeout: Option<Duration>,
    /// A connection on which nothing has come for this long is asked whether its peer is still there, and is reset when
    /// four questions, each a quarter of this time apart, have no answer (`SO_KEEPALIVE`). The default is never.
    pub keep_alive: Option<Duration>,
    /// A socket that is [adopted](Listener::adopt) keeps its filter. [`Listener::drain`] still replaces it.
    pub keep_filter: bool,
}

setters! {
    ListenConfig {
        pending: u32,
        backlog: u32,
        keys: Option<Arc<KeyRing>>,
        share_port: bool,
        user_timeout: Option<Duration>,
        keep_alive: Option<Duration>,
        keep_filter: bool,
    }
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            pending: 256,
            backlog: 4096,
            keys: None,
            share_port: false,
            user_timeout: None,
            keep_alive: None,
            keep_filter: false,
        }
    }
}

/// A listening socket of the kernel. Closing it resets the connections that were not accepted: see
/// [`Listener::drain`].
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    local: SocketAddr,
    grants: Grants,
    keys: Mutex<Option<Arc<KeyRing>>>,
    /// Another process may have the socket, too.
    adopted: Option<Arc<std::net::TcpListener>>,
    /// The listener leaves the socket's packet filter in place.
    keep_filter: bool,
    /// The queue of Fast Open before a drain.
    drained: OnceLock<u32>,
}

/// Whether cookies are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grants {
    Yes,
    /// The listener's configuration says no.
    NotWanted,
    /// The namespace's setting says no.
    Disabled,
}

impl Listener {
    /// Starts to listen at `local`. An IPv6 address does not serve IPv4.
    ///
    /// If the namespace does not allow Fast Open at servers ([`Setting::server`]), it listens without.
    /// [`Listener::grants_cookies`] tells.
    ///
    /// # Errors
    /// When the address cannot be used, or the cookie function of the keys is not Linux'.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn bind(local: SocketAddr, config: ListenConfig) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(local), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        if config.share_port {
            share_port(&socket)?;
        }
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&local.into())?;
        let grants = prepare(&socket, &config)?;
        socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
        Self::with(TcpListener::from_std(socket.into())?, config, grants, None)
    }

    /// Takes a socket that listens already, as a service manager passes it. The listener keeps it as long as it lives. A caller
    /// that has a clone of the [`Arc`] can count the references, and so learn whether the socket is in use.
    ///
    /// # Errors
    /// When the cookie function of the keys is not Linux', and the system's.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub fn adopt(socket: impl Into<Arc<std::net::TcpListener>>, config: ListenConfig) -> io::Result<Self> {
        let owner = socket.into();
        let socket = owner.try_clone()?;
        socket.set_nonblocking(true)?;
        if !config.keep_filter {
            // An earlier owner may have been killed while it drained.
            detach_filter(&socket);
        }
        let grants = prepare(&socket, &config)?;
        Self::with(TcpListener::from_std(socket)?, config, grants, Some(owner))
    }

    fn with(
        tcp: TcpListener,
        config: ListenConfig,
        grants: Grants,
        adopted: Option<Arc<std::net::TcpListener>>,
    ) -> io::Result<Self> {
        let local = tcp.local_addr()?;
        let (keys, keep_filter) = (Mutex::new(config.keys), config.keep_filter);
        Ok(Self { tcp, local, grants, keys, adopted, keep_filter, drained: OnceLock::new() })
    }

    /// Whether clients get cookies, and SYNs with cookies may carry data. If not, the listener was configured so, or the
    /// namespace does not allow it ([`Setting::server`]).
    #[must_use]
    pub fn grants_cookies(&self) -> bool {
        self.grants == Grants::Yes
    }

    /// Replaces the keys of the cookies, from the next SYN on. To lose no cookie, give all listeners of a farm the new
    /// key as backup first.
    ///
    /// # Errors
    /// When the cookie function of the keys is not Linux', and the system's.
    pub fn set_keys(&self, keys: Arc<KeyRing>) -> io::Result<()> {
        sys::set_keys(&self.tcp, &for_linux(&keys)?)?;
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
        Ok(())
    }

    /// Stops: from now on no handshake completes, and no data in a SYN is taken. Then accept until [`Listener::try_accept`]
    /// returns nothing, and drop the listener: no connection is lost whose data was acknowledged. Clients that begin
    /// in between send their SYN again, and are refused when the listener is gone.
    ///
    /// # Errors
    /// The system's.
    pub fn drain(&self) -> io::Result<()> {
        if let Ok(most) = sys::fast_open_queue_of(&self.tcp) {
            // The first drain counts.
            let _ = self.drained.set(most);
        }
        sys::fast_open_queue(&self.tcp, 0)?;
        #[cfg(target_os = "linux")]
        {
            // A filter of one instruction, which returns a length of zero: it drops what comes for the listener.
            // Connections that were accepted, or wait to be, are sockets of their own.
            let nothing = socket2::SockFilter::new(DROP, 0, 0, 0);
            match socket2::SockRef::from(&self.tcp).attach_filter(&[nothing]) {
                // Not every system lets a process without privileges attach one. Then a client whose handshake completes
                // between the last accept and the end of the listener is reset, as by servers without a drain.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Returns the next connection. A connection whose SYN carried accepted data is returned before its handshake is
    /// complete: see [`Stream::is_early`].
    ///
    /// # Errors
    /// The system's: too many open files, for example. The listener goes on.
    pub async fn accept(&self) -> io::Result<Stream> {
        let (tcp, remote) = self.tcp.accept().await?;
        Ok(self.stream(tcp, remote))
    }

    /// Poll version of [`Listener::accept`]. Poll it from one task at a time.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let (tcp, remote) = ready!(self.tcp.poll_accept(cx))?;
        Poll::Ready(Ok(self.stream(tcp, remote)))
    }

    /// The next connection, if one waits. It asks the system, which may know of one that the event loop has not seen
    /// yet.
    ///
    /// # Errors
    /// The system's.
    pub fn try_accept(&self) -> io::Result<Option<Stream>> {
        match socket2::SockRef::from(&self.tcp).accept() {
            Ok((socket, remote)) => {
                socket.set_nonblocking(true)?;
                let remote = remote.as_socket().ok_or(io::ErrorKind::InvalidData)?;
                let tcp = TcpStream::from_std(socket.into())?;
                Ok(Some(self.stream(tcp, remote)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn stream(&self, tcp: TcpStream, remote: SocketAddr) -> Stream {
        let saved = sys::saved_syn(&tcp);
        let asked = saved.as_ref().ok().and_then(SynFlight::of);
        let info = sys::tcp_info(&tcp).ok().map(|info| TcpInfo::parse(&info)).filter(|info| info.syn_data);
        let Some(info) = info else {
            let reason = match saved {
                // The kernel keeps every SYN of a socket that listens so from the beginning, but for SYN cookies.
                Ok((_, 0)) if self.adopted.is_none() => Reason::SynCookie,
                Ok(_) if asked.is_none() => Reason::Unknown,
                _ => self.reason(asked),
            };
            return Stream::accepted(tcp, remote, Outcome::Handshake(reason), 0);
        };
        let early = early_bytes(asked.as_ref(), &info);
        Stream::accepted(tcp, remote, Outcome::Accepted, early)
    }

    /// Why the data of a SYN was not accepted.
    fn reason(&self, asked: Option<SynFlight>) -> Reason {
        let Some(SynFlight { flow, option, data }) = asked else { return Reason::NotRequested };
        let cookie = match (option, self.grants) {
            (None, _) => return Reason::NotRequested,
            (_, Grants::NotWanted) => return Reason::Policy,
            (_, Grants::Disabled) => return Reason::SystemDisabled,
            (Some(FastOpen::Request(_)), _) => return Reason::NoCredential,
            (Some(FastOpen::Cookie(_, cookie)), _) => cookie,
        };
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.as_ref().map(|keys| keys.check(&flow, &cookie)) {
            _ if data == 0 => Reason::NoData,
            // Linux has one limit, and it is reached.
            Some(Check::Primary | Check::Backup) => Reason::PendingLimit,
            Some(Check::No) | None => Reason::StaleOrWrongCredential,
        }
    }
}

/// How many bytes of an accepted first flight the SYN had.
pub(crate) fn early_bytes(asked: Option<&SynFlight>, info: &TcpInfo) -> u32 {
    // The headers of a SYN may not have been kept, or not be understood. What has arrived by now is then early.
    let arrived = u32::try_from(info.received).unwrap_or(u32::MAX).max(1);
    asked.map(|asked| asked.data).filter(|data| *data > 0).unwrap_or(arrived)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.adopted.is_some() {
            // The service manager may pass the socket to another process, or has. That process must get new connections,
            // and the data in their SYNs.
            if let Some(most) = self.drained.get() {
                let _ = sys::fast_open_queue(&self.tcp, *most);
            }
            if !self.keep_filter {
                detach_filter(&self.tcp);
            }
        }
    }
}

/// Takes away the filter of [`Listener::drain`], if there is one.
fn detach_filter(socket: &impl sys::Handle) {
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(socket).detach_filter();
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
}

/// BPF_RET | BPF_K (`linux/bpf_common.h`).
#[cfg(target_os = "linux")]
const DROP: u16 = 0x06;

/// Sets what Fast Open needs.
fn prepare(socket: &impl sys::Handle, config: &ListenConfig) -> io::Result<Grants> {
    if let Some(keys) = &config.keys {
        // The keys come first: with others, a SYN would get a cookie that is worth nothing later.
        sys::set_keys(socket, &for_linux(keys)?)?;
    }
    // Without /proc nothing is known, and the kernel does what its setting says.
    let allowed = Setting::read().map_or(true, |setting| setting.server);
    let grants = match (config.pending, sys::fast_open_queue(socket, config.pending)) {
        (0, _) => Grants::NotWanted,
        (_, Ok(())) if allowed => Grants::Yes,
        _ => Grants::Disabled,
    };
    #[cfg(target_os = "linux")]
    if config.user_timeout.is_some() {
        // Connections inherit it.
        socket2::SockRef::from(socket).set_tcp_user_timeout(config.user_timeout)?;
    }
    #[cfg(target_os = "linux")]
    if config.keep_alive.is_some() {
        set_keep_alive(&socket2::SockRef::from(socket), config.keep_alive)?;
    }
    // Without the SYNs' headers the reasons are less exact.
    let _ = sys::save_syns(socket);
    Ok(grants)
}

fn for_linux(keys: &KeyRing) -> io::Result<Zeroizing<Vec<u8>>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "the kernel has Linux' cookie function only");
    keys.to_linux().ok_or_else(wrong)
}

#[cfg(unix)]
fn share_port(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

#[cfg(not(unix))]
fn share_port(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
