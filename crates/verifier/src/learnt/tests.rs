//! What records of strangers can do (docs/spec/asap.md, section 9.1): each rule in virtual time, and what is asked.

use super::rules::is_below;
use super::*;
use crate::pool::is_usable;
use firstflight_credential::asap::certify;
use firstflight_wire::asap::{CertificateFlags, Name};
use std::num::NonZeroU16;
use std::sync::atomic::AtomicUsize;

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

fn named(seed: u8, name: &str) -> Named {
    Named { key: secret(seed).public(), at: Host { name: name.into(), port: 4433 }, points: Vec::new() }
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
        Self {
            state: State::new(vec![secret(99).public().id()], HOME),
            keys: 0,
            lasts: 3600,
            seen: "203.0.113.5",
        }
    }

    /// The record of a host names these verifiers, for so many seconds.
    fn learn(&mut self, by: &str, verifiers: Vec<Named>, ttl: u64, authentic: bool, now: u64) {
        let chosen = self.state.choose(by, verifiers.into_iter());
        let answer = Answer { verifiers: chosen, ttl: Duration::from_secs(ttl), authentic };
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
    bench.state.handle_record(&host("www.example.com"), Duration::from_secs(300), at(0));
    assert!(bench.state.poll(at(1)).is_none() && bench.state.poll_timeout(at(1)).is_none());
    bench.state.handle_visit("other.example.com", true, SOON, at(1));
    assert!(bench.state.poll(at(10)).is_none(), "another host was visited");
    bench.state.handle_visit("www.example.com", true, SOON, at(10));
    assert!(bench.state.poll(at(12)).is_none());
    assert_eq!(bench.state.poll_timeout(at(12)), Some(at(13)));
    assert!(matches!(bench.state.poll(at(13)), Some(Task::Learn(of)) if of == host("www.example.com")));
    assert!(bench.state.poll(at(13)).is_none(), "asked once");
    // Its record ends.
    let mut bench = Bench::new();
    bench.state.handle_record(&host("www.example.com"), Duration::from_secs(300), at(0));
    bench.state.handle_visit("www.example.com", true, SOON, at(301));
    assert!(bench.state.poll(at(400)).is_none());
}

#[test]
fn records_are_asked_about_seldom() {
    let mut bench = Bench::new();
    let mut asked = 0;
    for second in 0..60 {
        let name = format!("h{second}.example.com");
        bench.state.handle_record(&host(&name), Duration::from_secs(300), at(second));
        bench.state.handle_visit(&name, true, Duration::ZERO, at(second));
        while let Some(Task::Learn(of)) = bench.state.poll(at(second)) {
            asked += 1;
            let era = bench.state.era();
            bench.state.handle_learnt(&of.name, era, None, at(second));
        }
    }
    assert_eq!(asked, 6, "in a minute");
    // And one host once a minute, whatever comes of it.
    let mut bench = Bench::new();
    bench.state.handle_record(&host("a.example.com"), Duration::from_secs(300), at(0));
    let mut asked = 0;
    for second in 0..60 {
        bench.state.handle_visit("a.example.com", true, Duration::ZERO, at(second));
        if bench.state.poll(at(second)).is_some() {
            asked += 1;
            bench.learn("a.example.com", Vec::new(), 1, true, second);
        }
    }
    assert_eq!(asked, 1);
}

#[test]
fn a_verifier_serves_the_host_that_named_it_or_what_is_below_its_own_name() {
    assert!(is_below("example.com", "example.com") && is_below("a.example.com", "example.com"));
    assert!(!is_below("aexample.com", "example.com") && !is_below("example.com", "a.example.com"));
    let mut bench = Bench::new();
    bench.learn("a.example.com", vec![named(1, "example.com"), named(2, "pv.example.com")], 300, true, 0);
    assert_eq!(bench.fill(0), (2, 0));
    assert!(bench.shown("b.example.com", 1, 1) && bench.shown("a.example.com", 1, 1));
    assert!(
        !bench.shown("example.org", 1, 1)
            && !bench.shown("badexample.com", 1, 1)
            && !bench.shown("com", 1, 1)
    );
    // The owner of the other one's name has not said that it is for all of them.
    assert!(bench.shown("a.example.com", 2, 1));
    assert!(!bench.shown("b.example.com", 2, 1) && !bench.shown("pv.example.com", 2, 1));
}

#[test]
fn what_a_client_knows_otherwise_is_not_learnt_nor_another_key_with_its_id() {
    let bench = Bench::new();
    assert!(
        bench.state.choose("a.example.com", [named(99, "example.com")].into_iter()).is_empty(),
        "configured"
    );
    let mut bench = Bench::new();
    bench.state = State::new(vec![named(1, "example.com").key.id()], HOME);
    assert!(bench.state.choose("a.example.com", [named(1, "example.com")].into_iter()).is_empty());
    assert_eq!(bench.state.choose("a.example.com", [named(2, "example.com")].into_iter()).len(), 1);
    assert_eq!(
        bench.state.choose("a.example.com", (1..9).map(|seed| named(seed, "example.com"))).len(),
        2,
        "for a host"
    );
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
        bench.state.handle_visit("site3.test", true, SOON, at(second));
    }
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
    bench.state.handle_visit("example.com", true, SOON, at(50));
    assert!(bench.shown("example.com", 1, 109) && !bench.shown("example.com", 1, 110));
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
    let (era, answer) =
        (bench.state.era(), Answer { verifiers: vec![named(2, "example.com")], ttl: SOON, authentic: true });
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
    bench.state.handle_visit("example.com", true, SOON, at(3 * 3600));
    assert_eq!(bench.fill(3 * 3600 + 2), (0, 0));
    assert_eq!(bench.fill(3 * 3600 + 3), (1, 0), "the next visit");
    // The other family is asked when a server of that family was visited.
    assert!(bench.state.poll(at(3 * 3600 + 4)).is_none());
    bench.state.handle_visit("example.com", false, SOON, at(3 * 3600 + 4));
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
    bench.state.handle_visit("example.com", true, SOON, at(2));
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 3);
    assert_eq!(bench.fill(10_000), (0, 0));
    // A server sees another one.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    bench.fill(0);
    let shown = bench.state.certificate_for("example.com", true, &ids, None, at(1)).unwrap();
    assert!(bench.state.mismatched(&shown) && !bench.state.mismatched(&shown));
    bench.state.handle_visit("example.com", true, SOON, at(2));
    assert_eq!(bench.fill(10_000), (0, 0));
    // It was refused for another reason: another one is obtained at the next visit.
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    bench.fill(0);
    let shown = bench.state.certificate_for("example.com", true, &ids, None, at(1)).unwrap();
    assert!(bench.state.forget(&shown) && !bench.shown("example.com", 1, 1));
    bench.state.handle_visit("example.com", true, SOON, at(2));
    assert_eq!(bench.fill(5), (1, 0));
}

#[test]
fn strangers_get_one_datagram_an_hour_and_less_later() {
    let mut bench = Bench::new();
    let victim: IpAddr = "8.8.8.8".parse().unwrap();
    let mut sent = Vec::new();
    for minute in 0..(10 * 24 * 60) {
        if bench.state.spend_datagram(victim, false, at(minute * 60)) {
            sent.push(minute);
        }
    }
    // After 1, 2, 4, 8, 16 hours, and then each day.
    let hours: Vec<u64> = sent.windows(2).map(|pair| (pair[1] - pair[0]) / 60).collect();
    assert_eq!(hours[..6], [1, 2, 4, 8, 16, 24]);
    assert!(hours.iter().all(|hours| *hours <= 24));
    // An answer ends that.
    bench.state.handle_challenge(victim);
    let later = at(20 * DAY);
    assert!(
        bench.state.spend_datagram(victim, true, later) && bench.state.spend_datagram(victim, true, later)
    );
}

#[test]
fn all_of_them_get_ten_datagrams_a_minute() {
    let mut bench = Bench::new();
    let addresses = |number: u32| IpAddr::from(number.to_be_bytes());
    let sent = (0..600).filter(|number| {
        bench.state.spend_datagram(
            addresses(0x0808_0000 + number),
            number % 2 == 0,
            at(u64::from(number / 10)),
        )
    });
    assert_eq!(sent.count(), 10);
    // And no more strangers than can be remembered.
    let mut bench = Bench::new();
    let sent = (0..100).filter(|number| {
        bench.state.spend_datagram(addresses(0x0808_0000 + number), false, at(u64::from(*number) * 30))
    });
    assert_eq!(sent.count(), 64);
}

#[test]
fn a_silent_verifier_is_asked_again_after_an_hour_and_a_lossy_one_soon() {
    let mut bench = Bench::new();
    bench.learn("example.com", vec![named(1, "example.com")], DAY, true, 0);
    let fail = |bench: &mut Bench, answered, now| {
        let Some(Task::Obtain(wish)) = bench.state.poll(at(now)) else { return false };
        assert_eq!(wish.answered, now > 3600);
        bench.state.handle_failed(&wish, answered, false, Duration::ZERO, at(now));
        true
    };
    assert!(fail(&mut bench, false, 0));
    for second in (0..3590).step_by(10) {
        bench.state.handle_visit("example.com", true, Duration::ZERO, at(second));
        assert!(bench.state.poll(at(second)).is_none(), "{second}");
    }
    bench.state.handle_visit("example.com", true, Duration::ZERO, at(3600));
    let Some(Task::Obtain(wish)) = bench.state.poll(at(3600)) else { panic!("not asked again") };
    // This time there is a challenge, and then loss.
    bench.state.handle_failed(&wish, true, false, Duration::from_secs(100_000), at(3600));
    assert!(bench.state.poll(at(3700)).is_none(), "it said to wait");
    bench.state.handle_visit("example.com", true, Duration::ZERO, at(4200));
    assert!(fail(&mut bench, true, 4200), "for ten minutes at most");
}

/// The wire form of a name.
fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

/// A parameter that names one verifier.
fn value(key: [u8; 32], name: &str, port: u16) -> Vec<u8> {
    let (name, mut out) = (wire(name), [0; VerifiersParam::MAX_LEN]);
    let udp_port = NonZeroU16::new(port).unwrap();
    let one = SiteVerifier {
        key,
        udp_port,
        tcp_port: None,
        name: Name::new(&name).unwrap(),
        points: Default::default(),
    };
    let len = VerifiersParam::emit([(one, &[][..])].into_iter(), &mut out).unwrap();
    out[..len].to_vec()
}

fn read(value: &[u8]) -> Option<Named> {
    Named::read(&VerifiersParam::parse(value).unwrap().iter().next().unwrap())
}

#[test]
fn bad_ports_names_and_keys_are_not_learnt() {
    let good = *secret(1).public().as_bytes();
    let named = read(&value(good, "pv.example.com", 4433)).unwrap();
    assert_eq!((named.at.to_string().as_str(), named.key), ("pv.example.com:4433", secret(1).public()));
    for port in [443, 1024, 4433, 4500, 65535] {
        assert!(read(&value(good, "pv.example.com", port)).is_some(), "{port}");
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
        let state = Mutex::new(State::new(Vec::new(), HOME));
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
    let ask = async |world: World| learn(&site(world).shared(), &host("www.example.com")).await.unwrap();
    assert_eq!(ask(World::default()).await.verifiers.len(), 0, "it has no record");
    let other = value(*secret(2).public().as_bytes(), "pv.example.com", 4433);
    assert_eq!(ask(World::default().with("pv.example.com", 4433, other, 60, true)).await.verifiers.len(), 0);
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
        let Done::Obtained { answered, result, .. } = fulfil(Arc::clone(&shared), wish).await else {
            panic!()
        };
        assert!(!answered && result.is_err(), "{address}");
        // And just before a datagram, whatever the name said then.
        let gate = Gate { shared, answered: AtomicBool::new(true) };
        assert!(!gate.may_send(SocketAddr::new(address, 4433)), "{address}");
    }
    let mut buffer = [0; 64];
    assert!(listener.try_recv_from(&mut buffer).is_err(), "a datagram arrived");
    let gate = Gate { shared: World::default().shared(), answered: AtomicBool::new(true) };
    assert!(gate.may_send("8.8.8.8:4433".parse().unwrap()));
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
