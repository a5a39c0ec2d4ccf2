//! Tests of the machine in virtual time.

mod farm;
mod probe;

use super::*;
use crate::config::{Issuer, VantagePoint};
use crate::expiry::{BACKDATED, SHORTEST};
use crate::limits::{Limits, Rate};
use crate::token::{GroupMember, TokenKey};
use firstflight_credential::asap::{PrivateKey, PublicKey, is_certified};
use firstflight_wire::asap::message::{Refused, Tokens};
use firstflight_wire::asap::{CertificateBody, CertificateFlags};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use std::net::IpAddr;

const START_MS: u64 = 1_767_225_600_000;
const CLIENT: &str = "198.51.100.7:40000";

/// A verifier on a clock that the test sets.
struct Bench {
    verifier: Verifier,
    rng: ChaCha20Rng,
    clock: Clock,
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

fn id(number: u16) -> VantageId {
    VantageId::new(number).unwrap()
}

fn plain() -> Config {
    let limits = Limits { v4: Rate { burst: 10_000, per_minute: 60_000 }, ..Limits::default() };
    let allowed = vec!["198.51.100.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    Config { issuer: Some(Issuer::new(key(1))), allowed, limits, ..Config::default() }
}

impl Bench {
    fn new(config: Config) -> Self {
        let mut rng = ChaCha20Rng::from_seed([42; 32]);
        let mono = Instant::from_secs(5000);
        let verifier = Verifier::new(config, mono, &mut rng).unwrap();
        Self { verifier, rng, clock: Clock { mono, unix_ms: START_MS, uncertainty: Duration::from_secs(1) } }
    }

    fn sleep(&mut self, seconds: u32) {
        self.clock.mono += Duration::from_secs(seconds.into());
        self.clock.unix_ms += u64::from(seconds) * 1000;
    }

    fn now(&self) -> u32 {
        (self.clock.unix_ms / 1000) as u32
    }

    fn datagram(&mut self, from: &str, bytes: &[u8]) -> Option<Message> {
        let answer =
            self.verifier.handle_datagram(&self.clock, from.parse().unwrap(), bytes, &mut self.rng)?;
        let (Answer::Reply(answer) | Answer::Probe(answer)) = answer;
        assert!(answer.len() <= bytes.len(), "{} for {}", answer.len(), bytes.len());
        Some(Message::parse(&answer).unwrap())
    }

    fn ask(&mut self, from: &str, request: &Request) -> Message {
        self.datagram(from, &request.to_bytes()).unwrap()
    }

    /// The whole exchange over UDP.
    fn obtain(&mut self, from: &str, wants: &Wants) -> Result<CertificateBody, Refused> {
        let challenge = match self.ask(from, &wants.request(None)) {
            Message::Challenge(message) => message.challenge,
            Message::Refused(refused) => return Err(refused),
            other => panic!("{other:?}"),
        };
        self.answer(from, &wants.request(Some(challenge)))
    }

    fn answer(&mut self, from: &str, request: &Request) -> Result<CertificateBody, Refused> {
        match self.ask(from, request) {
            Message::Certificate(message) => Ok(message.certificate),
            Message::Refused(refused) => Err(refused),
            other => panic!("{other:?}"),
        }
    }

    fn counters(&self) -> Counters {
        *self.verifier.counters()
    }
}

/// A client's request.
struct Wants {
    key: PrivateKey,
    wished: u32,
    tokens: Tokens,
    old: Option<(CertificateBody, PrivateKey)>,
    verifier: PublicKey,
}

impl Wants {
    fn new(seed: u8) -> Self {
        let verifier = key(1).public();
        Self { key: key(seed), wished: u32::MAX, tokens: Tokens::NONE, old: None, verifier }
    }

    fn after(seed: u8, old: CertificateBody, old_key: u8) -> Self {
        Self { old: Some((old, key(old_key))), ..Self::new(seed) }
    }

    fn request(&self, challenge: Option<Challenge>) -> Request {
        self.request_of(challenge, true)
    }

    fn request_of(&self, challenge: Option<Challenge>, padded: bool) -> Request {
        let transaction = TransactionId([3; 8]);
        let (public, old) = (*self.key.public().as_bytes(), self.old.as_ref().map(|old| old.0));
        let mut request = Request::new(transaction, public, self.wished, challenge, self.tokens, old, padded);
        let input = request.signing_input(self.verifier.as_bytes());
        request.signature = self.key.sign(input.as_slice());
        if let (Some(renewal), Some((_, key))) = (&mut request.old, &self.old) {
            renewal.signature = key.sign(input.as_slice());
        }
        request
    }
}

fn ip(from: &str) -> IpAddr {
    from.parse::<SocketAddr>().unwrap().ip()
}

fn reason(result: Result<CertificateBody, Refused>) -> Reason {
    result.unwrap_err().reason
}

#[test]
fn a_challenge_comes_first_and_then_a_certificate() {
    let mut bench = Bench::new(plain());
    for (from, seed) in [(CLIENT, 2), ("[2001:db8::7]:40000", 3)] {
        let first = bench.ask(from, &Wants::new(seed).request(None));
        let Message::Challenge(message) = first else { panic!("{first:?}") };
        assert_eq!(message.seen, from.parse().unwrap());
        assert_eq!(message.time, bench.now());
        let answer = bench.answer(from, &Wants::new(seed).request(Some(message.challenge))).unwrap();
        assert!(is_certified(&answer, &key(1).public(), ip(from)));
        assert_eq!(answer.client_key, *key(seed).public().as_bytes());
        assert_eq!(answer.duration(), 1800);
        assert_eq!(answer.flags, CertificateFlags::new(1, true, false).unwrap());
        assert!((bench.now() - BACKDATED..=bench.now()).contains(&answer.valid_from));
    }
    let counters = bench.counters();
    assert_eq!((counters.challenges, counters.certificates, counters.refreshed), (2, 2, 0));
    assert_eq!((counters.signatures_verified, counters.signatures_made), (2, 2));
}

/// Certificates that are made together begin at different seconds.
#[test]
fn beginnings_are_spread_over_twenty_seconds() {
    let mut bench = Bench::new(plain());
    let mut seen = [0_u32; BACKDATED as usize + 1];
    for _ in 0..420 {
        let certificate = bench.obtain(CLIENT, &Wants::new(2)).unwrap();
        seen[(bench.now() - certificate.valid_from) as usize] += 1;
        bench.clock.mono += Duration::from_millis(50);
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn over_tcp_the_handshake_is_the_proof() {
    let mut bench = Bench::new(plain());
    let wants = Wants::new(2);
    let bytes = wants.request_of(None, false).to_bytes();
    let from: SocketAddr = CLIENT.parse().unwrap();
    let answer = bench.verifier.handle_stream(&bench.clock, from, &bytes, &mut bench.rng).unwrap();
    let Ok(Message::Certificate(message)) = Message::parse(&answer) else { panic!() };
    assert!(is_certified(&message.certificate, &key(1).public(), from.ip()));
    // A socket of both families.
    let mapped: SocketAddr = "[::ffff:198.51.100.7]:40000".parse().unwrap();
    let answer = bench.verifier.handle_stream(&bench.clock, mapped, &bytes, &mut bench.rng).unwrap();
    let Ok(Message::Certificate(message)) = Message::parse(&answer) else { panic!() };
    assert_eq!(message.seen, from);
    assert!(is_certified(&message.certificate, &key(1).public(), from.ip()));
    assert_eq!(bench.counters().challenges, 0);
}

/// Whatever is wrong with a challenge, the answer is another challenge, and no signature is verified.
#[test]
fn a_wrong_challenge_is_answered_by_a_new_one() {
    let mut bench = Bench::new(plain());
    let Message::Challenge(message) = bench.ask(CLIENT, &Wants::new(2).request(None)) else { panic!() };
    let request = Wants::new(2).request(Some(message.challenge));
    for other in ["198.51.100.8:40000", "198.51.100.7:40001"] {
        assert!(matches!(bench.ask(other, &request), Message::Challenge(_)), "{other}");
    }
    // Another key, for which the challenge was not made.
    let stolen = Wants::new(3).request(Some(message.challenge));
    assert!(matches!(bench.ask(CLIENT, &stolen), Message::Challenge(_)));
    bench.sleep(11);
    assert!(matches!(bench.ask(CLIENT, &request), Message::Challenge(_)));
    let counters = bench.counters();
    assert_eq!((counters.challenges, counters.challenges_again), (5, 4));
    assert_eq!((counters.signatures_verified, counters.signatures_made), (0, 0));
}

#[test]
fn what_is_no_request_gets_no_answer() {
    let mut bench = Bench::new(plain());
    let request = Wants::new(2).request(None).to_bytes();
    assert_eq!(bench.datagram(CLIENT, &request[..319]), None);
    assert_eq!(bench.datagram(CLIENT, &Wants::new(2).request_of(None, false).to_bytes()), None);
    assert_eq!(bench.counters().dropped_short, 2);
    assert_eq!(bench.datagram(CLIENT, &[0; 400]), None);
    let mut odd = request.to_vec();
    odd[319] = 1;
    assert_eq!(bench.datagram(CLIENT, &odd), None);
    assert_eq!(bench.datagram("198.51.100.7:0", &request), None);
    assert_eq!(bench.counters().dropped_malformed, 3);
    assert_eq!(bench.counters().bytes_out, 0);
}

/// A flood from forged addresses costs no signature, takes no network's share, and causes no answer that is
/// longer than its request.
#[test]
fn a_spoofed_flood_costs_no_signature_and_reflects_less_than_it_sends() {
    let mut bench = Bench::new(plain());
    let forged = Challenge { key: 1, time: 5000, mac: [9; 16] };
    for n in 0..20_000_u32 {
        let from = format!("198.51.100.{}:{}", n % 256, 1024 + n % 60_000);
        let seed = (n % 50) as u8 + 2;
        let request = if n % 2 == 0 {
            Request::new(TransactionId([seed; 8]), [seed; 32], 60, None, Tokens::NONE, None, true)
        } else {
            Request::new(TransactionId([seed; 8]), [seed; 32], 60, Some(forged), Tokens::NONE, None, true)
        };
        assert!(matches!(bench.ask(&from, &request), Message::Challenge(_)));
    }
    let counters = bench.counters();
    let signatures = counters.signatures_verified + counters.signatures_made;
    let reflected = counters.bytes_out as f64 / counters.bytes_in as f64;
    println!(
        "20,000 spoofed requests: {signatures} signatures, {reflected:.3} bytes reflected per byte received"
    );
    assert_eq!(signatures, 0);
    assert!(reflected <= 1.0);
    assert!(bench.obtain(CLIENT, &Wants::new(2)).is_ok());
}

#[test]
fn possession_of_the_key_is_demanded() {
    let mut bench = Bench::new(plain());
    let Message::Challenge(message) = bench.ask(CLIENT, &Wants::new(2).request(None)) else { panic!() };
    let mut request = Wants::new(2).request(Some(message.challenge));
    request.signature[5] ^= 1;
    assert_eq!(reason(bench.answer(CLIENT, &request)), Reason::BadSignature);
    // Signed for another verifier.
    let elsewhere = Wants { verifier: key(9).public(), ..Wants::new(2) };
    assert_eq!(reason(bench.obtain(CLIENT, &elsewhere)), Reason::BadSignature);
    assert_eq!(bench.counters().certificates, 0);
    assert_eq!(bench.counters().refused(Reason::BadSignature), 2);
}

#[test]
fn unsound_keys_are_refused_before_any_signature() {
    let mut bench = Bench::new(plain());
    let mut identity = [0; 32];
    identity[0] = 1;
    let request =
        |challenge| Request::new(TransactionId([3; 8]), identity, 600, challenge, Tokens::NONE, None, true);
    let Message::Challenge(message) = bench.ask(CLIENT, &request(None)) else { panic!() };
    assert_eq!(reason(bench.answer(CLIENT, &request(Some(message.challenge)))), Reason::UnsoundKey);
    assert_eq!(bench.counters().signatures_verified, 0);
}

#[test]
fn a_refresh_continues_the_old_certificate_with_a_new_key() {
    let mut bench = Bench::new(plain());
    let mut old = bench.obtain(CLIENT, &Wants::new(2)).unwrap();
    for (seed, expected) in [(3, 3560), (4, 7080), (5, 14_120)] {
        bench.sleep(u32::try_from(old.ends() - u64::from(bench.now())).unwrap() - 1);
        let new = bench.obtain(CLIENT, &Wants::after(seed, old, seed - 1)).unwrap();
        assert!(new.flags.is_refreshed());
        assert_eq!(new.client_key, *key(seed).public().as_bytes());
        // Twice the time, less the possible backdating.
        assert!(new.duration() <= expected && new.duration() + 100 >= expected, "{}", new.duration());
        old = new;
    }
    // A refresh at once gains nothing.
    let again = bench.obtain(CLIENT, &Wants::after(7, old, 5)).unwrap();
    assert_eq!(again.duration(), 1800);
    assert_eq!(bench.counters().refreshed, 4);
}

#[test]
fn a_refresh_with_anything_wrong_is_refused() {
    let mut bench = Bench::new(plain());
    let old = bench.obtain(CLIENT, &Wants::new(2)).unwrap();
    bench.sleep(900);
    let refused = |bench: &mut Bench, from: &str, wants: &Wants| reason(bench.obtain(from, wants));
    // The old certificate is not signed by the old key, is for another address, is by another verifier, or
    // was changed.
    assert_eq!(refused(&mut bench, CLIENT, &Wants::after(3, old, 4)), Reason::OldCertificate);
    assert_eq!(refused(&mut bench, "198.51.100.8:1", &Wants::after(3, old, 2)), Reason::OldCertificate);
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let foreign = firstflight_credential::asap::certify(
        &key(9),
        &key(2).public(),
        ip(CLIENT),
        old.valid_from,
        1800,
        flags,
    );
    assert_eq!(refused(&mut bench, CLIENT, &Wants::after(3, foreign.unwrap(), 2)), Reason::OldCertificate);
    let mut changed = old;
    changed.valid_from -= 100;
    assert_eq!(refused(&mut bench, CLIENT, &Wants::after(3, changed, 2)), Reason::OldCertificate);
    assert!(bench.obtain(CLIENT, &Wants::after(3, old, 2)).is_ok());
    // The old certificate has expired.
    bench.sleep(901);
    assert_eq!(refused(&mut bench, CLIENT, &Wants::after(3, old, 2)), Reason::OldCertificate);
    // The old certificate has not begun yet, because the verifier's clock was set back.
    let new = bench.obtain(CLIENT, &Wants::new(2)).unwrap();
    bench.clock.unix_ms -= 60_000;
    assert_eq!(refused(&mut bench, CLIENT, &Wants::after(3, new, 2)), Reason::OldCertificate);
}

#[test]
fn certificates_of_a_retired_key_can_be_refreshed() {
    let old = Bench::new(plain()).obtain(CLIENT, &Wants::new(2)).unwrap();
    let mut config = plain();
    config.issuer = Some(Issuer { retired: vec![key(1).public()], ..Issuer::new(key(8)) });
    let mut bench = Bench::new(config.clone());
    bench.sleep(1000);
    let wants = Wants { verifier: key(8).public(), ..Wants::after(3, old, 2) };
    let new = bench.obtain(CLIENT, &wants).unwrap();
    assert!(is_certified(&new, &key(8).public(), ip(CLIENT)));
    assert!(new.flags.is_refreshed());
    // Without the retired key, the certificate's verifier is unknown.
    config.issuer = Some(Issuer::new(key(8)));
    assert_eq!(reason(Bench::new(config).obtain(CLIENT, &wants)), Reason::OldCertificate);
}

#[test]
fn durations_are_within_bounds() {
    let mut config = plain();
    config.issuer = Some(Issuer { first: 600, longest: 1000, ..Issuer::new(key(1)) });
    let mut bench = Bench::new(config);
    let lasts = |wished| Wants { wished, ..Wants::new(2) };
    assert_eq!(bench.obtain(CLIENT, &lasts(86_400)).unwrap().duration(), 600);
    assert_eq!(bench.obtain(CLIENT, &lasts(SHORTEST)).unwrap().duration(), SHORTEST);
    assert_eq!(reason(bench.obtain(CLIENT, &lasts(SHORTEST - 1))), Reason::TooShort);
    let old = bench.obtain(CLIENT, &lasts(86_400)).unwrap();
    bench.sleep(579);
    assert_eq!(bench.obtain(CLIENT, &Wants::after(3, old, 2)).unwrap().duration(), 1000);
}

#[test]
fn addresses_that_are_not_global_need_to_be_allowed() {
    let mut bench = Bench::new(plain());
    for from in ["127.0.0.1:9", "10.0.0.1:9", "192.168.1.1:9", "100.64.0.1:9", "[fd00::1]:9", "[::1]:9"] {
        assert_eq!(reason(bench.obtain(from, &Wants::new(2))), Reason::Address, "{from}");
    }
    for from in ["9.9.9.9:9", "[2606:4700::1]:9", CLIENT] {
        assert!(bench.obtain(from, &Wants::new(2)).is_ok(), "{from}");
    }
}

#[test]
fn a_network_has_its_share_and_is_told_when_to_come_again() {
    let mut config = plain();
    config.limits.v4 = Rate { burst: 3, per_minute: 6 };
    let mut bench = Bench::new(config);
    for _ in 0..3 {
        assert!(bench.obtain(CLIENT, &Wants::new(2)).is_ok());
    }
    let refused = bench.obtain(CLIENT, &Wants::new(2)).unwrap_err();
    assert_eq!((refused.reason, refused.retry_after), (Reason::RateLimited, 11));
    assert!(bench.obtain("198.51.100.8:1", &Wants::new(2)).is_ok());
    bench.sleep(refused.retry_after);
    assert!(bench.obtain(CLIENT, &Wants::new(2)).is_ok());
    assert_eq!(bench.counters().refused_in_all(), 1);
}

#[test]
fn all_networks_together_have_a_budget_of_signatures() {
    let mut config = plain();
    config.limits.signatures_per_second = 20;
    let mut bench = Bench::new(config);
    let outcomes: Vec<_> =
        (1..40).map(|n| bench.obtain(&format!("198.51.100.{n}:1"), &Wants::new(2)).is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|ok| **ok).count(), 4);
    assert_eq!(bench.counters().refused(Reason::Overloaded), 35);
    bench.sleep(1);
    assert!(bench.obtain(CLIENT, &Wants::new(2)).is_ok());
}

fn token_key(number: u8) -> TokenKey {
    TokenKey::new(1, [number; 32])
}

fn vantage(number: u8) -> Bench {
    let point = VantagePoint { id: id(number.into()), key: token_key(number) };
    Bench::new(Config { issuer: None, vantage: Some(point), ..plain() })
}

fn token_of(bench: &mut Bench, from: &str, wants: &Wants) -> Token {
    let public = *wants.key.public().as_bytes();
    let request = |challenge| VantageRequest::new(TransactionId([4; 8]), public, challenge, true).to_bytes();
    let Some(Message::Challenge(message)) = bench.datagram(from, &request(None)) else { panic!() };
    let Some(Message::Token(message)) = bench.datagram(from, &request(Some(message.challenge))) else {
        panic!()
    };
    message.token
}

#[test]
fn an_issuer_with_a_group_demands_every_vantage_points_token() {
    let member = |number: u8| GroupMember {
        id: id(number.into()),
        name: format!("v{number}"),
        keys: vec![token_key(number)],
    };
    let mut config = plain();
    config.issuer.as_mut().unwrap().group = vec![member(1), member(2), member(3)];
    let mut bench = Bench::new(config);
    let mut wants = Wants::new(2);
    for number in 1..=3 {
        assert!(wants.tokens.push(token_of(&mut vantage(number), CLIENT, &wants)));
    }
    let certificate = bench.obtain(CLIENT, &wants).unwrap();
    assert_eq!(certificate.flags.vantage(), 4);
    assert!(is_certified(&certificate, &key(1).public(), ip(CLIENT)));

    let refused = bench.obtain(CLIENT, &Wants::new(2)).unwrap_err();
    assert_eq!((refused.reason, refused.vantage), (Reason::TokenMissing, Some(id(1))));
    // A token for another client, for another address, and one that is a minute old.
    let other = Wants { tokens: wants.tokens, ..Wants::new(5) };
    assert_eq!(reason(bench.obtain(CLIENT, &other)), Reason::TokenWrong);
    assert_eq!(reason(bench.obtain("198.51.100.8:1", &wants)), Reason::TokenWrong);
    bench.sleep(61);
    let refused = bench.obtain(CLIENT, &wants).unwrap_err();
    assert_eq!((refused.reason, refused.vantage), (Reason::TokenExpired, Some(id(1))));
    let counters = bench.counters();
    assert_eq!((counters.signatures_verified, counters.certificates), (1, 1));
}

#[test]
fn roles_are_kept_apart() {
    let mut issuer = Bench::new(plain());
    let request = |challenge| VantageRequest::new(TransactionId([4; 8]), [5; 32], challenge, true).to_bytes();
    let Some(Message::Challenge(message)) = issuer.datagram(CLIENT, &request(None)) else { panic!() };
    let answer = issuer.datagram(CLIENT, &request(Some(message.challenge)));
    let Some(Message::Refused(refused)) = answer else { panic!() };
    assert_eq!(refused.reason, Reason::NotAVantagePoint);
    assert_eq!(reason(vantage(1).obtain(CLIENT, &Wants::new(2))), Reason::NotAnIssuer);
    // A challenge for a token is not valid for a certificate.
    let mut both = plain();
    both.vantage = Some(VantagePoint { id: id(1), key: token_key(1) });
    let mut both = Bench::new(both);
    let public = *key(2).public().as_bytes();
    let asked = VantageRequest::new(TransactionId([3; 8]), public, None, true).to_bytes();
    let Some(Message::Challenge(message)) = both.datagram(CLIENT, &asked) else { panic!() };
    let answer = both.ask(CLIENT, &Wants::new(2).request(Some(message.challenge)));
    assert!(matches!(answer, Message::Challenge(_)), "{answer:?}");
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let mut error = |config| Verifier::new(config, Instant::ZERO, &mut rng).err();
    assert_eq!(error(Config::default()), Some(ConfigError::Nothing));
    let with = |issuer| Config { issuer: Some(issuer), ..Config::default() };
    let zero = PublicKey::from_bytes([0; 32]);
    let unsound = Issuer { retired: vec![zero], ..Issuer::new(key(1)) };
    assert_eq!(error(with(unsound)), Some(ConfigError::Unsound(zero)));
    let long = Issuer { longest: 1 << 24, ..Issuer::new(key(1)) };
    assert_eq!(error(with(long)), Some(ConfigError::Duration { first: 1800, longest: 1 << 24 }));
    let member = |n: u16| GroupMember { id: id(n), name: String::new(), keys: vec![token_key(1)] };
    let group = |members: Vec<GroupMember>| with(Issuer { group: members, ..Issuer::new(key(1)) });
    assert_eq!(error(group((1..=8).map(member).collect())), Some(ConfigError::TooMany(8)));
    assert_eq!(error(group(vec![member(1), member(1)])), Some(ConfigError::Twice(id(1))));
    assert_eq!(error(group((1..=7).map(member).collect())), None);
}
