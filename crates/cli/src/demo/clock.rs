//! The demonstration's clock: virtual, or the system's with `--real-time`.

use super::DemoError;
use crate::error::Error;
use crate::runtime::block_on;
use firstflight::link::MemoryLinkError;
use firstflight::link::{MemoryLink, PathConfig, VirtualTime, real_time_pair, virtual_time_pair};
use firstflight::{Time, block_on_virtual};
use std::time::Duration;

/// The wall clock at the start of virtual time: 2026-01-01 00:00 UTC.
const BEGINNING: Duration = Duration::from_secs(1_767_225_600);

/// The clock of a demonstration.
pub enum DemoClock {
    System,
    Virtual(VirtualTime),
}

impl DemoClock {
    /// The system's clock if `real`, otherwise a virtual one.
    pub fn new(real: bool) -> Self {
        if real { Self::System } else { Self::Virtual(VirtualTime::new(BEGINNING)) }
    }

    /// The time source for endpoints and sleeps.
    pub fn time(&self) -> Time {
        match self {
            Self::System => Time::system(),
            Self::Virtual(time) => time.clone().into(),
        }
    }

    /// Two links joined by a path in this time.
    pub fn pair(&self, path: &PathConfig, seed: u64) -> Result<(MemoryLink, MemoryLink), DemoError> {
        match self {
            Self::System => real_time_pair(path.clone(), path.clone(), seed),
            Self::Virtual(time) => {
                virtual_time_pair(path.clone(), path.clone(), seed, time).map_err(MemoryLinkError::Path)
            }
        }
        .map_err(DemoError::Path)
    }

    /// Runs `work` to completion.
    ///
    /// In virtual time `work` must not wait for real I/O: see [`block_on_virtual`].
    pub fn block_on<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self {
            Self::System => block_on(work),
            Self::Virtual(time) => block_on_virtual(time, work).map_err(Error::Runtime)?,
        }
    }
}
