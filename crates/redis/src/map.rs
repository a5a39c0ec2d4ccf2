//! Which master has which cell, as the masters of a cluster say, and how long they have agreed: `docs/farm-masters.md`.

use crate::address::Place;
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
    pub place: Place,
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
    pub(crate) fn parse(text: &str, asked: &Place) -> Option<Self> {
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

    /// A cell that `id` has.
    pub(crate) fn cell_of(&self, id: &Id) -> Option<usize> {
        self.owners.iter().position(|owner| owner.as_ref() == Some(id))
    }
}

fn cell_slots() -> &'static [u16] {
    static CELL_SLOTS: OnceLock<Vec<u16>> = OnceLock::new();
    CELL_SLOTS.get_or_init(|| (0..CELLS).map(cells::slot).collect())
}

/// `IP:PORT@BUS[,NAME]`. A node that does not know its own address leaves it out.
fn place(address: &str, asked: &Place, is_asked: bool) -> Option<Place> {
    let (address, name) = match address.split_once(',') {
        Some((address, name)) => (address, name.split(',').next().filter(|name| !name.is_empty())),
        None => (address, None),
    };
    let address = address.split('@').next()?;
    let (host, port) = address.rsplit_once(':')?;
    match (name, host, asked) {
        (None, "", asked) if is_asked => Some(asked.clone()),
        (None, "", _) => None,
        (name, host, _) => Some(Place::Tcp(name.unwrap_or(host).to_owned(), port.parse().ok()?)),
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::time::Duration;

    const NODES: &str = "\
        aa 10.0.0.1:7000@17000,one.example master - 0 1 1 connected 0-5460\n\
        bb 10.0.0.2:7000@17000 myself,master - 0 1 2 connected 5461-10922 [5461->-cc]\n\
        cc ::1:7000@17000 master,fail? - 0 1 3 connected 10923-16382 16383\n\
        dd 10.0.0.4:7000@17000 slave aa 0 1 1 connected\n\
        ee 10.0.0.5:7000@17000 slave,fail aa 0 1 1 disconnected\n\
        ff 10.0.0.6:7000@17000 master - 0 1 0 connected\n";

    fn here() -> Place {
        Place::Tcp("seed".to_owned(), 1)
    }

    #[test]
    fn the_masters_and_their_cells() {
        let report = Report::parse(NODES, &here()).unwrap();
        assert_eq!(report.masters.len(), 3, "one master has no slots");
        let (aa, cc) = (&report.masters["aa"], &report.masters["cc"]);
        assert_eq!((aa.replicas, &aa.place), (2, &Place::Tcp("one.example".to_owned(), 7000)));
        assert_eq!(cc.place, Place::Tcp("::1".to_owned(), 7000));
        assert_eq!((&**report.owner(0).unwrap(), &**report.owner(CELLS - 1).unwrap()), ("aa", "cc"));
        assert_eq!(report.cell_of(&"aa".into()), Some(0));
        let alone =
            Report::parse("aa :7000@17000 myself,master - 0 0 1 connected 0-16383\n", &here()).unwrap();
        assert_eq!(alone.masters["aa"].place, here());
        for wrong in
            ["aa\n", "aa 1:1@1 master - 0 0 1 connected 0-16384\n", "aa 1:1@1 master - 0 0 1 connected 9-2\n"]
        {
            assert!(Report::parse(wrong, &here()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_slot_that_moves_has_no_owner() {
        for state in ["[5461->-cc]", "[5461-<-cc]"] {
            let report = Report::parse(&NODES.replace("[5461->-cc]", state), &here()).unwrap();
            for cell in 0..CELLS {
                assert_eq!(report.owner(cell).is_none(), cells::slot(cell) == 5461, "{cell}");
            }
        }
    }

    /// The report of a node that says that `owner` has everything of `aa`.
    fn says(owner: &str) -> Report {
        Report::parse(&NODES.replace("aa", owner), &here()).unwrap()
    }

    #[test]
    fn most_masters_decide_for_three_seconds() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut map = Map::default();
        let ids: [Id; 3] = ["aa".into(), "bb".into(), "cc".into()];
        map.heard(&ids[0], at(0), says("aa"));
        assert_eq!(map.owner(0, at(0)), None, "one of three");
        map.heard(&ids[1], at(500), says("aa"));
        assert_eq!(map.owner(0, at(3000)), Some(&ids[0]));
        assert_eq!(map.owner(0, at(3001)), None, "only one says so since then");
        map.heard(&ids[2], at(1000), says("xx"));
        assert_eq!(map.owner(0, at(1000)), Some(&ids[0]), "two against one");
        map.heard(&ids[1], at(1500), says("xx"));
        assert_eq!(map.owner(0, at(1500)).map(|id| &**id), Some("xx"));
        map.lost(&ids[1], at(1600));
        assert_eq!(map.owner(0, at(1600)), None, "one against one");
        map.heard(&ids[2], at(9000), says("xx"));
        assert_eq!(map.owner(0, at(9000)), None, "the others are too old");
    }

    /// A large cluster is asked a hundred times a second. Each report is compared when it comes, and not again.
    #[test]
    fn reports_that_say_the_same_share_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let moved =
            || Report::parse(&NODES.replace("10.0.0.1:7000@17000,one.example", "10.0.0.9:7@8"), &here());
        let mut map = Map::default();
        let ids: [Id; 3] = ["aa".into(), "bb".into(), "cc".into()];
        map.heard(&ids[0], at(0), says("aa"));
        map.heard(&ids[1], at(100), moved().unwrap());
        map.heard(&ids[2], at(200), says("aa"));
        let report = |id: &Id| &map.reports[id].1;
        assert!(ids.iter().all(|id| Arc::ptr_eq(&report(id).owners, &report(&ids[0]).owners)));
        assert!(Arc::ptr_eq(&report(&ids[0]).masters, &report(&ids[2]).masters));
        assert!(!Arc::ptr_eq(&report(&ids[0]).masters, &report(&ids[1]).masters));
        // The latest report says where a master is.
        assert_eq!(map.masters()["aa"].place, Place::Tcp("one.example".to_owned(), 7000));
        map.heard(&ids[1], at(300), moved().unwrap());
        assert_eq!(map.masters()["aa"].place, Place::Tcp("10.0.0.9".to_owned(), 7));
        assert_eq!(map.lists.len(), 2);
    }
}
