//! The two ways to the packets of a queue.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::packet::PacketSocket;
use super::socket::Socket;
use super::sys;

/// A socket that receives and sends frames.
pub(super) enum Wire {
    /// AF_XDP, on one queue.
    Xdp(Socket),
    /// AF_PACKET, for all queues together.
    Packet(PacketSocket),
}

impl Wire {
    /// Takes the next frame, and gives its memory back when `use_it` returns. `None` if there is none.
    pub(super) fn receive<R>(&mut self, use_it: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        match self {
            Self::Xdp(socket) => socket.receive(use_it),
            Self::Packet(socket) => socket.receive(use_it),
        }
    }

    /// Writes a frame of `len` bytes, which is sent by [`Wire::kick`]. Returns false if there is no room.
    pub(super) fn send(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        match self {
            Self::Xdp(socket) => socket.send(len, write),
            Self::Packet(socket) => socket.send(len, write),
        }
    }

    /// Lets the kernel send what was written.
    /// Errors: the system's: the frames stay.
    pub(super) fn kick(&mut self) -> io::Result<()> {
        match self {
            Self::Xdp(socket) => socket.kick(),
            Self::Packet(socket) => socket.kick(),
        }
    }

    /// Whether frames wait to be sent.
    pub(super) fn is_sending(&mut self) -> bool {
        match self {
            Self::Xdp(socket) => socket.is_sending(),
            Self::Packet(socket) => socket.is_sending(),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Xdp(socket) => socket.as_fd(),
            Self::Packet(socket) => socket.as_fd(),
        }
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl sys::Owns for Wire {}
