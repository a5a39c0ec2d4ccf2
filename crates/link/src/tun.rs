//! A TUN device: the kernel of this machine is the network, or the peer (Linux).

mod device;
mod error;
mod netlink;
mod offload;
#[cfg(test)]
mod offload_tests;
mod queues;
#[cfg(test)]
mod tests;

use firstflight_wire::setters;
use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll, ready};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::unistd::{self, AccessFlags, eaccess};
use tun_rs::{AsyncDevice, DeviceBuilder, DeviceImpl, SyncDevice};

pub use device::TunDevice;
pub use error::TunError;
pub use queues::TunQueue;

use crate::link::{Link, short_buffer};
use offload::{Inbox, Outbox};

/// The longest name of a network device, in bytes (`IFNAMSIZ` without the final zero).
pub const MAX_NAME_BYTES: usize = 15;

/// The driver's file.
const DRIVER: &str = "/dev/net/tun";

/// Every IPv4 link carries this many bytes (RFC 791 section 3.2).
const MIN_MTU_V4: u16 = 68;

/// Every IPv6 link carries this many bytes (RFC 8200 section 5). The kernel has no IPv6 on a device with a
/// smaller MTU.
const MIN_MTU_V6: u16 = 1280;

/// The link-layer address of `neighbour` on the device with number `index` (its scope), from the kernel's
/// table of neighbours. `None` if it is not known there. Nothing is sent. Needs Linux 5.0 or later.
///
/// # Errors
/// The system's.
pub fn link_address(index: u32, neighbour: IpAddr) -> io::Result<Option<Vec<u8>>> {
    netlink::link_address(index, neighbour)
}

/// The settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunConfig {
    /// Name of the device, 1 to 15 bytes, not yet in use.
    pub name: String,
    /// The addresses of the *kernel's* side with their prefix lengths in bits. The kernel routes each prefix into
    /// the device, so the other addresses of the prefix are free for this program to use.
    pub host: Vec<(IpAddr, u8)>,
    /// The largest packet, in bytes: at least 68, and with IPv6 at least 1280.
    pub mtu: u16,
    /// Length of the device's queue (txqueuelen), at least 1: the packets that the kernel keeps while the
    /// program does not read. The kernel drops packets that do not fit, and a dropped SYN costs its client a
    /// second. A packet in the queue takes about 2.3 kB of the kernel's memory.
    pub queue: u32,
    /// Segmentation and checksum offload: the kernel and this program hand over many segments of a connection in one
    /// call, and leave checksums to each other where they can. The link's users see packets of at most `mtu` bytes with
    /// right checksums either way.
    pub offload: bool,
}

setters! {
    TunConfig {
        name: String,
        host: Vec<(IpAddr, u8)>,
        mtu: u16,
        queue: u32,
        offload: bool,
    }
}

/// Default length of the queue, in packets: 40 ms of 100,000 packets a second.
const QUEUE_PACKETS: u32 = 4096;

impl Default for TunConfig {
    /// `firstflight0`, no addresses, 1500 bytes, 4096 packets, with offload.
    fn default() -> Self {
        let name = "firstflight0".to_owned();
        Self { name, host: Vec::new(), mtu: 1500, queue: QUEUE_PACKETS, offload: true }
    }
}

impl TunConfig {
    /// Checks everything that can be checked without the system.
    pub fn validate(&self) -> Result<(), TunError> {
        let name = self.name.as_str();
        // Like the kernel's dev_valid_name(). It also refuses '%', which would make the name a template.
        let forbidden = |c: char| c == '/' || c == ':' || c == '%' || c == '\0' || c.is_whitespace();
        if name.is_empty()
            || name.len() > MAX_NAME_BYTES
            || name == "."
            || name == ".."
            || name.contains(forbidden)
        {
            return Err(TunError::NameInvalid(self.name.clone()));
        }
        let has_v6 = self.host.iter().any(|(address, _)| address.is_ipv6());
        let minimum = if has_v6 { MIN_MTU_V6 } else { MIN_MTU_V4 };
        if self.mtu < minimum {
            return Err(TunError::MtuTooSmall { mtu: self.mtu, minimum });
        }
        for &(address, prefix) in &self.host {
            let (longest, broadcast) = match address {
                IpAddr::V4(address) => (32, address.is_broadcast()),
                IpAddr::V6(_) => (128, false),
            };
            if prefix > longest || broadcast || address.is_unspecified() || address.is_multicast() {
                return Err(TunError::AddressInvalid { address, prefix });
            }
        }
        Ok(())
    }

    /// Checks that neither the name nor an address is taken in this network namespace. The kernel would attach to an
    /// existing device of that name, and would accept an address that is already on another device.
    fn check_free(&self) -> Result<(), TunError> {
        if if_nametoindex(self.name.as_str()).is_ok() {
            return Err(TunError::NameTaken(self.name.clone()));
        }
        let present = getifaddrs().map_err(|errno| TunError::system("list the addresses in use", errno))?;
        for interface in present {
            let Some(storage) = interface.address else {
                continue;
            };
            let v4 = storage.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            let v6 = storage.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
            let Some(taken) = v4.or(v6) else {
                continue;
            };
            if self.host.iter().any(|(address, _)| *address == taken) {
                return Err(TunError::AddressInUse { address: taken, device: interface.interface_name });
            }
        }
        Ok(())
    }
}

/// A TUN device of this process. The kernel removes it, with its addresses and routes, when this is dropped.
///
/// Packets that are sent go to the kernel as if they had arrived from a network. Packets that the kernel
/// routes into the device are received. The kernel also sends packets of its own (IPv6 router solicitations,
/// multicast reports).
pub struct Tun {
    device: AsyncDevice,
    name: String,
    mtu: u16,
    offload: Option<(Inbox, Outbox)>,
    /// See [`Link::look`].
    looks: bool,
}

impl Tun {
    /// Creates the device, sets its MTU and the length of its queue, brings it up and sets the kernel's
    /// addresses. Sockets can bind to them and packets reach them at once: there is no duplicate address
    /// detection, because a TUN device has no neighbours, and this function waits for the kernel's work in
    /// the background. It blocks for some milliseconds.
    ///
    /// Call it within a tokio runtime whose I/O driver is enabled. Without the driver, tokio panics.
    ///
    /// # Errors
    /// See [`TunError`]. After an error no device is left behind.
    pub fn create(config: TunConfig) -> Result<Self, TunError> {
        config.validate()?;
        let _runtime = tokio::runtime::Handle::try_current().map_err(|_| TunError::NoRuntime)?;
        let device = Self::set_up(&config, false)?;
        Self::open(device, &config)
    }

    /// Checks, as far as it can be known without a change, whether this process may create a device: it can open the driver's
    /// file, and has the capability `CAP_NET_ADMIN`. Whether a name or an address is free is not asked.
    ///
    /// # Errors
    /// [`TunError::DeviceMissing`] or [`TunError::Permission`].
    pub fn check_permission() -> Result<(), TunError> {
        // The file is not opened: that could load the driver.
        match eaccess(DRIVER, AccessFlags::R_OK | AccessFlags::W_OK) {
            Err(Errno::EACCES | Errno::EPERM | Errno::EROFS) => return Err(TunError::Permission),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV) => return Err(TunError::DeviceMissing),
            // What is not known is no mistake.
            Ok(()) | Err(_) => {}
        }
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        match may_administer(&status) {
            Some(false) => Err(TunError::Permission),
            Some(true) | None => Ok(()),
        }
    }

    /// Creates the device and sets it up, in this order: the name and the addresses are free, it comes up with its
    /// settings, the addresses are in use.
    fn set_up(config: &TunConfig, several_queues: bool) -> Result<SyncDevice, TunError> {
        config.check_free()?;
        let device = DeviceBuilder::new()
            .name(config.name.as_str())
            .inherit_enable_state()
            .offload(config.offload)
            .multi_queue(several_queues)
            .build_sync()
            .map_err(|error| TunError::from_creation(&config.name, error))?;
        device.set_mtu(config.mtu).map_err(TunError::at("set the MTU"))?;
        let index = device.if_index().map_err(TunError::at("find it"))?;
        // The queues of the driver take `queue` packets each, and drop what does not fit, so a queueing discipline has
        // nothing to do. A device with several queues would have 256 of them, each with room for three times as many
        // packets: 100 MB of the kernel's memory with a queue of 16,384. A kernel without disciplines refuses this.
        let _ = netlink::without_discipline(index);
        device.set_tx_queue_len(config.queue.max(1)).map_err(TunError::at("set the length of its queue"))?;
        device.enabled(true).map_err(TunError::at("bring it up"))?;
        for &(address, prefix) in &config.host {
            netlink::add_address(index, address, prefix)
                .map_err(|error| TunError::from_address(address, error))?;
        }
        for &(address, _) in &config.host {
            netlink::wait_until_local(address).map_err(TunError::at("see its address in use"))?;
        }
        Ok(device)
    }

    /// A queue of the device, for the current runtime.
    fn open(device: SyncDevice, config: &TunConfig) -> Result<Self, TunError> {
        let device = AsyncDevice::new(device).map_err(TunError::at("read it without waiting"))?;
        let offload = config.offload.then(|| (Inbox::new(), Outbox::new()));
        Ok(Self { device, name: config.name.clone(), mtu: config.mtu, offload, looks: false })
    }

    /// The name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Reads what the device has next. `looks`: also if the runtime says that there is nothing; not set any more when there is
/// nothing.
fn read(
    device: &AsyncDevice,
    looks: &mut bool,
    cx: &mut Context<'_>,
    buf: &mut [u8],
) -> Poll<io::Result<usize>> {
    let read = device.poll_recv(cx, buf);
    if read.is_ready() || !*looks {
        return read;
    }
    let device: &DeviceImpl = device;
    match unistd::read(device, buf) {
        Err(Errno::EAGAIN) => {
            *looks = false;
            Poll::Pending
        }
        read => Poll::Ready(read.map_err(io::Error::from)),
    }
}

/// Whether a process with this status (proc_pid_status(5)) has `CAP_NET_ADMIN` (capabilities(7)). `None` if it does not say.
fn may_administer(status: &str) -> Option<bool> {
    const CAP_NET_ADMIN: u32 = 12;
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?.trim();
    let effective = u64::from_str_radix(digits, 16).ok()?;
    Some(effective & (1 << CAP_NET_ADMIN) != 0)
}

impl Link for Tun {
    fn mtu(&self) -> usize {
        usize::from(self.mtu)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.len() < self.mtu() {
            return Poll::Ready(Err(short_buffer()));
        }
        let Self { device, offload, looks, .. } = self;
        let Some((inbox, _)) = offload else { return read(device, looks, cx, buf) };
        loop {
            if let Some(len) = inbox.next(buf) {
                return Poll::Ready(Ok(len));
            }
            let len = ready!(read(device, looks, cx, inbox.room()))?;
            inbox.take(len);
        }
    }

    fn look(&mut self) {
        self.looks = true;
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        if let Some((_, outbox)) = &self.offload {
            if !outbox.takes(packet) {
                ready!(self.poll_flush(cx))?;
            }
            if let Some((_, outbox)) = &mut self.offload {
                outbox.push(packet);
            }
            return Poll::Ready(Ok(()));
        }
        // The driver accepts a packet completely or not at all.
        ready!(self.device.poll_send(cx, packet))?;
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((_, outbox)) = self.offload.as_mut().filter(|(_, outbox)| !outbox.is_empty()) else {
            return Poll::Ready(Ok(()));
        };
        let sent = ready!(self.device.poll_send(cx, outbox.finish()));
        outbox.clear();
        Poll::Ready(sent.map(drop))
    }
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tun").field("name", &self.name).field("mtu", &self.mtu).finish_non_exhaustive()
    }
}

/// The error number in an error of the system's, if it is one.
fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}
