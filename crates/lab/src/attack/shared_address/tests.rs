use super::*;

fn run(office: Office) -> Visits {
    let visits = office.run().unwrap();
    println!("{office:?}\n{visits:?}");
    assert_eq!((visits.visits, visits.answered), (office.clients * office.rounds, visits.visits));
    assert!(visits.slowest_rtts <= 2.01, "slower than an ordinary handshake");
    visits
}

#[track_caller]
fn all_are_fast(office: Office) {
    let visits = run(office);
    assert_eq!(visits.fast, visits.visits, "{:?}", visits.reasons);
    assert!(visits.slowest_rtts <= 1.01);
}

#[test]
fn twelve_clients_with_the_cookie_of_one_address_are_all_fast() {
    all_are_fast(BASE);
}

#[test]
fn twenty_four_clients_with_certificates_for_one_address_are_all_fast() {
    all_are_fast(Office { credential: Credential::NewCertificate, clients: 24, rounds: 6, ..BASE });
}

#[test]
fn an_office_of_sixty_four_is_fast_by_the_default_limits() {
    for credential in [Credential::Cookie, Credential::NewCertificate, Credential::Certificate] {
        all_are_fast(Office { credential, clients: 64, ..BASE });
    }
}

/// Visits beyond one address's limits use the handshake, and the server reports which limit applied.
#[test]
fn beyond_the_limits_the_handshake_serves_and_the_limit_has_its_name() {
    let cookies = run(Office { clients: 100, rounds: 1, ..BASE });
    assert_eq!((cookies.fast, cookies.reasons), (85, vec![("client-limit", 15)]));
    let certificates =
        run(Office { credential: Credential::NewCertificate, clients: 200, rounds: 1, ..BASE });
    let reasons: Vec<&str> = certificates.reasons.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["client-limit", "network-limit"], "{certificates:?}");
}
