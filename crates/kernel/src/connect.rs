//! Connects with data in the SYN.
//!
//! A socket is registered with the event loop only when its SYN has left. An unconnected socket reports that it is
//! closed, which tokio never forgets.

use crate::info::{ConnectFacts, TcpInfo};
use crate::stream::Stream;
use crate::sys;
use firstflight_credential::{Outcome, Reason};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// What the SYN of a connect is to carry.
#[derive(Debug, Clone, Copy)]
pub enum Carry<'a> {
    /// An ordinary handshake, for this reason.
    Nothing(Reason),
    /// A request for a cookie. Data is kept back, for this reason.
    Request(Reason),
    /// This data if the kernel has a cookie, or else a request for one. The server may execute the data twice if the
    /// network duplicates the SYN (RFC 7413 §6.1).
    Data(&'a [u8]),
    /// This data, without a cookie and without an option. Servers ignore it, unless they need no cookies. It shows
    /// whether a path drops SYNs with data. The server may execute the data twice, as with [`Carry::Data`].
    WithoutCookie(&'a [u8]),
}

/// A connect whose SYN has left.
#[derive(Debug)]
pub struct Attempt {
    stream: TcpStream,
    facts: ConnectFacts,
    remote: SocketAddr,
}

/// Sends a SYN to `remote`, from `local` if given.
///
/// # Errors
/// When there is no route, address or port, or (at once) no memory. [`Attempt::established`] has what the network
/// answers.
///
/// # Panics
/// Outside a tokio runtime with I/O.
pub fn connect(remote: SocketAddr, local: Option<SocketAddr>, carry: Carry<'_>) -> io::Result<Attempt> {
    let BegunConnect { socket, facts, .. } = begin(remote, local, carry)?;
    let stream = TcpStream::from_std(socket.into())?;
    Ok(Attempt { stream, facts, remote })
}

/// A connect whose SYN has left, for a program with an event loop of its own. Its socket does not block. The program waits
/// until it is writable or has an error, and calls [`BegunConnect::check`].
#[derive(Debug)]
pub struct BegunConnect {
    socket: Socket,
    facts: ConnectFacts,
}

/// Sends a SYN to `remote`, from `local` if given, as [`connect`] does. It needs no runtime.
///
/// # Errors
/// As [`connect`].
pub fn begin(remote: SocketAddr, local: Option<SocketAddr>, carry: Carry<'_>) -> io::Result<BegunConnect> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if let Some(local) = local {
        socket.bind(&local.into())?;
    }
    let facts = begin_on(&socket, remote, carry)?;
    Ok(BegunConnect { socket, facts })
}

/// Sends a SYN on a socket. If the socket blocks, so does this, until the handshake is complete.
pub(crate) fn begin_on(socket: &Socket, remote: SocketAddr, carry: Carry<'_>) -> io::Result<ConnectFacts> {
    match carry {
        Carry::Nothing(reason) => plain(socket, remote, reason),
        Carry::Request(reason) => match sys::send_in_syn(socket, remote, &[]) {
            Ok(_) => Ok(ConnectFacts::KeptBack(reason)),
            Err(error) if is_disabled(&error) => plain(socket, remote, reason),
            Err(error) => Err(error),
        },
        Carry::Data(data) => given(socket, remote, data),
        Carry::WithoutCookie(data) => {
            // Without this option of sockets the SYN is a request.
            let _ = sys::need_no_cookie(socket);
            given(socket, remote, data)
        }
    }
}

/// Sends a SYN with `data`, if the kernel lets it.
fn given(socket: &Socket, remote: SocketAddr, data: &[u8]) -> io::Result<ConnectFacts> {
    match sys::send_in_syn(socket, remote, data) {
        Ok(taken) => Ok(ConnectFacts::Given { given: data.len(), taken }),
        Err(error) if is_disabled(&error) => plain(socket, remote, Reason::SystemDisabled),
        Err(error) => Err(error),
    }
}

/// Whether the namespace's setting, or the system, does not allow Fast Open.
fn is_disabled(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

/// Sends an ordinary SYN.
fn plain(socket: &Socket, remote: SocketAddr, reason: Reason) -> io::Result<ConnectFacts> {
    match socket.connect(&remote.into()) {
        Ok(()) => Ok(ConnectFacts::Plain(reason)),
        Err(error) if is_under_way(&error) => Ok(ConnectFacts::Plain(reason)),
        Err(error) => Err(error),
    }
}

/// Whether a connect that does not block has begun.
fn is_under_way(error: &io::Error) -> bool {
    #[cfg(unix)]
    let begun = error.raw_os_error() == Some(libc::EINPROGRESS);
    #[cfg(not(unix))]
    let begun = error.kind() == io::ErrorKind::WouldBlock;
    begun
}

impl BegunConnect {
    /// Whether the SYN has an option of Fast Open: a request for a cookie, or a cookie.
    #[must_use]
    pub const fn asks(&self) -> bool {
        self.facts.asks()
    }

    /// How many bytes of the data the kernel took. They may be at the server already, or get there.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.facts.taken()
    }

    /// The outcome of the first flight if the handshake is complete, or `None` if it is not. It does not block.
    ///
    /// A server that took the data, answered and reset may have done so before this looks. That is a connection, too: its reads
    /// return the answer, and then the end. The reset is in no error: an answer of which only the end of the connection says that
    /// it is whole may have been cut.
    ///
    /// # Errors
    /// When the peer refuses, the network reports an error, or the kernel gives up. It is returned once.
    pub fn check(&self) -> io::Result<Option<Outcome>> {
        let info = || self.info().ok();
        match self.socket.take_error()? {
            // A server that took the data, answered and reset. Its answer can be read.
            Some(error) => {
                let outcome = self.facts.outcome_by(info().as_ref());
                if self.taken() > 0 && outcome.is_accepted() { Ok(Some(outcome)) } else { Err(error) }
            }
            None => match self.socket.peer_addr() {
                Ok(_) => Ok(Some(self.facts.outcome_by(info().as_ref()))),
                // Before the answer to the SYN a socket has no peer.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Closes the socket after an error of [`BegunConnect::check`]. If another part of the program has closed its
    /// descriptor, which only code in C can do, it is not closed again: the number may be that of another file soon.
    pub fn close_after(self, error: &io::Error) {
        #[cfg(unix)]
        if error.raw_os_error() == Some(libc::EBADF) {
            let _ = std::os::fd::IntoRawFd::into_raw_fd(self.socket);
        }
        #[cfg(not(unix))]
        let _ = error;
    }

    /// What the kernel says of the connection now.
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::Unsupported`] on other systems than Linux.
    pub fn info(&self) -> io::Result<TcpInfo> {
        Ok(TcpInfo::parse(&sys::tcp_info(&self.socket)?))
    }

    /// The socket, which does not block. The caller sends the data from [`BegunConnect::taken`] on.
    #[must_use]
    pub fn into_std(self) -> std::net::TcpStream {
        self.socket.into()
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for BegunConnect {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Attempt {
    /// Whether the SYN has an option of Fast Open: a request for a cookie, or a cookie.
    #[must_use]
    pub const fn asks(&self) -> bool {
        self.facts.asks()
    }

    /// How many bytes of the data the kernel took. They may be at the server already, or get there.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.facts.taken()
    }

    /// Waits until the handshake is complete. Returns the stream, and how many bytes of the data are sent: the caller
    /// sends the rest. Dropping the future, or the attempt, closes the socket.
    ///
    /// A server that took the data, answered and reset may have done so before this looks. That is a stream: its reads
    /// return the answer, and then the reset.
    ///
    /// # Errors
    /// When the peer refuses, the network reports an error, or the kernel gives up.
    pub async fn established(self) -> io::Result<(Stream, usize)> {
        let taken = self.taken();
        let stream = self.stream;
        stream.writable().await?;
        let error = stream.take_error()?;
        let connected = Stream::connected(stream, self.facts, self.remote);
        match error {
            None => Ok((connected, taken)),
            Some(error) if taken > 0 && connected.outcome().is_accepted() => {
                Ok((connected.ended_by(error), taken))
            }
            Some(error) => Err(error),
        }
    }
}
