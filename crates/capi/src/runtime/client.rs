//! Clients on the library's thread.

use super::options::{ff_start_options, parts, text, yes};
use super::pump::StreamKeeper;
use super::{CLOSE, MadeConnection, Runtime};
use crate::boundary::{Errno, Structure as _, WRONG, guarded};
use crate::client::ff_client;
use crate::log::{FF_LOG_ERROR, log};
use firstflight::credential::asap::PublicKey;
use firstflight::record::Published;
use firstflight::verifier::IssuerAddress;
use firstflight::{Authority, Client, ClientBuilder, ClientError, FirstFlight};
use std::ffi::c_int;
use std::io::{self, Read as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;

/// Bytes that a SYN in UDP has room for at the servers that a program names: with the headers less than any path takes.
const MSS: u16 = 1200;

/// Clients that a child process has freed. The thread is the parent's, and so are its connections, which dropping them here would
/// disturb.
static LEFT: Mutex<Vec<Arc<Started>>> = Mutex::new(Vec::new());

/// What a client on the thread is.
#[derive(Debug)]
pub(crate) struct Started {
    client: Client,
    runtime: Arc<Runtime>,
}

/// `ff_client_start`: see `firstflight.h`.
///
/// # Safety
/// `options` is null, or a structure as the header says; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_client_start(
    options: *const ff_start_options,
    out: *mut *mut ff_client,
) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(WRONG);
        }
        let builder = match options.is_null() {
            true => Client::builder(),
            // SAFETY: as the caller of this function promises.
            false => unsafe { builder(options) }?,
        };
        let runtime = Runtime::get()?;
        // The engine is made in a runtime.
        let built = runtime.run(async move { builder.build() })?;
        let client = built.map_err(|error| {
            log(FF_LOG_ERROR, || error.to_string());
            Errno(libc::EIO)
        })?;
        let started = Arc::new(Started { client, runtime });
        // SAFETY: as the caller of this function promises.
        unsafe { out.write(Box::into_raw(Box::new(ff_client::on_thread(started)))) };
        Ok(0)
    })
}

/// A client with these settings.
///
/// # Safety
/// `options` is a structure as the header says.
unsafe fn builder(options: *const ff_start_options) -> Result<ClientBuilder, Errno> {
    // SAFETY: as the caller of this function promises.
    let options = unsafe { ff_start_options::take(options) }?;
    let mut builder = Client::builder().off(yes(options.plain)?);
    builder = builder.servers_run_once(yes(options.servers_run_once)?);
    // SAFETY: as the caller of this function promises.
    let (memory, certificates) = unsafe { (text(options.memory)?, text(options.certificates)?) };
    // SAFETY: as the caller of this function promises.
    let (verifier, key) = unsafe { (text(options.verifier)?, text(options.verifier_key)?) };
    // SAFETY: as the caller of this function promises.
    let servers = unsafe { text(options.servers) }?;
    if let Some(path) = memory {
        builder = builder.cache(path);
    }
    let issuer = match (verifier, key) {
        (None, None) => None,
        (Some(at), Some(key)) => {
            let at: SocketAddr = at.parse().map_err(|_| WRONG)?;
            let key: PublicKey = key.parse().map_err(|_| WRONG)?;
            Some(IssuerAddress::new(at, key))
        }
        _ => return Err(WRONG),
    };
    if issuer.is_none() && (certificates.is_some() || servers.is_some()) {
        return Err(WRONG);
    }
    let Some(issuer) = issuer else { return Ok(builder) };
    for server in parts(servers) {
        let (server, port) = server.split_once('=').ok_or(WRONG)?;
        let port = port.parse().map_err(|_| WRONG)?;
        let published = Published::in_udp(port, MSS, &[issuer.id()]).ok_or(WRONG)?;
        builder = builder.record(server.parse().map_err(|_| WRONG)?, published);
    }
    if let Some(path) = certificates {
        builder = builder.certificate_file(path);
    }
    Ok(builder.verifier(issuer))
}

impl Started {
    /// Begins a connect. It is made at `addresses`, or where the name leads to.
    pub(crate) fn connect(
        started: &Arc<Self>,
        name: &str,
        addresses: Vec<SocketAddr>,
        data: &[u8],
        twice: bool,
    ) -> Result<Connect, Errno> {
        started.runtime.check()?;
        let server = match (name.parse::<Authority>(), addresses.first()) {
            (Ok(server), _) => server,
            // A host without a port, or none.
            (Err(_), Some(first)) => Authority::new(name, first.port()).unwrap_or_else(|_| (*first).into()),
            (Err(_), None) => return Err(Errno(libc::EADDRNOTAVAIL)),
        };
        let (end, other) = UnixStream::pair()?;
        let other = LibraryEnd(other);
        end.set_nonblocking(true)?;
        let result = Arc::new(Mutex::new(None));
        let (slot, kept, data) = (Arc::clone(&result), Arc::clone(started), data.to_vec());
        let sent = data.len();
        let task = started.runtime.handle.spawn(async move {
            let first = match twice {
                true => FirstFlight::safely_replayable(&data),
                false => FirstFlight::at_most_once(&data),
            };
            let connect = kept.client.connect(server, first);
            let connect = if addresses.is_empty() { connect } else { connect.at(addresses) };
            let made = match connect.await {
                Ok(stream) => MadeConnection::of(stream, || StreamKeeper::Client(Arc::clone(&kept)))
                    .map_err(ConnectFailed::System),
                Err(error) => Err(ConnectFailed::Connect(error)),
            };
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
            drop(other);
            // A connection in UDP may be the last one.
            Self::leave(kept).await;
        });
        let process = std::process::id();
        Ok(Connect { end, result, sent, over: false, task: task.abort_handle(), process })
    }

    pub(crate) fn network_changed(started: &Arc<Self>) -> Result<(), Errno> {
        started.runtime.check()?;
        let kept = Arc::clone(started);
        started.runtime.run(async move { kept.client.network_changed().await })
    }

    /// Gives it up. The last one writes the memory and closes connections in order.
    pub(super) async fn leave(started: Arc<Self>) {
        if let Some(Self { client, runtime }) = Arc::into_inner(started) {
            client.close().await;
            drop(runtime);
        }
    }

    /// The same from the program's thread.
    pub(crate) fn free(started: Arc<Self>) {
        if started.runtime.check().is_err() {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(started);
            return;
        }
        if let Some(Self { client, runtime }) = Arc::into_inner(started) {
            runtime.run_within(Some(CLOSE), async move { client.close().await });
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectFailed {
    Connect(ClientError),
    /// There is no descriptor for it.
    System(io::Error),
}

/// A connect on the thread.
#[derive(Debug)]
pub(crate) struct Connect {
    /// Readable when there is a result.
    end: UnixStream,
    result: Arc<Mutex<Option<Result<MadeConnection, ConnectFailed>>>>,
    /// Bytes of the data, all of which leave.
    pub sent: usize,
    over: bool,
    task: AbortHandle,
    /// The process that has the thread.
    process: u32,
}

/// The library's end of a pair. The program sees that it is closed, also if a child process has a copy of it.
#[derive(Debug)]
struct LibraryEnd(UnixStream);

impl Drop for LibraryEnd {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Connect {
    pub(crate) fn fd(&self) -> RawFd {
        self.end.as_raw_fd()
    }

    /// The result, once.
    pub(crate) fn step(&mut self) -> Option<Result<MadeConnection, ConnectFailed>> {
        if self.process != std::process::id() {
            // The result comes in the parent. This is a copy from before the fork.
            return Some(Err(ConnectFailed::System(io::Error::from_raw_os_error(libc::ECHILD))));
        }
        // The other end is closed behind the result.
        let closed = matches!((&self.end).read(&mut [0]), Ok(0));
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without a result the work on the thread had a fault.
        let fault = || Err(ConnectFailed::System(io::Error::from_raw_os_error(libc::ENOTRECOVERABLE)));
        let result = result.or_else(|| closed.then(fault));
        self.over |= result.is_some();
        result
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        if !self.over && self.process == std::process::id() {
            self.task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_result_is_told_while_a_child_process_has_the_descriptor() {
        let (end, other) = UnixStream::pair().unwrap();
        end.set_nonblocking(true).unwrap();
        // As a fork makes it.
        let copy = other.try_clone().unwrap();
        drop(LibraryEnd(other));
        assert_eq!((&end).read(&mut [0]).unwrap(), 0);
        drop(copy);
    }
}
