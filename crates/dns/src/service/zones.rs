//! The zone files of a front, which are read again when they change and on SIGHUP.

use super::{FrontHandle, SetUpError};
use crate::zone::{ZoneData, ZoneFault};
use firstflight_files::{BYTE_ORDER_MARK, FileStamp, LastProblem, open_regular};
use hickory_proto::rr::Name;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// How often the files are checked.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum size of all zone files together, bytes.
const LARGEST: u64 = 256 << 20;
/// Maximum number of files read, counting each inclusion. Without a limit, files that include others more than once
/// could multiply without end.
const MOST: usize = 4096;

/// A zone file, and the name that the zone begins at.
pub type ZoneFile = (PathBuf, Name);

/// The zone files of a front, and those that they include.
#[derive(Debug)]
pub(super) struct ZoneFiles {
    zones: Vec<ZoneFile>,
    seen: BTreeMap<PathBuf, FileStamp>,
    /// The digest of everything that was read.
    digest: [u8; 32],
    followed: FollowedZones,
    list: watch::Receiver<Vec<ZoneFile>>,
}

/// Reads files, and records which.
#[derive(Default)]
struct Reading {
    seen: BTreeMap<PathBuf, FileStamp>,
    digest: Sha256,
    /// The number of files, and of their bytes.
    files: usize,
    bytes: u64,
}

impl Reading {
    fn file(&mut self, path: &Path) -> io::Result<String> {
        self.seen.insert(path.to_owned(), FileStamp::MISSING);
        self.files += 1;
        if self.files > MOST {
            return Err(io::Error::other(format!("it is one of more than {MOST} files")));
        }
        let (file, before) = open_regular(path)?;
        self.seen.insert(path.to_owned(), FileStamp::of(&before));
        let (mut text, left) = (String::new(), LARGEST.saturating_sub(self.bytes));
        if before.len() > left || file.take(left + 1).read_to_string(&mut text)? as u64 > left {
            return Err(io::Error::other(format!("the zones have more than {} MiB of text", LARGEST >> 20)));
        }
        if text.starts_with(BYTE_ORDER_MARK) {
            text.remove(0);
        }
        self.bytes += text.len() as u64;
        self.digest.update((text.len() as u64).to_be_bytes());
        self.digest.update(&text);
        Ok(text)
    }

    fn zone(&mut self, path: &Path, origin: &Name) -> Result<ZoneData, SetUpError> {
        let text = self.file(path).map_err(|error| SetUpError::ReadZone(path.to_owned(), error))?;
        let zone = ZoneData::parse_with(&text, Some(path), origin, &mut |path| self.file(path));
        zone.map_err(|error| SetUpError::Zone(path.to_owned(), Box::new((origin.clone(), error))))
    }
}

impl ZoneFiles {
    /// These files. Nothing is read yet.
    pub(super) fn new(zones: Vec<ZoneFile>) -> Self {
        let (followed, list) = watch::channel(zones.clone());
        Self { zones, seen: BTreeMap::new(), digest: [0; 32], followed: FollowedZones(followed), list }
    }

    /// Reads all zones from the files.
    /// Errors: the first file that cannot be read or has a mistake.
    pub(super) fn read(&mut self) -> Result<Vec<ZoneData>, SetUpError> {
        let zones = self.load()?;
        self.warn(&zones);
        Ok(zones)
    }

    fn load(&mut self) -> Result<Vec<ZoneData>, SetUpError> {
        let mut reading = Reading::default();
        // Continue after a mistake, so that a change of any file is noticed.
        let read: Vec<_> = self.zones.iter().map(|(path, origin)| reading.zone(path, origin)).collect();
        self.seen = reading.seen;
        self.digest = reading.digest.finalize().into();
        read.into_iter().collect()
    }

    /// Warns of alias loops, which are allowed but resolve to nothing.
    fn warn(&self, zones: &[ZoneData]) {
        for ((path, origin), zone) in self.zones.iter().zip(zones) {
            for found in zone.alias_loops() {
                let path = found.place.file.as_deref().unwrap_or(path);
                tracing::warn!("the zone file {} for {origin}, {found}", path.display());
            }
        }
    }

    /// Whether a file may have changed since it was read.
    fn may_have_changed(&self) -> bool {
        self.seen.iter().any(|(path, seen)| seen.may_have_changed(path))
    }

    /// Reads the zones again if a file has changed or if `always` is set. Returns the zones or the mistake.
    fn again(&mut self, always: bool) -> Option<Result<Vec<ZoneData>, SetUpError>> {
        if !always && !self.may_have_changed() {
            return None;
        }
        let before = self.digest;
        let read = self.load();
        (always || self.digest != before || read.as_ref().is_err_and(is_of_the_system)).then_some(read)
    }

    /// Asks [`Self::follow`] to read the files at once. What is asked before it begins is not lost.
    pub(super) fn followed(&self) -> FollowedZones {
        self.followed.clone()
    }

    /// Checks the files every second. Reads them when one has changed or when [`FollowedZones`] asks for it, and gives all zones
    /// to the front at once, until this is dropped. If any file has a mistake, nothing changes and one warning is logged.
    /// `says` gets a line for each zone.
    pub(super) async fn follow(mut self, front: FrontHandle, says: impl Fn(String)) {
        let mut last = LastProblem::default();
        loop {
            let asked = tokio::select! {
                () = tokio::time::sleep(EVERY) => false,
                // Its sender is in `self`.
                changed = self.list.changed() => changed.is_ok(),
            };
            if asked {
                self.zones.clone_from(&self.list.borrow_and_update());
            }
            let reading = tokio::task::spawn_blocking(move || {
                let read = self.again(asked);
                (self, read)
            });
            let Ok((files, read)) = reading.await else { return };
            self = files;
            let set = match read {
                None => continue,
                Some(Ok(zones)) => {
                    self.warn(&zones);
                    let serials: Vec<u32> = zones.iter().map(ZoneData::serial).collect();
                    let set = front.set_zones(zones).map_err(|error| SetUpError::Front(Box::new(error)));
                    set.map(|()| serials)
                }
                Some(Err(error)) => Err(error),
            };
            match set {
                Ok(serials) => {
                    for ((_, origin), serial) in self.zones.iter().zip(serials) {
                        says(format!("zone {origin} read again, serial {serial}"));
                    }
                    last.over();
                }
                Err(error) => {
                    if asked {
                        last.over();
                    }
                    if let Some(problem) = last.new_message(&error) {
                        tracing::warn!("the zones stay as they are: {problem}");
                    }
                }
            }
        }
    }
}

/// Asks the task that follows the zone files of a front ([`FollowingFront::run`](super::FollowingFront::run)) to read them at once.
#[derive(Debug, Clone)]
pub struct FollowedZones(watch::Sender<Vec<ZoneFile>>);

impl FollowedZones {
    /// Reads all files again, as on SIGHUP.
    pub fn read_again(&self) {
        self.0.send_modify(|_| {});
    }

    /// Follows these files in place of the ones before, and reads them. While one of them has a mistake, the front keeps the
    /// zones that it has.
    pub fn replace(&self, files: Vec<ZoneFile>) {
        self.0.send_replace(files);
    }
}

/// Whether a file could not be read, which the digest of the contents does not show.
fn is_of_the_system(error: &SetUpError) -> bool {
    match error {
        SetUpError::ReadZone(..) => true,
        SetUpError::Zone(_, wrong) => matches!(wrong.1.fault, ZoneFault::Include(..)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
