//! The queues of a device that another process still uses.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::attached::attach;
use super::device::XdpDevice;
use super::{PortHolder, Xdp, XdpConfig, XdpError, XdpQueue, XdpStatus};
use crate::link::{ComesHere, Link};

/// How often the device is tried, and how often if it is refused for a reason that does not go by itself.
const PAUSE: Duration = Duration::from_millis(100);
const LONG_PAUSE: Duration = Duration::from_secs(1);

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
    /// The end came first ([`XdpStatus::pass_new`]).
    Never,
}

impl LateQueue {
    /// Takes the device as soon as it is free, with the ports of [`PortHolder::shared`] and [`XdpConfig::hand_over`]. A
    /// thread waits for that. It ends when it has succeeded, when all queues are dropped, or with [`XdpStatus::pass_new`]; then the
    /// device is not taken any more. If the device is refused meanwhile for another reason than that it is busy,
    /// [`XdpStatus::waits_because`] has it, and the thread goes on.
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
        match attempt(&config, &holders) {
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

/// Without patience: whoever waits for the device tries again, and nothing is to keep the ports when it stops to wait.
fn attempt(config: &XdpConfig, holders: &[PortHolder]) -> Result<Vec<XdpQueue>, XdpError> {
    let clones: io::Result<Vec<PortHolder>> = holders.iter().map(PortHolder::try_clone).collect();
    attach(config, clones.map_err(XdpError::at("keep the sockets"))?, Duration::ZERO)
}

fn wait(config: &XdpConfig, holders: &[PortHolder], senders: Vec<Sender>, status: &XdpStatus) {
    while !senders.iter().any(Sender::is_closed) {
        let (because, pause) = match attempt(config, holders) {
            Ok(taken) => return give(taken, senders, status),
            Err(XdpError::Busy { .. } | XdpError::Down(_)) => (None, PAUSE),
            Err(error) => (Some(error.to_string()), LONG_PAUSE),
        };
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if !status.waits(because.clone()) {
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

fn give(taken: Vec<XdpQueue>, senders: Vec<Sender>, status: &XdpStatus) {
    if !taken.first().is_some_and(|queue| status.becomes(&queue.status())) {
        return;
    }
    // A device that has another number of queues than before is given up: some links fail.
    let mut taken = taken.into_iter();
    for sender in senders {
        let _ = sender.send(taken.next().ok_or_else(|| io::ErrorKind::NotConnected.into()));
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
            let Ok(queue) = ready!(Pin::new(receiver).poll(cx)) else {
                self.state = State::Never;
                return Poll::Pending;
            };
            let queue = queue?;
            let link = queue.open().map_err(io::Error::other)?;
            if link.mtu() != self.mtu {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            }
            self.state = State::Open(Box::new(link));
        }
        match &mut self.state {
            State::Open(link) => link.poll_recv(cx, buf),
            State::Waiting(_) | State::Never => Poll::Pending,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(link) => link.poll_send(cx, packet),
            State::Waiting(_) | State::Never => Poll::Ready(Ok(())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Open(link) => link.poll_flush(cx),
            State::Waiting(_) | State::Never => Poll::Ready(Ok(())),
        }
    }
}
