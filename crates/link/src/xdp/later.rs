//! The queues of a device that another process still uses.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::attached::{ON_THEIR_WAY, attach, busy, check};
use super::device::{XdpDevice, has_program};
use super::holder::SharedBy;
use super::privileges::AttachPrivileges;
use super::{PortHolder, Xdp, XdpConfig, XdpError, XdpQueue, XdpStatus};
use crate::link::{ComesHere, Link};

/// How often the device is tried, and how often if it is refused for a reason that does not go by itself.
const PAUSE: Duration = Duration::from_millis(100);
const LONG_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// When the kernel is asked first whether it still has connections of the ports.
const ASK: Duration = Duration::from_secs(5);
/// How long handshakes with the kernel may last that began when it had the ports alone, with a repetition: the kernel keeps nothing of a SYN
/// cookie.
const HANDSHAKES: Duration = Duration::from_secs(3);

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

/// A device that is to be taken when everything else is ready.
#[derive(Debug)]
pub struct LateDevice {
    config: XdpConfig,
    holders: Vec<PortHolder>,
    queues: Vec<Sender>,
    mtu: usize,
}

impl LateQueue {
    /// Prepares to take a device with the ports of [`PortHolder::shared`] and [`XdpConfig::hand_over`]. It changes nothing: the process that
    /// uses the device now also has all connections that the kernel accepts.
    ///
    /// # Errors
    /// What can be known of those of [`Xdp::attach`].
    pub fn prepare(config: XdpConfig, holders: Vec<PortHolder>) -> Result<(Vec<Self>, LateDevice), XdpError> {
        let device = XdpDevice::find(&config.device)?;
        check(&config, &device, &holders)?;
        let (senders, queues): (Vec<_>, Vec<_>) = (0..device.queues)
            .map(|_| {
                let (sender, receiver) = oneshot::channel();
                (sender, Self { state: State::Waiting(receiver), mtu: device.mtu })
            })
            .unzip();
        Ok((queues, LateDevice { config, holders, queues: senders, mtu: device.mtu }))
    }
}

impl LateDevice {
    /// Accepts the kernel's connections of the ports from now on, and takes the device, or waits for it.
    ///
    /// A thread waits, and then calls `before`, before the first packet comes. It ends when it has succeeded, when all queues are
    /// dropped, or with [`XdpStatus::pass_new`]; then the device is not taken any more. If the device is refused meanwhile for
    /// another reason than that it is busy, [`XdpStatus::waits_because`] has it, and the thread goes on.
    /// [`give_up_privileges`](super::give_up_privileges) leaves this thread what it needs: `CAP_NET_ADMIN`, `CAP_NET_RAW`,
    /// `CAP_BPF` and `CAP_IPC_LOCK`, also if the process becomes another user.
    ///
    /// # Errors
    /// What [`Xdp::attach`] says about the device now, except that it is busy.
    pub fn begin(mut self, before: impl FnOnce() + Send + 'static) -> Result<XdpStatus, XdpError> {
        let chosen = self.holders.iter().try_for_each(|holder| holder.choose(SharedBy::Second));
        chosen.map_err(XdpError::at("accept in place of another process"))?;
        let (taken, used_by) = match self.attempt(ON_THEIR_WAY) {
            Ok(taken) => (Some(taken), String::new()),
            Err(XdpError::Busy { .. }) => (None, user_of(&self.config.device)),
            Err(error) => return Err(error),
        };
        // It was looked at with the privileges of the start, and later by nobody.
        self.config.bypass_firewall = true;
        let status = XdpStatus::later(used_by);
        let (begun, begins) = mpsc::sync_channel(1);
        let thread_status = status.clone();
        let body = move || {
            let privileges = AttachPrivileges::take();
            let _ = begun.send(());
            self.run(taken, privileges, &thread_status, before);
        };
        let thread = thread::Builder::new().name("card".to_owned());
        thread.spawn(body).map_err(XdpError::at("wait for the device"))?;
        // From now on `give_up_privileges` knows the thread. An error means that the thread has ended already.
        let _ = begins.recv();
        Ok(status)
    }

    fn run(
        self,
        taken: Option<Vec<XdpQueue>>,
        privileges: AttachPrivileges,
        status: &XdpStatus,
        before: impl FnOnce(),
    ) {
        let waited = taken.is_none();
        let taken = taken.or_else(|| self.wait(&privileges, status));
        drop(privileges);
        let Self { queues, holders, .. } = self;
        // The device has its own handles of them.
        drop(holders);
        let Some(taken) = taken else { return };
        if !taken.first().is_some_and(|queue| status.becomes(&queue.status())) {
            return;
        }
        if waited {
            before();
        }
        for (sender, queue) in queues.into_iter().zip(taken) {
            let _ = sender.send(Ok(queue));
        }
        let mut pause = ASK;
        loop {
            thread::sleep(pause);
            if status.attached().is_none_or(|attached| attached.has_settled()) {
                return;
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// `None` if the device is not wanted any more.
    fn wait(&self, privileges: &AttachPrivileges, status: &XdpStatus) -> Option<Vec<XdpQueue>> {
        // An attempt that fails late may have stopped the card for a moment.
        let mut long_pause = LONG_PAUSE;
        while !self.queues.iter().any(Sender::is_closed) {
            privileges.raise();
            let (because, pause) = match self.attempt(HANDSHAKES) {
                Ok(taken) => return Some(taken),
                Err(XdpError::Busy { .. } | XdpError::Down(_)) => (None, PAUSE),
                Err(error) => (Some(error.to_string()), long_pause),
            };
            long_pause = if because.is_some() { LONGEST_PAUSE.min(long_pause * 2) } else { LONG_PAUSE };
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if !status.waits(because.clone()) {
                    return None;
                }
                thread::sleep(PAUSE);
            }
        }
        None
    }

    /// Tries to take the device once. It does not wait for one that is busy, so that nothing keeps the ports when this process stops to wait.
    /// A device with a program on it is not looked at further: attaching locks memory, and the search for the user reads all of `/proc`.
    fn attempt(&self, on_their_way: Duration) -> Result<Vec<XdpQueue>, XdpError> {
        let device = XdpDevice::find(&self.config.device)?;
        check(&self.config, &device, &self.holders)?;
        if (device.queues as usize, device.mtu) != (self.queues.len(), self.mtu) {
            return Err(changed(device.name));
        }
        if has_program(device.index).map_err(XdpError::at("look at the device"))? {
            return Err(XdpError::Busy { device: device.name, by: "another process".to_owned() });
        }
        let clones: io::Result<Vec<PortHolder>> = self.holders.iter().map(PortHolder::try_clone).collect();
        let clones = clones.map_err(XdpError::at("keep the sockets"))?;
        let taken = attach(&self.config, clones, Duration::ZERO, on_their_way)?;
        // Nothing kept the device from changing meanwhile.
        if taken.len() == self.queues.len() { Ok(taken) } else { Err(changed(device.name)) }
    }
}

fn changed(device: String) -> XdpError {
    let why = "it has another number of queues, or another MTU, than when this process began to wait: start it again";
    XdpError::Unusable { device, why: why.to_owned() }
}

/// Who uses a device now, in words.
fn user_of(device: &str) -> String {
    match XdpDevice::find(device).map(|device| busy(&device)) {
        Ok(XdpError::Busy { by, .. }) => by,
        _ => "another process".to_owned(),
    }
}

type Sender = oneshot::Sender<io::Result<XdpQueue>>;

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
