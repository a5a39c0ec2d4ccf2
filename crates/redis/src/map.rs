//! Which master has which cell, as the masters of a cluster say, and how long they have agreed: `docs/farm-masters.md`.

use crate::address::StorePlace;
use crate::cells::{self, CELLS, SLOTS};
use crate::quorum::LEASE;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// The most nodes of a cluster that are read.
const MOST_NODES: usize = 2048;

/// The name of a node: 40 hexadecimal digits.
pub(crate) type Id = Arc<str>;

/// A master with slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Master {
    pub place: StorePlace,
    /// The replicas that are known, also those that do not answer.
    pub replicas: usize,
}

/// What one node says: the answer to `CLUSTER NODES`. Clones share the data.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub masters: Masters,
    owners: Owners,
}

type Masters = Arc<HashMap<Id, Master>>;

/// The owner of each cell. No owner while the slot is being moved.
type Owners = Arc<[Option<Id>]>;

impl Report {
    /// `asked` is the place of the node that answers, which may not know its own address.
    pub(crate) fn parse(text: &str, asked: &StorePlace) -> Option<Self> {
        let mut slots: Vec<Option<Id>> = vec![None; usize::from(SLOTS)];
        let mut masters = HashMap::new();
        let mut replicas: HashMap<&str, usize> = HashMap::new();
        let mut moving = Vec::new();
        for line in text.lines().take(MOST_NODES) {
            let mut words = line.split_ascii_whitespace();
            let (id, address, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
            let has = |flag| flags.split(',').any(|word| word == flag);
            if has("slave") || has("replica") {
                *replicas.entry(master).or_default() += 1;
            }
            if !has("master") {
                continue;
            }
            // The times of the last messages, the epoch and the state of the link.
            let id = Id::from(id);
            let mut has_slots = false;
            for range in words.skip(4) {
                if let Some(one) = range.strip_prefix('[') {
                    moving.extend(one.split_once("-").and_then(|(slot, _)| slot.parse::<usize>().ok()));
                    continue;
                }
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
                slots.get_mut(first..=last)?.fill(Some(Id::clone(&id)));
                has_slots = true;
            }
            if has_slots {
                let place = place(address, asked, has("myself"))?;
                masters.insert(id, Master { place, replicas: 0 });
            }
        }
        for (id, master) in &mut masters {
            master.replicas = replicas.get(&**id).copied().unwrap_or_default();
        }
        for slot in moving {
            *slots.get_mut(slot)? = None;
        }
        let owner = |&slot: &u16| slots.get(usize::from(slot)).cloned().flatten();
        Some(Self { masters: Arc::new(masters), owners: cell_slots().iter().map(owner).collect() })
    }

    #[cfg(test)]
    pub(crate) fn owner(&self, cell: usize) -> Option<&Id> {
        self.owners.get(cell)?.as_ref()
    }

    pub(crate) fn cell_of(&self, id: &Id) -> Option<usize> {
        self.owners.iter().position(|owner| owner.as_ref() == Some(id))
    }
}

fn cell_slots() -> &'static [u16] {
    static CELL_SLOTS: OnceLock<Vec<u16>> = OnceLock::new();
    CELL_SLOTS.get_or_init(|| (0..CELLS).map(cells::slot).collect())
}

/// `IP:PORT@BUS[,NAME]`. A node that does not know its own address leaves it out.
fn place(address: &str, asked: &StorePlace, is_asked: bool) -> Option<StorePlace> {
    let (address, name) = match address.split_once(',') {
        Some((address, name)) => (address, name.split(',').next().filter(|name| !name.is_empty())),
        None => (address, None),
    };
    let address = address.split('@').next()?;
    let (host, port) = address.rsplit_once(':')?;
    match (name, host, asked) {
        (None, "", asked) if is_asked => Some(asked.clone()),
        (None, "", _) => None,
        (name, host, _) => Some(StorePlace::Tcp(name.unwrap_or(host).to_owned(), port.parse().ok()?)),
    }
}

/// If one of `known` equals `new`, `new` becomes a clone of it.
fn share<'a, T: PartialEq + ?Sized + 'a>(new: &mut Arc<T>, known: impl Iterator<Item = &'a Arc<T>> + Clone) {
    let here = known.clone().find(|known| Arc::ptr_eq(known, new));
    if let Some(same) = here.or_else(|| known.clone().find(|known| **known == *new)) {
        *new = Arc::clone(same);
    }
}

/// What the members know of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// What each master said last, and when it was asked. Reports that say the same share it: a look at the pointers tells
    /// whether two differ.
    reports: HashMap<Id, (Instant, Report)>,
    /// Each answer to the question who has the cells, and when the masters that gave it were asked, the latest first. As a rule
    /// there is one answer.
    opinions: Vec<(Owners, Vec<Instant>)>,
    /// The lists of masters that differ.
    lists: Vec<Masters>,
    /// How many masters have to agree.
    majority: usize,
}

impl Map {
    /// A master answered. It was asked at `asked`.
    pub(crate) fn heard(&mut self, from: &Id, asked: Instant, mut report: Report) {
        share(&mut report.owners, self.opinions.iter().map(|(owners, _)| owners));
        share(&mut report.masters, self.lists.iter());
        self.reports.insert(Id::clone(from), (asked, report));
        self.count(asked);
    }

    /// A master's lease is over: it does not speak for its shard any more.
    pub(crate) fn lost(&mut self, from: &Id, now: Instant) {
        self.reports.remove(from);
        self.count(now);
    }

    /// The master of `cell`, if most masters say so, and each was asked at most [`LEASE`] ago.
    pub(crate) fn owner(&self, cell: usize, now: Instant) -> Option<&Id> {
        let valid = |times: &[Instant]| times.partition_point(|asked| now <= *asked + LEASE);
        self.opinions.iter().filter_map(|(all, _)| all.get(cell)?.as_ref()).find(|owner| {
            let agree = self
                .opinions
                .iter()
                .filter(|(all, _)| all.get(cell).is_some_and(|said| said.as_ref() == Some(owner)));
            agree.map(|(_, times)| valid(times)).sum::<usize>() >= self.majority
        })
    }

    /// The masters that the last reports name.
    pub(crate) fn masters(&self) -> HashMap<Id, Master> {
        let mut latest: Vec<_> = self.reports.values().collect();
        latest.sort_by_key(|(asked, _)| Reverse(*asked));
        let mut seen: Vec<&Masters> = Vec::new();
        let mut masters = HashMap::new();
        for (_, Report { masters: named, .. }) in latest {
            if !seen.iter().any(|seen| Arc::ptr_eq(seen, named)) {
                seen.push(named);
                for (id, master) in named.iter() {
                    masters.entry(Id::clone(id)).or_insert_with(|| master.clone());
                }
            }
        }
        masters
    }

    /// Sorts the reports by what they say. A report counts for [`LEASE`] after the master was asked.
    fn count(&mut self, now: Instant) {
        self.reports.retain(|_, (asked, _)| now.saturating_duration_since(*asked) <= LEASE);
        let all = self.reports.values().map(|(_, report)| report.masters.len()).max().unwrap_or_default();
        self.majority = all / 2 + 1;
        self.opinions.clear();
        self.lists.clear();
        for (asked, report) in self.reports.values() {
            match self.opinions.iter_mut().find(|(owners, _)| Arc::ptr_eq(owners, &report.owners)) {
                Some((_, times)) => times.push(*asked),
                None => self.opinions.push((Arc::clone(&report.owners), vec![*asked])),
            }
            if !self.lists.iter().any(|list| Arc::ptr_eq(list, &report.masters)) {
                self.lists.push(Arc::clone(&report.masters));
            }
        }
        for (_, times) in &mut self.opinions {
            times.sort_unstable_by(|one, two| two.cmp(one));
        }
    }
}

#[cfg(test)]
mod tests;
