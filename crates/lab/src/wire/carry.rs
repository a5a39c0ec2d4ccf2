//! The loop that carries packets, on the thread that calls it.
//!
//! [`Path`] decides about randomness and queues. This loop decides only when to look. The thread sleeps in
//! `ppoll(2)`, whose timeout is in nanoseconds, until shortly before the next packet is due, and then polls
//! repeatedly: the kernel takes longer to wake a thread up than to answer a poll.

use super::WireError;
use super::lateness::Lateness;
use super::report::{Direction, Figures};
use firstflight_link::TunDevice;
use firstflight_link::path::{Duplex, Path};
use firstflight_wire::Instant;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How long before a packet is due the thread is awake. It is longer than a virtual machine takes to wake a thread
/// up.
const AWAKE_BEFORE: Duration = Duration::from_micros(60);

/// Maximum number of packets in flight in one direction. Further packets are dropped, so that memory is bounded (100
/// MB of full-sized packets). This is one second of 65,000 packets per second.
const MOST_IN_FLIGHT: usize = 1 << 16;

/// Packets read from one device before the clock and the other device get their turn.
const BATCH: usize = 64;

/// The largest packet that IP permits.
const LARGEST: usize = 65_535;

/// Why a wire has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was stopped.
    Stopped,
    /// The device of this end, 0 or 1, is gone, probably because its namespace was deleted.
    Gone(usize),
}

/// What happened in one direction outside its path.
#[derive(Debug)]
struct Tally {
    /// Packets dropped because too many were in flight.
    overrun: u64,
    /// Packets that the kernel of the other end refused: its device is down, or flipped bits made them invalid IP
    /// packets.
    refused: u64,
    late: Lateness,
}

/// Two devices joined by paths. Direction 0 is from device 0 to device 1.
#[derive(Debug)]
pub struct Carrier {
    devices: [TunDevice; 2],
    paths: [Path; 2],
    tallies: [Tally; 2],
    epoch: std::time::Instant,
}

impl Carrier {
    pub fn new(devices: [TunDevice; 2], paths: Duplex) -> Result<Self, WireError> {
        // Without this, the kernel wakes the thread up to 50 µs late, so that it can wake several threads at once.
        prctl::set_timerslack(1).map_err(WireError::system("have exact timers"))?;
        let tally = || Tally { overrun: 0, refused: 0, late: Lateness::new() };
        let paths = [paths.a_to_b, paths.b_to_a];
        Ok(Self { devices, paths, tallies: [tally(), tally()], epoch: std::time::Instant::now() })
    }

    /// Carries packets until `stop` is readable or a device is gone.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<Ending, WireError> {
        let mut buffer = vec![0; LARGEST];
        loop {
            self.deliver();
            let ready = self.wait(stop).map_err(WireError::system("wait for packets"))?;
            if ready.stop {
                return Ok(Ending::Stopped);
            }
            for side in [0, 1] {
                if ready.gone[side] {
                    return Ok(Ending::Gone(side));
                }
                if ready.packet[side] {
                    self.take(side, &mut buffer).map_err(WireError::system("read packets"))?;
                }
            }
        }
    }

    /// The figures so far.
    pub fn figures(&self) -> Result<Figures, WireError> {
        let cpu =
            clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(WireError::system("tell CPU time"))?;
        let [a_to_b, b_to_a] = [0, 1].map(|side| {
            let Tally { overrun, refused, late } = &self.tallies[side];
            Direction {
                counters: self.paths[side].counters(),
                in_flight: self.paths[side].in_flight(),
                overrun: *overrun,
                refused: *refused,
                late: late.clone(),
            }
        });
        Ok(Figures { a_to_b, b_to_a, cpu: cpu.into(), wall: self.epoch.elapsed() })
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Delivers all packets that are due.
    fn deliver(&mut self) {
        for (side, other) in [(0, 1), (1, 0)] {
            while let Some(due) = self.paths[side].next_arrival() {
                let now = self.now();
                let Some(packet) = self.paths[side].poll_deliver(now) else {
                    break;
                };
                self.tallies[side].late.add(now.saturating_since(due));
                if self.devices[other].send(&packet).is_err() {
                    self.tallies[side].refused += 1;
                }
                self.paths[side].recycle(packet);
            }
        }
    }

    /// Sleeps until a packet arrives, or one is almost due.
    fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let next = match (self.paths[0].next_arrival(), self.paths[1].next_arrival()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let timeout = next.map(|due| {
            TimeSpec::from_duration(due.saturating_since(self.now()).saturating_sub(AWAKE_BEFORE))
        });
        let watched = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = [watched(self.devices[0].as_fd()), watched(self.devices[1].as_fd()), watched(stop)];
        match ppoll(&mut fds, timeout, None) {
            Ok(_) => (),
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let [a, b, stop] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        let gone = |events: PollFlags| {
            events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL)
        };
        Ok(Ready {
            packet: [a, b].map(|events| events.contains(PollFlags::POLLIN)),
            gone: [gone(a), gone(b)],
            stop: !stop.is_empty(),
        })
    }

    /// Takes the packets that arrived at device `side` and puts them on the path.
    fn take(&mut self, side: usize, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let length = match self.devices[side].recv(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // `wait` reports that the device is gone.
                Err(error) if error.raw_os_error() == Some(Errno::EBADFD as i32) => return Ok(()),
                Err(error) => return Err(error),
            };
            if self.paths[side].in_flight() >= MOST_IN_FLIGHT {
                self.tallies[side].overrun += 1;
                continue;
            }
            let now = self.now();
            if let Some(packet) = buffer.get(..length) {
                self.paths[side].send(now, packet);
            }
        }
        Ok(())
    }
}

/// What has to be done.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    packet: [bool; 2],
    gone: [bool; 2],
    stop: bool,
}
