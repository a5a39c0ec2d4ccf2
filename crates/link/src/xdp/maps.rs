//! What the program reads and counts: maps of BPF.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::SynOpening;
use super::program::Dropped;
use super::sys::{self, Map, MapShape};
use super::{Prefix, Transport};

/// Kinds of maps (`enum bpf_map_type`).
const HASH: u32 = 1;
const ARRAY: u32 = 2;
const RECENT: u32 = 9;
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
/// The size of an element of [`Maps::openings`]: two numbers for each kind of SYN.
const OPENING_BYTES: u32 = 32;
const _: () = assert!(SynOpening::COUNT * 16 == OPENING_BYTES as usize);
/// The size of an element of [`Maps::present`].
const PRESENT_BYTES: u32 = 8;
/// The size of a [`Duty`].
const DUTY_BYTES: u32 = 8;

/// Connections whose owner is known, at most.
const MOST_OWNED: u32 = 1 << 18;
/// Connections that began while the program passed those, at most: the last ones.
const MOST_PASSED: u32 = 1 << 16;
/// The size of a four-tuple: two addresses and two ports.
pub(super) const TUPLE_BYTES: u32 = 36;

/// What the program does with TCP of the served ports, where another process may serve them by the kernel ([`XdpConfig::hand_over`]).
///
/// [`XdpConfig::hand_over`]: super::XdpConfig::hand_over
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// It takes all.
    Take = 0,
    /// It passes connections that begin now, remembers and passes them later, and takes the others.
    PassNew = 1,
    /// It passes the connections that it has passed before, and takes the others.
    PassKnown = 2,
    /// It passes all, and remembers those that begin.
    PassAll = 3,
    /// It passes all but the engine's.
    PassOthers = 4,
    /// It passes the kernel's, and takes the others.
    PassKernels = 5,
}

/// Whose a connection is, whatever the program sees of it later. Anybody can send a SYN in another host's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionOwner {
    /// The kernel has it.
    Kernel = 0,
    /// The engine has it.
    Engine = 1,
}

/// A duty has these lower bits of a number. The others are its epoch, which ends when the program takes all again: a four-tuple that was
/// passed in an earlier epoch may be another connection's by then.
pub(super) const DUTY_BITS: u32 = 8;

/// What a program needs for [`Duty`]: its number is in `now`.
struct Passing {
    duty: OwnedFd,
    now: Map,
    /// Four-tuples with their owner and the epoch: see [`owned`].
    owned: OwnedFd,
    /// Four-tuples of connections that began, and were passed, with the epoch in the same form.
    passed: OwnedFd,
}

/// The value of a four-tuple.
const fn owned(epoch: u64, owner: ConnectionOwner) -> u32 {
    (epoch as u32) << 1 | owner as u32
}

impl Passing {
    fn now(&self) -> &AtomicU64 {
        counter(&self.now, 0)
    }

    /// From `change` of the duty now, if that is one.
    fn set(&self, change: impl Fn(u64) -> Option<Duty>) {
        let _ = self.now().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let (before, epoch) = (now & ((1 << DUTY_BITS) - 1), now >> DUTY_BITS);
            let duty = change(before)?;
            let ends = duty == Duty::Take && before != duty as u64;
            Some((epoch + u64::from(ends)) << DUTY_BITS | duty as u64)
        });
    }
}

/// The maps of a program.
pub(super) struct Maps {
    sockets: OwnedFd,
    /// The number of each served address and port.
    served: OwnedFd,
    /// By that number: whether it is served now. Changing it needs no system call, and so no privilege.
    present: OwnedFd,
    presence: Map,
    allowed_v4: OwnedFd,
    allowed_v6: OwnedFd,
    counters: OwnedFd,
    counted: Map,
    openings: OwnedFd,
    opened: Map,
    passing: Option<Passing>,
}

impl Maps {
    /// Empty maps for a device with this many queues. At each of them `syns` of a kind may wait. The program's first duty is
    /// [`Duty::PassAll`] if it can `pass`.
    pub(super) fn create(queues: u32, syns: u64, pass: bool) -> io::Result<Self> {
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
        let openings = sys::create_map(&shape(ARRAY, 4, OPENING_BYTES, queues, MAPPABLE, "ff_openings"))?;
        let len =
            NonZeroUsize::new(OPENING_BYTES as usize * queues as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let opened = Map::of(&openings, len, 0, true)?;
        for queue in 0..queues {
            for kind in 0..SynOpening::COUNT {
                counter(&opened, place(queue, kind) + 1).store(syns, Ordering::Relaxed);
            }
        }
        let present = sys::create_map(&shape(ARRAY, 4, PRESENT_BYTES, MOST_SERVED, MAPPABLE, "ff_present"))?;
        let len =
            NonZeroUsize::new((PRESENT_BYTES * MOST_SERVED) as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let presence = Map::of(&present, len, 0, true)?;
        let prefixes = |size: u32, name| {
            sys::create_map(&shape(LONGEST_PREFIX, 4 + size, 1, MOST_PREFIXES, NO_PREALLOCATION, name))
        };
        let passing = if pass {
            let duty = sys::create_map(&shape(ARRAY, 4, DUTY_BYTES, 1, MAPPABLE, "ff_duty"))?;
            let len = NonZeroUsize::new(DUTY_BYTES as usize).ok_or(io::ErrorKind::InvalidInput)?;
            let now = Map::of(&duty, len, 0, true)?;
            counter(&now, 0).store(Duty::PassAll as u64, Ordering::Relaxed);
            let owned = shape(HASH, TUPLE_BYTES, 4, MOST_OWNED, NO_PREALLOCATION, "ff_owned");
            let passed = shape(RECENT, TUPLE_BYTES, 4, MOST_PASSED, 0, "ff_passed");
            let (owned, passed) = (sys::create_map(&owned)?, sys::create_map(&passed)?);
            Some(Passing { duty, now, owned, passed })
        } else {
            None
        };
        Ok(Self {
            passing,
            sockets: sys::create_map(&shape(SOCKETS, 4, 4, queues, 0, "ff_sockets"))?,
            served: sys::create_map(&shape(HASH, 20, 4, MOST_SERVED, 0, "ff_served"))?,
            present,
            presence,
            allowed_v4: prefixes(4, "ff_allowed_v4")?,
            allowed_v6: prefixes(16, "ff_allowed_v6")?,
            counters,
            counted,
            openings,
            opened,
        })
    }

    pub(super) fn sockets(&self) -> i32 {
        self.sockets.as_raw_fd()
    }

    pub(super) fn served(&self) -> i32 {
        self.served.as_raw_fd()
    }

    pub(super) fn present(&self) -> i32 {
        self.present.as_raw_fd()
    }

    pub(super) fn allowed(&self, v6: bool) -> i32 {
        if v6 { self.allowed_v6.as_raw_fd() } else { self.allowed_v4.as_raw_fd() }
    }

    pub(super) fn counters(&self) -> i32 {
        self.counters.as_raw_fd()
    }

    pub(super) fn openings(&self) -> i32 {
        self.openings.as_raw_fd()
    }

    /// The maps of the duty, of connections whose owner is known, and of what was passed.
    pub(super) fn passing(&self) -> Option<[i32; 3]> {
        let Passing { duty, owned, passed, .. } = self.passing.as_ref()?;
        Some([duty, owned, passed].map(|map| map.as_raw_fd()))
    }

    /// What the program does from now on, if it can pass connections.
    pub(super) fn set_duty(&self, duty: Duty) {
        if let Some(passing) = &self.passing {
            passing.set(|_| Some(duty));
        }
    }

    /// The same, unless the duty is another one than `from` meanwhile.
    pub(super) fn change_duty(&self, from: Duty, to: Duty) {
        if let Some(passing) = &self.passing {
            passing.set(|now| (now == from as u64).then_some(to));
        }
    }

    /// Whether this is the program's duty.
    pub(super) fn has_duty(&self, duty: Duty) -> bool {
        let now =
            self.passing.as_ref().map_or(Duty::Take as u64, |passing| passing.now().load(Ordering::Relaxed));
        now & ((1 << DUTY_BITS) - 1) == duty as u64
    }

    /// This connection of `remote` to `local` has this owner.
    /// Errors: the system's: [`io::ErrorKind::ArgumentListTooLong`] if there is no room, and without privileges before
    /// Linux 5.19.
    pub(super) fn own(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        owner: ConnectionOwner,
    ) -> io::Result<()> {
        let Some(passing) = &self.passing else { return Ok(()) };
        let epoch = passing.now().load(Ordering::Relaxed) >> DUTY_BITS;
        sys::set_element(passing.owned.as_fd(), &tuple(local, remote), &owned(epoch, owner).to_ne_bytes())
    }

    /// Whether the program has passed the SYN of this connection in this epoch.
    pub(super) fn has_passed(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
        let Some(passing) = &self.passing else { return Ok(false) };
        let mut value = [0; 4];
        let found = sys::get_element(passing.passed.as_fd(), &tuple(local, remote), &mut value)?;
        let epoch = passing.now().load(Ordering::Relaxed) >> DUTY_BITS;
        Ok(found && u32::from_ne_bytes(value) == owned(epoch, ConnectionOwner::Kernel))
    }

    /// Forgets which SYNs the program has passed. None may be passed meanwhile.
    pub(super) fn forget_passed(&self) -> io::Result<()> {
        let Some(passing) = &self.passing else { return Ok(()) };
        let (map, mut key) = (passing.passed.as_fd(), [0; TUPLE_BYTES as usize]);
        while sys::first_key(map, &mut key)? {
            sys::delete_element(map, &key)?;
        }
        Ok(())
    }

    /// Nobody owns this connection any more.
    pub(super) fn disown(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        match &self.passing {
            Some(passing) => sys::delete_element(passing.owned.as_fd(), &tuple(local, remote)),
            None => Ok(()),
        }
    }

    /// How many SYNs of each kind the program has taken at a queue.
    pub(super) fn opened(&self, queue: u32) -> [u64; SynOpening::COUNT] {
        std::array::from_fn(|kind| counter(&self.opened, place(queue, kind)).load(Ordering::Relaxed))
    }

    /// How many SYNs of each kind the program may have taken at a queue.
    pub(super) fn let_open(&self, queue: u32, most: [u64; SynOpening::COUNT]) {
        for (kind, most) in most.into_iter().enumerate() {
            counter(&self.opened, place(queue, kind) + 1).store(most, Ordering::Relaxed);
        }
    }

    /// Gives a queue its socket.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_element(
            self.sockets.as_fd(),
            &queue.to_ne_bytes(),
            &(socket.as_raw_fd() as u32).to_ne_bytes(),
        )
    }

    /// From now on, packets to this address and port are taken. `number` is below [`MOST_SERVED`], and of this address and port alone.
    /// Errors: the system's, as for too many.
    pub(super) fn serve(&self, number: u32, at: SocketAddr, transport: Transport) -> io::Result<()> {
        self.set_present(number, true);
        sys::set_element(self.served.as_fd(), &served_key(at, transport), &number.to_ne_bytes())
    }

    /// Whether packets to the address and port with this number are taken. Those that are not are the kernel's.
    pub(super) fn set_present(&self, number: u32, present: bool) {
        counter(&self.presence, number as usize).store(present.into(), Ordering::Relaxed);
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

/// The key of a connection of `remote` to `local`.
fn tuple(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut key = [remote, local].map(|at| mapped(at.ip())).concat();
    key.extend(remote.port().to_be_bytes());
    key.extend(local.port().to_be_bytes());
    key
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn served_key(at: SocketAddr, transport: Transport) -> [u8; 20] {
    let address = mapped(at.ip());
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

/// Which number of the map of openings counts a kind of SYN at a queue. The next one is how many there may be.
const fn place(queue: u32, kind: usize) -> usize {
    queue as usize * OPENING_BYTES as usize / 8 + 2 * kind
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
