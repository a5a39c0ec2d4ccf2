//! A TUN device without a runtime, in any network namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use tun_rs::{DeviceBuilder, SyncDevice};

use super::{TunConfig, TunError, netlink};

/// A number that distinguishes the devices of one process while they are made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A TUN device without addresses. Reading and writing do not wait. The kernel removes it when this is
/// dropped, or with its network namespace.
///
/// [`AsFd`] is for `poll(2)`: it is readable when there is a packet, and permanently has an error when the
/// device is gone.
pub struct TunDevice {
    device: SyncDevice,
}

impl TunDevice {
    /// Makes a device `name` that carries packets of `mtu` bytes, in the network namespace whose open file is
    /// `namespace` (such as `/run/netns/NAME`), or in that of the calling thread. The device is down, like
    /// those that `ip link add` makes. Bring it up when you add addresses.
    ///
    /// # Errors
    /// See [`TunError`]; [`TunError::NameTaken`] is about the device's final namespace. After an error no
    /// device is left behind.
    pub fn create(name: &str, mtu: u16, namespace: Option<BorrowedFd<'_>>) -> Result<Self, TunError> {
        let wanted = TunConfig { name: name.to_owned(), mtu, ..TunConfig::default() };
        wanted.validate()?;
        let Some(namespace) = namespace else {
            wanted.check_free()?;
            return Self::open(&wanted);
        };
        // If the driver were opened in another namespace, it would keep that namespace alive. So the device
        // is made here, under a temporary name, and then moved. The kernel removes it with its namespace, and
        // reports that to this end.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let made =
            TunConfig { name: format!("ff{}.{}", std::process::id(), number % 10_000), ..wanted.clone() };
        made.check_free()?;
        let this = Self::open(&made)?;
        let index = this.device.if_index().map_err(TunError::at("find it"))?;
        netlink::move_device(index, namespace, name).map_err(|error| TunError::from_creation(name, error))?;
        Ok(this)
    }

    fn open(config: &TunConfig) -> Result<Self, TunError> {
        let device = DeviceBuilder::new()
            .name(config.name.as_str())
            .inherit_enable_state()
            .mtu(config.mtu)
            .tx_queue_len(config.queue)
            .build_sync()
            .map_err(|error| TunError::from_creation(&config.name, error))?;
        device.set_nonblocking(true).map_err(TunError::at("read it without waiting"))?;
        Ok(Self { device })
    }

    /// Takes the next packet that the kernel routed into the device, and returns its length in bytes. A
    /// packet longer than `buf` is cut off.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none. Any other error is the system's, with `EBADFD` if the
    /// device is gone.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.device.recv(buf)
    }

    /// Gives `packet` to the kernel as if it had arrived from a network.
    ///
    /// # Errors
    /// The system's. The packet is lost. `EIO` while the device is down, `EINVAL` if it is not an IP packet,
    /// `EBADFD` if the device is gone.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        // The driver accepts a packet completely or not at all.
        self.device.send(packet).map(drop)
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl std::fmt::Debug for TunDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunDevice").finish_non_exhaustive()
    }
}
