use super::*;
use std::net::SocketAddr;

const NETWORKS: [NetworkId; 2] = [NetworkId([1; 16]), NetworkId([2; 16])];

fn server(port: u16) -> Authority {
    Authority::from(SocketAddr::from(([192, 0, 2, 1], port)))
}

#[test]
fn the_last_connect_counts_on_its_own_network() {
    let mut contacts = Contacts::default();
    contacts.note(NETWORKS[0], &server(1), true);
    assert!(contacts.answered(NETWORKS[0], &server(1)));
    assert!(!contacts.answered(NETWORKS[1], &server(1)) && !contacts.answered(NETWORKS[0], &server(2)));
    contacts.note(NETWORKS[0], &server(1), false);
    assert!(!contacts.answered(NETWORKS[0], &server(1)));
}

#[test]
fn the_oldest_contact_is_forgotten_first() {
    let mut contacts = Contacts::default();
    for port in 1..=CAPACITY as u16 {
        contacts.note(NETWORKS[0], &server(port), true);
    }
    contacts.note(NETWORKS[0], &server(1), true);
    contacts.note(NETWORKS[0], &server(60_000), true);
    assert_eq!(contacts.last.len(), CAPACITY);
    assert!(contacts.answered(NETWORKS[0], &server(1)) && !contacts.answered(NETWORKS[0], &server(2)));
}
