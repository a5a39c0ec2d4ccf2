use super::*;

fn place(name: &str, network: NetworkId) -> TicketPlace {
    TicketPlace { server: format!("{name}:443").parse().unwrap(), network, alpn: Vec::new() }
}

fn hint(tickets: &Arc<Tickets>, place: &TicketPlace) -> AtPlace {
    AtPlace::new(tickets, place.clone(), Groups::Classical)
}

fn name() -> ServerName<'static> {
    ServerName::try_from("host").unwrap()
}

#[test]
fn places_are_bounded_and_the_one_unused_longest_goes() {
    let tickets = Arc::new(Tickets::default());
    let known = NetworkId([1; 16]);
    for n in 0..=SITES {
        hint(&tickets, &place(&format!("h{n}"), known)).set_kx_hint(name(), NamedGroup::X25519);
    }
    assert_eq!(tickets.lock().entries.len(), SITES);
    assert_eq!(hint(&tickets, &place("h0", known)).kx_hint(&name()), None);
    assert!(hint(&tickets, &place("h1", known)).kx_hint(&name()).is_some());
}

#[test]
fn what_an_unknown_network_taught_goes_with_it() {
    let tickets = Arc::new(Tickets::default());
    let (known, other) = (NetworkId([1; 16]), NetworkId::UNKNOWN);
    for network in [known, other] {
        tickets.on(network);
        hint(&tickets, &place("host", network)).set_kx_hint(name(), NamedGroup::X25519);
    }
    let hints = |network| hint(&tickets, &place("host", network)).kx_hint(&name()).is_some();
    assert!(hints(known) && hints(other));
    assert!(!hints(NetworkId([2; 16])), "nothing is shared across networks");
    tickets.on(known);
    assert!(hints(known) && !hints(other));
    tickets.forget();
    assert!(!hints(known));
}

/// A connection that outlives a move, or the user's wish to be a stranger, teaches nothing.
#[test]
fn what_is_learnt_late_is_not_remembered() {
    let tickets = Arc::new(Tickets::default());
    let (known, other) = (NetworkId([1; 16]), NetworkId::UNKNOWN);
    tickets.on(other);
    let [at_known, at_unknown] = [known, other].map(|network| hint(&tickets, &place("host", network)));
    let learn = |at: &AtPlace| {
        at.set_kx_hint(name(), NamedGroup::X25519);
        at.kx_hint(&name()).is_some()
    };
    assert!(learn(&at_unknown));
    tickets.on(known);
    assert!(!learn(&at_unknown) && learn(&at_known));
    tickets.forget();
    assert!(!learn(&at_unknown) && !learn(&at_known));
    assert!(learn(&hint(&tickets, &place("host", other))));
}
