//! Layer B: a client that remembers servers and paths, in the program's own event loop.

mod blocking;
mod options;

pub use blocking::ff_connect;
pub use options::ff_client_options;

use crate::boundary::{Errno, Structure, WRONG, address, bytes, guarded};
use crate::descriptor::may_run_twice;
use crate::log::{FF_LOG_ERROR, FF_LOG_INFO, log};
use crate::outcome::ff_outcome;
use firstflight::credential::{NetworkId, Outcome, Reason};
use firstflight::kernel::{Connected, Connecting};
use firstflight::{Client, ConnectAnyError, FirstFlight};
use std::ffi::{CStr, c_char, c_int};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
#[cfg(feature = "runtime")]
use {
    crate::runtime::{Connect, ConnectFailed, MadeConnection, Started},
    firstflight::ClientError,
    std::sync::Arc,
};

/// The most descriptors that `ff_conn_poll` asks to wait for.
pub const FF_MOST_FDS: usize = 2;
/// Addresses of a list behind this one are not used.
pub const FF_MOST_ADDRESSES: usize = 64;

/// With `off` in this variable of the environment all connects are ordinary ones.
const SWITCH: &str = "FIRSTFLIGHT";

/// An id that no network has.
const NOWHERE: NetworkId = NetworkId([0xff; 16]);

/// `ff_client`: what is known of servers.
#[derive(Debug)]
pub struct ff_client {
    client: Client,
    #[cfg(feature = "runtime")]
    started: Option<Arc<Started>>,
}

#[cfg(feature = "runtime")]
impl ff_client {
    /// A client of layer C.
    pub(crate) fn on_thread(started: Arc<Started>) -> Self {
        Self { client: Client::new(), started: Some(started) }
    }
}

/// `ff_conn`: a connect.
#[derive(Debug)]
pub struct ff_conn {
    work: Work,
    name: String,
    state: State,
    told: ff_outcome,
}

/// Who makes a connect.
#[derive(Debug)]
enum Work {
    /// The calls of the program.
    Calls(Box<Connecting>),
    /// The library's thread.
    #[cfg(feature = "runtime")]
    Thread(Connect),
}

#[derive(Debug)]
enum State {
    Connecting,
    Connected { stream: TcpStream, sent: usize },
    Taken,
    Failed(Errno),
}

/// A network's id of 16 bytes; unknown if it is null.
///
/// # Safety
/// `id` is null or has 16 bytes.
unsafe fn network(id: *const u8) -> Result<NetworkId, Errno> {
    if id.is_null() {
        return Ok(NetworkId::UNKNOWN);
    }
    // SAFETY: as the caller of this function promises.
    let id = unsafe { bytes(id, 16) }?;
    Ok(NetworkId(id.try_into().map_err(|_| WRONG)?))
}

/// `ff_client_new`: see `firstflight.h`.
///
/// # Safety
/// `options` is null, or a structure as the header says; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_client_new(options: *const ff_client_options, out: *mut *mut ff_client) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(WRONG);
        }
        let (id, plain) = match options.is_null() {
            true => (NetworkId::UNKNOWN, 0),
            false => {
                // SAFETY: as the caller of this function promises.
                let options = unsafe { ff_client_options::take(options) }?;
                // SAFETY: as the caller of this function promises.
                let id = unsafe { network(options.network) }?;
                if options.reserved != 0 {
                    return Err(WRONG);
                }
                (id, options.plain)
            }
        };
        if !matches!(plain, 0 | 1) {
            return Err(WRONG);
        }
        let off = std::env::var_os(SWITCH).is_some_and(|value| value.eq_ignore_ascii_case("off"));
        let builder = Client::builder().kernel_only().network(id).fast_open(plain == 0 && !off);
        let client = Box::new(ff_client {
            // Without a file it does not fail.
            client: builder.build().map_err(|_| WRONG)?,
            #[cfg(feature = "runtime")]
            started: None,
        });
        // SAFETY: as the caller of this function promises.
        unsafe { out.write(Box::into_raw(client)) };
        Ok(0)
    })
}

/// `ff_client_free`: see `firstflight.h`.
///
/// # Safety
/// `client` is null, or of `ff_client_new` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_client_free(client: *mut ff_client) {
    if client.is_null() {
        return;
    }
    guarded(|| {
        // SAFETY: it came from a box, and the caller promises that it was not freed.
        let client = unsafe { Box::from_raw(client) };
        #[cfg(feature = "runtime")]
        if let Some(started) = client.started {
            Started::free(started);
        }
        #[cfg(not(feature = "runtime"))]
        drop(client);
        Ok(0)
    });
}

/// `ff_client_network_changed`: see `firstflight.h`.
///
/// # Safety
/// `client` is null, or of `ff_client_new` and not freed; `id` is null or has 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_client_network_changed(client: *const ff_client, id: *const u8) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let (client, id) = unsafe { (client.as_ref().ok_or(WRONG)?, network(id)?) };
        #[cfg(feature = "runtime")]
        if let Some(started) = &client.started {
            Started::network_changed(started)?;
            return Ok(0);
        }
        // One unknown network cannot be told from the next one, so what was learnt is forgotten.
        client.client.move_to(NOWHERE);
        client.client.move_to(id);
        Ok(0)
    })
}

/// `ff_network_id`: see `firstflight.h`.
///
/// # Safety
/// `out` is null or has 16 bytes that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_network_id(out: *mut u8) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(WRONG);
        }
        let NetworkId(id) = firstflight::network_id().ok_or(Errno(libc::ENOENT))?;
        // SAFETY: as the caller of this function promises; `id` is new, so that they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(id.as_ptr(), out, id.len()) };
        Ok(0)
    })
}

/// The addresses of a list, at most [`FF_MOST_ADDRESSES`]. Those of other families are left out.
///
/// # Safety
/// `list` is a list as `getaddrinfo` makes it, or null.
unsafe fn addresses(list: *const libc::addrinfo) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    let mut next = list;
    for _ in 0..FF_MOST_ADDRESSES {
        // SAFETY: null, or an entry of the caller's list.
        let Some(entry) = (unsafe { next.as_ref() }) else { break };
        // SAFETY: the entry's address has the length that it says, as in every such list.
        found.extend(unsafe { address(entry.ai_addr, entry.ai_addrlen) });
        next = entry.ai_next;
    }
    found
}

/// Begins a connect.
///
/// # Safety
/// As the header says of `ff_connect_start`.
unsafe fn start(
    client: *const ff_client,
    list: *const libc::addrinfo,
    name: *const c_char,
    (data, len): (*const u8, usize),
    safety: c_int,
) -> Result<ff_conn, Errno> {
    let twice = may_run_twice(safety)?;
    // SAFETY: as the caller of this function promises.
    let (client, data) = unsafe { (client.as_ref().ok_or(WRONG)?, bytes(data, len)?) };
    // SAFETY: as the caller of this function promises.
    let found = unsafe { addresses(list) };
    let name = match name.is_null() {
        true => String::new(),
        // SAFETY: the caller promises that it ends with a zero byte.
        false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
    };
    let told = ff_outcome::of(Outcome::Undecided, 0, None);
    #[cfg(feature = "runtime")]
    if let Some(started) = &client.started {
        let connect = Started::connect(started, &name, found, data, twice)?;
        return Ok(ff_conn { work: Work::Thread(connect), name, state: State::Connecting, told });
    }
    if found.is_empty() {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    let first = if twice { FirstFlight::safely_replayable(data) } else { FirstFlight::at_most_once(data) };
    let connecting = client.client.begin(&found, first);
    Ok(ff_conn { work: Work::Calls(Box::new(connecting)), name, state: State::Connecting, told })
}

impl ff_conn {
    /// True if it is connected, false if it goes on.
    fn step(&mut self) -> Result<bool, Errno> {
        match &self.state {
            State::Connecting => {}
            State::Connected { .. } | State::Taken => return Ok(true),
            State::Failed(error) => return Err(*error),
        }
        match &mut self.work {
            Work::Calls(connecting) => match connecting.step() {
                None => return Ok(false),
                Some(Ok(connected)) => self.connected(connected),
                Some(Err(error)) => return Err(self.failed(&error)),
            },
            #[cfg(feature = "runtime")]
            Work::Thread(connect) => match connect.step() {
                None => return Ok(false),
                Some(Ok(made)) => self.made(made),
                Some(Err(failed)) => return Err(self.not_made(&failed)),
            },
        }
        Ok(true)
    }

    fn connected(&mut self, connected: Connected) {
        let Connected { stream, remote, outcome, sent, .. } = connected;
        log(FF_LOG_INFO, || format!("{}connected to {remote}: {outcome}", self.prefix()));
        let info = firstflight_kernel::descriptor::info(&stream).ok();
        self.told = ff_outcome::of(outcome, 0, info.as_ref());
        self.state = State::Connected { stream, sent };
    }

    fn failed(&mut self, error: &ConnectAnyError) -> Errno {
        log(FF_LOG_ERROR, || format!("{}{error}", self.prefix()));
        let first = error.attempts.first();
        let number = first.map_or(libc::EADDRNOTAVAIL, |failed| {
            let kind = || Errno::from(std::io::Error::from(failed.error.kind())).0;
            failed.error.raw_os_error().unwrap_or_else(kind)
        });
        let unknown = Outcome::Handshake(Reason::Unknown);
        if error.attempts.iter().any(|failed| failed.outcome == unknown) {
            self.told = ff_outcome::of(unknown, 0, None);
        }
        self.state = State::Failed(Errno(number));
        Errno(number)
    }

    #[cfg(feature = "runtime")]
    fn made(&mut self, made: MadeConnection) {
        log(FF_LOG_INFO, || format!("{}connected to {}: {}", self.prefix(), made.remote, made.outcome));
        self.told = made.told();
        let sent = if let Work::Thread(connect) = &self.work { connect.sent } else { 0 };
        self.state = State::Connected { stream: made.stream, sent };
    }

    #[cfg(feature = "runtime")]
    fn not_made(&mut self, failed: &ConnectFailed) -> Errno {
        let number = match failed {
            ConnectFailed::Connect(ClientError::Connect { error, .. }) => return self.failed(error),
            ConnectFailed::Connect(error) => {
                log(FF_LOG_ERROR, || format!("{}{error}", self.prefix()));
                Errno(libc::EADDRNOTAVAIL)
            }
            ConnectFailed::System(error) => {
                log(FF_LOG_ERROR, || format!("{}{error}", self.prefix()));
                Errno(error.raw_os_error().unwrap_or(libc::EIO))
            }
        };
        self.state = State::Failed(number);
        number
    }

    fn prefix(&self) -> String {
        if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) }
    }

    /// If the caller gives up now, a server may have run the data.
    fn maybe_delivered(&self) -> bool {
        match &self.work {
            Work::Calls(connecting) => connecting.maybe_delivered(),
            #[cfg(feature = "runtime")]
            Work::Thread(connect) => connect.sent > 0,
        }
    }

    /// Until when to wait at most, in ms, rounded up; -1 for ever.
    fn timeout_ms(&self) -> c_int {
        match (&self.state, &self.work) {
            (State::Connecting, Work::Calls(connecting)) => connecting.timeout().map_or(-1, |time| {
                c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
            }),
            #[cfg(feature = "runtime")]
            (State::Connecting, Work::Thread(_)) => -1,
            _ => 0,
        }
    }

    fn wanted(&self) -> impl Iterator<Item = libc::pollfd> {
        let (calls, thread) = match &self.work {
            _ if !matches!(self.state, State::Connecting) => (None, None),
            Work::Calls(connecting) => (Some(connecting), None),
            #[cfg(feature = "runtime")]
            Work::Thread(connect) => (None, Some((connect.fd(), libc::POLLIN))),
        };
        let sockets = calls.into_iter().flat_map(|connecting| connecting.sockets());
        let sockets = sockets.map(|socket| (socket.as_raw_fd(), libc::POLLOUT)).take(FF_MOST_FDS);
        sockets.chain(thread).map(|(fd, events)| libc::pollfd { fd, events, revents: 0 })
    }

    fn take(&mut self) -> Result<(TcpStream, usize), Errno> {
        match &self.state {
            State::Connecting => return Err(Errno(libc::EBUSY)),
            State::Taken => return Err(Errno(libc::EALREADY)),
            State::Failed(error) => return Err(*error),
            State::Connected { .. } => {}
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Connected { stream, sent } => Ok((stream, sent)),
            _ => Err(Errno(libc::EALREADY)),
        }
    }
}

/// `ff_connect_start`: see `firstflight.h`.
///
/// # Safety
/// `client` is of `ff_client_new` and not freed; `list` is a list as of `getaddrinfo`; `name` is null or ends with a zero byte;
/// `data` has `len` bytes; `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_connect_start(
    client: *const ff_client,
    list: *const libc::addrinfo,
    name: *const c_char,
    data: *const u8,
    len: usize,
    safety: c_int,
    out: *mut *mut ff_conn,
) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(WRONG);
        }
        // SAFETY: as the caller of this function promises.
        let conn = unsafe { start(client, list, name, (data, len), safety) }?;
        // SAFETY: as the caller of this function promises.
        unsafe { out.write(Box::into_raw(Box::new(conn))) };
        Ok(0)
    })
}

/// `ff_conn_poll`: see `firstflight.h`.
///
/// # Safety
/// `conn` is of `ff_connect_start` and not freed; `fds` has `*count` entries that can be written; `count` and `timeout_ms` can
/// be written. Nobody else uses `conn` meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_conn_poll(
    conn: *const ff_conn,
    fds: *mut libc::pollfd,
    count: *mut usize,
    timeout_ms: *mut c_int,
) -> c_int {
    guarded(|| {
        if fds.is_null() || count.is_null() || timeout_ms.is_null() {
            return Err(WRONG);
        }
        // SAFETY: as the caller of this function promises.
        let (conn, room) = unsafe { (conn.as_ref().ok_or(WRONG)?, count.read()) };
        if room < FF_MOST_FDS {
            return Err(WRONG);
        }
        let mut used = 0;
        for wanted in conn.wanted() {
            // SAFETY: `used` is less than FF_MOST_FDS, and the caller promises that there are as many entries.
            unsafe { fds.add(used).write(wanted) };
            used += 1;
        }
        // SAFETY: as the caller of this function promises.
        unsafe {
            count.write(used);
            timeout_ms.write(conn.timeout_ms());
        }
        Ok(0)
    })
}

/// `ff_conn_step`: see `firstflight.h`.
///
/// # Safety
/// `conn` is of `ff_connect_start` and not freed. Nobody else uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_conn_step(conn: *mut ff_conn) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let conn = unsafe { conn.as_mut() }.ok_or(WRONG)?;
        conn.step().map(c_int::from)
    })
}

/// `ff_conn_take_fd`: see `firstflight.h`.
///
/// # Safety
/// `conn` is of `ff_connect_start` and not freed; `sent` can be written. Nobody else uses `conn` meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_conn_take_fd(conn: *mut ff_conn, sent: *mut usize) -> c_int {
    guarded(|| {
        if sent.is_null() {
            return Err(WRONG);
        }
        // SAFETY: as the caller of this function promises.
        let conn = unsafe { conn.as_mut() }.ok_or(WRONG)?;
        let (stream, taken) = conn.take()?;
        // SAFETY: as the caller of this function promises.
        unsafe { sent.write(taken) };
        Ok(stream.into_raw_fd())
    })
}

/// `ff_conn_outcome`: see `firstflight.h`.
///
/// # Safety
/// `conn` is of `ff_connect_start` and not freed; `out` is null, or a structure as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_conn_outcome(conn: *const ff_conn, out: *mut ff_outcome) -> c_int {
    guarded(|| {
        // SAFETY: as the caller of this function promises.
        let conn = unsafe { conn.as_ref() }.ok_or(WRONG)?;
        // SAFETY: as the caller of this function promises.
        unsafe { conn.told.give(out) }?;
        Ok(conn.told.accepted)
    })
}

/// `ff_conn_free`: see `firstflight.h`.
///
/// # Safety
/// `conn` is null, or of `ff_connect_start` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_conn_free(conn: *mut ff_conn) {
    if conn.is_null() {
        return;
    }
    guarded(|| {
        // SAFETY: it came from a box, and the caller promises that it was not freed.
        drop(unsafe { Box::from_raw(conn) });
        Ok(0)
    });
}
