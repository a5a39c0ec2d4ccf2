//! Why a device could not be used, and what to do about it.

use std::io;
use std::net::SocketAddr;

use nix::errno::Errno;

/// Why a device could not be used. The messages say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The process may not use AF_XDP.
    #[error("not permitted to use AF_XDP: run as root or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF")]
    Permission,
    /// The kernel has no AF_XDP, or no links of BPF.
    #[error("this kernel cannot do it: AF_XDP and links of BPF need Linux 5.9 with CONFIG_XDP_SOCKETS")]
    Kernel,
    /// There is no such device.
    #[error("there is no network device {0}")]
    NoDevice(String),
    /// The device has no Ethernet frames.
    #[error("{0} is no Ethernet device: only those can be used")]
    NotEthernet(String),
    /// The device is down.
    #[error("{0} is down: ip link set {0} up")]
    Down(String),
    /// The device's packets cannot be told apart, or belong to another device.
    #[error("{device} cannot be used: {why}")]
    Unusable {
        /// The device.
        device: String,
        /// The reason.
        why: String,
    },
    /// The MTU is too large for one frame.
    #[error(
        "the MTU of {device} is {mtu} bytes, and at most {most} can be used: ip link set {device} mtu {most}"
    )]
    Mtu {
        /// The device.
        device: String,
        /// Its MTU, bytes.
        mtu: usize,
        /// The largest usable MTU, bytes.
        most: usize,
    },
    /// Packets are joined before a program in generic mode, or a packet socket, sees them.
    #[error(
        "generic and packet mode need the packets as they come: ethtool -K {device} gro off (and, if the device is a veth, at its \
         peer: ethtool -K PEER tso off gso off)"
    )]
    Joined {
        /// The device.
        device: String,
    },
    /// The address is not one of the device's.
    #[error("{at} cannot be served: {device} does not have this address")]
    NotItsAddress {
        /// The address and port.
        at: SocketAddr,
        /// The device.
        device: String,
    },
    /// Ports cannot be shared in this mode.
    #[error(
        "packet mode cannot share its ports with another process: the kernel would answer their packets, too"
    )]
    NotShared,
    /// Nothing to serve.
    #[error("no port to serve")]
    NoPorts,
    /// The kernel has connections at the port.
    #[error("the kernel has {count} connections at {at}, which would break: end them first (ss -tn sport = :{})", at.port())]
    Connections {
        /// The address and port.
        at: SocketAddr,
        /// How many.
        count: u32,
    },
    /// The port is open to fewer than the program would serve.
    #[error(
        "{what}, and would not see the packets that are taken from {device}: say that it may be bypassed, and who may \
         connect"
    )]
    Firewall {
        /// The device.
        device: String,
        /// What was found.
        what: String,
    },
    /// Another program has the device.
    #[error("{device} is used by {by}: one process owns a device")]
    Busy {
        /// The device.
        device: String,
        /// Who uses it.
        by: String,
    },
    /// The driver has no XDP.
    #[error(
        "the driver of {device} cannot do this mode: {source}; generic mode and packet mode work with every driver"
    )]
    Mode {
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// The memory cannot be locked.
    #[error(
        "cannot lock {need} bytes of memory: raise the limit (ulimit -l, LimitMEMLOCK=) or give the process CAP_IPC_LOCK"
    )]
    Memory {
        /// How much is needed, bytes.
        need: usize,
    },
    /// The kernel refused the program.
    #[error("the kernel refused the program: {source}: {log}")]
    Program {
        /// The system's error.
        source: io::Error,
        /// The last lines of what the verifier said.
        log: String,
    },
    /// Not called within a tokio runtime. The caller is at fault.
    #[error("no tokio runtime here: open the queue within one")]
    NoRuntime,
    /// The system refused a step for another reason.
    #[error("network card: cannot {step}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl XdpError {
    /// Turns the system's error at `step` into one of these.
    pub(super) fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match errno(&source) {
            Some(Errno::EPERM | Errno::EACCES) => Self::Permission,
            Some(Errno::EAFNOSUPPORT | Errno::ENOSYS) => Self::Kernel,
            _ => Self::System { step, source },
        }
    }

    /// Whether the same call may succeed later, or on another machine, without another configuration.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::System { .. }
                | Self::Program { .. }
                | Self::Connections { .. }
                | Self::Down(_)
        )
    }
}

pub(super) fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}
