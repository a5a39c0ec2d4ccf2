//! What the program reads and counts: maps of BPF.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::program::Dropped;
use super::sys::{self, Map, MapShape};
use super::{Prefix, Transport};

/// Kinds of maps (`enum bpf_map_type`).
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const LONGEST_PREFIX: u32 = 11;
const SOCKETS: u32 = 17;
/// `BPF_F_NO_PREALLOC`, which prefixes need, and `BPF_F_MMAPABLE`.
const NO_PREALLOCATION: u32 = 1;
const MAPPABLE: u32 = 1 << 10;

/// Most served addresses and ports together.
const MOST_SERVED: u32 = 4096;
/// Most allowed prefixes of one family.
const MOST_PREFIXES: u32 = 4096;
/// The size of the counters: a power of two.
const COUNTER_BYTES: u32 = 64;
const _: () = assert!(Dropped::COUNT * 8 <= COUNTER_BYTES as usize);

/// The maps of a program.
pub(super) struct Maps {
    sockets: OwnedFd,
    served: OwnedFd,
    allowed_v4: OwnedFd,
    allowed_v6: OwnedFd,
    counters: OwnedFd,
    counted: Map,
}

impl Maps {
    /// Empty maps for a device with this many queues.
    pub(super) fn create(queues: u32) -> io::Result<Self> {
        let shape = |kind, key_size, value_size, max_entries, flags, name| MapShape {
            kind,
            key_size,
            value_size,
            max_entries,
            flags,
            name,
        };
        let counters = sys::create_map(&shape(ARRAY, 4, COUNTER_BYTES, 1, MAPPABLE, "ff_counters"))?;
        let len = NonZeroUsize::new(COUNTER_BYTES as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let counted = Map::of(&counters, len, 0, false)?;
        let prefixes = |size: u32, name| {
            sys::create_map(&shape(LONGEST_PREFIX, 4 + size, 1, MOST_PREFIXES, NO_PREALLOCATION, name))
        };
        Ok(Self {
            sockets: sys::create_map(&shape(SOCKETS, 4, 4, queues, 0, "ff_sockets"))?,
            served: sys::create_map(&shape(HASH, 20, 1, MOST_SERVED, 0, "ff_served"))?,
            allowed_v4: prefixes(4, "ff_allowed_v4")?,
            allowed_v6: prefixes(16, "ff_allowed_v6")?,
            counters,
            counted,
        })
    }

    pub(super) fn sockets(&self) -> i32 {
        self.sockets.as_raw_fd()
    }

    pub(super) fn served(&self) -> i32 {
        self.served.as_raw_fd()
    }

    pub(super) fn allowed(&self, v6: bool) -> i32 {
        if v6 { self.allowed_v6.as_raw_fd() } else { self.allowed_v4.as_raw_fd() }
    }

    pub(super) fn counters(&self) -> i32 {
        self.counters.as_raw_fd()
    }

    /// Gives a queue its socket.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_element(
            self.sockets.as_fd(),
            &queue.to_ne_bytes(),
            &(socket.as_raw_fd() as u32).to_ne_bytes(),
        )
    }

    /// From now on, packets to this address and port are taken.
    pub(super) fn serve(&self, at: SocketAddr, transport: Transport) -> io::Result<()> {
        sys::set_element(self.served.as_fd(), &served_key(at, transport), &[1])
    }

    /// Packets to this address and port are the kernel's again.
    pub(super) fn stop_serving(&self, at: SocketAddr, transport: Transport) -> io::Result<()> {
        sys::remove_element(self.served.as_fd(), &served_key(at, transport))
    }

    /// Allows the sources of a prefix.
    pub(super) fn allow(&self, prefix: Prefix) -> io::Result<()> {
        let mut key = u32::from(prefix.len).to_ne_bytes().to_vec();
        match prefix.address {
            IpAddr::V4(address) => key.extend(address.octets()),
            IpAddr::V6(address) => key.extend(address.octets()),
        }
        let map = if prefix.address.is_ipv6() { &self.allowed_v6 } else { &self.allowed_v4 };
        sys::set_element(map.as_fd(), &key, &[1])
    }

    /// How many packets the program dropped for this reason.
    pub(super) fn dropped(&self, why: Dropped) -> u64 {
        counter(&self.counted, why as usize).load(Ordering::Relaxed)
    }
}

fn served_key(at: SocketAddr, transport: Transport) -> [u8; 20] {
    let address = match at.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let mut key = [0; 20];
    let (ip, rest) = key.split_at_mut(16);
    ip.copy_from_slice(&address);
    let [high, low] = at.port().to_be_bytes();
    let protocol = match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
    };
    rest.copy_from_slice(&[high, low, protocol, 0]);
    key
}

/// A counter of the mapped array.
#[allow(unsafe_code)]
fn counter(map: &Map, index: usize) -> &AtomicU64 {
    let index = index.min(map.len() / 8 - 1);
    let at: NonNull<AtomicU64> = map.start().cast();
    // SAFETY: the counter lies in the mapping, which is aligned to a page and lives as long as the result. The kernel
    // changes it by atomic additions.
    unsafe { at.add(index).as_ref() }
}
