use super::*;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn places(udp: &[&str], seen_as: &[&str]) -> Result<Vec<(String, String)>, RelayTargetError> {
    let parse = |texts: &[&str]| texts.iter().map(|text| at(text)).collect::<Vec<_>>();
    let target = RelayTarget::new(&parse(udp), &parse(seen_as))?;
    let shown = |place: &FamilyAddresses| (place.address.to_string(), place.seen_as.to_string());
    Ok(target.places.iter().map(shown).collect())
}

fn one(address: &str, seen_as: &str) -> (String, String) {
    (address.to_owned(), seen_as.to_owned())
}

#[test]
fn a_server_is_where_clients_see_it() {
    let own = places(&["192.0.2.1:443", "192.0.2.2:443", "[2001:db8::1]:443"], &[]);
    let v6 = one("2001:db8::1", "[2001:db8::1]:443");
    assert_eq!(own, Ok(vec![one("192.0.2.1", "192.0.2.1:443"), v6]));
    let translated = places(&["10.0.0.1:443"], &["192.0.2.1:8443"]);
    assert_eq!(translated, Ok(vec![one("10.0.0.1", "192.0.2.1:8443")]));
    // Nothing is known of IPv6.
    let everywhere = places(&["0.0.0.0:443", "[::]:443"], &["192.0.2.1:443"]);
    assert_eq!(everywhere, Ok(vec![one("192.0.2.1", "192.0.2.1:443")]));
}

#[test]
fn an_address_that_no_client_sees_is_refused() {
    let refused = |udp: &[&str], seen_as: &[&str]| places(udp, seen_as).unwrap_err();
    assert_eq!(refused(&["0.0.0.0:443", "[::]:443"], &[]), RelayTargetError::NotSeen(at("0.0.0.0:443")));
    for unusable in ["0.0.0.0:443", "192.0.2.1:0", "[2001:db8::1]:443"] {
        assert_eq!(refused(&["10.0.0.1:443"], &[unusable]), RelayTargetError::Unusable(at(unusable)));
    }
    let twice = refused(&["10.0.0.1:443"], &["192.0.2.1:443", "192.0.2.2:443"]);
    assert_eq!(twice, RelayTargetError::Twice(at("192.0.2.1:443"), at("192.0.2.2:443")));
}
