//! A socket of `AF_XDP` on one queue, with its rings and its memory.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

use super::rings::{Consumer, Producer};
use super::sys::{self, Map};

/// The kernel leaves this many bytes free in front of a packet (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Sizes of a frame that the kernel takes.
const FRAMES: [usize; 2] = [2048, 4096];
/// Packets that wait to be received, at most: 15 ms of 260,000 a second, while other programs have the processor. With zero-copy, where
/// packets of other programs lie in the frames, too, it could be half of the frames at most.
const RECEIVE_RING: u32 = 4096;
/// Slots and frames go back to the kernel when this number of packets has been received.
const RELEASED: u32 = 64;
/// Frames to receive into. All of them fit into the fill ring.
const RECEIVE_FRAMES: u32 = 4096;
/// Frames to send from. All of them fit into both rings of sending.
const SEND_FRAMES: u32 = 2048;

/// The longest frame that a queue can carry, without its VLAN tag: link-layer header and packet, bytes.
pub(super) const LONGEST: usize = FRAMES[1] - HEADROOM;

/// Bytes of memory for a queue that carries frames of `longest` bytes.
pub(super) fn memory_for(longest: usize) -> usize {
    frame_size(longest) * (RECEIVE_FRAMES + SEND_FRAMES) as usize
}

fn frame_size(longest: usize) -> usize {
    if longest + HEADROOM <= FRAMES[0] { FRAMES[0] } else { FRAMES[1] }
}

/// What the kernel counts for a socket (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketCounts {
    pub(super) dropped: u64,
    pub(super) receive_ring_full: u64,
    pub(super) fill_ring_empty: u64,
}

/// The socket of a queue.
pub(super) struct Socket {
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<libc::xdp_desc>,
    send: Producer<libc::xdp_desc>,
    /// Frames that are free to send from.
    free: Vec<u64>,
    memory: Map,
    frame: usize,
    fd: OwnedFd,
}

impl Socket {
    /// SYNs of one kind that may wait to be received: a quarter of the ring is for the packets of connections.
    pub(super) const SYNS: u64 = RECEIVE_RING as u64 * 3 / 8;

    /// Makes the socket, gives the kernel all frames to receive into, and binds it to the queue of the device.
    /// Errors: the system's, with `EBUSY` if the queue has a socket.
    pub(super) fn bind(device: u32, queue: u32, longest: usize) -> io::Result<Self> {
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let frame = frame_size(longest);
        let len = NonZeroUsize::new(memory_for(longest)).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = Map::anonymous(len)?;
        let area = libc::xdp_umem_reg_v1 {
            addr: memory.start().as_ptr() as u64,
            len: memory.len() as u64,
            chunk_size: frame as u32,
            headroom: 0,
        };
        sys::set_option(&fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &area)?;
        let rings = [
            (libc::XDP_UMEM_FILL_RING, RECEIVE_FRAMES),
            (libc::XDP_UMEM_COMPLETION_RING, SEND_FRAMES),
            (libc::XDP_RX_RING, RECEIVE_RING),
            (libc::XDP_TX_RING, SEND_FRAMES),
        ];
        for (ring, size) in rings {
            sys::set_option(&fd, libc::SOL_XDP, ring, &size)?;
        }
        let at: libc::xdp_mmap_offsets = sys::option(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let (fill_at, completion_at) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let mut fill = Producer::map(fd.as_fd(), RECEIVE_FRAMES, &at.fr, fill_at as libc::off_t)?;
        let completion = Consumer::map(fd.as_fd(), SEND_FRAMES, &at.cr, completion_at as libc::off_t)?;
        let receive = Consumer::map(fd.as_fd(), RECEIVE_RING, &at.rx, libc::XDP_PGOFF_RX_RING)?;
        let send = Producer::map(fd.as_fd(), SEND_FRAMES, &at.tx, libc::XDP_PGOFF_TX_RING)?;
        let address = |number: u32| u64::from(number) * frame as u64;
        for number in 0..RECEIVE_FRAMES {
            fill.put(address(number));
        }
        fill.publish();
        let free = (RECEIVE_FRAMES..RECEIVE_FRAMES + SEND_FRAMES).map(address).collect();
        let socket = Self { fill, completion, receive, send, free, memory, frame, fd };
        let at = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            // Without this flag the kernel would take zero-copy where the driver has it: then the memory of this process
            // carries all packets of the queue, also those of other programs.
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: device,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        sys::bind(&socket.fd, &at)?;
        Ok(socket)
    }

    /// Takes the next frame, and gives its memory back when `use_it` returns. `None` if there is none.
    pub(super) fn receive<R>(&mut self, use_it: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let Some(packet) = self.receive.take() else {
            self.give_back();
            return None;
        };
        if self.receive.unreleased() >= RELEASED {
            self.give_back();
        }
        let result = use_it(self.frame(packet.addr, packet.len as usize));
        // The frame begins where its number says; the packet lies behind some room.
        self.fill.put(packet.addr / self.frame as u64 * self.frame as u64);
        Some(result)
    }

    /// Gives the kernel the slots and frames of what was received. Once for many packets: the kernel reads what changes here. But not
    /// only when nothing is left to receive: under load that moment may never come, and the kernel would find the ring full.
    fn give_back(&mut self) {
        self.receive.release();
        self.fill.publish();
        if self.fill.wants_call() {
            sys::wake(self.fd.as_fd());
        }
    }

    /// The bytes of a frame that the kernel has given to this side, or that is free to send from.
    fn frame(&mut self, address: u64, len: usize) -> &mut [u8] {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        if start.checked_add(len).is_none_or(|end| end > self.memory.len()) {
            return &mut [];
        }
        let base = self.memory.start().cast::<u8>();
        // SAFETY: the bytes lie in the mapping (checked above), were zeroed when it was made, and the kernel does not
        // touch the frame before it is put into a ring again, which `&mut self` prevents.
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr().add(start), len) }
    }

    /// Writes a frame of `len` bytes, which is sent by [`Socket::kick`]. Returns false if no frame is free.
    pub(super) fn send(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        let Some(address) = self.free.pop() else { return false };
        if len > self.frame {
            self.free.push(address);
            return true;
        }
        write(self.frame(address, len));
        // There is an entry for every frame.
        self.send.put(libc::xdp_desc { addr: address, len: len as u32, options: 0 });
        true
    }

    /// Takes back the frames that were sent.
    fn reclaim(&mut self) {
        while let Some(address) = self.completion.take() {
            self.free.push(address);
        }
        self.completion.release();
    }

    /// Shows the kernel what is to be sent, and lets it send. In copy mode the kernel sends some 32 frames a call, so it is
    /// called until it has taken all, or takes none.
    /// Errors: the system's: the frames stay in the ring. With `EAGAIN`, `EBUSY` and `ENOBUFS` a later call may
    /// succeed.
    pub(super) fn kick(&mut self) -> io::Result<()> {
        self.send.publish();
        let mut waiting = self.send.waiting();
        while waiting > 0 && self.send.wants_call() {
            let result = sys::kick(self.fd.as_fd());
            let left = self.send.waiting();
            if let Err(error) = result
                && (left >= waiting || !is_full(&error))
            {
                self.reclaim();
                return Err(error);
            }
            if left >= waiting {
                break;
            }
            waiting = left;
        }
        self.reclaim();
        Ok(())
    }

    /// Whether frames wait to be sent.
    pub(super) fn is_sending(&mut self) -> bool {
        self.send.waiting() > 0
    }

    pub(super) fn counted(fd: BorrowedFd<'_>) -> io::Result<SocketCounts> {
        let all: libc::xdp_statistics = sys::option(fd, libc::SOL_XDP, libc::XDP_STATISTICS)?;
        Ok(SocketCounts {
            dropped: all.rx_dropped,
            receive_ring_full: all.rx_ring_full,
            fill_ring_empty: all.rx_fill_ring_empty_descs,
        })
    }
}

/// Whether the kernel has no room for now.
pub(super) fn is_full(error: &io::Error) -> bool {
    let full = [Errno::EAGAIN, Errno::EBUSY, Errno::ENOBUFS, Errno::EINTR];
    error.raw_os_error().is_some_and(|number| full.contains(&Errno::from_raw(number)))
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
