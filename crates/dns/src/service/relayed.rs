//! The socket at which a server takes first flights from fronts on other machines, and the file of the keys that they share.

use super::{ServiceError, SetUpError, unix_ms};
use crate::key_file::read_relay_keys;
use crate::relay::{ClockReport, MAX_RELAY, RelayCounters, RelayReceiver, Relayed};
use crate::seal::OpenBuffer;
use core::time::Duration;
use firstflight_files::LastProblem;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::UdpSocket;

/// How often the key file is checked.
const EVERY: Duration = Duration::from_secs(1);

/// A socket for fronts that is not served yet.
#[derive(Debug)]
pub struct RelaySocket {
    socket: UdpSocket,
    receiver: RelayReceiver,
    keys: KeyFile,
    counts: RelayCounts,
}

/// Counts of what fronts have sent. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RelayCounts(Arc<Mutex<RelayCounters>>);

impl RelayCounts {
    /// The counts so far.
    #[must_use]
    pub fn now(&self) -> RelayCounters {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: &RelayCounters) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = *now;
    }
}

/// The keys shared with fronts, and which of them the receiver has.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    ids: Vec<u8>,
}

impl KeyFile {
    fn read(&mut self, receiver: &mut RelayReceiver) -> Result<(), SetUpError> {
        let keys = read_relay_keys(&self.path).map_err(|error| SetUpError::Key(self.path.clone(), error))?;
        for id in self.ids.iter().filter(|id| keys.iter().all(|(other, _)| other != *id)) {
            receiver.remove_key(*id);
        }
        for (id, key) in &keys {
            receiver.set_key(*id, key);
        }
        self.ids = keys.iter().map(|(id, _)| *id).collect();
        Ok(())
    }
}

impl RelaySocket {
    /// Reads the key file, and binds the port. Clients must not reach `address`.
    ///
    /// # Errors
    /// [`SetUpError::Key`], and [`SetUpError::Service`] for an address that cannot be used.
    pub async fn bind(address: SocketAddr, key: PathBuf) -> Result<Self, SetUpError> {
        let mut receiver = RelayReceiver::new();
        let mut keys = KeyFile { path: key, ids: Vec::new() };
        keys.read(&mut receiver)?;
        let socket = UdpSocket::bind(address).await;
        let socket = socket.map_err(|error| ServiceError::ListenForRelays(address, error))?;
        Ok(Self { socket, receiver, keys, counts: RelayCounts::default() })
    }

    /// Reads the key file, without binding a port.
    ///
    /// # Errors
    /// [`SetUpError::Key`].
    pub fn check(key: &Path) -> Result<(), SetUpError> {
        KeyFile { path: key.to_owned(), ids: Vec::new() }.read(&mut RelayReceiver::new())
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The counts of what fronts send while this runs.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        self.counts.clone()
    }

    /// Gives `server` the first flights that fronts send, until this is dropped. The key file is read again every second. While it
    /// cannot be used, its keys stay as they are and one warning is logged.
    pub async fn run(mut self, server: impl Fn(Relayed<'_>)) {
        let mut bytes = [0; MAX_RELAY + 1];
        let mut every = tokio::time::interval(EVERY);
        let mut last = LastProblem::default();
        loop {
            tokio::select! {
                received = self.socket.recv_from(&mut bytes) => match received {
                    Ok((len, from)) => self.take(bytes.get(..len).unwrap_or_default(), from, &server),
                    // The error is about another host's packet, because this socket never sends.
                    Err(error) => pause(&error).await,
                },
                _ = every.tick() => match self.keys.read(&mut self.receiver) {
                    Ok(()) => last.over(),
                    Err(error) => if let Some(error) = last.new_message(&error) {
                        tracing::warn!(%error, "the keys of before are used on");
                    }
                },
            }
        }
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr, server: impl Fn(Relayed<'_>)) {
        let mut buffer = OpenBuffer::new();
        match self.receiver.handle_datagram(datagram, unix_ms(), &mut buffer) {
            Ok(relayed) => server(relayed),
            Err(refused) => tracing::debug!(%from, %refused, "a relay datagram was dropped"),
        }
        if let Some(report) = self.receiver.poll_clock() {
            tell(from, &report);
        }
        self.counts.set(self.receiver.counters());
    }
}

async fn pause(error: &io::Error) {
    tracing::debug!(%error, "nothing was received");
    tokio::time::sleep(EVERY).await;
}

/// Logs how the clock of the front at `from` differs from this server's clock.
fn tell(from: SocketAddr, report: &ClockReport) {
    let ClockReport { key_id, front, clock } = report;
    let front = format_args!("front {front} (relay key {key_id}) at {from}");
    let Some((seconds, direction)) = clock.apart() else {
        tracing::warn!("the clock of {front} agrees with this server's again: its first flights are taken");
        return;
    };
    tracing::warn!(
        "the clock of {front} is {seconds:.1} s {direction} this server's, so its first flights are dropped (5 s are \
         allowed): one of the two clocks is wrong, run NTP on both machines"
    );
}
