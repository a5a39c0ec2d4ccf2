//! ICMP errors about packets of a socket, as the kernel keeps them (Linux, `IP_RECVERR`).
//!
//! The kernel accepts an error only if the packet that it quotes has the socket's address and port. It passes
//! on the quoted bytes after the UDP header. This module composes an ICMP packet from each error, and the
//! stack checks the quoted sequence number as in an error from a router.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use firstflight_wire::icmp::{self, Report};
use firstflight_wire::ip::{Ecn, Header as IpHeader, Protocol};
use firstflight_wire::udp;
use nix::errno::Errno;
use nix::libc::{SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, sock_extended_err};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, recvmsg,
    setsockopt, sockopt,
};

use super::watched::Watched;

/// The most bytes of a quotation that are read: headers and the beginning of a segment.
const QUOTE: usize = 512;

type Signal = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// The errors of one socket.
pub(super) struct Reports {
    /// Resolves when there may be one.
    signal: Signal,
    control: Vec<u8>,
}

impl Reports {
    /// Makes the kernel keep errors about packets that `socket` sends from now on.
    pub(super) fn new(socket: &Arc<Watched>) -> io::Result<Self> {
        if socket.get().local_addr()?.is_ipv4() {
            setsockopt(socket.get(), sockopt::Ipv4RecvErr, &true)?;
        } else {
            setsockopt(socket.get(), sockopt::Ipv6RecvErr, &true)?;
        }
        // Room for the error with its sender's address, and for the socket's other control messages.
        Ok(Self { signal: signal(socket), control: nix::cmsg_space!([u8; 256]) })
    }

    /// Writes the next error into `buf` as an ICMP packet, and returns its length. `local` is the socket's address.
    ///
    /// When all errors have been read, `socket` is registered again, because tokio keeps that it had one.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Arc<Watched>,
        local: SocketAddr,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.signal.as_mut().poll(cx))?;
        loop {
            match self.take(socket, local, buf) {
                Ok(Some(len)) => {
                    // The next call continues here.
                    self.signal = Box::pin(std::future::ready(Ok(())));
                    return Poll::Ready(Ok(len));
                }
                // The error cannot be composed into a packet.
                Ok(None) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        *socket = Arc::new(Watched::new(socket.get().try_clone()?)?);
        self.signal = signal(socket);
        // Wake the task, so that it waits for the new registration.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn take(&mut self, socket: &Watched, local: SocketAddr, buf: &mut [u8]) -> Result<Option<usize>, Errno> {
        let mut quote = [0; QUOTE];
        let mut iov = [IoSliceMut::new(&mut quote)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let got =
            recvmsg::<SockaddrStorage>(socket.get().as_raw_fd(), &mut iov, Some(&mut self.control), flags)?;
        let len = got.bytes.min(QUOTE);
        let Some(to) = got.address.as_ref().and_then(address) else { return Ok(None) };
        let mut from = local.ip();
        let mut error = None;
        for message in got.cmsgs()? {
            match message {
                ControlMessageOwned::Ipv4RecvErr(what, by) => {
                    error = Some((what, by.map(|by| SockaddrIn::from(by).ip().into())));
                }
                ControlMessageOwned::Ipv6RecvErr(what, by) => {
                    error = Some((what, by.map(|by| SockaddrIn6::from(by).ip().into())));
                }
                // The error's destination address is the packet's source address.
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    from = IpAddr::from(u32::from_be(info.ipi_addr.s_addr).to_be_bytes());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => from = IpAddr::from(info.ipi6_addr.s6_addr),
                _ => {}
            }
        }
        let Some((what, by)) = error else { return Ok(None) };
        let Some(report) = report(&what) else { return Ok(None) };
        let from = SocketAddr::new(from, local.port());
        let quoted = quote.get(..len).unwrap_or_default();
        Ok(compose(report, by.unwrap_or(to.ip()), from, to, quoted, buf))
    }
}

/// Resolves when the socket may have an error. Arriving packets do not resolve it.
fn signal(socket: &Arc<Watched>) -> Signal {
    let watched = Arc::clone(socket);
    Box::pin(async move { watched.error().await })
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    match from.family()? {
        nix::sys::socket::AddressFamily::Inet => {
            from.as_sockaddr_in().map(|at| SocketAddr::new(at.ip().into(), at.port()))
        }
        _ => from.as_sockaddr_in6().map(|at| SocketAddr::new(at.ip().into(), at.port())),
    }
}

/// The error, if it came from a router or another host. The failed call itself reports errors of this host.
fn report(error: &sock_extended_err) -> Option<Report> {
    let by_icmp = matches!(error.ee_origin, SO_EE_ORIGIN_ICMP | SO_EE_ORIGIN_ICMP6);
    by_icmp.then_some(Report { ty: error.ee_type, code: error.ee_code, value: error.ee_info })
}

/// Composes the ICMP packet, with new headers for the quoted packet.
fn compose(
    report: Report,
    by: IpAddr,
    from: SocketAddr,
    to: SocketAddr,
    quoted: &[u8],
    buf: &mut [u8],
) -> Option<usize> {
    let ip = IpHeader {
        src: from.ip(),
        dst: to.ip(),
        protocol: Protocol::Udp,
        hop_limit: 1,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let mut packet = [0; 40 + udp::HEADER + QUOTE];
    let at = ip.emit(udp::HEADER + quoted.len(), &mut packet).ok()?;
    let ports = udp::Header { src_port: from.port(), dst_port: to.port() };
    let at = at + ports.emit(quoted.len(), packet.get_mut(at..)?).ok()?;
    packet.get_mut(at..at + quoted.len())?.copy_from_slice(quoted);
    icmp::emit_report(report, by, from.ip(), packet.get(..at + quoted.len())?, buf).ok()
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reports")
    }
}
