//! Tests of the pool in virtual time, of its file, and one with a verifier.

use super::*;
use firstflight_credential::asap::certify;
use firstflight_wire::asap::CertificateFlags;
use proptest::prelude::*;
use std::collections::HashMap;

const HOME: NetworkId = NetworkId([1; 16]);
const CAFE: NetworkId = NetworkId([2; 16]);
const SERVER: &str = "192.0.2.80";

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

/// A verifier with this seed, at an address of this family.
fn issuer(seed: u8, v4: bool) -> IssuerAddress {
    let address = if v4 { "198.51.100.1:4433" } else { "[2001:db8::1]:4433" };
    IssuerAddress::new(address.parse().unwrap(), key(seed).public())
}

fn at(seconds: u64) -> Instant {
    Instant::from_secs(1000 + seconds)
}

/// A pool whose requests for certificates succeed at once, or fail.
struct Bench {
    state: State,
    keys: u16,
    /// The address that verifiers see.
    seen: &'static str,
}

impl Bench {
    fn new(issuers: Vec<IssuerAddress>) -> Self {
        Self { state: State::new(PoolConfig::default(), issuers, HOME), keys: 0, seen: "203.0.113.5" }
    }

    fn certificate(&mut self, wish: &Wish, lasts: u32, now: Instant) -> ClientCertificate {
        self.keys += 1;
        let mut seed = [7; 32];
        seed[..2].copy_from_slice(&self.keys.to_be_bytes());
        let own = PrivateKey::from_seed(&seed);
        let verifier = (1..4).map(key).find(|key| key.public() == wish.issuer.key).unwrap();
        let address = if wish.issuer.address.is_ipv4() { self.seen } else { "2001:db8::5" };
        let address = address.parse().unwrap();
        let flags = CertificateFlags::new(1, true, wish.renew.is_some()).unwrap();
        let body = certify(&verifier, &own.public(), address, 1_767_225_600, lasts, flags).unwrap();
        ClientCertificate::new(body, verifier.public(), address, own, now).unwrap()
    }

    /// Obtains all certificates that the pool wants. Returns how many were new, and how many were renewals.
    fn fill(&mut self, lasts: u32, now: Instant) -> (usize, usize) {
        let (mut new, mut renewed) = (0, 0);
        while let Some(wish) = self.state.poll_wish(now) {
            let certificate = self.certificate(&wish, lasts, now);
            *(if wish.renew.is_some() { &mut renewed } else { &mut new }) += 1;
            self.state.handle_obtained(wish, certificate);
        }
        (new, renewed)
    }

    fn get(&mut self, site: &str, trusted: &[u8], now: Instant) -> Option<[u8; 32]> {
        let trusted: Vec<_> = trusted.iter().map(|seed| key(*seed).public().id()).collect();
        let server = SERVER.parse().unwrap();
        let found = self.state.certificate_for(&PoolSite::new(site), server, &trusted, now);
        found.map(|certificate| certificate.body().client_key)
    }
}

/// Reports that the site's server sees another address than the verifier.
fn mismatch(bench: &mut Bench, site: &str, now: Instant) {
    let (site, server, trusted) = (PoolSite::new(site), SERVER.parse().unwrap(), [key(1).public().id()]);
    let certificate = bench.state.certificate_for(&site, server, &trusted, now).unwrap();
    bench.state.mismatched(&site, &certificate, now);
}

#[test]
fn a_site_that_sees_another_address_gets_no_certificate_for_that_one() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    assert_eq!(bench.fill(86_400, at(0)), (4, 0));
    mismatch(&mut bench, "a.example", at(1));
    assert_eq!(bench.get("a.example", &[1], at(1)), None);
    bench.fill(86_400, at(1));
    assert_eq!(bench.get("a.example", &[1], at(2)), None);
    // No other site is affected.
    assert!(bench.get("b.example", &[1], at(2)).is_some());
    // The verifier now sees another address, so the site gets the next certificate.
    bench.seen = "203.0.113.6";
    bench.fill(86_400, at(3));
    assert!(bench.get("a.example", &[1], at(3)).is_some());
    mismatch(&mut bench, "a.example", at(4));
    bench.fill(86_400, at(4));
    assert_eq!(bench.get("a.example", &[1], at(4)), None);
    // Everything is tried again after an hour, and at once after the host has joined the network again.
    assert!(bench.get("a.example", &[1], at(1 + 3600)).is_some());
    for _ in ["203.0.113.5", "203.0.113.6"] {
        mismatch(&mut bench, "a.example", at(3700));
    }
    bench.fill(86_400, at(3700));
    assert_eq!(bench.get("a.example", &[1], at(3701)), None);
    bench.state.set_network(HOME);
    assert!(bench.get("a.example", &[1], at(3701)).is_some());
}

#[test]
fn mismatches_cost_a_certificate_a_minute_and_later_fewer() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(86_400, at(0));
    // The pool replaces the certificate that was shown, and sometimes one more.
    let obtained: Vec<usize> = [1, 2, 60, 61, 62, 180, 181, 182]
        .map(|second| {
            mismatch(&mut bench, &format!("{second}.example"), at(second));
            bench.fill(86_400, at(second)).0
        })
        .into();
    assert_eq!(obtained, [2, 1, 1, 2, 1, 1, 2, 1]);
}

#[test]
fn each_site_has_a_key_of_its_own_and_keeps_it() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    assert_eq!(bench.get("a.example", &[1], at(0)), None);
    assert_eq!(bench.fill(1800, at(0)), (4, 0));
    let a = bench.get("a.example", &[1], at(1)).unwrap();
    let b = bench.get("b.example", &[1], at(2)).unwrap();
    assert_ne!(a, b);
    assert_eq!(bench.get("A.example.", &[1], at(100)), Some(a));
    assert_eq!(bench.state.fresh(), 2);
    assert_eq!(bench.fill(1800, at(100)), (2, 0));
}

#[test]
fn only_what_the_server_trusts_and_of_its_family() {
    let mut bench = Bench::new(vec![issuer(1, true), issuer(2, true), issuer(3, false)]);
    assert_eq!(bench.fill(1800, at(0)), (12, 0));
    assert_eq!(bench.get("a.example", &[], at(1)), None);
    assert_eq!(bench.get("a.example", &[9], at(1)), None);
    assert_eq!(bench.get("a.example", &[3], at(1)), None, "its certificates are for an IPv6 address");
    let second = bench.get("a.example", &[2, 1], at(1)).unwrap();
    // The certificate that the site has seen takes precedence over the server's preference.
    assert_eq!(bench.get("a.example", &[1, 2], at(2)), Some(second));
    assert_ne!(bench.get("a.example", &[1], at(3)), Some(second));
    let v6 = "2001:db8::80".parse().unwrap();
    let trusted = [key(3).public().id()];
    assert!(bench.state.certificate_for(&PoolSite::new("a.example"), v6, &trusted, at(4)).is_some());
}

#[test]
fn what_is_used_is_refreshed_shortly_before_its_end_with_another_key() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    let first = bench.get("a.example", &[1], at(10)).unwrap();
    bench.fill(1800, at(10));
    assert_eq!(bench.state.poll_timeout(at(20)), Some(at(1710)));
    assert_eq!(bench.fill(3600, at(1709)), (0, 0));
    // Three of the first four certificates, and the site's. The fourth arrived later.
    assert_eq!(bench.fill(3600, at(1710)), (0, 4));
    let second = bench.get("a.example", &[1], at(1711)).unwrap();
    assert_ne!(first, second);
    // A certificate that lasts longer is refreshed a twentieth of its time, but at most ten minutes, before
    // its end.
    bench.fill(3600, at(1720));
    assert_eq!(bench.state.poll_timeout(at(1720)), Some(at(1710 + 3600 - 180)));
}

/// A site that is no longer visited causes no further requests to the verifier.
#[test]
fn what_is_not_used_lapses() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    let first = bench.get("a.example", &[1], at(10)).unwrap();
    bench.fill(1800, at(10));
    bench.fill(1800, at(1710));
    bench.fill(1800, at(1720));
    // The certificate was used, so it is refreshed once, but not again.
    let mut renewed = 0;
    for second in 1721..4000 {
        renewed += bench.fill(86_400, at(second)).1;
    }
    assert_eq!(renewed, 4, "the fresh ones");
    let again = bench.get("a.example", &[1], at(4000)).unwrap();
    assert_ne!(first, again);
}

#[test]
fn nothing_is_given_when_it_is_over() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    let key = bench.get("a.example", &[1], at(0)).unwrap();
    assert_eq!(bench.get("a.example", &[1], at(1769)), Some(key));
    assert_eq!(bench.get("a.example", &[1], at(1770)), None);
    assert_eq!(bench.state.fresh(), 0);
}

#[test]
fn a_verifier_that_fails_is_asked_less_and_less_often() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    let mut asked = Vec::new();
    for second in 0..4000 {
        while let Some(wish) = bench.state.poll_wish(at(second)) {
            asked.push(second);
            bench.state.handle_failed(&wish, false, Duration::ZERO, at(second));
        }
    }
    assert_eq!(asked, [0, 5, 15, 35, 75, 155, 315, 635, 1235, 1835, 2435, 3035, 3635]);
    // Questions that were asked together fail as one.
    let mut bench = Bench::new(vec![issuer(1, true)]);
    let wishes: Vec<_> = std::iter::from_fn(|| bench.state.poll_wish(at(0))).collect();
    assert!(wishes.len() > 1);
    let first_times: Vec<_> =
        wishes.iter().map(|wish| bench.state.handle_failed(wish, false, Duration::ZERO, at(1))).collect();
    assert_eq!(first_times.iter().filter(|first| **first).count(), 1);
    assert_eq!(bench.state.poll_timeout(at(1)), Some(at(6)));
    // The pause is at least as long as the verifier demands. It does not apply on another network.
    let mut bench = Bench::new(vec![issuer(1, true)]);
    let wish = bench.state.poll_wish(at(0)).unwrap();
    bench.state.handle_failed(&wish, false, Duration::from_secs(77), at(0));
    assert_eq!(bench.state.poll_timeout(at(0)), Some(at(77)));
    assert!(bench.state.poll_wish(at(76)).is_none());
    bench.state.set_network(CAFE);
    assert!(bench.state.poll_wish(at(1)).is_some());
    // Anybody on the path can demand a pause: nobody signs it.
    let mut bench = Bench::new(vec![issuer(1, true)]);
    let wish = bench.state.poll_wish(at(0)).unwrap();
    bench.state.handle_failed(&wish, false, Duration::from_secs(u32::MAX.into()), at(0));
    assert_eq!(bench.state.poll_timeout(at(0)), Some(at(600)));
}

#[test]
fn a_certificate_that_cannot_be_continued_is_replaced() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    let wish = bench.state.poll_wish(at(1710)).unwrap();
    assert!(wish.renew.is_some());
    bench.state.handle_failed(&wish, true, Duration::ZERO, at(1710));
    assert_eq!(bench.state.fresh(), 3);
    assert_eq!(bench.fill(1800, at(1710)), (1, 3));
}

#[test]
fn networks_do_not_share_keys_and_few_are_remembered() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(86_400, at(0));
    let home = bench.get("a.example", &[1], at(1)).unwrap();
    bench.state.set_network(CAFE);
    assert_eq!(bench.get("a.example", &[1], at(2)), None);
    bench.fill(86_400, at(2));
    assert_ne!(bench.get("a.example", &[1], at(3)).unwrap(), home);
    bench.state.set_network(HOME);
    assert_eq!(bench.get("a.example", &[1], at(4)), Some(home));
    for number in 10..18 {
        bench.state.set_network(NetworkId([number; 16]));
    }
    assert_eq!(bench.state.shelves.len(), 8);
    bench.state.set_network(HOME);
    assert_eq!(bench.get("a.example", &[1], at(5)), None);
}

/// Nobody knows in which network a question was seen that was under way when the host moved. It has the certificate that it
/// renews in clear.
#[test]
fn what_was_asked_during_a_move_is_shown_to_nobody() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    assert!(bench.get("a.example", &[1], at(1)).is_some());
    let wishes: Vec<_> = std::iter::from_fn(|| bench.state.poll_wish(at(1710))).collect();
    assert!(wishes.iter().any(|wish| wish.renew.is_some()) && wishes.iter().any(|wish| wish.renew.is_none()));
    bench.state.set_network(CAFE);
    bench.state.set_network(HOME);
    for wish in wishes {
        let certificate = bench.certificate(&wish, 1800, at(1711));
        bench.state.handle_obtained(wish, certificate);
    }
    assert_eq!((bench.state.fresh(), bench.get("a.example", &[1], at(1712))), (0, None));
    bench.fill(1800, at(1713));
    assert!(bench.get("a.example", &[1], at(1714)).is_some());
}

/// The host is found elsewhere before the question leaves.
#[test]
fn a_question_for_another_network_is_not_asked() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    let home = bench.get("a.example", &[1], at(1));
    let wishes: Vec<_> = std::iter::from_fn(|| bench.state.poll_wish(at(1710))).collect();
    for wish in &wishes {
        bench.state.handle_moved(wish, CAFE);
    }
    assert_eq!(bench.state.fresh(), 0);
    assert_eq!(bench.state.poll_wish(at(1711)).map(|wish| wish.network()), Some(CAFE));
    // The keys of the first network were seen by nobody.
    bench.state.set_network(HOME);
    assert_eq!(bench.get("a.example", &[1], at(1712)), home);
}

#[test]
fn what_a_server_refused_is_forgotten() {
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    let trusted = [key(1).public().id()];
    let get = |bench: &mut Bench| {
        let server = SERVER.parse().unwrap();
        bench.state.certificate_for(&PoolSite::new("a.example"), server, &trusted, at(1)).unwrap()
    };
    let first = get(&mut bench);
    bench.state.forget(&first);
    assert_ne!(get(&mut bench).body().client_key, first.body().client_key);
}

proptest! {
    /// Whatever happens, no key is seen by two sites or in two networks, none is given out after its end, and
    /// the number of certificates is bounded.
    #[test]
    fn no_key_is_shared_and_none_is_stale(
        steps in proptest::collection::vec((0u8..10, 0u8..6, 0u64..900), 1..120),
    ) {
        let config = PoolConfig { sites: 3, ..PoolConfig::default() };
        let mut bench = Bench::new(vec![issuer(1, true), issuer(2, true)]);
        bench.state = State::new(config, bench.state.issuers.clone(), HOME);
        let mut network = HOME;
        let mut now = at(0);
        let mut seen: HashMap<[u8; 32], (NetworkId, u8)> = HashMap::new();
        let mut open: Vec<Wish> = Vec::new();
        for (step, site, wait) in steps {
            now += Duration::from_secs(wait);
            match step {
                0..4 => {
                    let trusted = [key(2).public().id(), key(1).public().id()];
                    let name = PoolSite::new(&format!("{site}.example"));
                    let server = SERVER.parse().unwrap();
                    if let Some(found) = bench.state.certificate_for(&name, server, &trusted, now) {
                        prop_assert!(found.remaining(now) > Duration::ZERO);
                        let first = seen.entry(found.body().client_key).or_insert((network, site));
                        prop_assert_eq!(*first, (network, site));
                    }
                }
                4..6 => while let Some(wish) = bench.state.poll_wish(now) { open.push(wish); },
                6..8 => for wish in open.drain(..) {
                    let certificate = bench.certificate(&wish, 1800, now);
                    bench.state.handle_obtained(wish, certificate);
                },
                8 => for wish in open.drain(..) {
                    bench.state.handle_failed(&wish, site == 0, Duration::ZERO, now);
                },
                _ => {
                    network = NetworkId([site; 16]);
                    bench.state.set_network(network);
                }
            }
            for shelf in bench.state.shelves.values() {
                prop_assert!(shelf.fresh.len() <= 4 && shelf.sites.len() <= 3);
            }
        }
    }
}

#[test]
fn a_pool_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    file::save(&path, file::to_save(&bench.state)).unwrap();
    for mode in [0o604, 0o620] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = file::load(&path, &mut bench.state, at(2)).unwrap_err();
        assert!(matches!(error, PoolFileError::Open(_, found) if found == mode), "{error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}

#[test]
fn a_pool_comes_back_from_its_file() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let mut bench = Bench::new(vec![issuer(1, true)]);
    bench.fill(1800, at(0));
    let a = bench.get("a.example", &[1], at(1)).unwrap();
    file::save(&path, file::to_save(&bench.state)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let mut again = Bench::new(vec![issuer(2, true), issuer(1, true)]);
    file::load(&path, &mut again.state, at(2)).unwrap();
    assert_eq!(again.get("a.example", &[1], at(2)), Some(a));
    assert_eq!(again.state.fresh(), 3);
    // Certificates by another verifier's key, or from a time after the present, are left out.
    let mut other = Bench::new(vec![issuer(2, true)]);
    file::load(&path, &mut other.state, at(2)).unwrap();
    assert_eq!(other.state.fresh(), 0);
    let mut early = Bench::new(vec![issuer(1, true)]);
    file::load(&path, &mut early.state, Instant::from_secs(999)).unwrap();
    assert_eq!(early.state.fresh(), 0);
    // The machine was restarted in the meantime.
    let text = std::fs::read_to_string(&path).unwrap();
    let boot = text.split("\"boot\": \"").nth(1).unwrap().split('"').next().unwrap();
    std::fs::write(&path, text.replace(boot, "another")).unwrap();
    let mut later = Bench::new(vec![issuer(1, true)]);
    file::load(&path, &mut later.state, at(2)).unwrap();
    assert_eq!(later.state.fresh(), 0);
    for bad in ["", "{", "[]", "{\"version\":2,\"boot\":\"\",\"certificates\":[]}"] {
        std::fs::write(&path, bad).unwrap();
        assert!(
            matches!(file::load(&path, &mut later.state, at(2)), Err(PoolFileError::Format(..))),
            "{bad}"
        );
    }
    assert!(file::save(&directory.path().join("none/pool"), file::to_save(&later.state)).is_err());
    assert!(file::load(&directory.path().join("absent"), &mut later.state, at(2)).is_ok());
}

/// Uses a verifier on the loopback interface.
#[tokio::test]
async fn a_pool_fills_itself() {
    use crate::{Config, Issuer, STREAM_LIMITS, Service};
    let allowed = vec!["127.0.0.0/8".parse().unwrap()];
    let config = Config { issuer: Some(Issuer::new(key(1))), allowed, ..Config::default() };
    let at = "127.0.0.1:0".parse().unwrap();
    let service = Service::bind(config, &[at], STREAM_LIMITS).await.unwrap();
    let known = IssuerAddress::new(service.addresses()[0], key(1).public());
    let counters = service.counters();
    let running = tokio::spawn(service.run(std::future::pending()));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let start = |path| {
        CertificatePool::start_with_file(
            PoolConfig::default(),
            vec![known.clone()],
            HOME,
            Patience::default(),
            path,
        )
    };
    let pool = start(path.clone()).unwrap();
    let full = async |pool: &CertificatePool| {
        while pool.fresh() < 4 {
            tokio::task::yield_now().await;
        }
    };
    full(&pool).await;
    let trusted = [known.id()];
    let (a, b) = (PoolSite::new("a.example"), PoolSite::new("b.example"));
    let local = "127.0.0.1".parse().unwrap();
    let first = pool.certificate_for(&a, local, &trusted).unwrap();
    let second = pool.certificate_for(&b, local, &trusted).unwrap();
    assert_ne!(first.body().client_key, second.body().client_key);
    full(&pool).await;
    assert_eq!(counters.get().certificates, 6);
    // The file is kept up to date, so the next pool has all certificates.
    while !std::fs::read_to_string(&path).unwrap().contains("b.example") {
        tokio::task::yield_now().await;
    }
    drop(pool);
    let pool = start(path).unwrap();
    let again = pool.certificate_for(&a, local, &trusted).unwrap();
    assert_eq!(again.body().client_key, first.body().client_key);
    running.abort();
}
