//! The keys of a server: one set for each public name.

use super::server::locked;
use firstflight_seal::{
    Flight, Hello, HostName, Inner, KeySet, OpenError, OpenedFlight, Record, RotateError, SealKey,
};
use std::io;
use std::num::NonZeroU8;
use std::sync::{Arc, Mutex, MutexGuard};

/// The keys of one public name, and the names that are served with them.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    keys: KeySet,
    /// None: only the public name.
    pub(super) names: Option<Arc<[HostName]>>,
}

impl Served {
    pub(super) const fn new(keys: KeySet, names: Option<Arc<[HostName]>>) -> Self {
        Self { keys, names }
    }

    fn all_names(&self) -> impl Iterator<Item = &HostName> {
        std::iter::once(self.keys.name()).chain(self.names.iter().flat_map(|names| names.iter()))
    }

    pub(super) fn open(self, flight: &Flight, port: u16, now: u64) -> Result<OpenedBy, OpenError> {
        Ok(OpenedBy { opened: self.keys.open(flight, port, now)?, served: self })
    }
}

/// A flight, and the keys that opened it.
#[derive(Debug)]
pub(crate) struct OpenedBy {
    opened: OpenedFlight,
    served: Served,
}

impl OpenedBy {
    pub(crate) const fn public_name(&self) -> &HostName {
        self.served.keys.name()
    }

    pub(crate) fn inner(&self) -> Inner<'_> {
        self.opened.inner()
    }

    /// As [`OpenedFlight::check`]: the ClientHello must name a server that is served with these keys, and with no
    /// others, and that `here` serves as well: keys may be shared by listeners of other sites.
    pub(crate) fn check(&self, here: impl Fn(&HostName) -> bool) -> Result<Hello<'_>, OpenError> {
        let with_these_keys = |name: &HostName| match &self.served.names {
            Some(names) => names.contains(name),
            None => self.public_name() == name,
        };
        self.opened.check(|name| with_these_keys(name) && here(name))
    }
}

/// The sets, the first one first. There is always one.
#[derive(Debug)]
pub(crate) struct KeySets(Mutex<Vec<Served>>);

impl KeySets {
    /// The most sets: a flight may be tried with a key of each.
    pub(super) const MOST: usize = 16;

    pub(super) fn new(first: Served, others: Vec<Served>) -> io::Result<Self> {
        let sets = [vec![first], others].concat();
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        for (at, served) in sets.iter().enumerate() {
            let name = served.keys.name();
            if sets.iter().take(at).any(|other| other.keys.name() == name) {
                return refused(format!("two sets of seal keys have the public name {name}: make them one"));
            }
        }
        if sets.len() > Self::MOST {
            return refused(format!("seal keys of {} public names: {} at most", sets.len(), Self::MOST));
        }
        Ok(Self(Mutex::new(sets)))
    }

    /// Destroys the keys that have ended.
    fn at(&self, now: u64) -> MutexGuard<'_, Vec<Served>> {
        let mut sets = locked(&self.0);
        sets.iter_mut().for_each(|served| served.keys.handle_time(now));
        sets
    }

    pub(super) fn know(&self, id: NonZeroU8, now: u64) -> bool {
        self.at(now).iter().any(|served| served.keys.knows(id, now))
    }

    /// The sets that have a key with this number. They are copies, so that others do not wait for the arithmetic.
    pub(super) fn with_key(&self, id: NonZeroU8, now: u64) -> Vec<Served> {
        self.at(now).iter().filter(|served| served.keys.knows(id, now)).cloned().collect()
    }

    pub(super) fn rotate(
        &self,
        id: NonZeroU8,
        key: SealKey,
        not_after: u32,
        now: u64,
    ) -> Result<(), RotateError> {
        self.at(now).first_mut().map_or(Ok(()), |first| first.keys.add(id, key, not_after, now))
    }

    pub(super) fn replace(&self, keys: KeySet) -> bool {
        let mut sets = locked(&self.0);
        let served = match sets.as_mut_slice() {
            [only] => Some(only),
            several => several.iter_mut().find(|served| served.keys.name() == keys.name()),
        };
        served.map(|served| served.keys = keys).is_some()
    }

    pub(super) fn first_record(&self, now: u64) -> Option<Record> {
        self.at(now).first()?.keys.record(now)
    }

    pub(super) fn records(&self, now: u64) -> Vec<Record> {
        self.at(now).iter().filter_map(|served| served.keys.record(now)).collect()
    }

    pub(super) fn public_names(&self) -> Vec<HostName> {
        locked(&self.0).iter().map(|served| served.keys.name().clone()).collect()
    }

    /// All names, each once.
    pub(super) fn names(&self) -> Vec<HostName> {
        let sets = locked(&self.0);
        let mut names: Vec<_> = sets.iter().flat_map(Served::all_names).cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}
