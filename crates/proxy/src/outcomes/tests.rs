use super::*;

fn contact(outcome: &'static str, saved: u32) -> Contact {
    Contact {
        way: "kernel",
        outcome,
        reason: None,
        early_yes: true,
        round_trips_saved: saved,
        saved_ms: (saved > 0).then_some(24.5),
        connect_ms: 1.5,
        rtt_ms: None,
        inside_lookup: None,
        held_back: None,
    }
}

fn server(n: usize) -> Authority {
    format!("host{n}.example:443").parse().unwrap()
}

#[test]
fn only_hosts_that_took_a_first_flight_or_will_are_named() {
    let board = Board::default();
    board.reached(&server(1), &contact("accepted", 1), 1);
    board.reached(&server(2), &contact("handshake", 0), 2);
    board.failed(&server(3), "refused", true, 3);
    board.reached(&"192.0.2.1:80".parse().unwrap(), &contact("accepted", 1), 4);
    assert_eq!(board.speakers(), ["host1.example".to_owned()].into());
    let total = board.total();
    assert_eq!((total.contacts, total.accepted, total.failures, total.resets), (3, 2, 1, 1));
    assert_eq!((total.round_trips_saved, total.saved_ms), (2, 49.0));
    let servers = board.servers().unwrap();
    assert_eq!(servers[0]["server"], "192.0.2.1:80");
    assert_eq!((&servers[0]["saved_ms"], &servers[2]["saved_ms"]), (&24.5.into(), &0.0.into()));
    assert_eq!((&servers[1]["error"], &servers[1]["means"]), (&"refused".into(), &serde_json::Value::Null));
    assert_eq!((&servers[3]["last"]["way"], &servers[3]["recent"][0]["ms"]), (&"kernel".into(), &1.5.into()));
}

/// Such as a browser's hybrid ClientHello, which fits no SYN.
#[test]
fn a_host_at_which_nothing_is_gained_is_not_named() {
    let board = Board::default();
    board.reached(&server(1), &contact("accepted", 1), 1);
    board.reached(&server(1), &Contact { reason: Some("no-data"), ..contact("handshake", 0) }, 2);
    assert_eq!(board.speakers().len(), 1);
    assert_eq!(board.servers().unwrap()[0]["means"], Reason::NoData.to_string());
    let first = Contact { reason: Some("no-data"), early_yes: false, ..contact("handshake", 0) };
    assert!(
        first.is_first_contact() && first.means().is_some_and(|means| means.ends_with("next connection"))
    );
    let again = first.grants_none();
    assert!(!again.is_first_contact());
    assert_eq!(again.means(), Some(Reason::PeerWithoutFastOpen.to_string()));
    assert_eq!(contact("accepted", 1).grants_none(), contact("accepted", 1));
    let part = Contact { reason: Some("accepted-part"), ..contact("accepted", 0) };
    board.reached(&server(1), &part, 3);
    assert!(board.speakers().is_empty());
    let mut outlook = ServerKnowledge::default();
    (outlook.credential, outlook.answered) = (Some(firstflight::Way::Kernel), true);
    board.expect(&server(1), outlook, 4);
    assert!(board.speakers().is_empty(), "it is known better");
    board.expect(&server(2), outlook, 5);
    assert_eq!(board.speakers().len(), 1);
}

#[test]
fn memory_is_bounded() {
    let board = Board::default();
    for n in 0..SERVERS.get() + 10 {
        for _ in 0..3 {
            board.reached(&server(n), &contact("accepted", 1), 1);
        }
    }
    for _ in 0..100 {
        board.reached(&server(1), &contact("accepted", 1), 1);
        board.failed(&server(1), &"x".repeat(1000), false, 1);
    }
    let table = board.table();
    assert_eq!(table.servers.len(), SERVERS.get());
    let entry = table.servers.peek(&server(1)).unwrap();
    assert_eq!((entry.recent.len(), entry.error.as_ref().map(String::len)), (RECENT, Some(200)));
}
