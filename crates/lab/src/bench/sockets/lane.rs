//! A link in memory without a delay: what one end sends in a turn, the other one receives in its next turn.

use firstflight_link::Link;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

const MTU: usize = 1500;
/// Packets of one turn. A sender waits when there is no room.
const PACKETS: usize = 1024;

/// Packets one behind the other.
#[derive(Debug, Default)]
struct Packets {
    bytes: Vec<u8>,
    /// Where each one ends.
    ends: Vec<usize>,
    /// How many were taken.
    taken: usize,
}

impl Packets {
    fn push(&mut self, packet: &[u8]) {
        self.bytes.extend_from_slice(packet);
        self.ends.push(self.bytes.len());
    }

    fn take(&mut self) -> Option<&[u8]> {
        let end = *self.ends.get(self.taken)?;
        let start = self.taken.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.taken += 1;
        self.bytes.get(start..end)
    }

    fn append(&mut self, other: &mut Self) {
        let start = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.ends.extend(other.ends.drain(..).map(|end| start + end));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }
}

#[derive(Debug, Default)]
struct Direction {
    waiting: Packets,
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

/// One end.
#[derive(Debug)]
pub struct Lane {
    out: Arc<Mutex<Direction>>,
    back: Arc<Mutex<Direction>>,
    /// Packets that leave with the next flush, and packets that arrived.
    leaving: Packets,
    arrived: Packets,
}

impl Lane {
    /// Both ends.
    pub fn pair() -> (Self, Self) {
        let [here, there] = [(); 2].map(|()| Arc::<Mutex<Direction>>::default());
        let end = |out: &Arc<_>, back: &Arc<_>| Self {
            out: Arc::clone(out),
            back: Arc::clone(back),
            leaving: Packets::default(),
            arrived: Packets::default(),
        };
        (end(&here, &there), end(&there, &here))
    }
}

fn lock(direction: &Mutex<Direction>) -> MutexGuard<'_, Direction> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link for Lane {
    fn mtu(&self) -> usize {
        MTU
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.arrived.taken >= self.arrived.ends.len() {
            self.arrived.clear();
            let mut direction = lock(&self.back);
            std::mem::swap(&mut direction.waiting, &mut self.arrived);
            if self.arrived.ends.is_empty() {
                direction.receiver = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if let Some(waker) = direction.sender.take() {
                waker.wake();
            }
        }
        let packet = self.arrived.take().unwrap_or_default();
        let room = buf.get_mut(..packet.len()).ok_or(io::ErrorKind::InvalidInput)?;
        room.copy_from_slice(packet);
        Poll::Ready(Ok(packet.len()))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        if self.leaving.ends.len() >= PACKETS && self.poll_flush(cx)?.is_pending() {
            return Poll::Pending;
        }
        self.leaving.push(packet);
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.leaving.ends.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut direction = lock(&self.out);
        if direction.waiting.ends.len() >= PACKETS {
            direction.sender = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match direction.waiting.ends.is_empty() {
            true => std::mem::swap(&mut direction.waiting, &mut self.leaving),
            false => direction.waiting.append(&mut self.leaving),
        }
        if let Some(waker) = direction.receiver.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}
