//! Giving up what only the start needs: the capabilities of all threads (`capabilities(7)`).
//!
//! The kernel has capabilities for each thread, and a thread can change only its own. So each one gets a signal, whose handler does it, as
//! the C library does for `setuid(2)`.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::XdpError;

/// `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`: files that are read or written later, if the process is root's.
const FILES: u64 = 1 << 1 | 1 << 2;
/// `CAP_NET_BIND_SERVICE`: ports below 1024 that are bound later.
const PORTS: u64 = 1 << 10;
/// `CAP_NET_ADMIN`: the kernel resolves a next hop when it is asked to.
const NETWORK: u64 = 1 << 12;
/// What stays of what a process has.
const KEPT: u64 = FILES | PORTS | NETWORK;
/// What attaching needs: also `CAP_NET_RAW`, `CAP_IPC_LOCK` and `CAP_BPF`.
const ATTACH: u64 = NETWORK | 1 << 13 | 1 << 14 | 1 << 39;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;
/// There may be this many capabilities.
const MOST: libc::c_ulong = 64;
/// How long threads get, and the pause between two looks at them.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// One caller at a time.
static TURN: Mutex<()> = Mutex::new(());
/// Threads that wait to attach a card, and keep what that needs; 0 is none. A handler can read them. A thread that finds no place waits in
/// vain if the process gives up its privileges.
static ATTACHING: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];
/// What the handler keeps.
static KEEP: AtomicU64 = AtomicU64::new(u64::MAX);

/// Gives up all capabilities of this process that a card needs at its start only, in all threads, for good. Call it when all devices are
/// attached, or waited for ([`LateDevice`](super::LateDevice)), and the process is the user that it is to be: no other card can be attached
/// later.
///
/// Of what the process has, it keeps `CAP_NET_ADMIN`, by which a card lets the kernel resolve next hops, `CAP_NET_BIND_SERVICE`,
/// `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`. A card does without them, too: then it sends a next hop that the kernel does not know an
/// empty datagram to port 9 (discard).
///
/// # Errors
/// [`XdpError::System`], with [`io::ErrorKind::TimedOut`] if a thread blocks all signals.
pub fn give_up_privileges() -> Result<(), XdpError> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    keep_in_all_threads(KEPT).map_err(|source| XdpError::System { step: "give up privileges", source })
}

fn keep_in_all_threads(keep: u64) -> io::Result<()> {
    reduce(keep)?;
    KEEP.store(keep, Ordering::SeqCst);
    let signal = signal()?;
    let begin = Instant::now();
    let mut signalled = HashSet::new();
    // A thread that began while the list was read inherited from one that may have had more: two lists in a row have to be right.
    let mut right = 0;
    while right < 2 {
        let left = threads_with_more(keep)?;
        if left.is_empty() {
            right += 1;
            continue;
        }
        if begin.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        right = 0;
        for thread in left {
            // One is enough: the kernel keeps it until the thread runs.
            if signalled.insert(thread) {
                send(signal, thread);
            }
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// The threads of this process that may do more than `keep`, or may get more by running a program.
fn threads_with_more(keep: u64) -> io::Result<Vec<libc::pid_t>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let status = match std::fs::read_to_string(entry.path().join("status")) {
            Ok(status) => status,
            Err(error) if has_ended(&error) => continue,
            Err(error) => return Err(error),
        };
        let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let keep = if thread.is_some_and(is_attaching) { ATTACH } else { keep };
        let may_get_more = status.lines().any(|line| line == "NoNewPrivs:\t0");
        if may_get_more || status.lines().filter_map(permitted).any(|has| has & !keep != 0) {
            found.push(thread.ok_or(io::ErrorKind::InvalidData)?);
        }
    }
    Ok(found)
}

fn is_attaching(thread: libc::pid_t) -> bool {
    ATTACHING.iter().any(|place| place.load(Ordering::SeqCst) == thread)
}

fn exchange(from: libc::pid_t, to: libc::pid_t) {
    let exchange =
        |place: &AtomicI32| place.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    let _ = ATTACHING.iter().any(exchange);
}

/// What the calling thread keeps to attach a card when the process becomes another user, or gives up its privileges. When this is dropped, by
/// the same thread, nothing of that is left to a process that has done so.
pub(super) struct AttachPrivileges {
    thread: libc::pid_t,
    was_root: bool,
    /// They belong to the thread.
    _here: PhantomData<*const ()>,
}

impl AttachPrivileges {
    pub(super) fn take() -> Self {
        let thread = nix::unistd::gettid().as_raw();
        exchange(0, thread);
        // SAFETY: no pointer is passed.
        unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) };
        Self { thread, was_root: is_root(), _here: PhantomData }
    }

    /// Makes them effective, which they are not when the process has become another user, and gives up the others then. Not before: the C
    /// library ends a process that becomes another user if one of its threads may not. An error shows when the card is attached.
    pub(super) fn raise(&self) {
        if self.is_other_user() {
            let _ = reduce(ATTACH);
        }
        let effective = || change(|part, number| part.effective |= part.permitted & half(ATTACH, number));
        // The handler may have changed them in between.
        let _ = effective().or_else(|_| effective());
    }

    fn is_other_user(&self) -> bool {
        self.was_root && !is_root()
    }
}

impl Drop for AttachPrivileges {
    fn drop(&mut self) {
        // From here on it is a thread as the others, if the process has not become another user yet.
        // SAFETY: no pointer is passed.
        unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0, 0) };
        exchange(self.thread, 0);
        if has_given_up() || self.is_other_user() {
            let _ = reduce(0);
        }
    }
}

fn is_root() -> bool {
    // SAFETY: no pointer is passed.
    unsafe { libc::geteuid() == 0 }
}

fn has_given_up() -> bool {
    KEEP.load(Ordering::SeqCst) != u64::MAX
}

/// The 32 capabilities of this part of a set.
const fn half(set: u64, part: usize) -> u32 {
    (set >> (32 * part)) as u32
}

/// Whether a thread's file cannot be read because the thread has ended. Any other error, as for want of descriptors, leaves it unknown
/// what the thread may do.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The set in this line of proc_pid_status(5), if it is what the thread may do now, or inherits.
fn permitted(line: &str) -> Option<u64> {
    let (name, value) = line.split_once(':')?;
    let counts = ["CapInh", "CapPrm", "CapEff", "CapAmb"].contains(&name);
    counts.then(|| u64::from_str_radix(value.trim(), 16).ok()).flatten()
}

/// The signal that reduces the thread which gets it: the first one that nobody uses. It stays ours, because a thread may get it late, and
/// without a handler it would end the process.
fn signal() -> io::Result<libc::c_int> {
    static OURS: OnceLock<libc::c_int> = OnceLock::new();
    if let Some(signal) = OURS.get() {
        return Ok(*signal);
    }
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: integers and a pointer to a function, for which zero is a value.
        let (mut before, mut ours): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        ours.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        // Threads of Go have small stacks.
        ours.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: the kernel writes to `before`, which lives longer than the call.
        checked(unsafe { libc::sigaction(signal, std::ptr::null(), &mut before) })?;
        if before.sa_sigaction == libc::SIG_DFL {
            // SAFETY: the handler makes system calls only, which may be done in a handler.
            checked(unsafe { libc::sigaction(signal, &ours, std::ptr::null_mut()) })?;
            return Ok(*OURS.get_or_init(|| signal));
        }
    }
    Err(Errno::EBUSY.into())
}

/// A thread that has ended meanwhile is none of the matter.
fn send(signal: libc::c_int, thread: libc::pid_t) {
    // SAFETY: no pointer is passed.
    unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            libc::c_long::from(libc::getpid()),
            libc::c_long::from(thread),
            libc::c_long::from(signal),
        )
    };
}

extern "C" fn on_signal(_: libc::c_int) {
    let before = Errno::last();
    // The list of threads says whether it worked.
    let waits = is_attaching(nix::unistd::gettid().as_raw());
    let _ = reduce(if waits { ATTACH } else { KEEP.load(Ordering::SeqCst) });
    before.set();
}

#[repr(C)]
struct Head {
    version: u32,
    thread: libc::c_int,
}

/// `struct __user_cap_data_struct`: 32 capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Part {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps these capabilities of those that the calling thread has, in all sets. Makes system calls only.
pub(super) fn reduce(keep: u64) -> io::Result<()> {
    for number in 0..MOST {
        if keep & 1 << number == 0 {
            // Without CAP_SETPCAP the bounding set stays, from which a program that root runs has its capabilities.
            // SAFETY: no pointer is passed.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        }
    }
    // SAFETY: no pointer is passed.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    change(|part, number| {
        let keep = half(keep, number);
        part.effective &= keep;
        part.permitted &= keep;
        // Ambient ones go with them: what another program gets.
        part.inheritable = 0;
    })
}

/// Changes the capabilities of the calling thread. Makes system calls only.
fn change(change: impl Fn(&mut Part, usize)) -> io::Result<()> {
    let mut head = Head { version: VERSION, thread: 0 };
    let mut parts = [Part::default(); 2];
    // SAFETY: the structures that the kernel reads and writes; two parts belong to this version.
    checked(unsafe { libc::syscall(libc::SYS_capget, &mut head, parts.as_mut_ptr()) as libc::c_int })?;
    parts.iter_mut().enumerate().for_each(|(number, part)| change(part, number));
    // SAFETY: as above; the kernel only reads.
    checked(unsafe { libc::syscall(libc::SYS_capset, &mut head, parts.as_ptr()) as libc::c_int })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
    use std::process::Command;
    use std::sync::mpsc;

    #[test]
    fn only_a_thread_that_has_ended_is_skipped() {
        let error = io::Error::from_raw_os_error;
        assert!(has_ended(&error(libc::ENOENT)) && has_ended(&error(libc::ESRCH)));
        assert!(!has_ended(&error(libc::EMFILE)) && !has_ended(&error(libc::EACCES)));
    }

    /// Names the child process of a test.
    const CHILD: &str = "FIRSTFLIGHT_GIVES_UP";

    /// A thread that blocks signals is an error. It gives up what it has when it takes them again, and nothing else happens.
    #[test]
    fn a_thread_may_get_the_signal_late() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: giving up privileges needs some");
            return;
        }
        if std::env::var_os(CHILD).is_none() {
            let name = "xdp::privileges::tests::a_thread_may_get_the_signal_late";
            let mut child = Command::new(std::env::current_exe().unwrap());
            let done = child.args(["--exact", name, "--nocapture"]).env(CHILD, "").output().unwrap();
            assert!(done.status.success(), "{done:?}");
            return;
        }
        let (go, wait) = mpsc::channel::<()>();
        let (is_blocked, blocked) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None).unwrap();
            let status = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
            is_blocked.send(()).unwrap();
            wait.recv().unwrap();
            let before = status().lines().filter_map(permitted).max();
            pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&SigSet::all()), None).unwrap();
            (before, status().lines().filter_map(permitted).max())
        });
        blocked.recv().unwrap();
        let result = give_up_privileges();
        assert!(
            matches!(&result, Err(XdpError::System { source, .. }) if source.kind() == io::ErrorKind::TimedOut),
            "{result:?}"
        );
        go.send(()).unwrap();
        let (before, after) = thread.join().unwrap();
        assert!(before > Some(KEPT) && after <= Some(KEPT), "{before:x?} {after:x?}");
        give_up_privileges().unwrap();
    }
}
