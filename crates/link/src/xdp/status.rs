//! What a program asks about a device, and tells it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[cfg(doc)]
use super::XdpConfig;
use super::attached::Attached;
use super::program::Dropped;
use super::socket::SocketCounts;

/// What became of packets that did not reach the engine, or a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpCounters {
    /// Dropped by the program: IPv4 options.
    pub options: u64,
    /// Dropped by the program: a first fragment.
    pub fragments: u64,
    /// Dropped by the program: the source address is no host's, or is served here.
    pub sources: u64,
    /// Dropped by the program: the source address is not allowed.
    pub not_allowed: u64,
    /// Dropped by the program: the queue has no socket.
    pub no_socket: u64,
    /// Dropped by the program: a SYN, and many waited.
    pub flood: u64,
    /// Dropped by the link: longer than the MTU, or not whole.
    pub malformed: u64,
    /// Not sent: no route by the device, or the neighbour does not answer.
    pub unreachable: u64,
    /// Not sent: no room.
    pub no_room: u64,
    /// Dropped by the kernel: not received in time (`rx_ring_full`).
    pub receive_ring_full: u64,
    /// Dropped by the kernel: no free memory (`rx_fill_ring_empty_descs`).
    pub fill_ring_empty: u64,
    /// Dropped by the kernel for another reason (`rx_dropped`).
    pub kernel: u64,
}

impl XdpCounters {
    /// The counters with their names, as in metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("options", self.options),
            ("fragment", self.fragments),
            ("source", self.sources),
            ("not-allowed", self.not_allowed),
            ("no-socket", self.no_socket),
            ("syn-flood", self.flood),
            ("malformed", self.malformed),
            ("unreachable", self.unreachable),
            ("no-room", self.no_room),
            ("receive-ring-full", self.receive_ring_full),
            ("fill-ring-empty", self.fill_ring_empty),
            ("kernel", self.kernel),
        ]
    }
}

/// Reads the counters of a device. It does not keep the program on it.
#[derive(Clone)]
pub struct XdpStatus(Arc<Mutex<Taken>>);

/// Whether a device was taken.
enum Taken {
    /// Not yet; who used it at first, and why it was refused at the last attempt, if another reason than that it is busy.
    NotYet {
        used_by: String,
        because: Option<String>,
    },
    Yes(Weak<Attached>),
    /// It will not be: the end came first.
    Never,
}

impl XdpStatus {
    pub(super) fn of(attached: &Arc<Attached>) -> Self {
        Self(Arc::new(Mutex::new(Taken::Yes(Arc::downgrade(attached)))))
    }

    /// Of a device that is not used yet.
    pub(super) fn later(used_by: String) -> Self {
        Self(Arc::new(Mutex::new(Taken::NotYet { used_by, because: None })))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is the status of this device. False if that is not wanted any more.
    pub(super) fn becomes(&self, other: &Self) -> bool {
        let Some(attached) = other.attached() else { return false };
        let mut taken = self.taken();
        let wanted = matches!(*taken, Taken::NotYet { .. });
        if wanted {
            *taken = Taken::Yes(Arc::downgrade(&attached));
        }
        wanted
    }

    /// Notes why the device could not be taken now. False if it is not wanted any more.
    pub(super) fn waits(&self, because: Option<String>) -> bool {
        match &mut *self.taken() {
            Taken::NotYet { because: last, .. } => {
                *last = because;
                true
            }
            Taken::Yes(_) | Taken::Never => false,
        }
    }

    /// Why the device could not be taken at the last attempt, if it is waited for and another process's use is not the reason.
    #[must_use]
    pub fn waits_because(&self) -> Option<String> {
        match &*self.taken() {
            Taken::NotYet { because, .. } => because.clone(),
            Taken::Yes(_) | Taken::Never => None,
        }
    }

    /// Whether the device is used, and can be handed over ([`XdpConfig::hand_over`]).
    #[must_use]
    pub fn hands_over(&self) -> bool {
        self.attached().is_some_and(|attached| attached.hands_over())
    }

    /// Keeps these connections of the engine, its own end first, while the device is handed over: no forged SYN moves them to the other
    /// process. Call it before [`XdpStatus::pass_new`], and again before [`XdpStatus::pass_others`] for those that began meanwhile.
    ///
    /// # Errors
    /// The system's first one, for which a connection is not kept: if there are more than 262,144, and before Linux 5.19 if privileges were
    /// given up.
    pub fn keep(&self, four_tuples: &[(SocketAddr, SocketAddr)]) -> io::Result<()> {
        self.attached().map_or(Ok(()), |attached| attached.keep(four_tuples))
    }

    /// These connections of [`XdpStatus::keep`] are over: their clients may use the ports again, for connections to the other process.
    pub fn let_go(&self, four_tuples: &[(SocketAddr, SocketAddr)]) {
        self.attached().iter().for_each(|attached| attached.let_go(four_tuples));
    }

    /// All connections but those of [`XdpStatus::keep`] are the kernel's from now on. [`XdpStatus::pass_new`] comes first, and time for
    /// handshakes that the engine has begun without keeping state.
    pub fn pass_others(&self) {
        self.attached().iter().for_each(|attached| attached.pass_others());
    }

    /// New connections are the kernel's from now on, and go to the process that replaces this one. The others go on here. False if the ports
    /// are not shared ([`XdpConfig::hand_over`]). A device that is waited for is not taken any more.
    #[must_use]
    pub fn pass_new(&self) -> bool {
        let mut taken = self.taken();
        match &*taken {
            Taken::NotYet { .. } => *taken = Taken::Never,
            Taken::Yes(attached) => return attached.upgrade().is_some_and(|attached| attached.pass_new()),
            Taken::Never => {}
        }
        true
    }

    /// Who used the device when this process began to wait for it, if it still waits.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        match &*self.taken() {
            Taken::NotYet { used_by, .. } => Some(used_by.clone()),
            Taken::Yes(_) | Taken::Never => None,
        }
    }

    /// Whether the device is used now.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.attached().is_some()
    }

    pub(super) fn attached(&self) -> Option<Arc<Attached>> {
        match &*self.taken() {
            Taken::Yes(attached) => attached.upgrade(),
            Taken::NotYet { .. } | Taken::Never => None,
        }
    }

    /// The counters of all queues together. `None` when the device is no longer used.
    #[must_use]
    pub fn counters(&self) -> Option<XdpCounters> {
        let attached = self.attached()?;
        let lost = &attached.lost;
        let dropped = |why| attached.maps().map_or_else(|| lost.dropped(why), |maps| maps.dropped(why));
        let all = attached.sockets.iter().filter_map(|socket| attached.counted(socket).ok());
        let sum = all.fold(SocketCounts::default(), |sum, one| SocketCounts {
            dropped: sum.dropped + one.dropped,
            receive_ring_full: sum.receive_ring_full + one.receive_ring_full,
            fill_ring_empty: sum.fill_ring_empty + one.fill_ring_empty,
        });
        Some(XdpCounters {
            options: dropped(Dropped::Options),
            fragments: dropped(Dropped::Fragment),
            sources: dropped(Dropped::Source),
            not_allowed: dropped(Dropped::NotAllowed),
            no_socket: dropped(Dropped::NoSocket),
            flood: dropped(Dropped::Flood),
            malformed: lost.malformed.load(Ordering::Relaxed),
            unreachable: lost.unreachable.load(Ordering::Relaxed),
            no_room: lost.no_room.load(Ordering::Relaxed),
            receive_ring_full: sum.receive_ring_full,
            fill_ring_empty: sum.fill_ring_empty,
            kernel: sum.dropped,
        })
    }
}

impl std::fmt::Debug for XdpStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("XdpStatus").field(&self.counters()).finish()
    }
}
