//! A link in memory without a delay: what one end sends, the other one receives in its next turn.

use firstflight_link::Link;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

const MTU: usize = 1500;
/// Packets in one direction. A sender waits when there is no room.
const PACKETS: usize = 1024;

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    waiting: VecDeque<(usize, Box<[u8; MTU]>)>,
    /// Buffers of packets that were received.
    free: Vec<Box<[u8; MTU]>>,
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

/// One end.
#[derive(Debug)]
pub struct Lane {
    out: Arc<Mutex<Direction>>,
    back: Arc<Mutex<Direction>>,
}

impl Lane {
    /// Both ends.
    pub fn pair() -> (Self, Self) {
        let [out, back] = [(); 2].map(|()| Arc::<Mutex<Direction>>::default());
        (Self { out: Arc::clone(&out), back: Arc::clone(&back) }, Self { out: back, back: out })
    }
}

fn lock(direction: &Mutex<Direction>) -> MutexGuard<'_, Direction> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the caller's waker, unless it is there already.
fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
}

impl Link for Lane {
    fn mtu(&self) -> usize {
        MTU
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut direction = lock(&self.back);
        let Some((len, packet)) = direction.waiting.pop_front() else {
            register(&mut direction.receiver, cx);
            return Poll::Pending;
        };
        let room = buf.get_mut(..len).ok_or(io::ErrorKind::InvalidInput)?;
        room.copy_from_slice(packet.get(..len).unwrap_or_default());
        direction.free.push(packet);
        if let Some(waker) = direction.sender.take() {
            waker.wake();
        }
        Poll::Ready(Ok(len))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let mut direction = lock(&self.out);
        if direction.waiting.len() >= PACKETS {
            register(&mut direction.sender, cx);
            return Poll::Pending;
        }
        let mut buffer = direction.free.pop().unwrap_or_else(|| Box::new([0; MTU]));
        let room = buffer.get_mut(..packet.len()).ok_or(io::ErrorKind::InvalidInput)?;
        room.copy_from_slice(packet);
        direction.waiting.push_back((packet.len(), buffer));
        if let Some(waker) = direction.receiver.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}
