#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use crate::backend::health::{HealthState, watch};
use crate::backend::{BackendIo, DialError, Service};
use crate::config::Config;
use firstflight::Resolve;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Condvar, Mutex};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

/// Far more than a test takes.
const LONG: Duration = Duration::from_secs(60);

/// Names with their addresses. Others have no answer before the test ends, or before `answer`.
#[derive(Clone, Default)]
struct Names(Arc<State>);

#[derive(Default)]
struct State {
    known: Mutex<HashMap<String, Vec<IpAddr>>>,
    /// Whether the resolver answers for names that are not known.
    answers: Mutex<bool>,
    answered: Condvar,
    /// The names that were looked up.
    asked: Mutex<Vec<String>>,
}

impl Names {
    fn of(name: &str, ips: &[u8]) -> Self {
        let names = Self::default();
        names.knows(name, ips);
        names
    }

    fn knows(&self, name: &str, ips: &[u8]) {
        let ips = ips.iter().map(|n| local(*n).into()).collect();
        self.0.known.lock().unwrap().insert(name.to_owned(), ips);
    }

    fn asked(&self, name: &str) -> usize {
        self.0.asked.lock().unwrap().iter().filter(|asked| *asked == name).count()
    }

    fn answer(&self) {
        *self.0.answers.lock().unwrap() = true;
        self.0.answered.notify_all();
    }
}

impl Resolve for Names {
    fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.0.asked.lock().unwrap().push(name.to_owned());
        let known = || self.0.known.lock().unwrap().get(name).cloned();
        let found = known().or_else(|| {
            let answers = self.0.answers.lock().unwrap();
            drop(self.0.answered.wait_while(answers, |answers| !*answers).unwrap());
            known()
        });
        let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect())
    }
}

const fn local(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, n)
}

/// An address that is alive, and its port.
async fn alive(n: u8) -> (TcpListener, u16) {
    let listener = TcpListener::bind((local(n), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// An address at this port that answers no SYN: its queue has no room.
struct Hole {
    listener: TcpListener,
    fills: Vec<TcpStream>,
}

impl Hole {
    async fn dig(n: u8, port: u16) -> Self {
        let at = SocketAddr::new(local(n).into(), port);
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(at).unwrap();
        let listener = socket.listen(0).unwrap();
        let mut fills = Vec::new();
        let mut late = 0;
        // One that takes long on a busy machine is no sign.
        while late < 3 {
            match timeout(Duration::from_millis(200), TcpStream::connect(at)).await {
                Ok(filled) => fills.push(filled.unwrap()),
                Err(_) => late += 1,
            }
            assert!(fills.len() < 16, "the queue has no end");
        }
        Self { listener, fills }
    }
}

/// A service whose backend is this name at this port.
fn service(names: &Names, name: &str, port: u16, settings: &str) -> Arc<Service> {
    let reach = Reach::new(Lookups::new(names.clone(), KEPT));
    Arc::new(with(&reach, &format!("\"{name}:{port}\""), settings))
}

fn with(reach: &Reach, backends: &str, settings: &str) -> Service {
    let text = format!(
        "[[listener]]\nname = \"l\"\naddress = [\"127.0.0.1:1\"]\nmode = \"tcp\"\nservice = \"s\"\n\
         [[service]]\nname = \"s\"\nbackend = [{backends}]\n{settings}"
    );
    Service::over(reach, &Config::parse(&text).unwrap().services[0], None).unwrap()
}

async fn accept(listener: &TcpListener) {
    timeout(LONG, listener.accept()).await.unwrap().unwrap();
}

async fn dial(service: &Service) -> Result<BackendIo, DialError> {
    timeout(LONG, service.dial(&service.backends()[0], None)).await.unwrap()
}

#[tokio::test]
async fn a_name_with_an_address_that_does_not_answer_is_reached_at_the_other_one() {
    let (live, port) = alive(1).await;
    let hole = Hole::dig(2, port).await;
    let names = Names::of("app", &[2, 1]);
    let service = service(&names, "app", port, "connect_timeout = \"50s\"\n");
    dial(&service).await.unwrap();
    accept(&live).await;
    // The first address would answer now, but the next connect begins with the one that did.
    for _ in &hole.fills {
        accept(&hole.listener).await;
    }
    assert!(TcpStream::connect(hole.listener.local_addr().unwrap()).await.is_ok());
    dial(&service).await.unwrap();
    accept(&live).await;
}

#[tokio::test]
async fn a_name_with_an_address_that_refuses_is_reached_at_the_other_one() {
    let (live, port) = alive(1).await;
    let names = Names::of("app", &[2, 3, 1]);
    let service = service(&names, "app", port, "connect_timeout = \"50s\"\n");
    for _ in 0..3 {
        dial(&service).await.unwrap();
        accept(&live).await;
    }
}

/// A connect may have less time than the addresses in front of the good one need.
#[tokio::test]
async fn every_address_comes_to_its_turn_however_short_the_time_is() {
    for (dead, within) in [(1, "100ms"), (2, "600ms")] {
        let (live, port) = alive(1).await;
        let holes = [Hole::dig(2, port).await, Hole::dig(3, port).await];
        let names = Names::of("app", &[&[2, 3][..dead], &[1]].concat());
        let service = service(&names, "app", port, &format!("connect_timeout = \"{within}\"\n"));
        let mut dials = 0..20;
        while dial(&service).await.is_err() {
            assert!(dials.next().is_some(), "{dead} dead, {within}");
        }
        accept(&live).await;
        drop(holes);
    }
}

#[tokio::test]
async fn a_health_check_finds_the_address_that_answers() {
    let (live, port) = alive(1).await;
    let _hole = Hole::dig(2, port).await;
    let names = Names::of("app", &[2, 1]);
    // The time is shorter than the first address has before the second one's turn.
    let health = "[service.health]\ninterval = \"100ms\"\ntimeout = \"200ms\"\nfall = 1\nrise = 1\n";
    let service = service(&names, "app", port, health);
    let _checks = watch(&service);
    let begun = Instant::now();
    while service.known(&service.backends()[0]) != HealthState::Up {
        assert!(begun.elapsed() < LONG, "down for ever");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    accept(&live).await;
}

#[tokio::test]
async fn a_resolver_that_does_not_answer_takes_down_only_names_that_are_not_known() {
    let (live, port) = alive(1).await;
    let names = Names::of("known", &[1]);
    let reach = Reach::new(Lookups::new(names.clone(), KEPT));
    let settings = "connect_timeout = \"2s\"\n";
    let known = with(&reach, &format!("\"known:{port}\""), settings);
    let unknown = Arc::new(with(&reach, "\"unknown:80\"", settings));
    dial(&known).await.unwrap();
    accept(&live).await;
    // From now on it says nothing of this name either.
    names.0.known.lock().unwrap().clear();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..700 {
        let unknown = Arc::clone(&unknown);
        waiting.spawn(async move { unknown.dial(&unknown.backends()[0], None).await.err() });
    }
    while let Some(error) = waiting.join_next().await {
        assert!(matches!(error.unwrap(), Some(DialError::TimedOut(_))));
    }
    assert_eq!(names.asked("unknown"), 1, "one lookup at a time");
    // What is known of the other one gets too old to be used without a lookup, which has no answer.
    while names.asked("known") < 2 {
        dial(&known).await.unwrap();
        accept(&live).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    dial(&known).await.unwrap();
    accept(&live).await;
    // Names that are answered without it, as those in /etc/hosts are.
    names.knows("hosts", &[1]);
    dial(&with(&reach, &format!("\"hosts:{port}\""), settings)).await.unwrap();
    names.answer();
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_an_error_at_once_and_says_which() {
    let names = Names::default();
    names.answer();
    let service = service(&names, "nowhere", 80, "connect_timeout = \"50s\"\n");
    let error = dial(&service).await.unwrap_err();
    assert!(matches!(&error, DialError::Io(error) if error.kind() == io::ErrorKind::NotFound), "{error}");
}

#[test]
fn it_is_a_shortage_only_if_nothing_could_be_tried() {
    let lost = |codes: &[Errno]| {
        let attempts = codes.iter().map(|code| firstflight::FailedAttempt {
            remote: SocketAddr::from(([127, 0, 0, 1], 80)),
            outcome: firstflight::credential::Outcome::Undecided,
            error: io::Error::from(*code),
            may_have_run: false,
        });
        let error = firstflight::ConnectAnyError { attempts: attempts.collect() };
        DialError::from(why(ClientError::Connect { at_most_once: false, error }))
    };
    use Errno::{EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, EMFILE};
    for all in [&[EMFILE][..], &[EAGAIN], &[EADDRNOTAVAIL, EMFILE]] {
        assert!(lost(all).is_own(), "{all:?}");
    }
    // An address of IPv6 on a machine without it, and a server that refuses.
    for some in [&[EADDRNOTAVAIL, ECONNREFUSED][..], &[ECONNREFUSED], &[ECONNREFUSED, ECONNREFUSED]] {
        assert!(!lost(some).is_own(), "{some:?}");
    }
    let text = lost(&[ECONNREFUSED, EADDRNOTAVAIL]).to_string();
    assert!(text.contains("127.0.0.1:80"), "{text}");
}
