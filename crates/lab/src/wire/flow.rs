//! Datagrams from one namespace to another that carry their sending time.

use super::WireError;
use crate::namespaces::{UnnamedNamespace, ip};
use nix::sys::prctl;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a packet, headers included.
pub const PACKET: usize = 200;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Receive buffer. The receiver reads every millisecond.
const RECEIVE_BUFFER: usize = 8 << 20;
/// The sender sleeps if it has to wait longer than this.
const SPIN: Duration = Duration::from_micros(200);

/// The device in each namespace, and the addresses of the network that they share.
pub const DEVICE: &str = "wire0";
const SENDER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const RECEIVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 9);

/// Brings the namespace's device up and gives it an address. Returns a socket on it.
fn socket(room: &UnnamedNamespace, address: SocketAddrV4) -> Result<UdpSocket, WireError> {
    let made = room.within(move || {
        let cidr = format!("{}/24", address.ip());
        ip(&["addr", "add", &cidr, "dev", DEVICE])?;
        // Only our packets are sent.
        ip(&["link", "set", DEVICE, "addrgenmode", "none", "up"])?;
        UdpSocket::bind(address)
    });
    made.map_err(WireError::system("prepare a network namespace"))
}

/// A packet that arrived. Times are nanoseconds of the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct WireArrival {
    /// The time just before it was sent.
    pub sent: u64,
    /// The time at which the receiver's kernel got it.
    pub received: u64,
}

/// The sockets of both ends.
pub struct Flow {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Flow {
    pub fn new(rooms: &[UnnamedNamespace; 2]) -> Result<Self, WireError> {
        let [a, b] = rooms;
        let (sender, receiver) = (socket(a, SocketAddrV4::new(SENDER, 0))?, socket(b, RECEIVER)?);
        let prepared = || -> io::Result<()> {
            sender.connect(RECEIVER)?;
            setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
            setsockopt(&receiver, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
            Ok(())
        };
        prepared().map_err(WireError::system("prepare sockets"))?;
        Ok(Self { sender, receiver })
    }

    /// Sends `count` packets, `interval` apart. Returns those that arrived within a while after the last one, in
    /// order.
    pub fn exchange(
        &self,
        count: u64,
        interval: Duration,
        delay: Duration,
    ) -> Result<Vec<WireArrival>, WireError> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| self.receive(&over));
            let sent = self.send(count, interval);
            thread::sleep(delay + Duration::from_millis(200));
            over.store(true, Ordering::Relaxed);
            let received = receiver.join().unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")));
            sent.map_err(WireError::system("send"))?;
            received.map_err(WireError::system("receive"))
        })
    }

    fn send(&self, count: u64, interval: Duration) -> io::Result<()> {
        prctl::set_timerslack(1)?;
        let mut packet = [0; PACKET - HEADERS];
        let start = Instant::now();
        for number in 0..count {
            let due = start + Duration::from_nanos(interval.as_nanos() as u64 * number);
            loop {
                let left = due.saturating_duration_since(Instant::now());
                if left > SPIN {
                    thread::sleep(left - SPIN / 2);
                } else if left.is_zero() {
                    break;
                }
            }
            let now: Duration = clock_gettime(ClockId::CLOCK_REALTIME)?.into();
            packet[..8].copy_from_slice(&(now.as_nanos() as u64).to_be_bytes());
            self.sender.send(&packet)?;
        }
        Ok(())
    }

    fn receive(&self, over: &AtomicBool) -> io::Result<Vec<WireArrival>> {
        let mut arrivals = Vec::new();
        loop {
            let last = over.load(Ordering::Relaxed);
            while let Some(arrival) = self.arrival()? {
                arrivals.push(arrival);
            }
            if last {
                return Ok(arrivals);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn arrival(&self) -> io::Result<Option<WireArrival>> {
        let mut data = [0; 8];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        let mut parts = [IoSliceMut::new(&mut data)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message =
            match recvmsg::<SockaddrIn>(self.receiver.as_raw_fd(), &mut parts, Some(&mut control), flags) {
                Ok(message) => message,
                Err(nix::Error::EAGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
        let received = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time).as_nanos() as u64),
            _ => None,
        });
        let received = received.ok_or_else(|| io::Error::other("a packet without the time it arrived"))?;
        Ok(Some(WireArrival { sent: u64::from_be_bytes(data), received }))
    }
}
