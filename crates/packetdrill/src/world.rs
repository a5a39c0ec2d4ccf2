//! The world of one script: a stack, sockets by descriptor, and the clock.
//!
//! The script's own thread advances the clock by sleeping or waiting for a packet. It makes only calls that do not
//! block; packetdrill has a second thread for blocking calls. That thread sleeps on a condition variable, because
//! packetdrill checks whether it sleeps. When something has happened that may end its call, the clock stands still
//! until the thread has checked and gone back to sleep, or has returned and asked for the time, at which point
//! packetdrill considers the call finished.

use crate::buffer::is_full;
use crate::readiness::Epoll;
use crate::settings::Flags;
use crate::socket::{Kind, SendLimit, Socket};
use crate::sysctl::Sysctl;
use firstflight_stack::{ConnId, Event, ListenerId, PacketDrop, Readiness, Stack};
use firstflight_wire::{Clock, Instant};
use libc::{EBADF, ENOTSOCK, c_int};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Where the clock begins, µs. It is late enough that no measured time is negative.
const BEGIN: u64 = 1_000_000_000;
/// Largest packet that a stack writes, bytes.
const PACKET: usize = 65_600;

/// What a descriptor refers to.
pub(crate) enum Descriptor {
    /// A TCP socket.
    Socket(Box<Socket>),
    /// An epoll set.
    Epoll(Epoll),
}

/// The state of the thread for blocking calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// It sleeps, and the event that it waits for has not happened.
    Asleep,
    /// Something has happened, so it must check.
    Woken,
    /// Its call is over, and it has not asked for the time yet.
    Returning,
}

struct Sleeper {
    thread: ThreadId,
    /// The file in which the system reports the thread's state.
    status: Option<PathBuf>,
    sleep: Sleep,
    until: Option<u64>,
}

/// One script's world.
pub(crate) struct World {
    /// The clock, µs.
    clock: u64,
    /// The stack under test.
    pub stack: Stack,
    /// The flags from packetdrill's command line.
    pub flags: Flags,
    /// The kernel settings that were read last.
    pub sysctl: Arc<Sysctl>,
    descriptors: BTreeMap<c_int, Descriptor>,
    outbox: VecDeque<(Vec<u8>, u64)>,
    driver: ThreadId,
    sleeper: Option<Sleeper>,
    /// The thread whose call is over, until it was seen to wait for the next call.
    returned: Option<PathBuf>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

type Guard = MutexGuard<'static, Option<World>>;

fn lock() -> Guard {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(guard: Guard) -> Guard {
    CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// A file through which a script's commands communicate with the world, in a directory that the runner made.
fn state_file(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("PACKETDRILL_STATE")?).join(name))
}

/// Starts a new world. The calling thread becomes the script's thread.
pub(crate) fn begin(flags: &str) {
    let flags = Flags::parse(flags);
    let sysctl = Arc::new(Sysctl::read());
    let now = Instant::from_micros(BEGIN);
    let stack = make_stack(&flags, &sysctl, now);
    *lock() = Some(World {
        clock: BEGIN,
        stack,
        flags,
        sysctl,
        descriptors: BTreeMap::new(),
        outbox: VecDeque::new(),
        driver: thread::current().id(),
        sleeper: None,
        returned: None,
    });
}

fn make_stack(flags: &Flags, sysctl: &Sysctl, now: Instant) -> Stack {
    let mut stack = Stack::new(crate::settings::stack_config(flags, sysctl), now);
    stack.handle_clock(Clock { mono: now, unix_ms: BEGIN / 1000, uncertainty: Duration::ZERO });
    stack
}

/// Ends the world and drops everything behind its descriptors.
pub(crate) fn end() {
    *lock() = None;
}

/// Waits until the other thread has handled everything that has happened so far.
fn settled() -> Guard {
    let mut guard = lock();
    while guard.as_ref().is_some_and(World::is_unsettled) {
        guard = wait(guard);
    }
    guard
}

/// A call that does not block.
/// Errors: `EBADF` without a world.
pub(crate) fn call<T>(f: impl FnOnce(&mut World) -> Result<T, c_int>) -> Result<T, c_int> {
    let mut guard = settled();
    let world = guard.as_mut().ok_or(EBADF)?;
    let result = f(world);
    world.pump();
    CHANGED.notify_all();
    result
}

/// A call that blocks until `attempt` has a result. Returns `None` at `until` (µs), or when nothing more can happen.
/// Errors: `EBADF` without a world.
pub(crate) fn block<T>(
    until: impl FnOnce(u64) -> Option<u64>,
    mut attempt: impl FnMut(&mut World) -> Option<T>,
) -> Result<Option<T>, c_int> {
    let me = thread::current().id();
    let mut guard = lock();
    let world = guard.as_mut().ok_or(EBADF)?;
    let until = until(world.clock);
    let mut slept = false;
    loop {
        let world = guard.as_mut().ok_or(EBADF)?;
        let result = attempt(world);
        world.pump();
        let over = until.is_some_and(|until| until <= world.clock);
        if result.is_some() || over {
            if slept && let Some(sleeper) = &mut world.sleeper {
                sleeper.sleep = Sleep::Returning;
            }
            CHANGED.notify_all();
            return Ok(result);
        }
        if me == world.driver {
            // No other thread advances the clock.
            if !world.step(until) {
                return Ok(None);
            }
            continue;
        }
        let status =
            fs::read_link("/proc/thread-self").ok().map(|own| Path::new("/proc").join(own).join("stat"));
        world.sleeper = Some(Sleeper { thread: me, status, sleep: Sleep::Asleep, until });
        slept = true;
        CHANGED.notify_all();
        guard = wait(guard);
        while guard.as_ref().is_some_and(World::is_asleep) {
            guard = wait(guard);
        }
    }
}

/// The time, µs. Each call advances it by 1 µs.
pub(crate) fn time() -> u64 {
    let mut guard = lock();
    let Some(world) = guard.as_mut() else { return BEGIN };
    let me = thread::current().id();
    if world.sleeper.as_ref().is_some_and(|s| s.thread == me && s.sleep == Sleep::Returning) {
        world.returned = world.sleeper.take().and_then(|sleeper| sleeper.status);
        CHANGED.notify_all();
    }
    world.clock += 1;
    world.clock
}

/// Waits until a thread whose call is over has reported the result to packetdrill. It then waits for the next call.
fn let_return() {
    let Some(status) = lock().as_mut().and_then(|world| world.returned.take()) else { return };
    // The state follows the name, which is in parentheses.
    let waits = || fs::read_to_string(&status).is_ok_and(|text| text.contains(") S"));
    for _ in 0..10_000 {
        thread::sleep(Duration::from_micros(50));
        if waits() {
            return;
        }
    }
}

/// Lets `micros` pass. packetdrill's other thread may continue in the meantime.
pub(crate) fn sleep(micros: u64) {
    let_return();
    let Some(target) = settled().as_ref().map(|world| world.clock.saturating_add(micros)) else { return };
    loop {
        let mut guard = settled();
        let Some(world) = guard.as_mut() else { return };
        if world.next_event().is_none_or(|at| at > target) {
            world.clock = world.clock.max(target);
            return;
        }
        world.step(None);
        CHANGED.notify_all();
    }
}

/// Handles an incoming packet.
pub(crate) fn packet_in(packet: &[u8]) {
    let mut guard = settled();
    let Some(world) = guard.as_mut() else { return };
    world.follow_sysctl();
    let now = world.now();
    world.stack.handle_packet(now, packet);
    world.pump();
    world.offer_room();
    world.note_times();
    world.follow_commands();
    world.wake();
    CHANGED.notify_all();
    // A thread that waited for the packet acts at the same time.
    drop(guard);
    drop(settled());
}

/// The next outgoing packet and its time (µs). Advances the clock to it. `None` if there will be none.
pub(crate) fn packet_out() -> Option<(Vec<u8>, u64)> {
    loop {
        let mut guard = settled();
        let world = guard.as_mut()?;
        if let Some(packet) = world.outbox.pop_front() {
            return Some(packet);
        }
        if !world.step(None) {
            return None;
        }
        CHANGED.notify_all();
    }
}

impl World {
    /// The present time, for the stack.
    pub(crate) fn now(&self) -> Instant {
        Instant::from_micros(self.clock)
    }

    /// The present time, µs.
    pub(crate) fn micros(&self) -> u64 {
        self.clock
    }

    fn is_unsettled(&self) -> bool {
        let me = thread::current().id();
        self.sleeper.as_ref().is_some_and(|s| s.thread != me && s.sleep != Sleep::Asleep)
    }

    fn is_asleep(&self) -> bool {
        let me = thread::current().id();
        self.sleeper.as_ref().is_some_and(|s| s.thread == me && s.sleep == Sleep::Asleep)
    }

    /// When the next event happens by itself, µs.
    fn next_event(&self) -> Option<u64> {
        let stack = self.stack.poll_timeout().map(|at| at.as_nanos().div_ceil(1000));
        let sleeper = self.sleeper.as_ref().and_then(|sleeper| sleeper.until);
        stack.into_iter().chain(sleeper).min()
    }

    /// Advances the clock to the next event and handles it. Returns false if there is none, or none before `until`.
    fn step(&mut self, until: Option<u64>) -> bool {
        let next = self.next_event();
        let Some(at) = next.into_iter().chain(until).min() else { return false };
        self.clock = self.clock.max(at);
        let now = self.now();
        self.stack.handle_timeout(now);
        self.pump();
        self.wake();
        true
    }

    /// Makes the sleeping thread check.
    fn wake(&mut self) {
        if let Some(sleeper) = &mut self.sleeper
            && sleeper.sleep == Sleep::Asleep
        {
            sleeper.sleep = Sleep::Woken;
        }
    }

    /// Takes packets and events out of the stack.
    pub(crate) fn pump(&mut self) {
        let now = self.now();
        let mut buffer = vec![0; PACKET];
        while let Some(len) = self.stack.poll_transmit(now, &mut buffer) {
            self.outbox.push_back((buffer.get(..len).unwrap_or_default().to_vec(), self.clock));
        }
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Acceptable(id) => self.note(|s| s.listener() == Some(id), Readiness::READABLE),
                Event::Ready(id, ready) => {
                    self.note(|s| s.connection() == Some(id), ready);
                    if ready.contains(Readiness::CONNECTED) {
                        self.expand(id);
                    }
                }
            }
        }
        self.follow_queues();
        self.note_times();
    }

    /// Records what limits each connection's sending.
    fn note_times(&mut self) {
        let now = self.clock;
        let held: Vec<(c_int, SendLimit)> =
            self.sockets().map(|(fd, socket)| (fd, self.held(socket))).collect();
        for (fd, held) in held {
            if let Ok(socket) = self.socket_mut(fd) {
                socket.times.turn(held, now);
            }
        }
    }

    fn held(&self, socket: &Socket) -> SendLimit {
        let Some(machine) = socket.connection().and_then(|id| self.machine(id)) else {
            return SendLimit::Idle;
        };
        let (queued, unsent) = (machine.unacknowledged(), machine.unsent());
        let window = (machine.facts().peer_window as usize).saturating_sub(queued.saturating_sub(unsent));
        match () {
            () if queued == 0 => SendLimit::Idle,
            () if unsent > 0 && !is_full(machine) && window < unsent.min(usize::from(machine.mss())) => {
                SendLimit::Window
            }
            () if unsent == 0 && socket.wants_room => SendLimit::Buffer,
            () => SendLimit::Busy,
        }
    }

    fn note(&mut self, mut of: impl FnMut(&Socket) -> bool, ready: Readiness) {
        let clock = self.clock;
        for socket in self.sockets_mut().filter(|socket| of(socket)) {
            socket.note(ready, clock);
        }
    }

    /// Does what a script's commands have requested since the last check ([`state_file`]), and writes the values that
    /// they may read.
    fn follow_commands(&mut self) {
        if state_file("flush").is_some_and(|path| fs::remove_file(path).is_ok()) {
            self.stack.forget_credentials();
        }
        self.flags.paced |= state_file("paced").is_some_and(|path| path.exists());
        self.follow_mtu();
        let strange = self.stack.counters().dropped(PacketDrop::BadIcmp);
        if strange > 0
            && let Some(path) = state_file("nstat")
        {
            // An error is ignored: a script that reads the value fails without it.
            let _ = fs::write(path, format!("TcpExtOutOfWindowIcmps {strange} 0.0\n"));
        }
    }

    /// Applies a changed MTU of the device, before anything was sent.
    fn follow_mtu(&mut self) {
        let told = state_file("mtu").and_then(|path| fs::read_to_string(path).ok());
        let Some(mtu) = told.and_then(|text| text.trim().parse().ok()) else { return };
        if mtu != self.flags.mtu && self.sockets().all(|(_, socket)| socket.kind == Kind::Fresh) {
            self.flags.mtu = mtu;
            self.stack = make_stack(&self.flags, &self.sysctl, self.now());
        }
    }

    /// Reads the kernel's settings and applies them to the listeners.
    pub(crate) fn follow_sysctl(&mut self) {
        self.follow_commands();
        let fresh = Sysctl::read();
        if *self.sysctl == fresh {
            return;
        }
        self.sysctl = Arc::new(fresh);
        let listeners: Vec<ListenerId> = self.sockets().filter_map(|(_, s)| s.listener()).collect();
        for id in listeners {
            self.set_fast_open(id);
        }
    }

    // --- descriptors ---------------------------------------------------------------------------

    /// Registers a descriptor.
    pub(crate) fn insert(&mut self, fd: c_int, descriptor: Descriptor) {
        self.descriptors.insert(fd, descriptor);
    }

    pub(crate) fn remove(&mut self, fd: c_int) -> Option<Descriptor> {
        for other in self.descriptors.values_mut() {
            if let Descriptor::Epoll(epoll) = other {
                epoll.forget(fd);
            }
        }
        self.descriptors.remove(&fd)
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = (c_int, &Socket)> {
        self.descriptors.iter().filter_map(|(fd, d)| match d {
            Descriptor::Socket(socket) => Some((*fd, &**socket)),
            Descriptor::Epoll(_) => None,
        })
    }

    /// All sockets, mutably.
    pub(crate) fn sockets_mut(&mut self) -> impl Iterator<Item = &mut Socket> {
        self.descriptors.values_mut().filter_map(|d| match d {
            Descriptor::Socket(socket) => Some(&mut **socket),
            Descriptor::Epoll(_) => None,
        })
    }

    /// The socket of a descriptor.
    /// Errors: `EBADF` or `ENOTSOCK`.
    pub(crate) fn socket(&self, fd: c_int) -> Result<&Socket, c_int> {
        match self.descriptors.get(&fd) {
            Some(Descriptor::Socket(socket)) => Ok(socket),
            Some(Descriptor::Epoll(_)) => Err(ENOTSOCK),
            None => Err(EBADF),
        }
    }

    /// Like `socket`, mutably.
    /// Errors: `EBADF` or `ENOTSOCK`.
    pub(crate) fn socket_mut(&mut self, fd: c_int) -> Result<&mut Socket, c_int> {
        match self.descriptors.get_mut(&fd) {
            Some(Descriptor::Socket(socket)) => Ok(socket),
            Some(Descriptor::Epoll(_)) => Err(ENOTSOCK),
            None => Err(EBADF),
        }
    }

    /// The epoll set of a descriptor, mutably.
    /// Errors: `EBADF` or `EINVAL`.
    pub(crate) fn epoll_mut(&mut self, fd: c_int) -> Result<&mut Epoll, c_int> {
        match self.descriptors.get_mut(&fd) {
            Some(Descriptor::Epoll(epoll)) => Ok(epoll),
            Some(Descriptor::Socket(_)) => Err(libc::EINVAL),
            None => Err(EBADF),
        }
    }

    /// The state machine of a connection, while it exists.
    pub(crate) fn machine(&self, id: ConnId) -> Option<&firstflight_tcp::Connection> {
        self.stack.connection(id)
    }
}
