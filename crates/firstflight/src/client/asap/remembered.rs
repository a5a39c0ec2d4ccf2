//! What is remembered of requests inside lookups for later runs.

use super::inside::dns_path;
use crate::dns_path::DnsPath;
use crate::kernel::Kernel;
use crate::memory::lookups::LookupMemory;
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::memory::records::Named;
    use firstflight_wire::asap::{DnsPathParam, ServiceParam, UdpService, VerifierIds, Zone};
    use std::num::{NonZeroU8, NonZeroU16};
    use std::time::Duration;

    /// The networks of this test reach the same server with the same record. Losses count on one of them only.
    #[tokio::test]
    async fn losses_belong_to_the_network_where_they_happened() {
        let zone = Zone::new(b"\x01f\x03xyz\x03com\x00").unwrap();
        let of = DnsPathParam { key_id: NonZeroU8::MIN, key: [9; 32], zone };
        let udp = UdpService { port: NonZeroU16::new(80).unwrap(), dns_path: Some(of) };
        let ids = [[1; 4]];
        let parameter =
            ServiceParam::new(false, Some(udp), 1176, VerifierIds::new(&ids).unwrap(), false).unwrap();
        let mut bytes = [0; ServiceParam::MAX_LEN];
        let len = parameter.emit(&mut bytes).unwrap();
        let [home, cafe] = [7, 8].map(|id| NetworkId([id; 16]));
        let kernel = Kernel::on(home);
        for network in [home, cafe] {
            let mut memory = kernel.memory();
            let (records, now) = memory.records();
            let server = Named::new(network, "www.xyz.com", 80);
            records.learn(server, Some(&bytes[..len]), Duration::from_secs(600), now);
        }
        let lost = |network| {
            let mut memory = kernel.memory();
            let (records, now) = memory.records();
            records.get(&Named::new(network, "www.xyz.com", 80), now).unwrap().lost
        };
        let link = firstflight_link::UdpLink::client(&[]).unwrap();
        let endpoint = crate::Endpoint::over_udp(crate::config(Vec::new()).unwrap(), link);
        let at = "127.0.0.1:53".parse().unwrap();
        let path =
            DnsPath::new(endpoint, at, None, home, None, Manners::new(), crate::dns_path::Form::default());
        let remembered = Remembered::open(None, home, &kernel);
        path.recall_lost(&of, 3);
        kernel.move_to(cafe);
        remembered.move_to(cafe, &path);
        assert_eq!((lost(home), lost(cafe), path.lost_in_a_row(&of)), (3, 0, 0));
        kernel.move_to(home);
        remembered.move_to(home, &path);
        assert_eq!((lost(home), lost(cafe), path.lost_in_a_row(&of)), (3, 0, 3));
    }
}
