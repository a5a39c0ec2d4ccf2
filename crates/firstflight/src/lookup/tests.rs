#![allow(clippy::unwrap_used, reason = "tests")]

use super::name_table::{CAPACITY, FRESH, LONGEST_PAUSE, PATIENCE, PAUSE, SLOW_THREADS, THREADS};
use super::*;
use std::collections::HashMap;
use std::sync::Condvar;
use std::sync::atomic::{AtomicUsize, Ordering};

const KEPT: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

fn address(n: u8) -> Vec<SocketAddr> {
    vec![SocketAddr::from(([192, 0, 2, n], 0))]
}

fn failure(text: &str) -> Failure {
    Failure::from(&io::Error::other(text))
}

/// A book and its time.
struct TimedBook {
    book: NameTable,
    now: Instant,
}

impl TimedBook {
    fn new() -> Self {
        Self { book: NameTable::new(KEPT), now: Instant::now() }
    }

    fn ask(&mut self, name: &str) -> LookupAnswer {
        self.book.ask(name, PATIENCE, false, self.now)
    }

    fn begin(&mut self) -> Option<Task> {
        self.book.begin(self.now)
    }

    fn end(&mut self, task: &Task, result: Result<Vec<SocketAddr>, Failure>) {
        self.book.end(task, result, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Looks up a name that nobody waits for any more.
    fn learn(&mut self, name: &str, result: Result<Vec<SocketAddr>, Failure>, takes: Duration) {
        let waits = matches!(self.ask(name), LookupAnswer::Wait(_));
        let task = self.begin().unwrap();
        assert_eq!(*task.name, *name);
        self.pass(takes);
        self.end(&task, result);
        if waits {
            self.book.leave(name);
        }
    }
}

#[test]
fn a_name_has_one_lookup_at_a_time() {
    let mut desk = TimedBook::new();
    for _ in 0..700 {
        assert_eq!(desk.ask("a"), LookupAnswer::Wait(None));
    }
    let task = desk.begin().unwrap();
    assert!(desk.begin().is_none());
    desk.pass(Duration::from_secs(60));
    assert_eq!(desk.ask("a"), LookupAnswer::Wait(None));
    assert!(desk.begin().is_none(), "a second lookup of a name that has one");
    desk.end(&task, Ok(address(1)));
    assert_eq!(desk.ask("a"), LookupAnswer::Found(address(1)));
    assert!(desk.begin().is_none());
}

#[test]
fn what_is_known_is_used_while_a_lookup_has_no_answer() {
    let mut desk = TimedBook::new();
    desk.learn("a", Ok(address(1)), MS);
    desk.pass(FRESH - MS);
    assert_eq!(desk.ask("a"), LookupAnswer::Found(address(1)));
    assert!(desk.begin().is_none(), "it is fresh");
    desk.pass(MS);
    // It may have moved, so the answer is waited for, but not for long.
    assert_eq!(desk.ask("a"), LookupAnswer::Wait(Some(desk.now + PATIENCE)));
    let task = desk.begin().unwrap();
    desk.pass(PATIENCE);
    assert_eq!(desk.ask("a"), LookupAnswer::Found(address(1)));
    desk.pass(Duration::from_secs(60));
    assert_eq!(desk.ask("a"), LookupAnswer::Found(address(1)));
    // The answer came late, so next time nobody waits.
    desk.end(&task, Ok(address(2)));
    desk.pass(FRESH);
    assert_eq!(desk.ask("a"), LookupAnswer::Found(address(2)));
    let task = desk.begin().unwrap();
    desk.end(&task, Ok(address(3)));
    desk.pass(FRESH);
    assert!(matches!(desk.ask("a"), LookupAnswer::Wait(Some(_))), "the resolver is quick again");
}

#[test]
fn a_failed_lookup_keeps_the_last_addresses_for_their_time() {
    let mut desk = TimedBook::new();
    desk.learn("a", Ok(address(1)), MS);
    let found_at = desk.now;
    desk.pass(FRESH);
    desk.learn("a", Err(failure("silent")), MS);
    assert_eq!(desk.ask("a"), LookupAnswer::Found(address(1)));
    desk.now = found_at + KEPT - MS;
    desk.learn("a", Err(failure("silent")), Duration::ZERO);
    assert_eq!(desk.ask("a"), LookupAnswer::Found(address(1)));
    desk.pass(MS);
    assert_eq!(desk.ask("a"), LookupAnswer::Failed(failure("silent")));
}

#[test]
fn a_name_that_failed_is_asked_again_after_a_pause_that_grows() {
    let mut desk = TimedBook::new();
    let mut pause = PAUSE;
    for _ in 0..6 {
        desk.learn("a", Err(failure("no such name")), MS);
        desk.pass(pause - MS);
        assert_eq!(desk.ask("a"), LookupAnswer::Failed(failure("no such name")));
        assert!(desk.begin().is_none(), "asked again within the pause");
        desk.pass(MS);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    desk.learn("a", Ok(address(1)), MS);
    desk.pass(KEPT);
    desk.learn("a", Err(failure("no such name")), MS);
    desk.pass(PAUSE);
    assert_eq!(desk.ask("a"), LookupAnswer::Wait(None), "the pause begins short after an answer");
}

#[test]
fn a_shortage_of_this_machine_says_nothing_of_a_name() {
    let mut desk = TimedBook::new();
    let shortage = Failure::from(&io::Error::from_raw_os_error(24));
    for _ in 0..5 {
        desk.learn("a", Err(shortage.clone()), MS);
        assert_eq!(desk.ask("a"), LookupAnswer::Failed(shortage.clone()));
        desk.pass(100 * MS);
    }
    desk.learn("a", Err(failure("no such name")), MS);
    desk.pass(PAUSE);
    assert_eq!(desk.ask("a"), LookupAnswer::Wait(None));
}

#[test]
fn names_whose_lookups_hang_leave_threads_to_others() {
    let mut desk = TimedBook::new();
    let names: Vec<_> = (0..4 * THREADS).map(|n| format!("slow{n}")).collect();
    for name in &names {
        desk.learn(name, Err(failure("silent")), MS);
    }
    desk.pass(LONGEST_PAUSE);
    for name in &names {
        desk.ask(name);
    }
    let hung: Vec<_> = std::iter::from_fn(|| desk.begin()).collect();
    assert_eq!(hung.len(), SLOW_THREADS);
    // One that nobody knows anything of.
    desk.ask("new");
    let task = desk.begin().unwrap();
    assert_eq!(&*task.name, "new");
    desk.end(&task, Ok(address(1)));
    // A place that is free again is for the next one of them.
    desk.end(&hung[0], Err(failure("silent")));
    assert_eq!(*desk.begin().unwrap().name, *names[SLOW_THREADS]);
}

#[test]
fn threads_are_bounded_and_what_nobody_waits_for_gets_none() {
    let mut desk = TimedBook::new();
    let names: Vec<_> = (0..3 * THREADS).map(|n| format!("name{n}")).collect();
    for name in &names {
        assert_eq!(desk.ask(name), LookupAnswer::Wait(None));
    }
    let running: Vec<_> = std::iter::from_fn(|| desk.begin()).collect();
    assert_eq!(running.len(), THREADS);
    for name in &names[..2 * THREADS] {
        desk.book.leave(name);
    }
    desk.end(&running[0], Err(failure("silent")));
    assert_eq!(*desk.begin().unwrap().name, *names[2 * THREADS]);
}

#[test]
fn names_are_bounded_and_the_one_used_last_stays() {
    let mut desk = TimedBook::new();
    for n in 0..CAPACITY {
        desk.learn(&format!("name{n}"), Ok(address(1)), Duration::ZERO);
    }
    assert_eq!(desk.ask("name0"), LookupAnswer::Found(address(1)));
    desk.learn("more", Ok(address(2)), Duration::ZERO);
    assert_eq!(desk.book.names(), CAPACITY);
    assert_eq!(desk.ask("name0"), LookupAnswer::Found(address(1)));
    assert_eq!(desk.ask("name1"), LookupAnswer::Wait(None), "the oldest one was forgotten");
}

#[test]
fn another_network_has_other_addresses() {
    let mut desk = TimedBook::new();
    desk.learn("a", Ok(address(1)), MS);
    desk.learn("b", Err(failure("silent")), MS);
    assert_eq!(desk.ask("hung"), LookupAnswer::Wait(None));
    let hung = desk.begin().unwrap();
    desk.pass(PATIENCE);
    desk.book.forget(desk.now);
    for name in ["a", "b", "hung"] {
        assert_eq!(desk.ask(name), LookupAnswer::Wait(None), "{name}");
        assert_eq!(*desk.begin().unwrap().name, *name, "{name}");
    }
    // The former network's answer comes after all.
    desk.end(&hung, Ok(address(9)));
    assert_eq!(desk.ask("hung"), LookupAnswer::Wait(None));
}

/// Names that are known, and names that hang until the gate opens.
#[derive(Clone, Default)]
struct Fake(Arc<FakeState>);

#[derive(Default)]
struct FakeState {
    open: Mutex<bool>,
    opened: Condvar,
    known: Mutex<HashMap<String, Vec<SocketAddr>>>,
    at_hand: Mutex<HashMap<String, Vec<SocketAddr>>>,
    running: AtomicUsize,
    most: AtomicUsize,
    lookups: AtomicUsize,
}

impl Fake {
    fn knows(&self, name: &str, addresses: Vec<SocketAddr>) {
        self.0.known.lock().unwrap().insert(name.to_owned(), addresses);
    }

    fn answers(&self) {
        *self.0.open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }
}

impl Resolve for Fake {
    fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let state = &*self.0;
        state.lookups.fetch_add(1, Ordering::SeqCst);
        let running = state.running.fetch_add(1, Ordering::SeqCst) + 1;
        state.most.fetch_max(running, Ordering::SeqCst);
        let known = || state.known.lock().unwrap().get(name).cloned();
        let found = known().or_else(|| {
            let open = state.open.lock().unwrap();
            drop(state.opened.wait_while(open, |open| !*open).unwrap());
            known()
        });
        state.running.fetch_sub(1, Ordering::SeqCst);
        match name {
            "panics" => panic!("as asked"),
            _ => found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such name")),
        }
    }

    fn at_hand(&self, name: &str) -> Vec<SocketAddr> {
        self.0.at_hand.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

#[tokio::test]
async fn a_silent_resolver_stops_no_name_that_can_be_answered_and_takes_few_threads() {
    let fake = Fake::default();
    fake.knows("known", address(1));
    let lookups = Lookups::new(fake.clone(), KEPT);
    let mut waiting = tokio::task::JoinSet::new();
    // Many requests for a few names that hang.
    for n in 0..700 {
        let lookups = lookups.clone();
        waiting.spawn(async move { lookups.addresses(&format!("hangs{}", n % 7), 80, PATIENCE).await });
    }
    assert_eq!(
        lookups.addresses("known", 8080, PATIENCE).await.unwrap(),
        ["192.0.2.1:8080".parse().unwrap()]
    );
    while fake.0.lookups.load(Ordering::SeqCst) < 8 {
        tokio::time::sleep(MS).await;
    }
    assert_eq!(fake.0.lookups.load(Ordering::SeqCst), 8, "one for each name");
    // So many names that no thread is left.
    for n in 0..700 {
        let lookups = lookups.clone();
        waiting.spawn(async move { lookups.addresses(&format!("more{n}"), 80, PATIENCE).await });
    }
    while fake.0.running.load(Ordering::SeqCst) < THREADS {
        tokio::time::sleep(MS).await;
    }
    fake.0.at_hand.lock().unwrap().insert("hosts".to_owned(), address(2));
    assert_eq!(lookups.addresses("hosts", 443, PATIENCE).await.unwrap(), ["192.0.2.2:443".parse().unwrap()]);
    assert_eq!(lookups.addresses("known", 1, PATIENCE).await.unwrap(), ["192.0.2.1:1".parse().unwrap()]);
    fake.answers();
    while let Some(result) = waiting.join_next().await {
        assert_eq!(result.unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
    assert!(fake.0.most.load(Ordering::SeqCst) <= THREADS);
}

#[tokio::test]
async fn a_lookup_that_panics_is_a_failure() {
    let fake = Fake::default();
    fake.answers();
    let error = Lookups::new(fake, KEPT).addresses("panics", 80, PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[tokio::test]
async fn the_system_knows_localhost() {
    let found = Lookups::system(KEPT).addresses("localhost", 80, PATIENCE).await.unwrap();
    assert!(
        !found.is_empty() && found.iter().all(|at| at.ip().is_loopback() && at.port() == 80),
        "{found:?}"
    );
}
