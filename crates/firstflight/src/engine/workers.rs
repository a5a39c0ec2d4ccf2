//! Threads on which the shards of endpoints run: each has a runtime of its own, and is pinned to a processor.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long a thread waits at its end for files that are being written.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// Numbers for [`Inner::id`].
static STARTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The workers that the thread belongs to, and its number among them.
    static HERE: Cell<Option<(u64, usize)>> = const { Cell::new(None) };
}

/// Runtimes on which the shards of endpoints run ([`Endpoint::sharded`](crate::Endpoint::sharded)): usually one thread for
/// each processor, pinned or not, with a runtime of its own. Clones are handles to the same threads. Several endpoints may share them.
///
/// The threads end when the last handle and the last engine on them are gone. Other tasks on them are dropped then.
#[derive(Clone)]
pub struct Workers(Arc<Inner>);

struct Inner {
    id: u64,
    runtimes: Vec<Handle>,
    /// Dropped, they end the threads.
    _running: Vec<oneshot::Sender<()>>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workers").field(&self.count()).finish()
    }
}

impl Workers {
    /// The most threads.
    pub const MOST: usize = firstflight_stack::ShardConfig::MOST;

    /// The number of processors that this process may use, at most [`Workers::MOST`].
    #[must_use]
    pub fn processors() -> usize {
        thread::available_parallelism().map_or(1, NonZeroUsize::get).min(Self::MOST)
    }

    /// Starts `count` threads. Where the system allows it, each is pinned to one of the processors that this process may
    /// use, in turn.
    ///
    /// ```
    /// # use firstflight::Workers;
    /// # fn main() -> std::io::Result<()> {
    /// let workers = Workers::start(Workers::processors())?;
    /// workers.spawn(0, async { println!("on the first of {} threads", workers_count()) });
    /// # fn workers_count() -> usize { Workers::processors() }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the system. [`io::ErrorKind::InvalidInput`] if `count` is 0 or more than [`Workers::MOST`].
    pub fn start(count: usize) -> io::Result<Self> {
        Self::start_on(count, &allowed_processors())
    }

    /// Like [`Workers::start`], but the system chooses the processor of each thread at each time. Use it where other programs
    /// need the same processors: a pinned thread waits for its own one, though another may be idle.
    ///
    /// # Errors
    /// As [`Workers::start`].
    pub fn start_unpinned(count: usize) -> io::Result<Self> {
        Self::start_on(count, &[])
    }

    /// Threads that are pinned to these processors in turn, or not, if there are none.
    fn start_on(count: usize, processors: &[usize]) -> io::Result<Self> {
        if count == 0 || count > Self::MOST {
            let message = format!("{count} threads: there may be 1 to {}", Self::MOST);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let id = STARTED.fetch_add(1, Ordering::Relaxed);
        let (mut runtimes, mut running) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for index in 0..count {
            let processor = index.checked_rem(processors.len()).and_then(|at| processors.get(at)).copied();
            let (stop, stopped) = oneshot::channel();
            let (started, start) = mpsc::channel();
            thread::Builder::new().name(format!("firstflight-{index}")).spawn(move || {
                HERE.set(Some((id, index)));
                pin(processor);
                run(&started, stopped);
            })?;
            let ended = || io::Error::other("a worker's thread ended");
            runtimes.push(start.recv().map_err(|_| ended())??);
            running.push(stop);
        }
        Ok(Self(Arc::new(Inner { id, runtimes, _running: running })))
    }

    /// Runtimes that exist already, for example the current one several times, in tests in virtual time. Nothing is
    /// pinned. `None` if there are none, or more than [`Workers::MOST`].
    #[must_use]
    pub fn on(runtimes: Vec<Handle>) -> Option<Self> {
        let id = STARTED.fetch_add(1, Ordering::Relaxed);
        let fits = !runtimes.is_empty() && runtimes.len() <= Self::MOST;
        fits.then(|| Self(Arc::new(Inner { id, runtimes, _running: Vec::new() })))
    }

    /// Number of runtimes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.runtimes.len()
    }

    /// The runtime with this number; the numbers repeat.
    #[must_use]
    pub fn runtime(&self, index: usize) -> Option<&Handle> {
        self.0.runtimes.get(index.checked_rem(self.count())?)
    }

    /// Runs `task` on the runtime with this number; the numbers repeat.
    pub fn spawn<F>(&self, index: usize, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime(index).cloned().unwrap_or_else(Handle::current).spawn(task)
    }

    /// The number of the thread that calls, if it is one of these.
    pub(crate) fn here(&self) -> Option<usize> {
        HERE.get().filter(|(id, _)| *id == self.0.id).map(|(_, index)| index)
    }
}

/// A worker: runs its tasks until nobody needs it.
fn run(started: &mpsc::Sender<io::Result<Handle>>, stopped: oneshot::Receiver<()>) {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            // If nobody waits for the start, `stopped` is over, too.
            let _ = started.send(Ok(runtime.handle().clone()));
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(LAST_WRITES);
        }
        Err(error) => {
            let _ = started.send(Err(error));
        }
    }
}

/// The numbers of the processors that this process may use.
#[cfg(target_os = "linux")]
fn allowed_processors() -> Vec<usize> {
    use nix::sched::{CpuSet, sched_getaffinity};
    let Ok(set) = sched_getaffinity(nix::unistd::Pid::from_raw(0)) else { return Vec::new() };
    (0..CpuSet::count()).filter(|processor| set.is_set(*processor).unwrap_or(false)).collect()
}

#[cfg(not(target_os = "linux"))]
fn allowed_processors() -> Vec<usize> {
    Vec::new()
}

/// Pins the calling thread. It is slower without, but works.
#[cfg(target_os = "linux")]
fn pin(processor: Option<usize>) {
    use nix::sched::{CpuSet, sched_setaffinity};
    let Some(processor) = processor else { return };
    let mut set = CpuSet::new();
    let pinned = set.set(processor).and_then(|()| sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    if let Err(error) = pinned {
        tracing::debug!(processor, %error, "a worker's thread is not pinned");
    }
}

#[cfg(not(target_os = "linux"))]
fn pin(_: Option<usize>) {}

#[cfg(test)]
mod tests;
