//! A server of sealed first flights: first bytes in any pieces, flights that open or not, and a sequence of requests,
//! copies, Finished messages, clocks that jump, restarts and a store that is lost. A ledger checks that no request runs
//! more often than the specification allows.

use firstflight_credential::asap::Identity;
use firstflight_seal::{
    Bind, BlockState, Finished, Flags, Flight, Hello, HostName, Inner, Intake, KeySet, MemoryRegister,
    Question, RegisterAnswer, RegisterLimits, Request, Rid, Runs, SealKey, Server, Step, StrikeRegister,
    Target, Waiting, Why, seal,
};
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::HashMap;
use std::num::NonZeroU8;
use std::time::Duration;

const NOW: u64 = 1_767_225_660;
const NAME: &str = "www.example.com";
/// How long a client repeats a request (7.1), seconds.
const CLIENT: u64 = 300;

/// Runs all parts on the same bytes.
pub fn run(data: &[u8]) {
    parse(data);
    opened(data);
    intake(data);
    World::new().run(data);
}

fn name() -> HostName {
    HostName::new(NAME.as_bytes()).unwrap()
}

fn keys() -> KeySet {
    let mut keys = KeySet::new(name());
    let (id, key) = (NonZeroU8::new(7).unwrap(), SealKey::from_bytes(&[5; 32]).unwrap());
    keys.add(id, key, (NOW + 86_400) as u32, NOW).unwrap();
    keys
}

fn parse(data: &[u8]) {
    if let Ok(inner) = Inner::parse(data) {
        assert!(inner.len() <= data.len() && !inner.is_empty());
    }
    if let Ok(hello) = Hello::parse(data) {
        assert!(!hello.protocol.is_empty() && hello.protocol.len() <= 252);
    }
    if let Some(flight) = Flight::parse(data) {
        assert_eq!((flight.as_bytes(), flight.head().total()), (data, data.len()));
        // The flights of the corpus open with the vectors' key; others must not.
        let _ = keys().open(&flight, 443, NOW);
    }
}

/// The bytes as ClientHello and request of a flight: it opens as it was sealed, and its check fails unless the hello is one.
fn opened(data: &[u8]) {
    let Some((&cut, rest)) = data.split_first() else { return };
    let (hello, request) = rest.split_at(rest.len().min(usize::from(cut) * 4));
    let (keys, public_name) = (keys(), name());
    let record = keys.record(NOW).unwrap();
    let flags = Flags { replayable: !request.is_empty(), complete: !request.is_empty() };
    let inner =
        Inner { rid: Rid::from_bytes([1; 16]), bind: Bind::NONE, t_ms: NOW * 1000, flags, hello, request };
    let to = Target { entry: &record.entries()[0], public_name: &public_name, port: 443 };
    let total = (inner.len() + 54).div_ceil(256) * 256;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let Ok(flight) = seal(&inner, &to, total, &mut rng) else { return };
    let opened = keys.open(&flight, 443, NOW).unwrap();
    assert_eq!(opened.inner(), inner);
    assert!(keys.open(&flight, 444, NOW).is_err());
    // Nobody finds a ClientHello that commits to this request by chance.
    assert!(opened.check(|_| true).is_err());
}

/// The first byte says how long the pieces are.
fn intake(data: &[u8]) {
    let Some((&len, data)) = data.split_first() else { return };
    let mut intake = Intake::new(Instant::ZERO);
    let (mut held, mut flights) = (Vec::new(), 0);
    let mut pieces = data.chunks(usize::from(len) + 1);
    loop {
        let (taken, step) = intake.handle(&held, |id| id.get() % 2 == 1);
        held.drain(..taken);
        match step {
            Step::More(_) => match pieces.next() {
                Some(piece) => held.extend_from_slice(piece),
                None => break,
            },
            Step::Sealed(flight) => {
                flights += 1;
                assert!(flight.as_bytes().len() <= 16_390 && intake.deadline().is_none());
                intake.reject();
            }
            Step::Reject => flights += 1,
            Step::Tls | Step::Close(_) => break,
        }
        assert!(flights <= 1, "one flight on a connection");
    }
}

/// A strike register that can be lost. It may take a number and not answer.
struct Store {
    table: MemoryRegister,
    lost: bool,
    takes: bool,
    /// Whether the last question was answered, and there was room.
    answered: bool,
}

impl StrikeRegister for Store {
    fn test_and_set(&mut self, question: &Question, now: Instant) -> RegisterAnswer {
        if !self.lost {
            let answer = self.table.test_and_set(question, now);
            self.answered = answer != RegisterAnswer::Full;
            return answer;
        }
        self.answered = false;
        if self.takes {
            self.table.test_and_set(question, now);
        }
        RegisterAnswer::Unavailable
    }
}

/// What the ledger knows of a request.
#[derive(Clone, Copy)]
struct Page {
    flags: Flags,
    bound: bool,
    t_ms: u64,
    sealed: Instant,
    /// When it ran in this table, and whether it ran early in any.
    ran: Option<Instant>,
    ran_early: bool,
    /// The client has sent its Finished.
    finished: bool,
}

struct World {
    clock: Clock,
    store: Store,
    pages: HashMap<u8, Page>,
    /// Requests that wait, with whether the client itself is at the other end.
    waiting: Vec<(u8, bool, Waiting)>,
    /// The latest Unix time that the clock has shown, and whether a restart was behind it. Then the floor may be too low:
    /// section 11.
    latest_ms: u64,
    started_behind: bool,
    rng: ChaCha8Rng,
}

impl World {
    fn new() -> Self {
        let clock = Clock {
            mono: Instant::from_secs(100_000),
            unix_ms: NOW * 1000,
            uncertainty: Duration::from_secs(1),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let limits = RegisterLimits { entries: 24, without_block: 8 };
        let table = MemoryRegister::new(limits, &clock, true, &mut rng);
        let store = Store { table, lost: false, takes: false, answered: true };
        Self {
            clock,
            store,
            pages: HashMap::new(),
            waiting: Vec::new(),
            latest_ms: 0,
            started_behind: false,
            rng,
        }
    }

    fn run(&mut self, data: &[u8]) {
        for &[what, which, how, number] in data.as_chunks::<4>().0 {
            match what % 16 {
                0..=7 => self.arrive(which % 32, how, number),
                8..=10 => self.finish(usize::from(which)),
                11 => self.wait(u64::from(number)),
                12 => self.wait(u64::from(number) * 10),
                13 => self.jump(i64::from(number.cast_signed()) * i64::from(which)),
                14 => (self.store.lost, self.store.takes) = (which % 2 == 1, which % 4 > 1),
                _ => self.restart(),
            }
            assert!(self.store.table.len() <= 24);
        }
    }

    fn wait(&mut self, s: u64) {
        self.clock.mono += Duration::from_secs(s);
        self.clock.unix_ms += s * 1000;
    }

    fn jump(&mut self, s: i64) {
        self.latest_ms = self.latest_ms.max(self.clock.unix_ms);
        self.clock.unix_ms = self.clock.unix_ms.saturating_add_signed(s * 1000);
    }

    /// All connections are over, and the table is empty.
    fn restart(&mut self) {
        self.started_behind |= self.clock.unix_ms < self.latest_ms;
        let limits = RegisterLimits { entries: 24, without_block: 8 };
        self.store.table = MemoryRegister::new(limits, &self.clock, false, &mut self.rng);
        self.waiting.clear();
        self.pages.values_mut().for_each(|page| page.ran = None);
    }

    /// A flight, or a copy of it. The first one of a number decides what the request is.
    fn arrive(&mut self, id: u8, how: u8, number: u8) {
        let flags = Flags { replayable: id.is_multiple_of(3), complete: id % 7 != 1 };
        let bind = if id.is_multiple_of(2) { Bind::new(&[id; 32], &[1; 8], &identity()) } else { Bind::NONE };
        let ahead = i64::from(number.cast_signed()) * 4;
        let fresh = Page {
            flags,
            bound: bind.is_bound(),
            t_ms: self.clock.unix_ms.saturating_add_signed(ahead * 1000),
            sealed: self.clock.mono,
            ran: None,
            ran_early: false,
            finished: false,
        };
        let page = *self.pages.entry(id).or_insert(fresh);
        // Bit 0: under the request's own block, accepted. Bit 1: under the attacker's. Bit 2: sent by the client itself.
        let block =
            |bind| BlockState::Accepted { bind, identity: identity(), signed_len: usize::from(number) };
        let block = match how % 4 {
            0 => BlockState::None,
            1 => block(bind),
            _ => block(Bind::new(&[99; 32], &[9; 8], &identity())),
        };
        let own = how & 4 != 0 && self.clock.mono < page.sealed + Duration::from_secs(CLIENT);
        let inner =
            Inner { rid: Rid::from_bytes([id; 16]), bind, t_ms: page.t_ms, flags, hello: b"", request: b"x" };
        let request = Request::new(&inner, block.clone(), [identity(), identity()], self.clock.mono);
        let server = Server { client_certificates: how & 64 != 0, several_tables: how & 32 != 0 };
        match request.judge_with(&server, &self.clock, &mut self.store) {
            Runs::Now(why) => {
                let vouched =
                    block != BlockState::None && how % 4 == 1 && number >= 38 && !server.several_tables;
                assert!(flags.complete && !server.client_certificates);
                assert!(flags.replayable || vouched, "{why:?}");
                assert!(page.t_ms.abs_diff(self.clock.unix_ms) <= 300_000);
                assert!(!self.store.lost, "without an answer of the store");
                assert!(!page.ran_early || self.started_behind, "request {id} ran early twice");
                self.ran(id, true);
            }
            Runs::AfterFinished(waiting, _) => {
                self.waiting.push((id, own, waiting));
                if self.waiting.len() > 64 {
                    self.waiting.remove(0);
                }
            }
            Runs::Reject(_) => assert!(how % 4 > 1 || (how % 4 == 1 && (number < 38 || !page.bound))),
            Runs::Close(why) => assert_eq!(why, Why::Seen),
        }
    }

    /// The client's Finished of a connection. Nobody else has one.
    fn finish(&mut self, which: usize) {
        if self.waiting.is_empty() {
            return;
        }
        let (id, own, waiting) = self.waiting.swap_remove(which % self.waiting.len());
        let Some(page) = self.pages.get_mut(&id) else { return };
        let given_up = self.clock.mono >= page.sealed + Duration::from_secs(CLIENT);
        if !own || given_up || page.finished && !page.flags.replayable {
            return;
        }
        page.finished = true;
        let page = *page;
        // It may not ask again.
        self.store.answered = false;
        if waiting.finished_with(&self.clock, &mut self.store) == Finished::Run {
            assert!(self.clock.mono < waiting.deadline());
            assert!(page.flags.replayable || !page.bound || self.store.answered);
            self.ran(id, false);
        }
    }

    fn ran(&mut self, id: u8, early: bool) {
        let now = self.clock.mono;
        let Some(page) = self.pages.get_mut(&id) else { return };
        let again = page.ran.is_some_and(|ran| now < ran + Duration::from_secs(900));
        // While the store is lost, or full, replayable requests run without an entry.
        assert!(!again || page.flags.replayable && !self.store.answered, "request {id} ran twice");
        // Without an entry nothing is remembered of it.
        if self.store.answered {
            page.ran = Some(now);
            page.ran_early |= early && page.t_ms <= self.clock.unix_ms + 300_000;
        } else if !page.flags.replayable {
            page.ran = Some(now);
        }
    }
}

fn identity() -> Identity {
    Identity::name(NAME, 443)
}
