//! The task of a server, and the queue between it and the program.

use crate::boundary::Errno;
use crate::runtime::MadeConnection;
use crate::runtime::pump::{Engine, StreamKeeper};
use firstflight::credential::KeyRing;
use firstflight::trust::TrustFile;
use firstflight::{Server, Stream};
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Connections that wait for the program, or for their ACK. More wait in the listeners.
const MOST: usize = 1024;
/// How long a client's ACK may take.
const CONFIRMED: Duration = Duration::from_secs(30);
/// The pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(20);

/// What the program asks of the task.
#[derive(Debug)]
pub(super) enum Command {
    Reload(Option<Arc<KeyRing>>, oneshot::Sender<Result<(), String>>),
    Drain(oneshot::Sender<io::Result<()>>),
    End(oneshot::Sender<()>),
}

/// Connections for the program. Its descriptor is readable while there are some, and when none will come.
#[derive(Debug)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    readable: UnixStream,
}

#[derive(Debug)]
struct Inner {
    ready: VecDeque<(MadeConnection, OwnedSemaphorePermit)>,
    /// A byte in it makes the descriptor readable.
    other: UnixStream,
    over: bool,
}

impl Queue {
    pub(super) fn new() -> io::Result<Self> {
        let (readable, other) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok(Self { inner: Mutex::new(Inner { ready: VecDeque::new(), other, over: false }), readable })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.readable.as_raw_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, made: MadeConnection, place: OwnedSemaphorePermit) {
        let mut inner = self.lock();
        inner.ready.push_back((made, place));
        if inner.ready.len() == 1 && !inner.over {
            // There is room for one byte: the last one was read.
            let _ = inner.other.write(&[0]);
        }
    }

    /// None will come.
    fn end(&self) {
        let mut inner = self.lock();
        if !inner.over && inner.ready.is_empty() {
            let _ = inner.other.write(&[0]);
        }
        inner.over = true;
    }

    /// The next one for the program. `-EAGAIN` if there is none yet, `-ENOTCONN` if none will come.
    pub(super) fn take(&self) -> Result<MadeConnection, Errno> {
        let mut inner = self.lock();
        let Some((made, place)) = inner.ready.pop_front() else {
            return Err(Errno(if inner.over { libc::ENOTCONN } else { libc::EAGAIN }));
        };
        if inner.ready.is_empty() && !inner.over {
            let _ = (&self.readable).read(&mut [0]);
        }
        drop(inner);
        drop(place);
        Ok(made)
    }
}

/// Accepts until it is told to end.
pub(super) async fn serve(
    mut server: Server,
    mut trust: Option<TrustFile>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    queue: Arc<Queue>,
    engine: Arc<Engine>,
    once: bool,
) {
    let places = Arc::new(Semaphore::new(MOST));
    let (hold, held) = mpsc::channel(1);
    let mut delivery = Some((Delivery { queue, engine, once, hold }, held));
    loop {
        let accepted = async {
            // It is never closed.
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((server.accept().await?, place))
        };
        let command = tokio::select! {
            accepted = accepted, if delivery.is_some() => {
                match (accepted, &delivery) {
                    (Ok((stream, place)), Some((delivery, _))) => delivery.begin(stream, place),
                    _ => tokio::time::sleep(PAUSE).await,
                }
                continue;
            }
            command = commands.recv() => command,
        };
        match command {
            Some(Command::Reload(keys, reply)) => {
                let _ = reply.send(reload(&server, trust.as_mut(), keys.as_ref()).await);
            }
            Some(Command::Drain(reply)) => {
                let (waiting, drained) = server.drain();
                let all = drained.is_ok();
                // They have been accepted: they do not wait for places.
                places.add_permits(waiting.len());
                for stream in waiting {
                    if let (Some((delivery, _)), Ok(place)) =
                        (&delivery, Arc::clone(&places).try_acquire_owned())
                    {
                        delivery.begin(stream, place);
                    }
                }
                if let Some((delivery, held)) = delivery.take_if(|_| all) {
                    tokio::spawn(delivery.end(held));
                }
                let _ = reply.send(drained);
            }
            Some(Command::End(reply)) => {
                drop((server, delivery));
                let _ = reply.send(());
                return;
            }
            None => return,
        }
    }
}

/// How connections come to the program.
#[derive(Debug)]
struct Delivery {
    queue: Arc<Queue>,
    engine: Arc<Engine>,
    once: bool,
    /// Each connection on its way has one, too.
    hold: mpsc::Sender<()>,
}

impl Delivery {
    /// Puts a connection in the queue: at once, or when it is confirmed.
    fn begin(&self, stream: Stream, place: OwnedSemaphorePermit) {
        let (queue, engine, hold) = (Arc::clone(&self.queue), Arc::clone(&self.engine), self.hold.clone());
        let wait = self.once && stream.is_early();
        let deliver = move |stream: Stream| {
            // A connection that is over already has no address: nobody waits for it.
            if let Ok(made) = MadeConnection::of(stream, || StreamKeeper::Server(engine)) {
                queue.put(made, place);
            }
            drop(hold);
        };
        if !wait {
            deliver(stream);
            return;
        }
        tokio::spawn(async move {
            let confirmed = tokio::time::timeout(CONFIRMED, stream.handshake_confirmed()).await;
            if matches!(confirmed, Ok(Ok(()))) {
                deliver(stream);
            }
        });
    }

    /// Says that none will come, when all are in the queue.
    async fn end(self, mut held: mpsc::Receiver<()>) {
        let Self { queue, engine, hold, .. } = self;
        drop((engine, hold));
        // Nobody sends; it returns when the last sender is gone.
        let _ = held.recv().await;
        queue.end();
    }
}

/// Reads the file of the trusted verifiers again, and replaces the keys.
async fn reload(
    server: &Server,
    trust: Option<&mut TrustFile>,
    keys: Option<&Arc<KeyRing>>,
) -> Result<(), String> {
    if let Some(file) = trust {
        let path = file.path().display().to_string();
        let changed = file.reload().await.map_err(|error| format!("{path}: {error}"))?;
        for listener in server.trust().into_iter().filter(|_| changed) {
            let _ = listener.set(file.store());
        }
    }
    match keys.is_none_or(|keys| server.set_keys(keys)) {
        true => Ok(()),
        false => Err("the system does not take the keys".to_owned()),
    }
}
