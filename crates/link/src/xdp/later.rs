//! The queues of a device that another process still uses.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::device::XdpDevice;
use super::{PortHolder, Xdp, XdpConfig, XdpError, XdpQueue, XdpStatus};
use crate::link::{ComesHere, Link};

/// How often the device is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// A queue of a device that another process may still use. Until that has ended, nothing comes by it, and what is sent is lost.
#[derive(Debug)]
pub struct LateQueue {
    state: State,
    mtu: usize,
}

#[derive(Debug)]
enum State {
    Waiting(oneshot::Receiver<io::Result<XdpQueue>>),
    Open(Box<Xdp>),
}

impl LateQueue {
    /// Takes the device as soon as it is free, with the ports of [`PortHolder::shared`] and [`XdpConfig::hand_over`]. A
    /// thread waits for that. It ends when it has succeeded, or when all queues are dropped.
    ///
    /// # Errors
    /// What [`Xdp::attach`] says about the device now, except that it is busy.
    pub fn attach(config: XdpConfig, holders: Vec<PortHolder>) -> Result<(Vec<Self>, XdpStatus), XdpError> {
        let device = XdpDevice::find(&config.device)?;
        let (senders, queues): (Vec<_>, Vec<_>) = (0..device.queues)
            .map(|_| {
                let (sender, receiver) = oneshot::channel();
                (sender, Self { state: State::Waiting(receiver), mtu: device.mtu })
            })
            .unzip();
        let status = XdpStatus::later();
        let clones =
            || -> io::Result<Vec<PortHolder>> { holders.iter().map(PortHolder::try_clone).collect() };
        let first = clones().map_err(XdpError::at("keep the sockets"))?;
        match Xdp::attach(&config, first) {
            Ok(taken) => give(taken, senders, &status),
            Err(XdpError::Busy { .. }) => {
                let status = status.clone();
                let waiting = move || wait(&config, &holders, senders, &status);
                let thread = thread::Builder::new().name("card".to_owned());
                thread.spawn(waiting).map_err(XdpError::at("wait for the device"))?;
            }
            Err(error) => return Err(error),
        }
        Ok((queues, status))
    }
}

type Sender = oneshot::Sender<io::Result<XdpQueue>>;

fn wait(config: &XdpConfig, holders: &[PortHolder], senders: Vec<Sender>, status: &XdpStatus) {
    while !senders.iter().any(Sender::is_closed) {
        let clones: io::Result<Vec<PortHolder>> = holders.iter().map(PortHolder::try_clone).collect();
        let taken = match clones {
            Ok(clones) => Xdp::attach(config, clones),
            Err(_) => {
                thread::sleep(PAUSE);
                continue;
            }
        };
        match taken {
            Ok(taken) => return give(taken, senders, status),
            Err(XdpError::Busy { .. } | XdpError::Down(_)) => thread::sleep(PAUSE),
            // One link says why; the others fail with it.
            Err(error) => {
                if let Some(sender) = senders.into_iter().next() {
                    let _ = sender.send(Err(io::Error::other(error)));
                }
                return;
            }
        }
    }
}

fn give(taken: Vec<XdpQueue>, senders: Vec<Sender>, status: &XdpStatus) {
    if let Some(queue) = taken.first() {
        status.becomes(&queue.status());
    }
    // A device that has another number of queues than before is given up: some links fail.
    for (queue, sender) in taken.into_iter().zip(senders) {
        let _ = sender.send(Ok(queue));
    }
}

impl Link for LateQueue {
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn learns_flows(&self) -> bool {
        false
    }

    fn comes_here(&self) -> Option<ComesHere> {
        None
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if let State::Waiting(receiver) = &mut self.state {
            let queue = ready!(Pin::new(receiver).poll(cx));
            let queue = queue.map_err(|_| io::Error::from(io::ErrorKind::NotConnected))??;
            let link = queue.open().map_err(io::Error::other)?;
            if link.mtu() != self.mtu {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            }
            self.state = State::Open(Box::new(link));
        }
        match &mut self.state {
            State::Open(link) => link.poll_recv(cx, buf),
            State::Waiting(_) => Poll::Pending,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(link) => link.poll_send(cx, packet),
            State::Waiting(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(link) => link.poll_flush(cx),
            State::Waiting(_) => Poll::Ready(Ok(())),
        }
    }
}
