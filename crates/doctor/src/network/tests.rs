use super::*;

fn verifier(udp: Udp, tcp: Option<bool>) -> Verifier {
    Verifier { at: SocketAddr::from(([192, 0, 2, 9], 4433)), udp, tcp }
}

fn challenge(seen: &str, ahead: i64) -> Verifier {
    verifier(Udp::Challenge { seen: seen.parse().unwrap(), local: [10, 0, 0, 1].into(), ahead }, None)
}

#[test]
fn udp_is_blocked_only_if_the_verifier_is_known_to_run() {
    let of = |verifiers: &[Verifier]| udp_line(verifiers).finding;
    assert_eq!(of(&[]), Finding::UdpNotAsked);
    assert_eq!(of(&[verifier(Udp::Silent, Some(true))]), Finding::UdpBlocked);
    assert_eq!(of(&[verifier(Udp::Silent, Some(false))]), Finding::UdpSilent);
    assert_eq!(of(&[verifier(Udp::Closed, None)]), Finding::UdpClosed);
    assert_eq!(of(&[verifier(Udp::Other, None)]), Finding::UdpAnswers);
    assert_eq!(of(&[verifier(Udp::Silent, Some(true)), challenge("10.0.0.1", 0)]), Finding::UdpAnswers);
}

#[test]
fn a_translator_shows_by_the_address_that_is_seen() {
    let of = |verifiers: &[Verifier]| translator(verifiers).finding;
    assert_eq!(of(&[verifier(Udp::Other, None)]), Finding::TranslatorNotAsked);
    assert_eq!(of(&[challenge("10.0.0.1", 0)]), Finding::TranslatorNone);
    assert_eq!(of(&[challenge("192.0.2.1", 0)]), Finding::TranslatorOneAddress);
    assert_eq!(of(&[challenge("192.0.2.1", 0), challenge("192.0.2.2", 0)]), Finding::TranslatorSeveral);
    let v6 = Udp::Challenge { seen: Ipv6Addr::LOCALHOST.into(), local: Ipv6Addr::LOCALHOST.into(), ahead: 0 };
    assert_eq!(of(&[challenge("10.0.0.1", 0), verifier(v6, None)]), Finding::TranslatorNone);
}

#[test]
fn a_network_drops_if_it_does_so_to_several_servers_and_passes_to_none() {
    use Passage::{Drops, NotSeen, Passes};
    let of = |servers: &[Passage]| syn_data(servers).finding;
    assert_eq!(of(&[]), Finding::NetworkNotSeen);
    assert_eq!(of(&[Drops, NotSeen]), Finding::NetworkNotSeen);
    assert_eq!(of(&[Drops, Drops, NotSeen]), Finding::NetworkDrops);
    assert_eq!(of(&[Drops, Drops, Passes]), Finding::NetworkPasses);
}

#[test]
fn a_clock_is_judged_by_verifiers_and_confirmed_by_servers() {
    let of = |ahead: &[i64], servers: &[i64]| {
        let verifiers: Vec<_> = ahead.iter().map(|ahead| challenge("10.0.0.1", *ahead)).collect();
        clock(&verifiers, servers).finding
    };
    assert_eq!(of(&[2], &[3600]), Finding::ClockAgrees);
    assert_eq!(of(&[-3], &[]), Finding::ClockDiffers);
    assert_eq!(of(&[10], &[]), Finding::ClockDiffers);
    assert_eq!(of(&[11], &[0]), Finding::ClockWrong);
    assert_eq!(of(&[-86_400, 1], &[]), Finding::ClockAgrees, "one of two verifiers is wrong");
    assert_eq!(of(&[], &[3600]), Finding::ClockNotCompared);
    assert_eq!(of(&[], &[3600, 1]), Finding::ClockAgrees);
    let said = clock(&[challenge("10.0.0.1", 3600)], &[]).detail;
    assert_eq!(said, "The clock is 1h ahead of that of the verifier 192.0.2.9:4433.");
    assert_eq!(server_clock(-2).finding, Finding::ServerClockAgrees);
    assert_eq!(server_clock(-90).detail, "This machine's clock is 1m 30s behind the server's.");
}

#[test]
fn differences_have_a_sign() {
    let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
    assert_eq!(ahead(at(5_999), 5), 0);
    assert_eq!(ahead(at(5_000), 7), -2);
    assert_eq!(ahead(at(0), u64::MAX), 1, "no overflow");
}
