//! A client that visits a site again and again, with a pool and a verifier, in virtual time.

use super::*;
use crate::{Config, Issuer, Limits, Rate, Verifier};
use firstflight_wire::Clock;
use firstflight_wire::asap::message::{Message, Request, Tokens, TransactionId};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use std::net::SocketAddr;

const CLIENT: &str = "203.0.113.5:40000";
const SERVER: &str = "192.0.2.80";
const UNIX: u64 = 1_767_225_600;
const STEP: Duration = Duration::from_millis(100);
const VISITS: usize = 100;

fn key() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// The verifier, and a client's pool. An answer takes 300 ms.
struct Bench {
    verifier: Verifier,
    state: State,
    rng: ChaCha20Rng,
    now: Instant,
    /// What is under way, and when it arrives.
    asked: Vec<(Instant, Wish, ClientCertificate)>,
    renewals: u32,
}

impl Bench {
    fn new(first: u32, seed: u8) -> Self {
        let mut rng = ChaCha20Rng::from_seed([seed; 32]);
        let limits = Limits::default().v4(Rate { burst: 100_000, per_minute: 100_000 });
        let issuer = Issuer { first, ..Issuer::new(key()) };
        let allowed = vec!["203.0.113.0/24".parse().unwrap()];
        let config = Config::default().issuer(Some(issuer)).allowed(allowed).limits(limits);
        let now = Instant::from_secs(1000);
        let verifier = Verifier::new(config, now, &mut rng).unwrap();
        let known = IssuerAddress::new("198.51.100.1:4433".parse().unwrap(), key().public());
        let state = State::new(PoolConfig::default(), vec![known], NetworkId([1; 16]));
        Self { verifier, state, rng, now, asked: Vec::new(), renewals: 0 }
    }

    fn clock(&self) -> Clock {
        let unix_ms = UNIX * 1000 + (self.now - Instant::from_secs(1000)).as_millis() as u64;
        Clock { mono: self.now, unix_ms, uncertainty: Duration::ZERO }
    }

    /// The verifier's answer to a wish.
    fn fulfil(&mut self, wish: &Wish) -> ClientCertificate {
        let own = PrivateKey::generate(&mut self.rng);
        let old = wish.renew.as_ref().map(|old| *old.body());
        let (id, public) = (TransactionId([1; 8]), *own.public().as_bytes());
        let mut request = Request::new(id, public, wish.wished, None, Tokens::NONE, old, false);
        let input = request.signing_input(key().public().as_bytes());
        request.signature = own.sign(input.as_slice());
        if let (Some(renewal), Some(old)) = (&mut request.old, &wish.renew) {
            renewal.signature = old.key().sign(input.as_slice());
        }
        let from: SocketAddr = CLIENT.parse().unwrap();
        let answer = self.verifier.handle_stream(&self.clock(), from, &request.to_bytes(), &mut self.rng);
        let Ok(Message::Certificate(answer)) = Message::parse(&answer.unwrap()) else { panic!("refused") };
        let arrives = self.now + STEP * 3;
        ClientCertificate::new(answer.certificate, key().public(), from.ip(), own, arrives).unwrap()
    }

    fn step(&mut self) {
        while let Some(wish) = self.state.poll_wish(self.now) {
            if let Some(old) = &wish.renew {
                self.renewals += 1;
                let held = self.now - old.obtained();
                assert!(held >= old.body().lasts() / 2, "renewed after {held:?} of {:?}", old.body().lasts());
            }
            let certificate = self.fulfil(&wish);
            self.asked.push((self.now + STEP * 3, wish, certificate));
        }
        self.now += STEP;
        let now = self.now;
        for (_, wish, certificate) in self.asked.extract_if(.., |(at, ..)| *at <= now) {
            self.state.handle_obtained(wish, certificate);
        }
    }
}

/// While the verifier answers, no visit is refused because its certificate is over, however short the first one is, and
/// whatever its beginning. Certificates become longer as time passes: also the shortest ones.
#[test]
fn no_visit_of_a_hundred_ends_as_expired() {
    for (first, apart, at_least) in
        [(60, 10, 240), (60, 29, 480), (100, 20, 480), (250, 60, 1800), (1800, 120, 3600)]
    {
        for seed in 0..3 {
            let mut bench = Bench::new(first, seed);
            let (mut missing, mut longest) = (0, 0);
            for visit in 0..VISITS {
                // A random time of this mean.
                let pause = u64::from(bench.rng.next_u32() % (2 * apart * 1000));
                let until = bench.now + Duration::from_millis(pause);
                while bench.now < until {
                    bench.step();
                }
                let (site, server) = (PoolSite::new("a.example"), SERVER.parse().unwrap());
                let trusted = [key().public().id()];
                let Some(certificate) = bench.state.certificate_for(&site, server, &trusted, bench.now)
                else {
                    missing += 1;
                    continue;
                };
                let body = certificate.body();
                longest = longest.max(body.duration());
                // The server's clock is ahead by 2 s, and the SYN is under way for 1 s.
                let server_ms = bench.clock().unix_ms + 3000;
                let requested_ms = certificate.requested_ms(bench.now);
                assert!(body.ends() >= server_ms / 1000, "visit {visit}: {first} s, seed {seed}: expired");
                assert!(requested_ms <= body.ends() * 1000, "visit {visit}: {first} s, seed {seed}");
                assert!(requested_ms + 60_000 > server_ms, "the server's window");
            }
            // The very first visits may come before the first answer.
            assert!(missing <= 1, "{missing} visits had no certificate: {first} s, seed {seed}");
            assert!(longest >= at_least, "{longest} s at most: {first} s, seed {seed}");
            assert!(bench.renewals > 0);
        }
    }
}
