//! The key files of a front, which are read again while it runs.

use super::{FrontHandle, SetUpError, unix_ms};
use crate::boot_file::BootFile;
use crate::forward::ForwardSender;
use crate::front::RelayServer;
use crate::key_file::{DnsPathKeyFile, read_relay_keys};
use crate::keys::DnsPathKeys;
use crate::relay::{Boot, RelayKey, RelaySender};
use firstflight_files::LastProblem;
use firstflight_files::lines::{KeyFileError, LineError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the files are checked.
const EVERY: Duration = Duration::from_secs(1);

/// A server that gets first flights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayTo {
    /// Where it takes them.
    pub address: SocketAddr,
    /// The file of the key that it shares with the front.
    pub key: PathBuf,
}

/// A key with its number.
type NumberedKey = (u8, RelayKey);

/// The files of a front, and the content that was read last.
pub(super) struct KeyFiles {
    dns_path: PathBuf,
    /// `None` if nothing is sent under a key.
    starts: Option<Starts>,
    /// `None` if first flights go to no other server.
    relays: Option<Relays>,
    /// `None` if there are no other fronts.
    forward: Option<Forward>,
}

/// The file of this front's starts. A new key counts as another start, so that no two datagrams have the same nonce.
pub(super) struct Starts {
    path: PathBuf,
    /// `None` for a look at the files: nothing is sent.
    file: Option<BootFile>,
}

impl Starts {
    /// Opens the file, or creates it.
    pub(super) fn open(path: PathBuf) -> Result<Self, SetUpError> {
        let file = BootFile::open(&path).map_err(|error| SetUpError::State(path.clone(), error))?;
        Ok(Self { path, file: Some(file) })
    }

    /// Looks whether the file could be opened. It is neither created nor locked.
    pub(super) fn look(path: PathBuf) -> Result<Self, SetUpError> {
        match BootFile::check(&path) {
            Ok(()) => Ok(Self { path, file: None }),
            Err(error) => Err(SetUpError::State(path, error)),
        }
    }

    fn next(&mut self) -> Result<Boot, SetUpError> {
        let Some(file) = &mut self.file else { return Ok(Boot(0)) };
        let now = u32::try_from(unix()).unwrap_or(u32::MAX);
        file.next(now).map_err(|error| SetUpError::State(self.path.clone(), error))
    }
}

/// The servers' key files, and the content that was read last.
pub(super) struct Relays {
    servers: Vec<RelayTo>,
    front_id: u16,
    /// The keys in use, in the order of the servers.
    used: Vec<NumberedKey>,
}

/// The key file of the zone's fronts, and the content that was read last.
pub(super) struct Forward {
    path: PathBuf,
    front_id: u16,
    used: Option<NumberedKey>,
}

/// The content of the key file of the zone's fronts.
pub(super) struct ForwardKeys {
    /// `None` if this front continues to send under its previous key.
    pub(super) sender: Option<ForwardSender>,
    /// All keys, with their numbers.
    pub(super) keys: Vec<NumberedKey>,
}

fn unix() -> u64 {
    unix_ms() / 1000
}

/// The first key in a file, and all its keys. There is at least one.
fn read_keys(path: &Path) -> Result<(NumberedKey, Vec<NumberedKey>), SetUpError> {
    let fail = |error| SetUpError::Key(path.to_owned(), error);
    let keys = read_relay_keys(path).map_err(fail)?;
    let first = keys.first().cloned().ok_or_else(|| fail(KeyFileError::Content(LineError::NoKey)))?;
    Ok((first, keys))
}

impl Forward {
    /// Uses this file. Nothing is read yet.
    pub(super) fn new(path: PathBuf, front_id: u16) -> Self {
        Self { path, front_id, used: None }
    }

    /// Reads the keys. If the first key has changed, there is a new sender, which counts as another start.
    fn keys(&mut self, starts: &mut Starts) -> Result<ForwardKeys, SetUpError> {
        let (first, keys) = read_keys(&self.path)?;
        if self.used.as_ref() == Some(&first) {
            return Ok(ForwardKeys { sender: None, keys });
        }
        let sender = ForwardSender::new(&first.1, first.0, self.front_id, starts.next()?);
        self.used = Some(first);
        Ok(ForwardKeys { sender: Some(sender), keys })
    }
}

impl Relays {
    /// Uses these servers. No key is read yet.
    pub(super) fn new(servers: Vec<RelayTo>, front_id: u16) -> Self {
        Self { servers, front_id, used: Vec::new() }
    }

    /// Returns the servers if a key has changed. Each change counts as another start, so that a key that is used
    /// again never repeats a nonce.
    fn servers(&mut self, starts: &mut Starts) -> Result<Option<Vec<RelayServer>>, SetUpError> {
        let read = self.servers.iter().map(|to| Ok(read_keys(&to.key)?.0));
        let keys = read.collect::<Result<Vec<_>, SetUpError>>()?;
        if self.used == keys {
            return Ok(None);
        }
        let boot = starts.next()?;
        // Servers that share a key get senders with different numbers.
        let fronts = self.front_id..=u16::MAX;
        let servers = self.servers.iter().zip(&keys).zip(fronts).map(|((to, (id, key)), front)| {
            RelayServer { address: to.address, sender: RelaySender::new(key, *id, front, boot) }
        });
        let servers = servers.collect();
        self.used = keys;
        Ok(Some(servers))
    }
}

impl KeyFiles {
    /// Uses these files. No key is read yet.
    pub(super) fn new(
        dns_path: PathBuf,
        starts: Option<Starts>,
        relays: Option<Relays>,
        forward: Option<Forward>,
    ) -> Self {
        Self { dns_path, starts, relays, forward }
    }

    /// The present keys that first flights are sealed to.
    pub(super) fn dns_path(&self) -> Result<DnsPathKeys, SetUpError> {
        let file = DnsPathKeyFile::read(&self.dns_path);
        let file = file.map_err(|error| SetUpError::Key(self.dns_path.clone(), error))?;
        Ok(file.keys(unix()))
    }

    /// The servers, if there are any and a key has changed.
    pub(super) fn servers(&mut self) -> Result<Option<Vec<RelayServer>>, SetUpError> {
        match (&mut self.relays, &mut self.starts) {
            (Some(relays), Some(starts)) => relays.servers(starts),
            _ => Ok(None),
        }
    }

    /// The keys that the zone's fronts share, if there are other fronts.
    pub(super) fn forward(&mut self) -> Result<Option<ForwardKeys>, SetUpError> {
        match (&mut self.forward, &mut self.starts) {
            (Some(forward), Some(starts)) => forward.keys(starts).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads the files every second and gives their keys to the front, until this is dropped. While a file cannot be
    /// read or is not valid, its keys stay unchanged and one warning is logged. The keys of the other files may still
    /// change.
    pub(super) async fn follow(mut self, front: FrontHandle) {
        let mut last = LastProblem::default();
        loop {
            tokio::time::sleep(EVERY).await;
            let reading = tokio::task::spawn_blocking(move || {
                let read = (self.dns_path(), self.servers(), self.forward());
                (self, read)
            });
            let Ok((files, (dns_path, servers, forward))) = reading.await else { return };
            self = files;
            // A key that was read counts as used, so it is given to the front even if another file is not valid.
            let problems = [
                dns_path.map(|keys| front.set_keys(keys)).err(),
                servers.map(|servers| set_servers(&front, servers)).err(),
                forward.map(|keys| set_forward_keys(&front, keys)).err(),
            ];
            let Some(problem) = problems.into_iter().flatten().next() else {
                last.over();
                continue;
            };
            if let Some(problem) = last.new_message(&problem) {
                tracing::warn!("the keys stay as they are: {problem}");
            }
        }
    }
}

fn set_servers(front: &FrontHandle, servers: Option<Vec<RelayServer>>) {
    if let Some(servers) = servers {
        front.set_servers(servers);
        tracing::info!("relay keys have changed");
    }
}

fn set_forward_keys(front: &FrontHandle, keys: Option<ForwardKeys>) {
    let Some(ForwardKeys { sender, keys }) = keys else { return };
    if sender.is_some() {
        tracing::info!("the key of the zone's name servers has changed");
    }
    front.set_forward_keys(sender, &keys);
}

#[cfg(test)]
mod tests;
