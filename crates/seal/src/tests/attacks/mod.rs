//! Attacks on sealed first flights (section 10 of the specification). Each is made twice: it fails with all defences, and
//! it succeeds when the defence that its test names is taken out. So each test shows that this defence is needed.

mod client;
mod flights;
mod model;
mod replay;

use crate::bind::Bind;
use crate::commitment::is_reserved;
use crate::defence::{Defence, on, without};
use crate::fixtures::{NAME, NOW, keys, name, rng};
use crate::flight::{Flight, Intake, Step};
use crate::keys::KeySet;
use crate::run::admission::{BlockState, Request, Runs, Server, Why};
use crate::run::strike_register::{MemoryRegister, RegisterLimits};
use crate::run::waiting::{Finished, Waiting};
use firstflight_credential::asap::Identity;
use firstflight_wire::{Clock, Instant};
use std::time::Duration;

/// The attack fails with the defence, and succeeds without it.
#[track_caller]
fn needs(defence: Defence, attack: impl FnMut() -> bool) {
    let (with, without) = without(defence, attack);
    assert!(!with, "{defence:?} does not help");
    assert!(without, "the attack fails without {defence:?} as well: the test shows nothing");
}

/// A server, by the calls that the crate with a TLS library makes.
struct Host {
    keys: KeySet,
    port: u16,
    names: Vec<&'static str>,
    listener: Server,
    table: MemoryRegister,
    clock: Clock,
}

/// What a server did with a connection.
#[derive(Debug)]
enum Did {
    Ran(Vec<u8>, Why),
    Waits(Waiting, Vec<u8>),
    Rejected,
    Closed,
    /// What a server without the defence says when it knows the request.
    Status425,
}

impl Did {
    fn ran(&self) -> bool {
        matches!(self, Self::Ran(..))
    }
}

fn clock(s: u64) -> Clock {
    Clock {
        mono: Instant::from_secs(1_000_000 + s),
        unix_ms: (NOW + s) * 1000,
        uncertainty: Duration::from_secs(1),
    }
}

fn table(first_start: bool, at: u64) -> MemoryRegister {
    MemoryRegister::new(
        RegisterLimits { entries: 100, without_block: 20 },
        &clock(at),
        first_start,
        &mut rng(1),
    )
}

impl Host {
    fn new() -> Self {
        let listener = Server { client_certificates: false, several_tables: false };
        let (keys, table) = (keys(), table(true, 0));
        Self { keys, port: 443, names: vec![NAME], listener, table, clock: clock(0) }
    }

    fn now(&self) -> u64 {
        self.clock.unix_ms / 1000
    }

    /// The first bytes of a connection, behind this block.
    fn connect(&mut self, bytes: &[u8], block: BlockState) -> Did {
        let now = self.now();
        let (_, step) = Intake::new(self.clock.mono).handle(bytes, |id| self.keys.knows(id, now));
        let flight = match step {
            Step::Sealed(flight) => flight,
            Step::Reject => return Did::Rejected,
            _ => return Did::Closed,
        };
        let Ok(opened) = self.keys.open(&flight, self.port, now) else { return Did::Rejected };
        let Ok(hello) = opened.check(|name| self.names.contains(&name.as_str())) else {
            return Did::Rejected;
        };
        let server_name = Identity::name(hello.server_name.as_str(), self.port);
        let public_name = Identity::name(self.keys.name().as_str(), self.port);
        let inner = opened.inner();
        let request = Request::new(&inner, block, [server_name, public_name], self.clock.mono);
        match request.judge_with(&self.listener, &self.clock, &mut self.table) {
            Runs::Now(why) => Did::Ran(inner.request.to_vec(), why),
            Runs::AfterFinished(waiting, _) => Did::Waits(waiting, inner.request.to_vec()),
            Runs::Reject(_) => Did::Rejected,
            Runs::Close(Why::Seen) if !on(Defence::SilentCopies) => Did::Status425,
            Runs::Close(_) => Did::Closed,
        }
    }

    /// The client's Finished was verified.
    fn finish(&mut self, waiting: &Waiting) -> bool {
        waiting.finished_with(&self.clock, &mut self.table) == Finished::Run
    }

    /// A ClientHello in clear that offers these names: whether the server goes on with TLS.
    fn clear(names: &[Vec<u8>]) -> bool {
        !names.iter().any(|name| is_reserved(name))
    }
}

/// A client's block.
#[derive(Clone, Copy)]
struct Block {
    client_key: [u8; 32],
    request_id: [u8; 8],
}

const VICTIM: Block = Block { client_key: [1; 32], request_id: [2; 8] };
const ATTACKER: Block = Block { client_key: [3; 32], request_id: [4; 8] };

impl Block {
    fn bind(&self) -> Bind {
        Bind::new(&self.client_key, &self.request_id, &Identity::name(NAME, 443))
    }

    /// The server verified this block, which signs the flight's first bytes.
    fn accepted(&self, signed_len: usize) -> BlockState {
        BlockState::Accepted { bind: self.bind(), identity: Identity::name(NAME, 443), signed_len }
    }
}

fn whole(flight: &Flight) -> &[u8] {
    flight.as_bytes()
}

/// The name of the key set of the fixtures is the server's.
#[test]
fn an_honest_request_runs() {
    let mut host = Host::new();
    let parts = crate::fixtures::Parts::new(b"GET", crate::fixtures::BOTH);
    assert!(
        matches!(host.connect(whole(&parts.flight(&mut rng(1))), BlockState::None), Did::Ran(request, Why::Replayable) if request == b"GET")
    );
    assert_eq!(host.keys.name(), &name(NAME));
}
