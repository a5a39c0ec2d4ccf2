//! Unnamed network namespaces, and programs in them.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::process::Command;
use std::thread;

/// A network namespace without a name. It is deleted when this and the programs in it are gone.
#[derive(Debug)]
pub struct UnnamedNamespace(pub File);

impl UnnamedNamespace {
    /// Needs root.
    pub fn new() -> io::Result<Self> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        joined(made).map(Self)
    }

    /// Runs a closure on a thread in the namespace. Sockets and programs that it starts stay in the namespace.
    pub fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let file = self.0.try_clone()?;
        joined(thread::spawn(move || {
            setns(file, CloneFlags::CLONE_NEWNET)?;
            work()
        }))
    }
}

fn joined<T>(thread: thread::JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Runs `ip` of iproute2.
pub fn ip(arguments: &[&str]) -> io::Result<()> {
    let done = Command::new("ip").args(arguments).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("ip {}: {}", arguments.join(" "), said.trim())))
}
