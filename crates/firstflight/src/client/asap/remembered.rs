//! What is remembered of requests inside lookups for later runs.

use crate::dns_path::DnsPath;
use crate::kernel::Kernel;
use crate::memory::lookups::LookupMemory;
use crate::record::dns_path;
use firstflight_credential::NetworkId;
use firstflight_dns::Manners;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which resolvers refuse, change or lose names, and on which networks strangers cannot answer. What servers publish, and how
/// many first flights to them were lost, is in the memory of the kernel's ways.
#[derive(Debug)]
pub(super) struct Remembered {
    file: Option<PathBuf>,
    here: Mutex<Here>,
    kernel: Kernel,
}

/// What is known on the present network.
#[derive(Debug)]
struct Here {
    network: NetworkId,
    memory: LookupMemory,
}

impl Remembered {
    /// Reads the file, if there is one.
    pub(super) fn open(file: Option<&Path>, network: NetworkId, kernel: &Kernel) -> Self {
        let here = Mutex::new(Here::read(file, network));
        Self { file: file.map(Path::to_owned), here, kernel: kernel.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Here> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What resolvers did so far.
    pub(super) fn manners(&self) -> Manners {
        self.lock().memory.manners(crate::certificate_clock().unwrap_or_default())
    }

    /// Tells `path` how many first flights to each server of this network were lost.
    pub(super) fn recall_losses(&self, path: &DnsPath) {
        let network = self.lock().network;
        let mut memory = self.kernel.memory();
        let (records, _) = memory.records();
        let here = records.iter().filter(|(server, known)| server.network == network && known.lost > 0);
        for (_, known) in here {
            if let Some(of) = known.parameter.as_deref().and_then(dns_path) {
                path.recall_lost(&of, known.lost);
            }
        }
    }

    /// Whether strangers could not answer at the last verification on this network, less than an hour ago.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().memory.is_unreachable()
    }

    /// Whether strangers can answer on this network.
    pub(super) fn set_closed(&self, closed: bool) {
        self.lock().memory.set_unreachable(closed);
    }

    /// The host is on another network now.
    pub(super) fn move_to(&self, network: NetworkId, path: &DnsPath) {
        self.save(path);
        *self.lock() = Here::read(self.file.as_deref(), network);
        path.forget_losses();
        self.recall_losses(path);
    }

    /// Writes what `path` has learnt. The losses are in the kernel's memory then.
    pub(super) fn save(&self, path: &DnsPath) {
        path.conclude();
        let mut here = self.lock();
        {
            // The kernel's memory may be on the next network already.
            let network = here.network;
            let mut memory = self.kernel.memory();
            let (records, _) = memory.records();
            records
                .set_losses(network, |parameter| dns_path(parameter).map_or(0, |of| path.lost_in_a_row(&of)));
        }
        here.memory.set_stops(&path.stops(), crate::certificate_clock().unwrap_or_default());
        if let Err(error) = here.memory.save() {
            tracing::warn!("cannot keep what resolvers did: {error}");
        }
    }
}

impl Here {
    fn read(file: Option<&Path>, network: NetworkId) -> Self {
        let memory = file.map_or_else(
            || LookupMemory::new(network),
            |file| {
                LookupMemory::open(file, network).unwrap_or_else(|error| {
                    tracing::warn!("what resolvers did is not known: {error}");
                    LookupMemory::new(network)
                })
            },
        );
        Self { network, memory }
    }
}

#[cfg(test)]
mod tests;
