//! A TUN device with several queues: one for each thread that serves it.

use tun_rs::SyncDevice;

use super::{Tun, TunConfig, TunError};

/// A queue of a TUN device with several ([`Tun::create_queues`]). Each queue can belong to another thread and runtime. The kernel
/// puts the packets of a flow into the queue that last sent packets of that flow, and those of a new flow into one that a
/// hash chooses. The device is removed when all its queues are dropped.
pub struct TunQueue {
    device: SyncDevice,
    config: TunConfig,
}

impl Tun {
    /// Creates a device as [`Tun::create`] does, with `count` queues, at least one (`IFF_MULTI_QUEUE` if there are more).
    /// Needs no runtime. From now on the kernel may put packets into any of the queues, so all have to be read.
    ///
    /// # Errors
    /// See [`TunError`]. After an error no device is left behind.
    pub fn create_queues(config: &TunConfig, count: usize) -> Result<Vec<TunQueue>, TunError> {
        config.validate()?;
        let first = Self::set_up(config, count > 1)?;
        let more: Result<Vec<_>, _> = (1..count).map(|_| first.try_clone()).collect();
        let more = more.map_err(TunError::at("give it another queue"))?;
        let devices = std::iter::once(first).chain(more);
        Ok(devices.map(|device| TunQueue { device, config: config.clone() }).collect())
    }
}

impl TunQueue {
    /// The link on this queue. Call it within the tokio runtime that shall use it, with its I/O driver enabled.
    ///
    /// # Errors
    /// See [`TunError`].
    pub fn open(self) -> Result<Tun, TunError> {
        let _runtime = tokio::runtime::Handle::try_current().map_err(|_| TunError::NoRuntime)?;
        Tun::open(self.device, &self.config)
    }
}

impl std::fmt::Debug for TunQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunQueue").field("name", &self.config.name).finish_non_exhaustive()
    }
}
