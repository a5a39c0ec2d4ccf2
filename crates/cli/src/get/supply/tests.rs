//! Certificates of a verifier that sees the client at addresses that the test chooses. Time is virtual, so that a busy
//! machine does not change the pauses between requests.

use super::*;
use firstflight::credential::Reason;
use firstflight_verifier::{Config, Issuer, Verifier};
use firstflight_wire::Clock;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What the verifier does with each request in turn. The last entry applies to all further requests.
#[derive(Clone, Copy)]
enum Way {
    /// It refuses the connection.
    Dead,
    /// It certifies this address.
    Sees(IpAddr),
}

/// The times of the requests.
type Log = Arc<Mutex<Vec<Instant>>>;

struct Fake {
    ways: Mutex<Vec<Way>>,
    asked: Log,
}

impl Dial for Fake {
    fn dial(&self, _to: SocketAddr) -> Dialled<'_> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(Instant::now());
            let mut ways = self.ways.lock().unwrap();
            let way = if ways.len() > 1 { ways.remove(0) } else { ways[0] };
            match way {
                Way::Dead => Err(io::ErrorKind::ConnectionRefused.into()),
                Way::Sees(address) => {
                    let (near, far) = tokio::io::duplex(8192);
                    tokio::spawn(certify(far, address));
                    Ok(Box::new(near) as Box<dyn Duplex>)
                }
            }
        })
    }
}

fn key() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

async fn certify(mut stream: impl Duplex, address: IpAddr) {
    let mut rng = secure_rng().unwrap();
    let config =
        Config::default().issuer(Some(Issuer::new(key()))).allowed(vec!["192.0.2.0/24".parse().unwrap()]);
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let clock = Clock {
        mono: boot_clock().unwrap(),
        unix_ms: unix.as_millis() as u64,
        uncertainty: Duration::from_secs(1),
    };
    let mut verifier = Verifier::new(config, clock.mono, &mut rng).unwrap();
    let mut message = vec![0; usize::from(stream.read_u16().await.unwrap())];
    stream.read_exact(&mut message).await.unwrap();
    let from = SocketAddr::new(address, 4000);
    let answer = verifier.handle_stream(&clock, from, &message, &mut rng).unwrap();
    stream.write_u16(answer.len() as u16).await.unwrap();
    stream.write_all(&answer).await.unwrap();
}

struct Bench {
    supply: Arc<Supply>,
    target: Target,
    asked: Log,
}

impl Bench {
    fn new(ways: &[Way]) -> Self {
        let issuer = IssuerAddress::new("192.0.2.9:4433".parse().unwrap(), key().public());
        let certified = Arc::new(Certifieds::by(issuer.id()));
        let asked = Log::default();
        let fake = Fake { ways: Mutex::new(ways.to_vec()), asked: Arc::clone(&asked) };
        let short = Pauses::new(Duration::from_millis(40), Duration::from_millis(80));
        let supply = Supply {
            issuer,
            route: Route::Streams(Arc::new(fake)),
            wished: 1800,
            certified,
            failures: short,
            replacements: short,
            at_once: Semaphore::new(AT_ONCE),
            told: AtomicBool::new(true),
        };
        let target = Target::parse("http://192.0.2.80/").unwrap();
        Self { supply: Arc::new(supply), target, asked }
    }

    /// Starts to keep a certificate.
    fn keep(&self) -> (tokio::task::JoinHandle<()>, mpsc::Receiver<()>) {
        let (sender, first) = mpsc::channel(1);
        let kept = Arc::clone(&self.supply).keep(self.target.clone(), async { None }, sender);
        (tokio::spawn(kept), first)
    }

    fn shown(&self) -> Result<Arc<ClientCertificate>, Option<Reason>> {
        self.supply.certified.of(&self.target, None, true).map(|certified| certified.certificate)
    }

    /// Waits for the certificate.
    async fn certificate(&self) -> Arc<ClientCertificate> {
        loop {
            if let Ok(found) = self.shown() {
                return found;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Reports that the server sees another address.
    fn mismatch(&self, certificate: &Arc<ClientCertificate>) {
        self.supply.certified.refuse(&self.target.site(), certificate);
    }

    /// The times between requests to the verifier, in whole milliseconds.
    fn pauses(&self) -> Vec<u128> {
        self.asked.lock().unwrap().windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

fn at(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[tokio::test(start_paused = true)]
async fn a_verifier_that_gives_none_is_asked_again_after_growing_pauses() {
    let bench = Bench::new(&[Way::Dead, Way::Dead, Way::Sees(at(1))]);
    assert_eq!(bench.shown().unwrap_err(), Some(Reason::NoCredential));
    let (_kept, mut first) = bench.keep();
    // The first result is a failure.
    assert_eq!(first.recv().await, None);
    assert_eq!(bench.shown().unwrap_err(), Some(Reason::NoCredential));
    assert_eq!(bench.certificate().await.address(), at(1));
    let pauses = bench.pauses();
    assert!(pauses.len() == 2 && pauses[0] >= 40 && pauses[1] >= 80, "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_mismatch_a_certificate_for_the_same_address_ends_it() {
    let bench = Bench::new(&[Way::Sees(at(1))]);
    let (kept, _first) = bench.keep();
    let certificate = bench.certificate().await;
    bench.mismatch(&certificate);
    // The certificate is dropped immediately.
    assert_eq!(bench.shown().unwrap_err(), Some(Reason::AddressMismatch));
    kept.await.unwrap();
    assert_eq!(bench.shown().unwrap_err(), Some(Reason::AddressMismatch));
    assert_eq!(bench.asked.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_mismatch_a_certificate_for_another_address_is_shown() {
    let bench = Bench::new(&[Way::Sees(at(1)), Way::Sees(at(2)), Way::Sees(at(3)), Way::Sees(at(1))]);
    let (kept, _first) = bench.keep();
    let first = bench.certificate().await;
    bench.mismatch(&first);
    let second = bench.certificate().await;
    assert_eq!(second.address(), at(2));
    assert_ne!(first.body().client_key, second.body().client_key);
    // A refusal of an old certificate changes nothing.
    bench.mismatch(&first);
    assert_eq!(bench.shown().unwrap().address(), at(2));
    bench.mismatch(&second);
    let third = bench.certificate().await;
    bench.mismatch(&third);
    // An address that was refused before.
    kept.await.unwrap();
    assert_eq!(bench.shown().unwrap_err(), Some(Reason::AddressMismatch));
    // The first replacement is immediate, the next ones follow growing pauses.
    let pauses = bench.pauses();
    assert!(pauses.len() == 3 && pauses[1] >= 40 && pauses[2] >= 80, "{pauses:?}");
}
