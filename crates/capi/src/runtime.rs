//! Layer C: the library's own thread, on which clients of [`ff_client_start`] and servers live.

mod client;
mod made;
mod options;
mod pump;
mod server;

pub use client::ff_client_start;
pub(crate) use client::{Connect, ConnectFailed, Started};
pub(crate) use made::MadeConnection;
pub use options::{ff_server_options, ff_start_options};
pub use server::{
    ff_server, ff_server_accept, ff_server_drain, ff_server_fd, ff_server_free, ff_server_new,
    ff_server_reload,
};

use crate::boundary::Errno;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long a function that frees waits for connections that close in order, and for files.
const CLOSE: Duration = Duration::from_secs(3);
/// How long the end of the thread waits for a name that is being looked up.
const LOOKUP: Duration = Duration::from_millis(100);

/// The thread. It ends with the last client, server and connection in UDP.
#[derive(Debug)]
pub(crate) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

static NOW: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());

impl Runtime {
    /// The thread of this process, which starts now if there is none.
    fn get() -> Result<Arc<Self>, Errno> {
        let mut now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
        // A child process has the memory of the thread, and not the thread.
        if let Some(runtime) = now.upgrade().filter(|runtime| runtime.is_here()) {
            return Ok(runtime);
        }
        let runtime = Arc::new(Self::start()?);
        *now = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    fn start() -> Result<Self, Errno> {
        let (stop, stopped) = oneshot::channel();
        let begun = Arc::new(ThreadAnswer::default());
        let report = Giver(Arc::clone(&begun));
        let signals = Signals::block();
        let thread = std::thread::Builder::new().name("firstflight".to_owned()).spawn(move || {
            let mut builder = Builder::new_current_thread();
            let runtime = match builder.enable_all().thread_name("firstflight-help").build() {
                Ok(runtime) => runtime,
                Err(error) => return report.give(Err(error)),
            };
            report.give(Ok(runtime.handle().clone()));
            // An error says that nobody needs the thread any more.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(LOOKUP);
        })?;
        drop(signals);
        let handle = begun.wait(None).ok_or(Errno(libc::ENOTRECOVERABLE))??;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread), process: std::process::id() })
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// `-ECHILD` in a child process, which has no such thread.
    fn check(&self) -> Result<(), Errno> {
        if self.is_here() { Ok(()) } else { Err(Errno(libc::ECHILD)) }
    }

    /// Runs `work` on the thread, and waits for it, at most for `within`.
    fn run_within<T: Send + 'static>(
        &self,
        within: Option<Duration>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let done = Arc::new(ThreadAnswer::default());
        let giver = Giver(Arc::clone(&done));
        self.handle.spawn(async move { giver.give(work.await) });
        done.wait(within)
    }

    /// Runs what does not wait for others. `-ENOTRECOVERABLE` after a fault.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, Errno> {
        self.run_within(None, work).ok_or(Errno(libc::ENOTRECOVERABLE))
    }
}

/// What the thread answers. A channel would leave memory of its own to each thread of the program that waits.
#[derive(Debug)]
struct ThreadAnswer<T>(Mutex<Given<T>>, Condvar);

#[derive(Debug)]
enum Given<T> {
    NotYet,
    Answer(T),
    /// The thread has given up.
    Nothing,
}

/// Who answers. Without an answer, dropping it says so.
struct Giver<T>(Arc<ThreadAnswer<T>>);

impl<T> Default for ThreadAnswer<T> {
    fn default() -> Self {
        Self(Mutex::new(Given::NotYet), Condvar::new())
    }
}

impl<T> ThreadAnswer<T> {
    fn wait(&self, within: Option<Duration>) -> Option<T> {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |given: &mut Given<T>| matches!(given, Given::NotYet);
        given = match within {
            None => self.1.wait_while(given, open).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                self.1.wait_timeout_while(given, time, open).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        match std::mem::replace(&mut *given, Given::Nothing) {
            Given::Answer(answer) => Some(answer),
            _ => None,
        }
    }
}

impl<T> Giver<T> {
    fn give(self, answer: T) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Given::Answer(answer);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let mut given = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*given, Given::NotYet) {
            *given = Given::Nothing;
        }
        drop(given);
        self.0.1.notify_one();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        // The thread itself drops it if a connection was its last use.
        let here = Handle::try_current().is_ok_and(|current| current.id() == self.handle.id());
        if self.is_here() && !here {
            let _ = thread.join();
        }
    }
}

/// Blocks all signals of the calling thread while it exists. The library's thread inherits that: signal handlers of the program
/// never run there.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Self {
        let (mut all, mut before) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::zeroed());
        // SAFETY: `sigfillset` sets all of `all`. Both outlive the calls, and any bytes are a valid value of `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `self.0` is a set of signals that the system gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}
