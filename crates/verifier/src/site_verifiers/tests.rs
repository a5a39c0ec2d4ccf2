//! What records of strangers can do (docs/spec/asap.md, section 9.1): each rule in virtual time, and what is asked.

use super::*;
use crate::pool::is_usable;
use firstflight_credential::asap::certify;
use firstflight_wire::asap::{CertificateFlags, Name, SitePoints};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};

const HOME: NetworkId = NetworkId([1; 16]);
const CAFE: NetworkId = NetworkId([2; 16]);
const DAY: u64 = 24 * 3600;
const SOON: Duration = Duration::from_secs(3);

fn secret(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

fn at(seconds: u64) -> Instant {
    Instant::from_secs(1_000_000 + seconds)
}

fn host(name: &str) -> Host {
    Host { name: name.into(), port: 443 }
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 5));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5));

/// A verifier that says that it is for all names below its own.
fn named(seed: u8, name: &str) -> VerifierOfSite {
    let at = Host { name: name.into(), port: 4433 };
    VerifierOfSite { key: secret(seed).public(), at, below: true, points: Vec::new() }
}

fn site(name: &str) -> HostRule {
    named(1, name).site(name)
}

/// A client, and the world around it in virtual time.
struct Bench {
    state: State,
    keys: u16,
    lasts: u32,
    seen: &'static str,
}

impl Bench {
    fn new() -> Self {
        Self { state: State::new(HOME), keys: 0, lasts: 3600, seen: "203.0.113.5" }
    }

    /// The record of a host names these verifiers. It may be used for `ttl` seconds.
    fn learn(&mut self, by: &str, verifiers: Vec<VerifierOfSite>, ttl: u64, authentic: bool, now: u64) {
        let trusted = verifiers.iter().map(|one| one.key.id()).collect();
        self.state.handle_record(&host(by), trusted, Duration::from_secs(ttl), at(now));
        self.state.handle_visit(by, V4, Duration::from_secs(DAY), at(now));
        let chosen = self.state.choose(by, verifiers.into_iter());
        let answer = RecordAnswer { verifiers: chosen, ttl: Duration::from_secs(ttl), authentic };
        let era = self.state.era();
        self.state.handle_learnt(by, era, Some(answer), at(now));
    }

    fn certificate(&mut self, wish: &Wish, now: u64) -> ClientCertificate {
        self.keys += 1;
        let mut seed = [7; 32];
        seed[..2].copy_from_slice(&self.keys.to_be_bytes());
        let (own, address) = (PrivateKey::from_seed(&seed), self.seen.parse().unwrap());
        let verifier = (1..30).map(secret).find(|key| key.public() == wish.named.key).unwrap();
        let flags = CertificateFlags::new(1, true, wish.old.is_some()).unwrap();
        let body = certify(&verifier, &own.public(), address, 1_767_225_600, self.lasts, flags).unwrap();
        ClientCertificate::new(body, verifier.public(), address, own, at(now)).unwrap()
    }

    /// Obtains everything that is wanted now. Returns how many were new, and how many were renewals.
    fn fill(&mut self, now: u64) -> (usize, usize) {
        let mut counts = (0, 0);
        while let Some(Task::Obtain(wish)) = self.state.poll(at(now)) {
            *(if wish.old.is_some() { &mut counts.1 } else { &mut counts.0 }) += 1;
            let certificate = self.certificate(&wish, now);
            self.state.handle_obtained(&wish, certificate);
        }
        counts
    }

    fn shown(&mut self, to: &str, seed: u8, now: u64) -> bool {
        self.state.certificate_for(to, true, &[secret(seed).public().id()], None, at(now)).is_some()
    }
}

#[test]
fn nothing_is_asked_before_a_visit_and_then_after_a_while() {
    let mut bench = Bench::new();
    bench.state.handle_record(&host("www.example.com"), Vec::new(), Duration::from_secs(300), at(0));
    assert!(bench.state.poll(at(1)).is_none() && bench.state.poll_timeout(at(1)).is_none());
    bench.state.handle_visit("other.example.com", V4, SOON, at(1));
    assert!(bench.state.poll(at(10)).is_none(), "another host was visited");
    bench.state.handle_visit("www.example.com", V4, SOON, at(10));
    assert!(bench.state.poll(at(12)).is_none());
    assert_eq!(bench.state.poll_timeout(at(12)), Some(at(13)));
    assert!(matches!(bench.state.poll(at(13)), Some(Task::Learn(of)) if of == host("www.example.com")));
    assert!(bench.state.poll(at(13)).is_none(), "asked once");
    // Its record ends.
    let mut bench = Bench::new();
    bench.state.handle_record(&host("www.example.com"), Vec::new(), Duration::from_secs(300), at(0));
    bench.state.handle_visit("www.example.com", V4, SOON, at(301));
    assert!(bench.state.poll(at(400)).is_none());
}

/// How many records are asked about in a minute in which a host is visited each second, and `answer` answers each question.
fn asked_in_a_minute(host_of: impl Fn(u64) -> String, answer: impl Fn(&mut Bench, &Host, u64)) -> u32 {
    let (mut bench, mut asked) = (Bench::new(), 0);
    for second in 0..60 {
        let name = host_of(second);
        bench.state.handle_record(&host(&name), Vec::new(), Duration::from_secs(300), at(second));
        bench.state.handle_visit(&name, V4, Duration::ZERO, at(second));
        while let Some(Task::Learn(of)) = bench.state.poll(at(second)) {
            asked += 1;
            answer(&mut bench, &of, second);
        }
    }
    asked
}

#[test]
fn records_are_asked_about_seldom() {
    let nobody = |bench: &mut Bench, of: &Host, second| {
        let era = bench.state.era();
        bench.state.handle_learnt(&of.name, era, None, at(second));
    };
    assert_eq!(asked_in_a_minute(|second| format!("h.example{second}.com"), nobody), 6, "of all hosts");
    assert_eq!(asked_in_a_minute(|second| format!("h{second}.example.com"), nobody), 3, "of one domain");
    // And of one host once, whatever comes of it.
    let none = |bench: &mut Bench, of: &Host, second| bench.learn(&of.name, Vec::new(), 1, true, second);
    assert_eq!(asked_in_a_minute(|_| "a.example.com".to_owned(), none), 1, "it names none");
    assert_eq!(asked_in_a_minute(|_| "a.example.com".to_owned(), nobody), 1, "nobody answered");
}

#[test]
fn a_verifier_serves_the_host_that_named_it_or_what_is_below_its_own_name() {
    let mut bench = Bench::new();
    bench.learn("a.example.com", vec![named(1, "example.com"), named(2, "pv.example.com")], 300, true, 0);
    assert_eq!(bench.fill(0), (2, 0));
    assert!(bench.shown("b.example.com", 1, 1) && bench.shown("a.example.com", 1, 1));
    for other in ["example.org", "badexample.com", "com"] {
        assert!(!bench.shown(other, 1, 1), "{other}");
    }
    // The owner of the other one's name cannot speak for all of them.
    assert!(bench.shown("a.example.com", 2, 1));
    assert!(!bench.shown("b.example.com", 2, 1) && !bench.shown("pv.example.com", 2, 1));
    assert!(!bench.shown("x.a.example.com", 2, 1), "below the host");
    // And this owner has not said that it does.
    let mut bench = Bench::new();
    bench.learn(
        "a.example.com",
        vec![VerifierOfSite { below: false, ..named(1, "example.com") }],
        300,
        true,
        0,
    );
    bench.fill(0);
    assert!(bench.shown("a.example.com", 1, 1));
    assert!(!bench.shown("b.example.com", 1, 1) && !bench.shown("example.com", 1, 1));
}

#[test]
fn what_a_client_knows_otherwise_has_no_influence_on_what_it_asks() {
    // A key whose id is that of another site's verifier is learnt as any other one, or a site could see which the client knows.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], 300, true, 0);
    bench.learn("other.test", vec![named(1, "other.test")], 300, true, 0);
    assert_eq!(bench.fill(0), (2, 0));
    let ids = [secret(1).public().id()];
    let mut shown = |to: &str| bench.state.certificate_for(to, true, &ids, None, at(1)).unwrap();
    assert_ne!(shown("example.com").body().client_key, shown("other.test").body().client_key, "each its own");
}

#[test]
fn a_host_names_two_verifiers_at_most_which_its_server_trusts() {
    let mut bench = Bench::new();
    let trusted = (3..9).map(|seed| secret(seed).public().id()).collect();
    bench.state.handle_record(&host("a.example.com"), trusted, SOON, at(0));
    let chosen = bench.state.choose("a.example.com", (1..9).map(|seed| named(seed, "example.com")));
    assert_eq!(chosen, [named(3, "example.com"), named(4, "example.com")]);
    assert!(bench.state.choose("b.example.com", [named(3, "example.com")].into_iter()).is_empty());
}

#[test]
fn hosts_replace_only_their_own_and_there_are_sixteen_in_all() {
    let mut bench = Bench::new();
    for number in 0..12_u8 {
        let name = format!("site{number}.test");
        bench.learn(&name, vec![named(2 * number + 1, &name), named(2 * number + 2, &name)], DAY, true, 0);
    }
    assert_eq!(bench.state.learnt.len(), 16);
    assert_eq!(bench.state.learnt.iter().filter(|one| one.by == "site0.test").count(), 2);
    bench.learn("site0.test", vec![named(28, "site0.test")], DAY, true, 1);
    assert_eq!(
        bench.state.learnt.iter().filter(|one| one.by == "site0.test").count(),
        1,
        "it replaces its own"
    );
    bench.learn("new.test", vec![named(25, "new.test"), named(26, "new.test")], DAY, true, 2);
    assert_eq!(bench.state.learnt.iter().filter(|one| one.by == "new.test").count(), 1, "one place is free");
    // A site that nobody visits makes a place.
    for second in (0..4000).step_by(100) {
        bench.state.handle_visit("site3.test", V4, SOON, at(second));
    }
    for number in 0..9 {
        let by = format!("h{number}.site3.test");
        bench.learn(&by, vec![named(29, &by)], DAY, true, 4000);
    }
    let group = bench.state.learnt.iter().filter(|one| one.by.ends_with("site3.test")).count();
    assert_eq!(group, 4, "of one domain");
    bench.learn("late.test", vec![named(27, "late.test")], DAY, true, 4000);
    let by = |name: &str| bench.state.learnt.iter().filter(|one| one.by == name).count();
    assert_eq!((bench.state.learnt.len(), by("late.test"), by("site3.test")), (16, 1, 2));
}

#[test]
fn a_verifier_is_forgotten_with_its_record_its_visit_and_its_network() {
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], 300, true, 0);
    bench.fill(0);
    assert!(bench.shown("example.com", 1, 299) && !bench.shown("example.com", 1, 300), "its time to live");
    let mut bench = Bench::new();
    bench.lasts = 100_000;
    bench.learn("example.com", vec![named(1, "example.com")], 10 * DAY, true, 0);
    bench.fill(0);
    assert!(bench.shown("example.com", 1, DAY - 1) && !bench.shown("example.com", 1, DAY), "a day");
    // Not authenticated: with the visit.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, false, 0);
    bench.fill(0);
    bench.state.handle_visit("example.com", V4, SOON, at(50));
    assert!(bench.shown("example.com", 1, 109) && !bench.shown("example.com", 1, 110));
    // Which cannot be drawn out.
    let mut bench = Bench::new();
    bench.lasts = 10_000;
    bench.learn("example.com", vec![named(1, "example.com")], DAY, false, 0);
    bench.fill(0);
    for second in (0..4000).step_by(50) {
        bench.state.handle_visit("example.com", V4, SOON, at(second));
        assert_eq!(bench.shown("example.com", 1, second), second < 3600, "{second}");
    }
    // A later record that does not name it.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    bench.fill(0);
    bench.state.handle_no_record("www.example.com");
    assert!(bench.shown("example.com", 1, 1));
    bench.state.handle_no_record("example.com");
    assert!(!bench.shown("example.com", 1, 1));
    // Another network, and one that cannot be told from the next.
    for (first, second) in [(HOME, CAFE), (HOME, NetworkId::UNKNOWN), (NetworkId::UNKNOWN, HOME)] {
        let mut bench = Bench::new();
        bench.state.set_network(first);
        bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
        bench.fill(0);
        bench.state.set_network(first);
        assert!(bench.shown("example.com", 1, 1));
        bench.state.set_network(second);
        bench.state.set_network(first);
        assert!(!bench.shown("example.com", 1, 1), "{first:?} {second:?}");
    }
}

#[test]
fn an_answer_that_comes_after_a_move_is_not_used() {
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    let Some(Task::Obtain(wish)) = bench.state.poll(at(0)) else { panic!("nothing is wanted") };
    let certificate = bench.certificate(&wish, 0);
    let (era, answer) = (
        bench.state.era(),
        RecordAnswer { verifiers: vec![named(2, "example.com")], ttl: SOON, authentic: true },
    );
    bench.state.set_network(CAFE);
    bench.state.handle_learnt("example.com", era, Some(answer), at(1));
    assert!(bench.state.learnt.is_empty());
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 1);
    bench.state.handle_obtained(&wish, certificate);
    assert!(!bench.shown("example.com", 1, 1), "a certificate for the other network's address");
}

#[test]
fn there_is_one_certificate_for_a_visit_and_no_renewal_without_a_visit() {
    let mut bench = Bench::new();
    bench.lasts = 600;
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    let (mut new, mut renewed) = (0, 0);
    for second in 0..(3 * 3600) {
        let (more, again) = bench.fill(second);
        (new, renewed) = (new + more, renewed + again);
    }
    assert_eq!(new, 1);
    // 600 s each, renewed 150 s before the end, for an hour.
    assert_eq!(renewed, 7);
    assert!(!bench.shown("example.com", 1, 3 * 3600));
    bench.state.handle_visit("example.com", V4, SOON, at(3 * 3600));
    assert_eq!(bench.fill(3 * 3600 + 2), (0, 0));
    assert_eq!(bench.fill(3 * 3600 + 3), (1, 0), "the next visit");
    // The other family is asked when a server of that family was visited.
    assert!(bench.state.poll(at(3 * 3600 + 4)).is_none());
    bench.state.handle_visit("example.com", V6, SOON, at(3 * 3600 + 4));
    assert!(matches!(bench.state.poll(at(3 * 3600 + 7)), Some(Task::Obtain(wish)) if !wish.v4));
}

#[test]
fn a_verifier_that_says_what_is_not_so_is_asked_no_more() {
    // Another address than a configured verifier's.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    bench.fill(0);
    let (ids, seen) = ([secret(1).public().id()], "203.0.113.6".parse().unwrap());
    assert!(bench.state.certificate_for("example.com", true, &ids, Some(seen), at(1)).is_none());
    assert!(!bench.shown("example.com", 1, 2));
    bench.state.handle_visit("example.com", V4, SOON, at(2));
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 3);
    assert_eq!(bench.fill(10_000), (0, 0));
    // A server sees another one.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    bench.fill(0);
    let shown = bench.state.certificate_for("example.com", true, &ids, None, at(1)).unwrap();
    assert!(bench.state.mismatched(&shown) && !bench.state.mismatched(&shown));
    bench.state.handle_visit("example.com", V4, SOON, at(2));
    assert_eq!(bench.fill(10_000), (0, 0));
    // It was refused for another reason: another one is obtained at the next visit.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    bench.fill(0);
    let shown = bench.state.certificate_for("example.com", true, &ids, None, at(1)).unwrap();
    assert!(bench.state.forget(&shown) && !bench.shown("example.com", 1, 1));
    bench.state.handle_visit("example.com", V4, SOON, at(2));
    assert_eq!(bench.fill(5), (1, 0));
}

fn address(number: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::from(number.to_be_bytes()), 4433)
}

#[test]
fn strangers_get_one_datagram_an_hour_and_less_later() {
    let mut bench = Bench::new();
    let (of, victim) = (site("evil.test"), address(0x0808_0808));
    let mut sent = Vec::new();
    for minute in 0..(10 * 24 * 60) {
        // Another address of the same small network, and another host of the same domain, change nothing.
        let to = SocketAddr::new(
            IpAddr::from((0x0808_0800 + minute as u32 % 256).to_be_bytes()),
            4433 + minute as u16 % 9,
        );
        let of = site(&format!("h{minute}.evil.test"));
        if bench.state.spend_datagram(&of, to, at(minute * 60)) {
            sent.push(minute);
        }
    }
    // After 1, 2, 4, 8, 16 hours, and then each day.
    let hours: Vec<u64> = sent.windows(2).map(|pair| (pair[1] - pair[0]) / 60).collect();
    assert_eq!(hours[..6], [1, 2, 4, 8, 16, 24]);
    assert!(hours.iter().all(|hours| *hours <= 24));
    // What one domain did is not seen by another one.
    let now = at(10 * DAY);
    assert!(
        !bench.state.spend_datagram(&of, victim, now)
            && bench.state.spend_datagram(&site("good.test"), victim, now)
    );
    // An answer ends that, for this address and port, and for an hour.
    let later = 20 * DAY;
    bench.state.handle_challenge(&of, victim, at(later));
    let may = |bench: &mut Bench, to, second| bench.state.spend_datagram(&of, to, at(later + second));
    assert!(may(&mut bench, victim, 0) && may(&mut bench, victim, 1));
    let other = SocketAddr::new(victim.ip(), 4434);
    assert!(may(&mut bench, other, 2) && !may(&mut bench, other, 3), "another port is a stranger");
    assert!(may(&mut bench, victim, 3599) && !may(&mut bench, victim, 3600));
    // Nothing of it is known on another network.
    bench.state.set_network(CAFE);
    assert!(may(&mut bench, victim, 3601) && !may(&mut bench, victim, 3602));
}

#[test]
fn all_of_them_get_ten_datagrams_a_minute() {
    let mut bench = Bench::new();
    let spend = |bench: &mut Bench, of: &str, number: u32, second| {
        bench.state.spend_datagram(&site(of), address(0x0808_0000 + (number << 8)), at(second))
    };
    let sent = (0..600)
        .filter(|number| spend(&mut bench, &format!("s{number}.test"), *number, u64::from(number / 10)));
    assert_eq!(sent.count(), 10);
    let mut bench = Bench::new();
    let sent = (0..600).filter(|number| spend(&mut bench, "evil.test", *number, u64::from(number / 10)));
    assert_eq!(sent.count(), 5, "half of them because of one domain");
    // And no more strangers than can be remembered, of one domain a quarter.
    let mut bench = Bench::new();
    let sent = (0..100).filter(|number| spend(&mut bench, "evil.test", *number, u64::from(*number) * 30));
    assert_eq!(sent.count(), 16);
    let sent = (100..300)
        .filter(|number| spend(&mut bench, &format!("s{number}.test"), *number, u64::from(*number) * 10));
    assert_eq!(sent.count(), 48);
}

#[test]
fn a_verifier_that_fails_is_asked_again_at_a_later_visit() {
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    let fail = |bench: &mut Bench, now| {
        let Some(Task::Obtain(wish)) = bench.state.poll(at(now)) else { return false };
        bench.state.handle_failed(&wish, false, Duration::from_secs(100_000), at(now));
        true
    };
    assert!(fail(&mut bench, 0));
    // It said to wait for a day. That is not signed, so it is an hour at most.
    for second in (0..3600).step_by(10) {
        bench.state.handle_visit("example.com", V4, Duration::ZERO, at(second));
        assert!(bench.state.poll(at(second)).is_none(), "{second}");
    }
    assert!(fail(&mut bench, 3600));
    assert!(bench.state.poll(at(20_000)).is_none(), "nobody was there");
}

#[test]
fn a_host_with_two_keys_is_asked_for_one_after_the_other() {
    // While a site turns its key, its record names both, and its verifier signs with one.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com"), named(2, "example.com")], DAY, true, 0);
    let Some(Task::Obtain(first)) = bench.state.poll(at(0)) else { panic!("nothing is wanted") };
    assert!(bench.state.poll(at(0)).is_none() && bench.state.poll_timeout(at(0)) > Some(at(0)));
    bench.state.handle_failed(&first, false, Duration::ZERO, at(1));
    assert_eq!(bench.state.poll_timeout(at(1)), Some(at(0)));
    assert_eq!(bench.fill(1), (1, 0));
    assert!(bench.shown("example.com", 2, 1) && !bench.shown("example.com", 1, 1));
}

/// The wire form of a name.
fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

/// A parameter that names one verifier.
fn value(key: [u8; 32], name: &str, port: u16) -> Vec<u8> {
    value_below(key, name, port, true)
}

fn value_below(key: [u8; 32], name: &str, port: u16, below: bool) -> Vec<u8> {
    let (name, mut out) = (wire(name), [0; VerifiersParam::MAX_LEN]);
    let udp_port = NonZeroU16::new(port).unwrap();
    let one = SiteVerifier {
        key,
        udp_port,
        tcp_port: None,
        name: Name::new(&name).unwrap(),
        below,
        points: SitePoints::default(),
    };
    let len = VerifiersParam::emit([(one, &[][..])].into_iter(), &mut out).unwrap();
    out[..len].to_vec()
}

fn read(value: &[u8]) -> Option<VerifierOfSite> {
    VerifierOfSite::read(&VerifiersParam::parse(value).unwrap().iter().next().unwrap())
}

#[test]
fn bad_ports_names_and_keys_are_not_learnt() {
    let good = *secret(1).public().as_bytes();
    let named = read(&value(good, "pv.example.com", 4433)).unwrap();
    assert_eq!((named.at.to_string().as_str(), named.key), ("pv.example.com:4433", secret(1).public()));
    for port in [443, 1024, 4433, 4500, 65535] {
        assert!(read(&value(good, "pv.example.com", port)).is_some(), "{port}");
    }
    for name in [
        "printer.local",
        "x.onion",
        "10.0.0.1",
        "a.0x7f",
        "nas.home.arpa",
        "pv.corp",
        "-.lan",
        "_x.example.com",
    ] {
        assert!(read(&value(good, name, 4433)).is_none(), "{name}");
    }
    for port in [1, 19, 53, 123, 161, 389, 442, 444, 500, 1023, 1434, 1900, 3478, 5060, 5353, 11211] {
        assert!(read(&value(good, "pv.example.com", port)).is_none(), "{port}");
    }
    assert!(read(&value(good, "router", 4433)).is_none(), "a name of this network");
    assert!(read(&value(good, "a b.example.com", 4433)).is_none());
    // Keys with a point of small order, and that are not canonical.
    for key in [
        [0; 32],
        {
            let mut one = [0; 32];
            one[0] = 1;
            one
        },
        [0xff; 32],
    ] {
        assert!(read(&value(key, "pv.example.com", 4433)).is_none(), "{key:?}");
    }
}

/// Surroundings that count what they are asked.
#[derive(Default)]
struct World {
    records: Vec<(Host, SiteRecord)>,
    address: Option<IpAddr>,
    near: Option<IpAddr>,
    asked: AtomicUsize,
}

impl World {
    fn with(mut self, name: &str, port: u16, value: Vec<u8>, ttl: u32, authentic: bool) -> Self {
        self.records.push((Host { name: name.into(), port }, SiteRecord { value, ttl, authentic }));
        self
    }

    fn shared(self) -> Arc<Shared> {
        let state = Mutex::new(State::new(HOME));
        Arc::new(Shared { state, changed: Notify::new(), surroundings: Arc::new(self) })
    }
}

impl Surroundings for World {
    fn record<'a>(&'a self, host: &'a str, port: u16) -> RecordLooked<'a> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let found = self.records.iter().find(|(at, _)| at.name == host && at.port == port);
        Box::pin(std::future::ready(Ok(found.map(|(_, record)| record.clone()))))
    }

    fn addresses<'a>(&'a self, _: &'a str, _: bool) -> Looked<'a> {
        Box::pin(std::future::ready(Ok(self.address.into_iter().collect())))
    }

    fn is_near(&self, address: IpAddr) -> bool {
        self.near == Some(address)
    }
}

#[tokio::test]
async fn a_verifier_has_to_name_itself() {
    let key = *secret(1).public().as_bytes();
    let named = value(key, "pv.example.com", 4433);
    let site = |world: World| world.with("www.example.com", 443, named.clone(), 300, true);
    let ask = async |world: World| {
        let shared = site(world).shared();
        let ids = vec![secret(1).public().id()];
        shared.lock().handle_record(&host("www.example.com"), ids, SOON, at(0));
        learn(&shared, &host("www.example.com")).await.unwrap()
    };
    assert_eq!(ask(World::default()).await.verifiers.len(), 0, "it has no record");
    let other = value(*secret(2).public().as_bytes(), "pv.example.com", 4433);
    assert_eq!(ask(World::default().with("pv.example.com", 4433, other, 60, true)).await.verifiers.len(), 0);
    // It uses the same verifier, at another name, or is none for others.
    let elsewhere = value(key, "other.example.com", 4433);
    assert_eq!(
        ask(World::default().with("pv.example.com", 4433, elsewhere, 60, true)).await.verifiers.len(),
        0
    );
    let alone = value_below(key, "pv.example.com", 4433, false);
    assert_eq!(ask(World::default().with("pv.example.com", 4433, alone, 60, true)).await.verifiers.len(), 0);
    assert_eq!(
        ask(World::default().with("pv.example.com", 443, named.clone(), 60, true)).await.verifiers.len(),
        0
    );
    let agreed = ask(World::default().with("pv.example.com", 4433, named.clone(), 60, true)).await;
    assert_eq!((agreed.verifiers.len(), agreed.ttl, agreed.authentic), (1, Duration::from_secs(60), true));
    let forged = ask(World::default().with("pv.example.com", 4433, named.clone(), 600, false)).await;
    assert_eq!((forged.ttl, forged.authentic), (Duration::from_secs(300), false), "the least of both");
    // A record that is no more, or malformed, names none.
    let shared = World::default().with("www.example.com", 443, vec![1, 1, 0], 300, true).shared();
    assert!(learn(&shared, &host("www.example.com")).await.unwrap().verifiers.is_empty());
}

#[tokio::test]
async fn no_datagram_leaves_to_an_address_that_is_not_global_or_is_near() {
    let listener = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for (address, near) in
        [("127.0.0.1", None), ("10.1.2.3", None), ("::ffff:8.8.8.8", None), ("8.8.8.8", Some("8.8.8.8"))]
    {
        let address: IpAddr = address.parse().unwrap();
        let near = near.map(|near: &str| near.parse().unwrap());
        let shared = World { address: Some(address), near, ..World::default() }.shared();
        let mut verifier = named(1, "pv.example.com");
        verifier.at.port = listener.local_addr().unwrap().port();
        let mut bench = Bench::new();
        bench.learn("example.com", vec![verifier], 300, true, 0);
        let Some(Task::Obtain(mut wish)) = bench.state.poll(at(0)) else { panic!("nothing is wanted") };
        wish.v4 = address.is_ipv4();
        let TaskResult::Obtained { result, .. } = fulfil(Arc::clone(&shared), wish).await else { panic!() };
        assert!(result.is_err(), "{address}");
        // And just before a datagram, whatever the name said then.
        let gate = Gate { shared, site: site("example.com"), source: V4 };
        assert!(!gate.may_send(V4, SocketAddr::new(address, 4433)), "{address}");
    }
    let mut buffer = [0; 64];
    assert!(listener.try_recv_from(&mut buffer).is_err(), "a datagram arrived");
    let gate = Gate { shared: World::default().shared(), site: site("example.com"), source: V4 };
    let there = "8.8.8.8:4433".parse().unwrap();
    assert!(!gate.may_send("203.0.113.6".parse().unwrap(), there), "by another way than the visit");
    assert!(gate.may_send(V4, there));
}

#[test]
fn a_certificate_that_is_about_to_end_is_not_shown() {
    let mut bench = Bench::new();
    bench.lasts = 600;
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    let Some(Task::Obtain(wish)) = bench.state.poll(at(0)) else { panic!("nothing is wanted") };
    let certificate = bench.certificate(&wish, 0);
    assert!(is_usable(&certificate, at(569)) && !is_usable(&certificate, at(571)));
    bench.state.handle_obtained(&wish, certificate);
    assert!(bench.state.has_any(at(1)) && bench.shown("example.com", 1, 569));
    assert!(!bench.shown("example.com", 1, 571) && !bench.state.has_any(at(571)));
}

#[test]
fn a_certificate_lasts_no_longer_than_wished_and_begins_now() {
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    let Some(Task::Obtain(wish)) = bench.state.poll(at(0)) else { panic!("nothing is wanted") };
    let begins = 1_767_225_600;
    for (lasts, now, expected) in
        [(3600, begins, true), (3601, begins, false), (60, begins + 120, true), (60, begins - 121, false)]
    {
        bench.lasts = lasts;
        assert_eq!(fits(bench.certificate(&wish, 0).body(), now), expected, "{lasts} {now}");
    }
}
