//! Addresses of names: each name is looked up once at a time, and a resolver that does not answer stops nothing that is
//! known.

mod failure;
mod hosts;
mod name_table;

use failure::Failure;
use hosts::Hosts;
use name_table::{LookupAnswer, NameTable, Task};
use std::fmt;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Looks up names. It is for programs that connect to the same servers again and again, such as a proxy. Clones share what
/// is known.
///
/// ```no_run
/// # async fn find() -> std::io::Result<()> {
/// let lookups = firstflight::Lookups::system(std::time::Duration::from_secs(3600));
/// println!("{:?}", lookups.addresses("www.example.com", 443, firstflight::Lookups::PATIENCE).await?);
/// # Ok(())
/// # }
/// ```
///
/// - **One lookup for each name at a time.** All requests for the name wait for it.
/// - **Addresses are used for 5 seconds.** After that the next request has them looked up again. It waits for the answer as
///   long as its patience says, and then goes on with what was known. If the last lookup failed, or took longer than 250 ms,
///   it does not wait at all.
/// - **A lookup that fails keeps the last addresses**, as long as [`Lookups::new`] says (RFC 8767). A failure counts for one
///   second, and twice as long each time, up to 8 s; until then the name is not looked up again (RFC 9520).
/// - **Threads are bounded**: at most 64, of which names whose last lookup failed or was slow have at most 32. They
///   end when there is nothing to look up. While none is free, names in `/etc/hosts` are answered from there.
#[derive(Clone)]
pub struct Lookups(Arc<Shared>);

struct Shared {
    book: Mutex<NameTable>,
    source: Box<dyn Resolve>,
    /// A lookup has ended.
    ended: Notify,
}

/// Where addresses come from.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `name`, best one first; their ports do not count. It may block.
    ///
    /// # Errors
    /// When there is none, or no answer.
    fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>>;

    /// The addresses of `name` that are known without a question to anybody. It must not block. It is asked while no thread
    /// is free for [`Resolve::look_up`].
    fn at_hand(&self, name: &str) -> Vec<SocketAddr> {
        let _ = name;
        Vec::new()
    }
}

/// The system's resolver (`getaddrinfo`), which follows `nsswitch.conf` and sorts addresses (RFC 6724).
#[derive(Default)]
struct System {
    hosts: Hosts,
}

impl Resolve for System {
    fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let found = (name, 0).to_socket_addrs();
        // A lookup needs descriptors, and does not say that it had none.
        found.map(Iterator::collect).map_err(|error| shortage_of_files().unwrap_or(error))
    }

    fn at_hand(&self, name: &str) -> Vec<SocketAddr> {
        self.hosts.find(name, Instant::now())
    }
}

/// The error of a process without free descriptors.
fn shortage_of_files() -> Option<io::Error> {
    File::open("/dev/null").err().filter(|error| Failure::from(error).is_shortage())
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").finish_non_exhaustive()
    }
}

impl Lookups {
    /// Lookups by the system's resolver (`getaddrinfo`). `kept` is as for [`Lookups::new`].
    #[must_use]
    pub fn system(kept: Duration) -> Self {
        Self::new(System::default(), kept)
    }

    /// Lookups by `source`. Addresses are used for `kept` after they were found, if lookups fail or have no answer from then
    /// on.
    #[must_use]
    pub fn new(source: impl Resolve, kept: Duration) -> Self {
        let book = Mutex::new(NameTable::new(kept));
        Self(Arc::new(Shared { book, source: Box::new(source), ended: Notify::new() }))
    }

    /// The patience of most programs: 250 ms.
    pub const PATIENCE: Duration = name_table::PATIENCE;

    /// The addresses of `name`, best one first, with this port. If older addresses are known, the wait for newer ones is no
    /// longer than `patience`; otherwise it is as long as the lookup. Dropping the future leaves the lookup to others.
    ///
    /// # Errors
    /// When the name has no address, or its lookup fails and no addresses are known. A process without free descriptors,
    /// threads or memory gets `EMFILE`, `ENFILE` or `ENOMEM`.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub async fn addresses(&self, name: &str, port: u16, patience: Duration) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = self.find(name, patience).await?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        Ok(addresses)
    }

    async fn find(&self, name: &str, patience: Duration) -> io::Result<Vec<SocketAddr>> {
        let shared = &self.0;
        let mut waiting = None;
        loop {
            // It misses no end of a lookup from here on.
            let ended = shared.ended.notified();
            let now = Instant::now();
            let answer = shared.book().ask(name, patience, waiting.is_some(), now);
            shared.begin();
            let until = match answer {
                LookupAnswer::Found(addresses) => return Ok(addresses),
                LookupAnswer::Failed(why) => return Err(why.into()),
                LookupAnswer::Wait(until) => until,
            };
            waiting.get_or_insert_with(|| WaitingLookup { shared, name });
            if shared.book().is_queued(name) {
                let at_hand = shared.source.at_hand(name);
                if !at_hand.is_empty() {
                    return Ok(at_hand);
                }
            }
            match until {
                // When the time is over, what was known is used.
                Some(until) => _ = timeout(until.saturating_duration_since(now), ended).await,
                None => ended.await,
            }
        }
    }

    /// Forgets all addresses, because this host is on another network.
    pub fn forget(&self) {
        self.0.book().forget(Instant::now());
        // What was given up begins again.
        self.0.ended.notify_waiters();
    }
}

/// A request that waits for the lookup of a name.
struct WaitingLookup<'a> {
    shared: &'a Shared,
    name: &'a str,
}

impl Drop for WaitingLookup<'_> {
    fn drop(&mut self) {
        self.shared.book().leave(self.name);
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, NameTable> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the lookups for which there are threads.
    fn begin(self: &Arc<Self>) {
        loop {
            let Some(task) = self.book().begin(Instant::now()) else { return };
            let (shared, next) = (Arc::clone(self), task.clone());
            // Not one of tokio's threads: others need those, and a runtime waits at its end for what runs on them.
            let thread = thread::Builder::new().name("lookup".to_owned()).spawn(move || shared.work(next));
            if let Err(error) = thread {
                tracing::debug!(%error, "no thread for a lookup");
                self.end(&task, Err(io::ErrorKind::OutOfMemory.into()));
            }
        }
    }

    /// A thread: looks up this name, and others as long as some wait.
    fn work(&self, task: Task) {
        let mut next = Some(task);
        while let Some(task) = next {
            let looked_up = catch_unwind(AssertUnwindSafe(|| self.source.look_up(&task.name)));
            let result = match looked_up {
                Ok(Ok(found)) if found.is_empty() => {
                    Err(io::Error::new(io::ErrorKind::NotFound, "it has no address"))
                }
                Ok(result) => result,
                Err(_) => Err(io::Error::other("the lookup panicked")),
            };
            self.end(&task, result);
            next = self.book().begin(Instant::now());
        }
    }

    fn end(&self, task: &Task, result: io::Result<Vec<SocketAddr>>) {
        self.book().end(task, result.map_err(|error| Failure::from(&error)), Instant::now());
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
