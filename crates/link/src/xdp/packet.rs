//! A packet socket on a device (`AF_PACKET`), where AF_XDP is not to be had: every driver and every kernel has it.
//!
//! The kernel gets each packet, too. The socket that holds the port drops what came by the device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use socket2::SockRef;

use super::error::errno;
use super::socket::SocketCounts;
use super::{PortHolder, screen, sys};

/// Packets of a system call, and frames that wait to be sent.
pub(super) const BATCH: usize = 64;
/// Bytes of packets, with what the kernel adds to each, that wait to be received.
const WAITING: libc::c_int = 8 << 20;

/// A packet socket.
pub(super) struct PacketSocket {
    received: Vec<u8>,
    /// Lengths of the packets in `received`; those before `next` are taken.
    lens: Vec<usize>,
    next: usize,
    sending: Vec<u8>,
    /// Lengths of the frames in `sending`; those before `sent` are sent.
    send_lens: Vec<usize>,
    sent: usize,
    frame: usize,
    fd: OwnedFd,
}

impl PacketSocket {
    /// Makes the socket, which receives from now on what may be for the holders' ports by the device.
    pub(super) fn bind(device: u32, longest: usize, holders: &[PortHolder]) -> io::Result<Self> {
        // Without a protocol it receives nothing before it is bound.
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let ports = || holders.iter().map(|holder| holder.at().port());
        let (first, last) = (ports().min().unwrap_or_default(), ports().max().unwrap_or_default());
        SockRef::from(&fd).attach_filter(&screen::coarse(first, last))?;
        sys::set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &WAITING)?;
        let frame = longest.next_multiple_of(64);
        let (received, sending) = (vec![0; frame * BATCH], vec![0; frame * BATCH]);
        let at = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: device as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        sys::bind(&fd, &at)?;
        let (lens, send_lens) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Ok(Self { received, lens, next: 0, sending, send_lens, sent: 0, frame, fd })
    }

    /// Takes the next frame. `None` if there is none.
    pub(super) fn receive<R>(&mut self, use_it: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        if self.next == self.lens.len() {
            self.next = 0;
            // What is wrong with the device shows by netlink, and when something is sent.
            let got = sys::receive_many(self.fd.as_fd(), &mut self.received, self.frame, &mut self.lens);
            if got.is_err() {
                self.lens.clear();
            }
        }
        let len = *self.lens.get(self.next)?;
        let start = self.next * self.frame;
        self.next += 1;
        // A packet that did not fit is cut, and found not to be whole.
        Some(use_it(self.received.get_mut(start..start + len.min(self.frame))?))
    }

    /// Writes a frame of `len` bytes, which is sent by [`PacketSocket::kick`]. Returns false if there is no room.
    pub(super) fn send(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.send_lens.len() == BATCH {
            return false;
        }
        let start = self.send_lens.len() * self.frame;
        let Some(place) = self.sending.get_mut(start..start + len).filter(|_| len <= self.frame) else {
            return true;
        };
        write(place);
        self.send_lens.push(len);
        true
    }

    /// Sends. With an error the frames that are not sent stay.
    /// Errors: the system's. With `EAGAIN` and `ENOBUFS` a later call may succeed.
    pub(super) fn kick(&mut self) -> io::Result<()> {
        while self.is_sending() {
            let rest = self.send_lens.get(self.sent..).unwrap_or_default();
            let frames = self.sending.chunks_exact(self.frame).skip(self.sent);
            let frames = frames.zip(rest).map(|(frame, len)| frame.get(..*len).unwrap_or_default());
            self.sent += match sys::send_many(self.fd.as_fd(), frames) {
                // The device's MTU has just become smaller. Later packets are measured against it before.
                Err(error) if errno(&error) == Some(Errno::EMSGSIZE) => 1,
                result => result?,
            };
        }
        self.send_lens.clear();
        self.sent = 0;
        Ok(())
    }

    /// Whether frames wait to be sent.
    pub(super) const fn is_sending(&self) -> bool {
        self.sent < self.send_lens.len()
    }

    /// What the kernel has dropped since this was last asked: there was no room.
    pub(super) fn counted(fd: BorrowedFd<'_>) -> io::Result<SocketCounts> {
        let new: libc::tpacket_stats = sys::option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(SocketCounts { receive_ring_full: new.tp_drops.into(), ..SocketCounts::default() })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
