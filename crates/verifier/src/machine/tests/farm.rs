//! Verifiers with one key: the members of a farm.

use super::*;
use std::num::NonZeroU16;

fn member(members: u16) -> Bench {
    Bench::new(plain().members(NonZeroU16::new(members)))
}

fn challenge(bench: &mut Bench, wants: &Wants) -> Challenge {
    match bench.ask(CLIENT, &wants.request(None)) {
        Message::Challenge(message) => message.challenge,
        other => panic!("{other:?}"),
    }
}

/// The resolver or balancer in front of a farm may send the second request to another member, which was started at another
/// time.
#[test]
fn a_client_begins_at_one_member_and_goes_on_at_another() {
    let (mut one, mut other, mut alone) = (member(2), member(2), Bench::new(plain()));
    other.clock.mono += Duration::from_secs(77_777);
    let wants = Wants::new(2);
    let came = challenge(&mut one, &wants);
    let certificate = other.answer(CLIENT, &wants.request(Some(came))).unwrap();
    assert!(is_certified(&certificate, &key(1).public(), ip(CLIENT)));
    // A verifier that is alone knows its own only.
    assert!(matches!(alone.ask(CLIENT, &wants.request(Some(came))), Message::Challenge(_)));
    let own = challenge(&mut alone, &wants);
    assert!(matches!(one.ask(CLIENT, &wants.request(Some(own))), Message::Challenge(_)));
    // It is over after ten seconds, by the wall clock.
    one.clock.unix_ms += 11_000;
    assert!(matches!(one.ask(CLIENT, &wants.request(Some(came))), Message::Challenge(_)));
}

/// All challenges of a member are by the new key at once, so those of the others must be, too.
#[test]
fn a_new_key_brings_new_challenges() {
    let (mut one, mut other) = (member(2), member(2));
    let wants = Wants { verifier: key(9).public(), ..Wants::new(2) };
    other.verifier.set_config(plain().issuer(Some(Issuer::new(key(9))))).unwrap();
    let came = challenge(&mut one, &wants);
    assert!(matches!(other.ask(CLIENT, &wants.request(Some(came))), Message::Challenge(_)));
    one.verifier.set_config(plain().issuer(Some(Issuer::new(key(9))))).unwrap();
    let came = challenge(&mut one, &wants);
    assert!(other.answer(CLIENT, &wants.request(Some(came))).is_ok());
    // Members without the key have nothing to share.
    let vantage = VantagePoint { id: id(1), key: TokenKey::new(1, [7; 32]) };
    let config = Config::default().vantage(Some(vantage)).members(NonZeroU16::new(2));
    assert_eq!(config.validate(), Err(ConfigError::Members));
    assert_eq!(one.verifier.set_config(Config::default()), Err(ConfigError::Members));
}

#[test]
fn each_member_has_its_part_of_the_limits() {
    let limits = Limits { v4: Rate { burst: 48, per_minute: 48 }, ..Limits::default() };
    // However many members there are, a client that reaches one of them gets a pool at once.
    for (members, expected) in [(4, 12), (6, 8), (48, 8)] {
        let mut bench = Bench::new(plain().limits(limits.clone()).members(NonZeroU16::new(members)));
        let issued = (0..48).take_while(|_| bench.obtain(CLIENT, &Wants::new(2)).is_ok()).count();
        assert_eq!(issued, expected, "{members} members");
    }
    let part = limits.clone().share(NonZeroU16::new(48).unwrap());
    assert_eq!(part.signatures_per_second, limits.signatures_per_second, "each has processors of its own");
}

/// A certificate with a wrong beginning would be refused, or be good for too long.
#[test]
fn nothing_is_issued_while_the_clock_is_uncertain() {
    let mut bench = Bench::new(plain());
    bench.clock.uncertainty = Duration::from_millis(10_001);
    let refused = bench.obtain(CLIENT, &Wants::new(2)).unwrap_err();
    assert_eq!((refused.reason, refused.retry_after), (Reason::Overloaded, 11));
    assert_eq!(bench.counters().signatures_made, 0);
    bench.clock.uncertainty = Duration::from_secs(10);
    assert!(bench.obtain(CLIENT, &Wants::new(2)).is_ok());
}
