//! A socket and its place in the event loop.
//!
//! The event loop is asked about room for sending only while a send waits for it. The kernel reports room whenever a sent
//! datagram has left the host. Usually no send waits for it, but each report would wake the thread.

#[cfg(unix)]
pub(super) use unix::{Room, Watched};
#[cfg(not(unix))]
pub(super) use usual::{Room, Watched};

#[cfg(unix)]
mod unix {
    use std::io;
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::Arc;
    use std::task::{Context, Poll, ready};

    use quinn_udp::UdpSockRef;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A socket that is watched for datagrams and errors.
    #[derive(Debug)]
    pub(in super::super) struct Watched(AsyncFd<Arc<UdpSocket>>);

    /// The room in a socket's buffer. It has a descriptor of its own, because a descriptor can be registered only once.
    #[derive(Debug)]
    pub(in super::super) struct Room {
        socket: Arc<UdpSocket>,
        /// Set while a send waits.
        awaited: Option<AsyncFd<Arc<UdpSocket>>>,
    }

    /// Registers a socket with the event loop.
    #[allow(unsafe_code, reason = "tokio asks for a promise about the descriptor")]
    fn register(socket: Arc<UdpSocket>, interest: Interest) -> io::Result<AsyncFd<Arc<UdpSocket>>> {
        // SAFETY: the descriptor is that of the socket, which the result owns a share of and never replaces. So it is open, and
        // names the same socket, until the result has taken it out of the event loop.
        Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
    }

    impl Watched {
        /// Registers a socket that does not block.
        pub(in super::super) fn new(socket: UdpSocket) -> io::Result<Self> {
            register(Arc::new(socket), Interest::READABLE).map(Self)
        }

        pub(in super::super) fn get(&self) -> &UdpSocket {
            self.0.get_ref()
        }

        pub(in super::super) fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.poll_read_ready(cx).map_ok(drop)
        }

        /// Receives with `receive`, which says whether it has read all that there was.
        /// Errors: [`io::ErrorKind::WouldBlock`] if there is nothing, and those of `receive`.
        pub(in super::super) fn try_recv(
            &self,
            receive: impl FnOnce(UdpSockRef<'_>) -> io::Result<bool>,
        ) -> io::Result<()> {
            let mut received = false;
            let result = self.0.try_io(Interest::READABLE, |socket| {
                let all = receive(UdpSockRef::from(socket))?;
                received = true;
                // This makes tokio wait for the next report. A datagram that comes from now on is reported again.
                if all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if received { Ok(()) } else { result }
        }

        pub(in super::super) async fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
            loop {
                match self.get().send_to(datagram, to) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let room = register(Arc::new(self.get().try_clone()?), Interest::WRITABLE)?;
                        drop(room.writable().await?);
                    }
                    result => return result,
                }
            }
        }

        /// Waits until the socket may have an error. Datagrams that arrive do not end it.
        #[cfg(target_os = "linux")]
        pub(in super::super) async fn error(&self) -> io::Result<()> {
            self.0.ready(Interest::ERROR).await.map(drop)
        }
    }

    impl Room {
        pub(in super::super) fn new(socket: &Arc<Watched>) -> io::Result<Self> {
            Ok(Self { socket: Arc::new(socket.get().try_clone()?), awaited: None })
        }

        /// A send was refused because there is no room.
        pub(in super::super) fn is_missing(&mut self) -> io::Result<()> {
            self.awaited = Some(register(Arc::clone(&self.socket), Interest::WRITABLE)?);
            Ok(())
        }

        /// Waits for room if a send was refused.
        pub(in super::super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            if let Some(awaited) = &self.awaited {
                drop(ready!(awaited.poll_write_ready(cx))?);
                self.awaited = None;
            }
            Poll::Ready(Ok(()))
        }
    }
}

#[cfg(not(unix))]
mod usual {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use quinn_udp::UdpSockRef;
    use tokio::io::Interest;
    use tokio::net::UdpSocket;

    /// See the variant for Unix. Here the event loop always reports room.
    #[derive(Debug)]
    pub(in super::super) struct Watched(UdpSocket);

    #[derive(Debug)]
    pub(in super::super) struct Room(Arc<Watched>);

    impl Watched {
        pub(in super::super) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
            UdpSocket::from_std(socket).map(Self)
        }

        pub(in super::super) const fn get(&self) -> &UdpSocket {
            &self.0
        }

        pub(in super::super) fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.poll_recv_ready(cx)
        }

        pub(in super::super) fn try_recv(
            &self,
            receive: impl FnOnce(UdpSockRef<'_>) -> io::Result<bool>,
        ) -> io::Result<()> {
            self.0.try_io(Interest::READABLE, || receive(UdpSockRef::from(&self.0)).map(drop))
        }

        pub(in super::super) async fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<usize> {
            self.0.send_to(datagram, to).await
        }
    }

    impl Room {
        #[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
        pub(in super::super) fn new(socket: &Arc<Watched>) -> io::Result<Self> {
            Ok(Self(Arc::clone(socket)))
        }

        #[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
        pub(in super::super) fn is_missing(&mut self) -> io::Result<()> {
            // An operation that would block tells tokio to wait for the next report.
            let _ = self.0.0.try_io(Interest::WRITABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            Ok(())
        }

        pub(in super::super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.0.poll_send_ready(cx)
        }
    }
}
