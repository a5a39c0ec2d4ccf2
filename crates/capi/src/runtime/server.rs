//! Servers on the library's thread.

mod accepting;
mod settings;

use super::options::ff_server_options;
use super::pump::Engine;
use super::{CLOSE, MadeConnection, Runtime};
use crate::boundary::{Errno, Structure as _, WRONG, bytes, guarded};
use crate::log::{FF_LOG_ERROR, log};
use crate::outcome::ff_outcome;
use accepting::{Command, Queue, serve};
use firstflight::credential::{CookieKey, KeyRing, Scheme};
use socket2::SockAddr;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::IntoRawFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// `ff_server`: a server, and the connections that wait for the program.
#[derive(Debug)]
pub struct ff_server {
    runtime: Arc<Runtime>,
    queue: Arc<Queue>,
    commands: mpsc::UnboundedSender<Command>,
    engine: Arc<Engine>,
}

/// Servers that a child process has freed: the thread is the parent's.
static LEFT: Mutex<Vec<ff_server>> = Mutex::new(Vec::new());

/// Keys of cookies; `None` if there are none.
fn key_ring(keys: &[u8]) -> Result<Option<Arc<KeyRing>>, Errno> {
    let key = |bytes: &[u8]| bytes.try_into().map(CookieKey::from_bytes).map_err(|_| WRONG);
    let ring = match keys.split_at_checked(16) {
        None if keys.is_empty() => return Ok(None),
        None => return Err(WRONG),
        Some((first, [])) => KeyRing::new(Scheme::Linux, key(first)?),
        Some((first, backup)) => KeyRing::new(Scheme::Linux, key(first)?).with_backup(key(backup)?),
    };
    Ok(Some(Arc::new(ring)))
}

impl ff_server {
    /// Asks the task of the server, and waits for its answer.
    fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Errno> {
        self.runtime.check()?;
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).map_err(|_| Errno(libc::ENOTRECOVERABLE))?;
        self.runtime.run(answer)?.map_err(|_| Errno(libc::ENOTRECOVERABLE))
    }
}

/// `ff_server_new`: see `firstflight.h`.
///
/// # Safety
/// `options` is a structure as the header says; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_server_new(options: *const ff_server_options, out: *mut *mut ff_server) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(WRONG);
        }
        // SAFETY: as the caller of this function promises.
        let options = unsafe { ff_server_options::take(options) }?;
        // SAFETY: as the caller of this function promises.
        let settings = unsafe { settings::read(&options) }?;
        let runtime = Runtime::get()?;
        let once = settings.once;
        let (server, trust) = match runtime.run(settings.bind())? {
            Ok(bound) => bound,
            Err(error) => {
                log(FF_LOG_ERROR, || error.to_string());
                return Err(error.into());
            }
        };
        let engine = Arc::new(Engine { endpoint: server.endpoint().cloned(), runtime: Arc::clone(&runtime) });
        let queue = Arc::new(Queue::new()?);
        let (commands, heard) = mpsc::unbounded_channel();
        runtime.handle.spawn(serve(server, trust, heard, Arc::clone(&queue), Arc::clone(&engine), once));
        let server = Box::new(ff_server { runtime, queue, commands, engine });
        // SAFETY: as the caller of this function promises.
        unsafe { out.write(Box::into_raw(server)) };
        Ok(0)
    })
}

/// `ff_server_fd`: see `firstflight.h`.
///
/// # Safety
/// `server` is null, or of `ff_server_new` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_server_fd(server: *const ff_server) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        Ok(unsafe { server.as_ref() }.ok_or(WRONG)?.queue.fd())
    })
}

/// `ff_server_accept`: see `firstflight.h`.
///
/// # Safety
/// `server` is null, or of `ff_server_new` and not freed; `outcome` is null, or a structure as the header says; `from` is null, or
/// has `*from_len` bytes that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_server_accept(
    server: *const ff_server,
    outcome: *mut ff_outcome,
    from: *mut libc::sockaddr,
    from_len: *mut libc::socklen_t,
) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let server = unsafe { server.as_ref() }.ok_or(WRONG)?;
        server.runtime.check()?;
        if from.is_null() != from_len.is_null() {
            return Err(WRONG);
        }
        if !outcome.is_null() {
            // SAFETY: as the caller of this function promises.
            unsafe { ff_outcome::check(outcome) }?;
        }
        let made = server.queue.take()?;
        if !outcome.is_null() {
            // SAFETY: as the caller of this function promises.
            unsafe { made.told().give(outcome) }?;
        }
        if !from.is_null() {
            // SAFETY: as the caller of this function promises.
            unsafe { give(made.remote, from, from_len) };
        }
        let MadeConnection { stream, .. } = made;
        Ok(stream.into_raw_fd())
    })
}

/// Gives an address as `accept` does: as much of it as there is room for.
///
/// # Safety
/// `to` has `*len` bytes that can be written.
unsafe fn give(address: SocketAddr, to: *mut libc::sockaddr, len: *mut libc::socklen_t) {
    let address = SockAddr::from(address);
    // SAFETY: as the caller of this function promises; `address` has its length, and is new, so that they do not overlap.
    unsafe {
        let room = len.read().min(address.len());
        std::ptr::copy_nonoverlapping(address.as_ptr().cast::<u8>(), to.cast(), room as usize);
        len.write(address.len());
    }
}

/// `ff_server_reload`: see `firstflight.h`.
///
/// # Safety
/// `server` is null, or of `ff_server_new` and not freed; `keys` has `keys_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_server_reload(
    server: *const ff_server,
    keys: *const u8,
    keys_len: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let (server, keys) = unsafe { (server.as_ref().ok_or(WRONG)?, bytes(keys, keys_len)?) };
        let keys = key_ring(keys)?;
        match server.ask(|reply| Command::Reload(keys, reply))? {
            Ok(()) => Ok(0),
            Err(why) => {
                log(FF_LOG_ERROR, || why);
                Err(WRONG)
            }
        }
    })
}

/// `ff_server_drain`: see `firstflight.h`.
///
/// # Safety
/// `server` is null, or of `ff_server_new` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_server_drain(server: *const ff_server) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let server = unsafe { server.as_ref() }.ok_or(WRONG)?;
        server.ask(Command::Drain)?.map_err(Errno::from)?;
        Ok(0)
    })
}

/// `ff_server_free`: see `firstflight.h`.
///
/// # Safety
/// `server` is null, or of `ff_server_new` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_server_free(server: *mut ff_server) {
    if server.is_null() {
        return;
    }
    guarded(|| {
        // SAFETY: it came from a box, and the caller promises that it was not freed.
        let server = unsafe { Box::from_raw(server) };
        if server.runtime.check().is_err() {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(*server);
            return Ok(0);
        }
        let _ended = server.ask(Command::End);
        let ff_server { runtime, engine, queue, .. } = *server;
        drop(queue);
        runtime.run_within(Some(CLOSE), Engine::leave(engine));
        Ok(0)
    });
}
