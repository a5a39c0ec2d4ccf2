//! The key files of a front, read again while it runs.

use super::{DnsError, RelayTo};
use firstflight_dns::service::{FrontHandle, unix_ms};
use firstflight_dns::{
    BootFile, CarriageKeyFile, CarriageKeys, RelayKey, RelaySender, RelayServer, read_relay_keys,
};
use std::path::PathBuf;
use std::time::Duration;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The files of a front, and what was in them.
pub struct KeyFiles {
    carriage: PathBuf,
    /// `None`: first flights go nowhere else.
    relays: Option<Relays>,
}

/// The servers' key files, and what was in them.
pub struct Relays {
    servers: Vec<RelayTo>,
    front_id: u16,
    state: PathBuf,
    boot: BootFile,
    /// The keys that are used for the servers, in their order.
    used: Vec<(u8, RelayKey)>,
}

fn unix() -> u64 {
    unix_ms() / 1000
}

impl Relays {
    /// For these servers; nothing of keys is read yet.
    pub fn new(servers: Vec<RelayTo>, front_id: u16, state: PathBuf) -> Result<Self, DnsError> {
        let boot = BootFile::open(&state).map_err(|error| DnsError::State(state.clone(), error))?;
        Ok(Self { servers, front_id, state, boot, used: Vec::new() })
    }

    /// The servers, if a key has changed. Under a key that comes back no nonce is used twice: each change counts
    /// as another start.
    fn servers(&mut self) -> Result<Option<Vec<RelayServer>>, DnsError> {
        let mut keys = Vec::with_capacity(self.servers.len());
        for RelayTo { path, .. } in &self.servers {
            let fail = |error| DnsError::unusable(path, error);
            let first = read_relay_keys(path).map_err(fail)?.into_iter().next();
            keys.push(first.ok_or_else(|| fail(firstflight_dns::KeyFileError::NoKey))?);
        }
        let same = |((a, old), (b, new)): (&(u8, RelayKey), &(u8, RelayKey))| {
            a == b && *old.to_bytes() == *new.to_bytes()
        };
        if keys.len() == self.used.len() && self.used.iter().zip(&keys).all(same) {
            return Ok(None);
        }
        let now = u32::try_from(unix()).unwrap_or(u32::MAX);
        let boot = self.boot.next(now).map_err(|error| DnsError::State(self.state.clone(), error))?;
        // Servers that share a key see senders with different numbers.
        let fronts = (0..=u16::MAX).map(|n| self.front_id.wrapping_add(n));
        let servers = self.servers.iter().zip(&keys).zip(fronts).map(|((to, (id, key)), front)| {
            RelayServer { address: to.address, sender: RelaySender::new(key, *id, front, boot) }
        });
        let servers = servers.collect();
        self.used = keys;
        Ok(Some(servers))
    }
}

impl KeyFiles {
    /// For these files; nothing of keys is read yet.
    pub fn new(carriage: PathBuf, relays: Option<Relays>) -> Self {
        Self { carriage, relays }
    }

    /// The keys that first flights are sealed to, as they are now.
    pub fn carriage(&self) -> Result<CarriageKeys, DnsError> {
        let file = CarriageKeyFile::read(&self.carriage);
        let file = file.map_err(|error| DnsError::unusable(&self.carriage, error))?;
        Ok(file.keys(unix()))
    }

    /// The servers, if there are any and a key has changed.
    pub fn servers(&mut self) -> Result<Option<Vec<RelayServer>>, DnsError> {
        self.relays.as_mut().map_or(Ok(None), Relays::servers)
    }

    /// Reads the files every second and gives what is in them to the front, until it is dropped. While one cannot
    /// be read or makes no sense, its keys stay as they are, with one warning.
    pub async fn follow(mut self, front: FrontHandle) {
        let mut said: Option<String> = None;
        loop {
            tokio::time::sleep(EVERY).await;
            let reading = tokio::task::spawn_blocking(move || {
                let read = (self.carriage(), self.servers());
                (self, read)
            });
            let Ok((files, (carriage, servers))) = reading.await else { return };
            self = files;
            let problem = match (carriage, servers) {
                (Ok(keys), Ok(servers)) => {
                    front.set_keys(keys);
                    if let Some(servers) = servers {
                        front.set_servers(servers);
                        tracing::info!("relay keys have changed");
                    }
                    said = None;
                    continue;
                }
                (Err(error), _) | (_, Err(error)) => error.to_string(),
            };
            if said.as_ref() != Some(&problem) {
                tracing::warn!("the keys stay as they are: {problem}");
                said = Some(problem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight_dns::create_relay_key;
    use std::fs;

    #[test]
    fn a_relay_key_that_changes_counts_as_another_start() {
        let directory = std::env::temp_dir().join(format!("firstflight-relay-keys-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("relay");
        let to = RelayTo { address: "192.0.2.80:4454".parse().unwrap(), path: path.clone() };
        let state = directory.join("boot");
        let mut files = Relays::new(vec![to.clone(), to], 7, state.clone()).unwrap();
        let boot = || fs::read_to_string(&state).unwrap();
        let put = |byte| {
            let _ = fs::remove_file(&path);
            create_relay_key(&path, 1, &RelayKey::from_bytes(&[byte; 32])).unwrap();
        };
        put(1);
        let shown = format!("{:?}", files.servers().unwrap().unwrap());
        assert!(shown.contains("front: 7") && shown.contains("front: 8"), "{shown}");
        let first = boot();
        assert!(files.servers().unwrap().is_none());
        assert_eq!(boot(), first);
        // The first key comes back: its numbers begin again, under another start.
        for byte in [2, 1] {
            let before = boot();
            put(byte);
            assert_eq!(files.servers().unwrap().unwrap().len(), 2);
            assert!(boot() > before);
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(files.servers(), Err(DnsError::Key(..))));
        fs::remove_dir_all(&directory).unwrap();
    }
}
