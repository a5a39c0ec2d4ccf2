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

fn here() -> StorePlace {
    StorePlace::Tcp("seed".to_owned(), 1)
}

#[test]
fn the_masters_and_their_cells() {
    let report = Report::parse(NODES, &here()).unwrap();
    assert_eq!(report.masters.len(), 3, "one master has no slots");
    let (aa, cc) = (&report.masters["aa"], &report.masters["cc"]);
    assert_eq!((aa.replicas, &aa.place), (2, &StorePlace::Tcp("one.example".to_owned(), 7000)));
    assert_eq!(cc.place, StorePlace::Tcp("::1".to_owned(), 7000));
    assert_eq!((&**report.owner(0).unwrap(), &**report.owner(CELLS - 1).unwrap()), ("aa", "cc"));
    assert_eq!(report.cell_of(&"aa".into()), Some(0));
    let alone = Report::parse("aa :7000@17000 myself,master - 0 0 1 connected 0-16383\n", &here()).unwrap();
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
    let moved = || Report::parse(&NODES.replace("10.0.0.1:7000@17000,one.example", "10.0.0.9:7@8"), &here());
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
    assert_eq!(map.masters()["aa"].place, StorePlace::Tcp("one.example".to_owned(), 7000));
    map.heard(&ids[1], at(300), moved().unwrap());
    assert_eq!(map.masters()["aa"].place, StorePlace::Tcp("10.0.0.9".to_owned(), 7));
    assert_eq!(map.lists.len(), 2);
}
