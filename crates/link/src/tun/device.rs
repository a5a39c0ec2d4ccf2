//! A TUN device without a runtime, in any network namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use tun_rs::{DeviceBuilder, SyncDevice};

use super::{QUEUE_PACKETS, TunConfig, TunError, netlink};

/// Tells the devices of one process apart while they are made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A TUN device without addresses, read and written without waiting. It vanishes when this is dropped, or with its
/// network namespace.
///
/// [`AsFd`] is for `poll(2)`: readable when there is a packet, an error for ever when the device is gone.
pub struct TunDevice {
    device: SyncDevice,
}

impl TunDevice {
    /// Makes a device `name` that carries packets of `mtu` bytes, in the network namespace that `namespace` is an open
    /// file of (such as `/run/netns/NAME`), or in that of the calling thread. It is down, as those that `ip link add`
    /// makes: who gives it addresses also brings it up.
    ///
    /// # Errors
    /// See [`TunError`]; [`TunError::NameTaken`] is about the namespace that the device was to live in. After an error
    /// nothing is left behind.
    pub fn create(name: &str, mtu: u16, namespace: Option<BorrowedFd<'_>>) -> Result<Self, TunError> {
        let wanted = TunConfig { name: name.to_owned(), host: Vec::new(), mtu, queue: QUEUE_PACKETS };
        wanted.validate()?;
        let Some(namespace) = namespace else {
            wanted.check_free()?;
            return Self::open(&wanted);
        };
        // Opened in another namespace the driver would keep that namespace alive. So the device is made here, under
        // a name of its own, and moved: it goes when its namespace goes, and this end is told.
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

    /// Takes the next packet that the kernel routed into the device, and gives its length in bytes. What is longer
    /// than `buf` is cut off.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none. Any other is the system's; `EBADFD` if the device is gone.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.device.recv(buf)
    }

    /// Gives `packet` to the kernel as if it had arrived from a network.
    ///
    /// # Errors
    /// The system's; the packet is lost. `EIO` while the device is down, `EINVAL` if it is no IP packet, `EBADFD` if
    /// the device is gone.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        // The driver takes a packet whole or not at all.
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
