//! What the kernel says while a device is used: addresses, routes, neighbours, and the device itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// Groups of rtnetlink: devices, neighbours, addresses, routes and rules of both families.
const GROUPS: u32 = 1 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 18;
/// Room for one message.
const ROOM: usize = 1 << 15;

/// A socket that gets the kernel's messages.
pub(super) struct Events {
    socket: OwnedFd,
    room: Vec<u8>,
}

pub(super) enum Read<'a> {
    /// Messages.
    Messages(&'a [u8]),
    /// Some were lost, because they were not read in time.
    Lost,
    /// There are none.
    Nothing,
}

impl Events {
    pub(super) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Self { socket, room: vec![0; ROOM] })
    }

    pub(super) fn read(&mut self) -> io::Result<Read<'_>> {
        match recv(self.socket.as_raw_fd(), &mut self.room, MsgFlags::empty()) {
            Ok(len) => Ok(Read::Messages(self.room.get(..len).unwrap_or_default())),
            Err(Errno::EAGAIN) => Ok(Read::Nothing),
            Err(Errno::ENOBUFS) => Ok(Read::Lost),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl super::sys::Owns for Events {}
