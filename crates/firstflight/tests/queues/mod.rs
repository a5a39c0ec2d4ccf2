//! A path in virtual time whose ends have several queues, as a network card has.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses a part")]

use firstflight::link::{ComesHere, Link, MemoryLink};
use firstflight_link::path::FilterVerdict;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// Which queue a packet comes to.
pub type Deal = Box<dyn FnMut(&[u8]) -> usize + Send>;

/// One end of a path, dealt to several queues.
#[derive(Clone)]
pub struct Queues(Arc<Mutex<Hub>>);

struct Hub {
    link: MemoryLink,
    queues: Vec<Waiting>,
    deal: Deal,
    /// Packets that were sent from here, if they are kept.
    sent: Option<Vec<Vec<u8>>>,
    learns_flows: bool,
    /// By which queue a packet comes, if the links say that before.
    steer: Option<Steer>,
}

/// The number of the queue, from the addresses of a packet: source and destination.
pub type Steer = fn(SocketAddr, SocketAddr) -> usize;

#[derive(Default)]
struct Waiting {
    packets: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
    /// How often the queue broke. A link from before has failed.
    broken: u32,
    /// How many of the next links cannot be made.
    closed: u32,
    /// The runtime is not told of its packets.
    is_silent: bool,
}

/// A queue, as a link.
pub struct Queue {
    hub: Arc<Mutex<Hub>>,
    index: usize,
    age: u32,
    looks: bool,
}

/// Wakes the readers of all queues.
struct All(Weak<Mutex<Hub>>);

impl Wake for All {
    fn wake(self: Arc<Self>) {
        let Some(hub) = self.0.upgrade() else { return };
        let wakers: Vec<_> = lock(&hub).queues.iter().filter_map(|queue| queue.waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock().unwrap()
}

impl Queues {
    pub fn new(link: MemoryLink, count: usize, deal: Deal) -> Self {
        let queues = (0..count).map(|_| Waiting::default()).collect();
        Self(Arc::new(Mutex::new(Hub { link, queues, deal, sent: None, learns_flows: true, steer: None })))
    }

    /// Says of links made from now on whether they learn flows.
    pub fn learns_flows(self, learns: bool) -> Self {
        lock(&self.0).learns_flows = learns;
        self
    }

    /// A network card: links made from now on do not learn flows, but say which packets come by them. Its packets are TCP in IPv4.
    pub fn steered(self, steer: Steer) -> Self {
        let mut hub = lock(&self.0);
        (hub.learns_flows, hub.steer) = (false, Some(steer));
        hub.deal = Box::new(move |packet| {
            let tcp = usize::from(packet[0] & 15) * 4;
            let at = |ip: usize, port: usize| {
                let ip: [u8; 4] = packet[ip..ip + 4].try_into().unwrap();
                SocketAddr::from((ip, u16::from_be_bytes([packet[port], packet[port + 1]])))
            };
            steer(at(12, tcp), at(16, tcp + 2))
        });
        drop(hub);
        self
    }

    /// What makes the links of all queues.
    pub fn links(&self) -> Vec<impl FnMut() -> io::Result<Queue> + Send + use<>> {
        let count = lock(&self.0).queues.len();
        let make = |index: usize| {
            let hub = Arc::clone(&self.0);
            move || {
                let mut locked = lock(&hub);
                let queue = &mut locked.queues[index];
                if queue.closed > 0 {
                    queue.closed -= 1;
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                Ok(Queue { hub: Arc::clone(&hub), index, age: queue.broken, looks: false })
            }
        };
        (0..count).map(make).collect()
    }

    /// The link of a queue fails, with what waits in it. The next `closed` links cannot be made.
    pub fn tear(&self, index: usize, closed: u32) {
        let mut hub = lock(&self.0);
        let queue = &mut hub.queues[index];
        queue.broken += 1;
        queue.closed = closed;
        queue.packets.clear();
        let waker = queue.waker.clone();
        drop(hub);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The runtime learns no more of packets that come to this queue. A link that looks finds them.
    pub fn silence(&self, index: usize) {
        lock(&self.0).queues[index].is_silent = true;
    }

    /// Puts a packet into a queue, as if it had come.
    pub fn inject(&self, index: usize, packet: Vec<u8>) {
        let mut hub = lock(&self.0);
        hub.queues[index].packets.push_back(packet);
        let waker = hub.queues[index].waker.clone();
        drop(hub);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The path from here drops SYNs with data from now on.
    pub fn drop_first_flights(&self) {
        lock(&self.0).link.outgoing(|path| {
            path.set_filter(Box::new(|packet| match is_first_flight(packet) {
                true => FilterVerdict::Drop,
                false => FilterVerdict::Forward,
            }));
        });
    }

    /// From now on keeps what is sent from here. Returns what was kept.
    pub fn record(&self) -> Vec<Vec<u8>> {
        lock(&self.0).sent.replace(Vec::new()).unwrap_or_default()
    }
}

impl Link for Queue {
    fn mtu(&self) -> usize {
        1500
    }

    fn learns_flows(&self) -> bool {
        lock(&self.hub).learns_flows
    }

    fn comes_here(&self) -> Option<ComesHere> {
        let hub = lock(&self.hub);
        let (steer, count, index) = (hub.steer?, hub.queues.len(), self.index);
        Some(Arc::new(move |from, to| steer(from, to) % count == index))
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut hub = lock(&self.hub);
        let hub = &mut *hub;
        if hub.queues[self.index].broken != self.age {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        loop {
            let queue = &mut hub.queues[self.index];
            if (self.looks || !queue.is_silent)
                && let Some(packet) = queue.packets.pop_front()
            {
                buf[..packet.len()].copy_from_slice(&packet);
                return Poll::Ready(Ok(packet.len()));
            }
            hub.queues[self.index].waker = Some(cx.waker().clone());
            let all = Waker::from(Arc::new(All(Arc::downgrade(&self.hub))));
            let Poll::Ready(len) = hub.link.poll_recv(&mut Context::from_waker(&all), buf) else {
                self.looks = false;
                return Poll::Pending;
            };
            let packet = buf[..len?].to_vec();
            let to = (hub.deal)(&packet) % hub.queues.len();
            hub.queues[to].packets.push_back(packet);
            if let Some(waker) = hub.queues[to].waker.as_ref().filter(|_| !hub.queues[to].is_silent) {
                waker.wake_by_ref();
            }
        }
    }

    fn look(&mut self) {
        self.looks = true;
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let mut hub = lock(&self.hub);
        if hub.queues[self.index].broken != self.age {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if let Some(sent) = &mut hub.sent {
            sent.push(packet.to_vec());
        }
        hub.link.poll_send(cx, packet)
    }
}

/// A small generator of random numbers (splitmix64).
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }

    /// Deals packets at random. They overtake each other, also those of one flow.
    pub fn deal(mut self) -> Deal {
        Box::new(move |_| self.roll(usize::MAX))
    }

    /// Deals the packets of a TCP flow to one queue, as network cards do. They stay in order.
    pub fn deal_flows(self) -> Deal {
        Box::new(move |packet| {
            let tcp = usize::from(packet[0] & 15) * 4;
            let ports = [&packet[tcp..tcp + 2], &packet[tcp + 2..tcp + 4]];
            let number = ports.into_iter().flatten().fold(0, |number, byte| number << 8 | u64::from(*byte));
            Self(self.0 ^ number << 32).roll(usize::MAX)
        })
    }
}

/// Sets the source port of a TCP segment in IPv4, and its checksum.
pub fn from_port(packet: &[u8], port: u16) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let tcp = usize::from(packet[0] & 15) * 4;
    packet[tcp..tcp + 2].copy_from_slice(&port.to_be_bytes());
    packet[tcp + 16..tcp + 18].fill(0);
    let mut sum = 6 + (packet.len() - tcp) as u32;
    for half in packet[12..20].chunks(2).chain(packet[tcp..].chunks(2)) {
        sum += u32::from(half[0]) << 8 | half.get(1).map_or(0, |low| u32::from(*low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[tcp + 16..tcp + 18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// Whether a packet is a SYN with data, in IPv4.
pub fn is_first_flight(packet: &[u8]) -> bool {
    let tcp = usize::from(packet[0] & 15) * 4;
    let data = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
    packet[tcp + 13] & 0x12 == 2 && packet.len() > data
}
