//! A client visits a server at two addresses, by an engine in virtual time. Between visits, and because of them, what it remembers
//! changes: boxes on the path drop what they do not know, servers end and begin again with other keys, the host moves to other
//! networks, and time passes.
//!
//! A visit is answered if an ordinary handshake can be. Data that must not run twice does not. A connect that fails says whether its
//! data may have run. What was learnt on a bad network spoils no other one.

use firstflight::credential::{CookieKey, FastOpenPolicy, KeyRing, NetworkId, PendingLimit, Scheme};
use firstflight::link::{MemoryLink, PathConfig, VirtualTime, virtual_time_pair};
use firstflight::{Client, Config, Endpoint, FirstFlight, ListenConfig, Stream, Time, block_on_virtual};
use firstflight_link::path::FilterVerdict;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

const NAME: (&str, u16) = ("www.example.com", 80);
/// The most steps of a run.
const MOST_STEPS: usize = 40;
/// Packets that are lost at random during a visit. With more, an ordinary connect may fail.
const MOST_LOSSES: u32 = 4;
/// An answer that comes later is a fault, where an ordinary handshake can be made.
const LONG: Duration = Duration::from_secs(120);
/// How long the server waits for a client.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Longer than everything that a connection waits for.
const VERY_LONG: Duration = Duration::from_secs(4 * 3600);

/// What happens to the packets of a family.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    Passes,
    /// SYNs with data are dropped.
    DropsData,
    /// SYNs with more options than an ordinary one has are dropped.
    DropsOptions,
    /// Options of Fast Open are replaced by padding, in both directions.
    StripsOptions,
    DropsAnswers,
    DropsAll,
}

impl Mode {
    fn of(number: u8) -> Self {
        match number % 6 {
            0 => Self::Passes,
            1 => Self::DropsData,
            2 => Self::DropsOptions,
            3 => Self::StripsOptions,
            4 => Self::DropsAnswers,
            _ => Self::DropsAll,
        }
    }

    fn lets_handshakes_pass(self) -> bool {
        !matches!(self, Self::DropsAnswers | Self::DropsAll)
    }
}

/// The boxes on the path, by family: IPv6, IPv4.
#[derive(Default)]
struct Boxes {
    modes: [AtomicU8; 2],
    /// Which of the next packets are lost, the lowest bit first.
    losses: AtomicU64,
}

impl Boxes {
    fn mode(&self, family: usize) -> Mode {
        Mode::of(self.modes[family].load(Ordering::Relaxed))
    }

    /// What becomes of a packet. `answers`: it comes from the server.
    fn handle(&self, packet: &mut [u8], answers: bool) -> FilterVerdict {
        let losses = self.losses.load(Ordering::Relaxed);
        self.losses.store(losses >> 1, Ordering::Relaxed);
        let v4 = packet[0] >> 4 == 4;
        let tcp = if v4 { 20 } else { 40 };
        let header = packet.get(tcp + 12).map_or(0, |byte| usize::from(byte >> 4) * 4);
        let flags = packet.get(tcp + 13).copied().unwrap_or_default();
        let has_data = packet.len() > tcp + header;
        let has_option = fast_open(packet, tcp + 20..tcp + header).is_some();
        let first = flags & 0x12 == 2;
        let drops = match self.mode(usize::from(v4)) {
            Mode::Passes => false,
            Mode::DropsData => first && has_data,
            Mode::DropsOptions => first && has_option,
            Mode::StripsOptions => {
                if let Some(option) = fast_open(packet, tcp + 20..tcp + header).filter(|_| flags & 2 == 2) {
                    packet[option].fill(1);
                    set_checksum(packet, tcp);
                }
                false
            }
            Mode::DropsAnswers => answers,
            Mode::DropsAll => true,
        };
        if drops || losses & 1 == 1 { FilterVerdict::Drop } else { FilterVerdict::Forward }
    }

    fn stand_on(self: &Arc<Self>, link: &MemoryLink, answers: bool) {
        let boxes = Arc::clone(self);
        link.outgoing(|path| {
            path.set_filter(Box::new(move |packet| boxes.handle(packet, answers)));
        });
    }
}

/// Where the option of Fast Open is, if there is one within `options`.
fn fast_open(packet: &[u8], options: Range<usize>) -> Option<Range<usize>> {
    let (mut at, end) = (options.start, options.end.min(packet.len()));
    while at + 1 < end {
        let len = match packet[at] {
            0 => return None,
            1 => 1,
            _ => usize::from(packet[at + 1]).max(2),
        };
        if matches!(packet[at], 34 | 254) {
            return Some(at..(at + len).min(end));
        }
        at += len;
    }
    None
}

/// Sets the checksum of the TCP segment that begins at `tcp`, after it was changed.
fn set_checksum(packet: &mut [u8], tcp: usize) {
    packet[tcp + 16..tcp + 18].fill(0);
    let addresses = if tcp == 20 { 12..20 } else { 8..40 };
    let halves = packet[addresses].chunks(2).chain(packet[tcp..].chunks(2));
    let half = |bytes: &[u8]| u32::from(bytes[0]) << 8 | bytes.get(1).map_or(0, |low| u32::from(*low));
    let mut sum = 6 + (packet.len() - tcp) as u32 + halves.map(half).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[tcp + 16..tcp + 18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// How often each request was executed.
type Executed = Arc<Mutex<HashMap<u32, u32>>>;

/// An address of a host, IPv6 (0) or IPv4.
fn address(host: u8, family: usize) -> SocketAddr {
    let ip = match family {
        0 => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)]),
        _ => IpAddr::from([10, 0, 0, host]),
    };
    SocketAddr::new(ip, NAME.1)
}

/// The bytes of a request.
fn request(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(len as u32).to_be_bytes());
    bytes.resize(8 + len, number as u8);
    bytes
}

struct World {
    time: Time,
    client: Client,
    ours: Endpoint,
    server: Endpoint,
    boxes: Arc<Boxes>,
    executed: Executed,
    listeners: [Option<JoinHandle<()>>; 2],
    keys: u8,
    visits: Vec<Visit>,
}

/// A visit that has ended.
struct Visit {
    once: bool,
    /// It failed, and its data cannot have run.
    not_run: bool,
}

async fn serve_one(mut stream: Stream, executed: Executed) -> std::io::Result<()> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await?;
    let [number, len] =
        [0, 4].map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let mut rest = vec![0; len as usize];
    stream.read_exact(&mut rest).await?;
    *executed.lock().unwrap().entry(number).or_default() += 1;
    stream.write_all(&number.to_be_bytes()).await?;
    stream.shutdown().await
}

impl World {
    fn new(clock: &VirtualTime) -> Self {
        let time = Time::from(clock.clone());
        let path = PathConfig::with_delay(Duration::from_millis(10));
        let (a, b) = virtual_time_pair(path.clone(), path, 1, clock).unwrap();
        let boxes = Arc::new(Boxes::default());
        boxes.stand_on(&a, false);
        boxes.stand_on(&b, true);
        let endpoint = |host, link| {
            let ips = [0, 1].map(|family| address(host, family).ip());
            Endpoint::in_time(Config::new(ips.to_vec(), [host; 32]), link, &time)
        };
        let (ours, server) = (endpoint(1, a), endpoint(2, b));
        ours.move_to(network(0));
        let client = Client::builder().engine(ours.clone()).build().unwrap();
        let (executed, listeners) = (Executed::default(), [None, None]);
        let mut world =
            Self { time, client, ours, server, boxes, executed, listeners, keys: 0, visits: Vec::new() };
        [0, 1].into_iter().for_each(|family| world.listen(family));
        world
    }

    fn listen(&mut self, family: usize) {
        let keys = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([self.keys; 16]));
        let mut config = ListenConfig::new(address(2, family));
        config.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        let listener = self.server.listen(config).unwrap();
        let (executed, time) = (Arc::clone(&self.executed), self.time.clone());
        self.listeners[family] = Some(tokio::spawn(async move {
            while let Ok(stream) = listener.accept().await {
                let (executed, time) = (Arc::clone(&executed), time.clone());
                tokio::spawn(async move {
                    // A client that gave up, and whose reset was lost, would be waited for without an end.
                    tokio::select! {
                        _ = serve_one(stream, executed) => {}
                        () = time.sleep(PATIENCE) => {}
                    }
                });
            }
        }));
    }

    async fn close(&mut self, family: usize) {
        if let Some(task) = self.listeners[family].take() {
            task.abort();
            let _ = task.await;
        }
    }

    /// The result of `work`, if it ends in time.
    async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.time.sleep(time) => None,
        }
    }

    /// A visit at the addresses of these families. Returns whether its data was accepted in the SYN.
    async fn visit(&mut self, families: &[usize], once: bool, len: usize, losses: u64) -> bool {
        let number = self.visits.len() as u32;
        let data = request(number, len);
        let first =
            if once { FirstFlight::at_most_once(&data) } else { FirstFlight::safely_replayable(&data) };
        let at: Vec<_> = families.iter().map(|family| address(2, *family)).collect();
        let works = |family: &usize| {
            self.boxes.mode(*family).lets_handshakes_pass() && self.listeners[*family].is_some()
        };
        let must_work = families.iter().any(works);
        self.boxes.losses.store(losses, Ordering::Relaxed);
        let connected =
            self.within(LONG, async { self.client.connect(NAME, first).at(at.as_slice()).await }).await;
        let mut visit = Visit { once, not_run: false };
        let mut early = false;
        match connected {
            Some(Ok(mut stream)) => {
                early = stream.outcome().is_accepted();
                let mut answer = Vec::new();
                let read = self.within(LONG, stream.read_to_end(&mut answer)).await;
                let answered = matches!(read, Some(Ok(_))) && answer == number.to_be_bytes();
                assert!(
                    !must_work || answered,
                    "visit {number}, connected by {:?}: {read:?}",
                    stream.outcome()
                );
                let ran = self.executed.lock().unwrap().contains_key(&number);
                assert!(!answered || ran, "visit {number} was answered and has not run");
            }
            Some(Err(error)) => {
                assert!(!must_work, "visit {number}: {error}");
                visit.not_run = !error.maybe_delivered();
            }
            None => assert!(!must_work, "visit {number} has no end"),
        }
        self.visits.push(visit);
        early
    }

    /// Everything works from now on, on a network where the client has not been.
    async fn end(mut self) {
        self.boxes.modes.iter().for_each(|mode| mode.store(0, Ordering::Relaxed));
        self.boxes.losses.store(0, Ordering::Relaxed);
        for family in [0, 1] {
            self.close(family).await;
            self.listen(family);
        }
        self.ours.move_to(network(200));
        self.client.network_changed().await;
        let mut early = false;
        for _ in 0..3 {
            early = self.visit(&[0, 1], false, 10, 0).await;
        }
        assert!(early, "the third visit on a good network waits for a handshake");
        self.time.sleep(VERY_LONG).await;
        self.check();
        assert_eq!(
            (self.ours.connections(), self.server.connections()),
            (0, 0),
            "connections without an end"
        );
    }

    fn check(&self) {
        let executed = self.executed.lock().unwrap();
        for (number, visit) in self.visits.iter().enumerate() {
            let times = executed.get(&(number as u32)).copied().unwrap_or_default();
            assert!(!visit.once || times <= 1, "visit {number} ran {times} times");
            assert!(!visit.not_run || times == 0, "visit {number} failed for certain, and ran");
        }
    }
}

fn network(number: u8) -> NetworkId {
    NetworkId([number + 1; 16])
}

/// Bits of the numbers of packets that are lost.
fn losses(byte: u8) -> u64 {
    let mut bits = u64::from(byte);
    while bits.count_ones() > MOST_LOSSES {
        bits &= bits - 1;
    }
    bits
}

async fn steps(mut world: World, data: &[u8]) {
    for step in data.chunks_exact(3).take(MOST_STEPS) {
        let [what, a, b] = [step[0], step[1], step[2]];
        match what % 8 {
            0..=3 => {
                let families: &[usize] = [&[0, 1][..], &[1, 0], &[0], &[1]][usize::from(a % 4)];
                let len = [10, 1000, 4000][usize::from(a / 8 % 3)];
                let lost = if what % 4 == 0 { losses(b) } else { 0 };
                world.visit(families, a & 4 != 0, len, lost).await;
            }
            4 => world.boxes.modes[usize::from(a % 2)].store(b, Ordering::Relaxed),
            5 => {
                world.ours.move_to(network(a % 3));
                world.client.network_changed().await;
            }
            6 => world.time.sleep(Duration::from_millis(1 << (a % 24))).await,
            _ => {
                let family = usize::from(a % 2);
                match b % 4 {
                    0 => world.client.forget(),
                    1 => world.close(family).await,
                    _ => {
                        world.close(family).await;
                        world.keys = b;
                        world.listen(family);
                    }
                }
            }
        }
    }
    world.end().await;
}

/// Runs what `data` describes: steps of three bytes.
pub fn run(data: &[u8]) {
    let clock = VirtualTime::new(Duration::from_secs(1_800_000_000));
    block_on_virtual(&clock, async { steps(World::new(&clock), data).await }).unwrap();
}
