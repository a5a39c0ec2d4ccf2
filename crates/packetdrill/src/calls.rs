//! Calls that open and close: `socket`, `bind`, `listen`, `accept`, `connect`, `shutdown`, `close`, `fcntl`, `ioctl`.
//!
//! Each call is one attempt. If it would block, it returns `EAGAIN`, and [`crate::abi`] repeats it.

use crate::settings::{CLIENT, CLIENT_NO_COOKIE, Options, tcp_config};
use crate::socket::{Kind, Socket, errno};
use crate::world::{Descriptor, World};
use firstflight_stack::{ConnId, ConnectConfig, ConnectError, ListenConfig, ListenError, StateName};
use libc::{
    AF_INET, AF_INET6, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EALREADY, EDESTADDRREQ, EINPROGRESS,
    EINVAL, EISCONN, ENETUNREACH, ENOTCONN, EOPNOTSUPP, EPROTONOSUPPORT, ESOCKTNOSUPPORT, SHUT_RD, SHUT_RDWR,
    SHUT_WR, SOCK_NONBLOCK, SOCK_STREAM, c_int,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The port if a script calls `listen` without `bind`.
const PORT: u16 = 8080;

impl World {
    /// Makes a socket for the descriptor `fd`.
    pub(crate) fn make_socket(
        &mut self,
        fd: c_int,
        domain: c_int,
        kind: c_int,
        protocol: c_int,
    ) -> Result<(), c_int> {
        if domain != AF_INET && domain != AF_INET6 {
            return Err(EAFNOSUPPORT);
        }
        if kind & 0xf != SOCK_STREAM {
            return Err(ESOCKTNOSUPPORT);
        }
        if protocol != 0 && protocol != libc::IPPROTO_TCP {
            return Err(EPROTONOSUPPORT);
        }
        let nonblocking = kind & SOCK_NONBLOCK != 0;
        let socket = Socket::new(domain == AF_INET6, nonblocking, Kind::Fresh, Options::default());
        self.insert(fd, Descriptor::Socket(Box::new(socket)));
        Ok(())
    }

    pub(crate) fn bind(&mut self, fd: c_int, address: SocketAddr) -> Result<(), c_int> {
        let socket = self.socket_mut(fd)?;
        if socket.kind != Kind::Fresh || socket.local.is_some() {
            return Err(EINVAL);
        }
        socket.local = Some(address);
        Ok(())
    }

    pub(crate) fn listen(&mut self, fd: c_int, backlog: usize) -> Result<(), c_int> {
        self.follow_sysctl();
        let socket = self.socket(fd)?;
        if let Kind::Listener { id, .. } = socket.kind {
            // A repeated `listen` only changes the backlog.
            self.socket_mut(fd)?.kind = Kind::Listener { id, backlog };
            self.set_fast_open(id);
            return Ok(());
        }
        if socket.kind != Kind::Fresh {
            return Err(EINVAL);
        }
        let any: IpAddr = if socket.v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let mut config = ListenConfig::new(socket.local.unwrap_or(SocketAddr::new(any, PORT)));
        let options = socket.options.clone();
        // The kernel considers a queue full when it holds more than the backlog.
        config.backlog = backlog + 1;
        if self.sysctl.syn_cookies == 2 {
            config.syn_backlog = 0;
        }
        config.fast_open = self.fast_open_policy(&options, backlog);
        config.tcp = Some(Arc::new(tcp_config(&self.sysctl, &options, &self.flags)));
        let id = self.stack.listen(config).map_err(|error| match error {
            ListenError::AddressInUse => EADDRINUSE,
            ListenError::AddressNotOurs => EADDRNOTAVAIL,
            _ => EINVAL,
        })?;
        self.socket_mut(fd)?.kind = Kind::Listener { id, backlog };
        Ok(())
    }

    /// `accept`: the next connection, for the descriptor that `make` creates.
    pub(crate) fn accept(
        &mut self,
        fd: c_int,
        flags: c_int,
        make: impl FnOnce() -> Result<c_int, c_int>,
    ) -> Result<(c_int, SocketAddr, bool), c_int> {
        let socket = self.socket(fd)?;
        let Kind::Listener { id: listener, .. } = socket.kind else { return Err(EINVAL) };
        let (v6, options) = (socket.v6, socket.options.clone());
        let id = self.stack.accept(listener).ok_or(EAGAIN)?;
        let info = self.stack.info(id).ok_or(EAGAIN)?;
        let kind = Kind::Connection { id, connected: info.confirmed, over: false };
        let mut child = Socket::new(v6, flags & SOCK_NONBLOCK != 0, kind, options);
        child.local = Some(info.local);
        child.heard_at = Some(self.micros());
        let made = make()?;
        self.insert(made, Descriptor::Socket(Box::new(child)));
        self.expand(id);
        Ok((made, info.remote, v6))
    }

    /// `connect`, or the connecting part of a `sendto` with MSG_FASTOPEN. `data` may ride in the SYN. Returns how
    /// much of it was taken.
    pub(crate) fn connect(
        &mut self,
        fd: c_int,
        remote: SocketAddr,
        first: SynData<'_>,
    ) -> Result<usize, c_int> {
        self.follow_sysctl();
        self.settle(fd)?;
        let socket = self.socket_mut(fd)?;
        match &socket.kind {
            Kind::Fresh => {}
            Kind::Deferred { .. } if matches!(first, SynData::None) => return Err(EISCONN),
            Kind::Deferred { .. } => {}
            Kind::Connection { connected: true, .. } | Kind::Listener { .. } => return Err(EISCONN),
            Kind::Connection { .. } => {
                socket.take_error()?;
                return Err(EALREADY);
            }
        }
        let bits = self.sysctl.fast_open;
        let socket = self.socket(fd)?;
        let options = socket.options.clone();
        let free = bits & CLIENT_NO_COOKIE != 0 || options.no_cookie;
        let known = free || self.knows_cookie(remote.ip());
        let fast = match first {
            SynData::None => options.fast_open_connect,
            SynData::Data(_) => true,
        };
        if matches!(first, SynData::None) && fast && known && bits & CLIENT != 0 {
            self.socket_mut(fd)?.kind = Kind::Deferred { remote };
            return Ok(0);
        }
        let data = match first {
            // Without a cookie no data rides in the SYN, and the kernel takes none.
            SynData::Data(data) if known => data,
            _ => &[],
        };
        let tcp = Arc::new(tcp_config(&self.sysctl, &options, &self.flags));
        let room = self.first_flight_room(remote.ip(), free, tcp.largest_segment());
        let data = data.get(..data.len().min(room)).unwrap_or_default();
        let config = ConnectConfig::default()
            .fast_open(fast)
            .no_cookie(fast && free)
            .syn_timeout(self.flags.as_linux.then_some(Duration::from_secs(1)))
            .local(socket.local)
            .tcp(Some(tcp));
        let now = self.now();
        let (id, taken) = self.stack.connect(remote, data, &config, now).map_err(|error| match error {
            ConnectError::NoAddress => ENETUNREACH,
            ConnectError::LocalInUse => EADDRINUSE,
            _ => EADDRNOTAVAIL,
        })?;
        let begin = self.micros();
        let socket = self.socket_mut(fd)?;
        socket.kind = Kind::Connection { id, connected: false, over: false };
        (socket.error, socket.heard_at, socket.client) = (None, Some(begin), true);
        Ok(taken)
    }

    /// `connect` to `AF_UNSPEC`: gives the connection up; the socket can connect again.
    pub(crate) fn disconnect(&mut self, fd: c_int) -> Result<(), c_int> {
        let now = self.now();
        let socket = self.socket_mut(fd)?;
        let was = std::mem::replace(&mut socket.kind, Kind::Fresh);
        (socket.error, socket.read_closed, socket.write_closed) = (None, false, false);
        if !socket.client {
            // An accepted socket was never bound.
            socket.local = None;
        }
        match was {
            Kind::Connection { id, .. } => {
                self.stack.abort(id, now);
                self.stack.release(id, now);
            }
            Kind::Listener { id, .. } => self.stack.unlisten(id, now),
            Kind::Fresh | Kind::Deferred { .. } => {}
        }
        Ok(())
    }

    /// Whether data would ride in a SYN to this server.
    fn knows_cookie(&self, server: IpAddr) -> bool {
        let network = self.stack.config().network;
        let mut known = self.stack.credentials().iter();
        known.any(|(on, ip, entry)| on == network && ip == server && entry.cookie().is_some())
    }

    /// How much data rides in a SYN to this server.
    fn first_flight_room(&self, server: IpAddr, free: bool, own: u16) -> usize {
        let network = self.stack.config().network;
        let mut known = self.stack.credentials().iter();
        let mss =
            known.find(|(on, ip, _)| *on == network && *ip == server).and_then(|(_, _, entry)| entry.mss);
        let unknown = if free { own } else { 536 };
        usize::from(mss.unwrap_or(unknown).min(own)).saturating_sub(40)
    }

    /// The state of a connect: done, under way (`EINPROGRESS`), or failed.
    pub(crate) fn connected(&mut self, fd: c_int) -> Result<(), c_int> {
        self.settle(fd)?;
        let socket = self.socket_mut(fd)?;
        match socket.kind {
            Kind::Connection { connected: true, .. } | Kind::Deferred { .. } => Ok(()),
            Kind::Connection { over: false, .. } => Err(EINPROGRESS),
            _ => {
                socket.take_error()?;
                Err(ENOTCONN)
            }
        }
    }

    /// Records the state of a socket's connection: complete, or over and why.
    pub(crate) fn settle(&mut self, fd: c_int) -> Result<(), c_int> {
        let Kind::Connection { id, .. } = self.socket(fd)?.kind else { return Ok(()) };
        let machine = self.machine(id);
        let confirmed = machine.is_some_and(|m| m.is_confirmed());
        let half_closed = machine.is_some_and(|m| m.peer_closed());
        let reason = self.stack.close_reason(id);
        let socket = self.socket_mut(fd)?;
        let Kind::Connection { connected, over, .. } = &mut socket.kind else { return Ok(()) };
        *connected |= confirmed;
        if let Some(reason) = reason
            && !*over
        {
            *over = true;
            socket.error = errno(reason, half_closed);
        }
        Ok(())
    }

    /// The connection of a socket.
    /// Errors: `ENOTCONN`.
    pub(crate) fn connection_of(&self, fd: c_int) -> Result<ConnId, c_int> {
        self.socket(fd)?.connection().ok_or(ENOTCONN)
    }

    pub(crate) fn shutdown(&mut self, fd: c_int, how: c_int) -> Result<(), c_int> {
        self.settle(fd)?;
        if ![SHUT_RD, SHUT_WR, SHUT_RDWR].contains(&how) {
            return Err(EINVAL);
        }
        let now = self.now();
        let socket = self.socket(fd)?;
        match socket.kind {
            Kind::Listener { id, .. } if how != SHUT_WR => {
                self.stack.unlisten(id, now);
                self.socket_mut(fd)?.kind = Kind::Fresh;
                return Ok(());
            }
            Kind::Connection { .. } => {}
            _ => return Err(ENOTCONN),
        }
        let id = self.connection_of(fd)?;
        let state = self.machine(id).map(|m| m.state());
        if matches!(state, None | Some(StateName::Closed | StateName::TimeWait)) {
            return Err(ENOTCONN);
        }
        let socket = self.socket_mut(fd)?;
        socket.read_closed |= how != SHUT_WR;
        if how != SHUT_RD {
            socket.write_closed = true;
            if state == Some(StateName::SynSent) {
                self.stack.abort(id, now);
            } else {
                let _ = self.stack.shutdown(id, now);
            }
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, fd: c_int) -> Result<(), c_int> {
        let now = self.now();
        let descriptor = self.remove(fd).ok_or(libc::EBADF)?;
        let Descriptor::Socket(socket) = descriptor else { return Ok(()) };
        match socket.kind {
            Kind::Listener { id, .. } => self.stack.unlisten(id, now),
            Kind::Connection { id, .. } if socket.options.linger == Some(Duration::ZERO) => {
                self.stack.abort(id, now);
                self.stack.release(id, now);
            }
            Kind::Connection { id, .. } => self.stack.release(id, now),
            _ => {}
        }
        Ok(())
    }

    /// `fcntl` for the command that scripts use: the flags.
    pub(crate) fn fcntl(&mut self, fd: c_int, command: c_int, argument: u64) -> Result<c_int, c_int> {
        let socket = self.socket_mut(fd)?;
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if socket.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                socket.nonblocking = argument & libc::O_NONBLOCK as u64 != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Ok(0),
            _ => Err(EINVAL),
        }
    }

    /// `ioctl`: SIOCINQ, SIOCOUTQ and SIOCOUTQNSD.
    pub(crate) fn ioctl(&mut self, fd: c_int, request: u64) -> Result<c_int, c_int> {
        const SIOCINQ: u64 = 0x541b;
        const SIOCOUTQ: u64 = 0x5411;
        const SIOCOUTQNSD: u64 = 0x894b;
        let socket = self.socket(fd)?;
        let Kind::Connection { id, .. } = socket.kind else {
            return if matches!(socket.kind, Kind::Listener { .. }) { Err(EINVAL) } else { Ok(0) };
        };
        let Some(machine) = self.machine(id) else { return Ok(0) };
        match request {
            SIOCINQ => Ok(machine.readable() as c_int),
            SIOCOUTQ => Ok(machine.unacknowledged() as c_int),
            SIOCOUTQNSD => Ok(machine.unsent() as c_int),
            _ => Err(libc::ENOTTY),
        }
    }

    /// The address of a deferred connect, which a `sendto` without an address uses.
    pub(crate) fn deferred(&self, fd: c_int) -> Result<Option<SocketAddr>, c_int> {
        match self.socket(fd)?.kind {
            Kind::Deferred { remote } => Ok(Some(remote)),
            _ => Ok(None),
        }
    }

    /// Whether MSG_FASTOPEN can be used now, and the address to connect to; `None` if the connection is open.
    pub(crate) fn fast_open_to(
        &mut self,
        fd: c_int,
        to: Option<SocketAddr>,
    ) -> Result<Option<SocketAddr>, c_int> {
        self.follow_sysctl();
        if self.sysctl.fast_open & CLIENT == 0 {
            return Err(EOPNOTSUPP);
        }
        match &self.socket(fd)?.kind {
            Kind::Connection { connected: false, .. } => return Err(EALREADY),
            // MSG_FASTOPEN is then ignored.
            Kind::Connection { .. } => return Ok(None),
            _ => {}
        }
        to.map(Some).ok_or(EDESTADDRREQ)
    }
}

/// The data that a connect may send in its SYN.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SynData<'a> {
    /// None: the call is a `connect`.
    None,
    /// Data of a `sendto` with MSG_FASTOPEN, or of the first write after a deferred connect.
    Data(&'a [u8]),
}
