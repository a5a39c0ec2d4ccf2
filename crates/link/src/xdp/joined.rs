//! All queues of a device as one link.

use std::io;
use std::task::{Context, Poll};

use super::{Xdp, XdpError, XdpQueue};
use crate::link::Link;

/// All queues of a device as one link, for one engine: it receives from every queue, and sends by the first.
#[derive(Debug)]
pub struct Joined {
    first: Xdp,
    rest: Vec<Xdp>,
    /// The queue that is asked first.
    turn: usize,
}

impl Joined {
    /// Opens the queues. Call it within the tokio runtime that shall use them, with its I/O driver enabled.
    ///
    /// # Errors
    /// [`XdpError::NoPorts`] without a queue, and those of [`XdpQueue::open`].
    pub fn open(queues: Vec<XdpQueue>) -> Result<Self, XdpError> {
        let mut links = queues.into_iter().map(XdpQueue::open);
        let first = links.next().ok_or(XdpError::NoPorts)??;
        Ok(Self { first, rest: links.collect::<Result<_, _>>()?, turn: 0 })
    }
}

impl Link for Joined {
    fn mtu(&self) -> usize {
        self.first.mtu()
    }

    fn learns_flows(&self) -> bool {
        false
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let count = 1 + self.rest.len();
        for n in 0..count {
            let queue = (self.turn + n) % count;
            let link = match queue {
                0 => &mut self.first,
                _ => match self.rest.get_mut(queue - 1) {
                    Some(link) => link,
                    None => continue,
                },
            };
            if let Poll::Ready(received) = link.poll_recv(cx, buf) {
                // No queue can keep another one from being asked.
                self.turn = (queue + 1) % count;
                return Poll::Ready(received);
            }
        }
        Poll::Pending
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        self.first.poll_send(cx, packet)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.first.poll_flush(cx)
    }
}
