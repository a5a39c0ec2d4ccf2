use super::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

const KEY: [u8; 32] = [7; 32];

fn asking(client: &str) -> ChallengeSubject<'static> {
    ChallengeSubject {
        class: 1,
        client: client.parse().unwrap(),
        key: &KEY,
        transaction: TransactionId([1; 8]),
    }
}

fn own(now: Instant, rng: &mut ChaCha20Rng) -> OwnKeys {
    match ChallengeKeys::own(now, rng) {
        ChallengeKeys::Own(keys) => keys,
        ChallengeKeys::Shared(_) => unreachable!(),
    }
}

#[test]
fn a_challenge_is_good_for_ten_seconds_and_for_what_it_was_made() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let at = Instant::from_secs(1000);
    let keys = own(at, &mut rng);
    let asked = asking("192.0.2.1:5000");
    let challenge = keys.make(&asked, at);
    for (after, good) in [(0, true), (10, true), (11, false), (4000, false)] {
        assert_eq!(keys.is_good(&challenge, &asked, at + Duration::from_secs(after)), good, "{after} s");
    }
    assert!(!keys.is_good(&challenge, &asked, at - Duration::from_secs(1)));
    let other_key = [8; 32];
    for other in [
        asking("192.0.2.2:5000"),
        asking("192.0.2.1:5001"),
        ChallengeSubject { class: 5, ..asked },
        ChallengeSubject { key: &other_key, ..asked },
        ChallengeSubject { transaction: TransactionId([2; 8]), ..asked },
    ] {
        assert!(!keys.is_good(&challenge, &other, at), "{other:?}");
    }
    let mut wrong = challenge;
    wrong.mac[15] ^= 1;
    assert!(!keys.is_good(&wrong, &asked, at));
    assert!(!keys.is_good(&Challenge { time: challenge.time + 1, ..challenge }, &asked, at));
    assert!(!own(at, &mut rng).is_good(&challenge, &asked, at), "another process");
}

#[test]
fn a_challenge_outlives_one_turn_of_the_key() {
    let mut rng = ChaCha20Rng::from_seed([2; 32]);
    let mut keys = own(Instant::ZERO, &mut rng);
    let asked = asking("[2001:db8::1]:5000");
    for hour in 1..600 {
        let before = Instant::from_secs(hour * 3600 - 1);
        keys.turn(before, &mut rng);
        let challenge = keys.make(&asked, before);
        let after = Instant::from_secs(hour * 3600);
        keys.turn(after, &mut rng);
        assert_ne!(keys.make(&asked, after).key, challenge.key);
        assert!(keys.is_good(&challenge, &asked, after), "hour {hour}");
        // Another key with the same number.
        let other = OwnKeys { number: keys.number, ..own(after, &mut rng) };
        assert!(!other.is_good(&challenge, &asked, after));
    }
}

const NOW: u32 = 1_767_225_600;

fn clock(unix: u32) -> Clock {
    // Members started at different times.
    let mono = Instant::from_secs(u64::from(unix % 997));
    Clock { mono, unix_ms: u64::from(unix) * 1000 + 999, uncertainty: Duration::ZERO }
}

/// A challenge of one member is good at another one, whose clock may differ by two seconds, also when the hour changes in
/// between.
#[test]
fn a_challenge_of_a_farm_is_good_at_every_member() {
    let members = [[1; 32], [1; 32], [2; 32]];
    let [one, other, stranger] = members.map(|seed| ChallengeKeys::shared(&PrivateKey::from_seed(&seed)));
    let asked = asking("192.0.2.1:5000");
    for made in [NOW, NOW + 1, NOW - 1, NOW - 9, NOW + HOUR * 254 - 1] {
        let challenge = one.make(&asked, &clock(made));
        assert_ne!(challenge.key, 0);
        for (after, good) in
            [(-3, false), (-2, true), (0, true), (10, true), (11, false), (3600 * 255, false)]
        {
            let at = clock(made.checked_add_signed(after).unwrap());
            assert_eq!(other.is_good(&challenge, &asked, &at), good, "{made}, {after} s");
            assert!(!stranger.is_good(&challenge, &asked, &at));
        }
        let other_port = asking("192.0.2.1:5001");
        assert!(!other.is_good(&challenge, &other_port, &clock(made)));
        let wrong = Challenge { key: challenge.key % 255 + 1, ..challenge };
        assert!(!other.is_good(&wrong, &asked, &clock(made)));
        let later = Challenge { time: challenge.time + 1, ..challenge };
        assert!(!other.is_good(&later, &asked, &clock(made)));
    }
}
