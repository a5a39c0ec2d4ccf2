//! Why a TUN device could not be made, and what to do about it.

use std::io;
use std::net::IpAddr;

use nix::errno::Errno;

use super::{MAX_NAME_BYTES, errno};

/// Why a TUN device could not be made. The messages say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// The process may not make network devices.
    #[error(
        "not permitted to create a TUN device: run as root or with the capability CAP_NET_ADMIN, and with \
         read and write access to /dev/net/tun"
    )]
    Permission,
    /// The kernel, or the container, has no TUN driver.
    #[error("no TUN driver: load it with `modprobe tun`; in a container, pass in the device /dev/net/tun")]
    DeviceMissing,
    /// A device of this name exists.
    #[error("a network device named {0:?} exists: choose another name or remove it with `ip link del {0}`")]
    NameTaken(String),
    /// The kernel accepts no device of this name. The caller is at fault.
    #[error(
        "{0:?} cannot name a network device: use 1 to {MAX_NAME_BYTES} bytes without '/', ':', '%' and \
         spaces"
    )]
    NameInvalid(String),
    /// Another device of this machine has this address.
    #[error("{address} is already the address of device {device}: choose another address")]
    AddressInUse {
        /// The address.
        address: IpAddr,
        /// The device that has it.
        device: String,
    },
    /// Not an address that a device can have, or a prefix longer than the address. The caller is at fault.
    #[error(
        "{address}/{prefix} cannot be a device's address: use a unicast address and a prefix of at most {} bits",
        if .address.is_ipv4() { 32 } else { 128 }
    )]
    AddressInvalid {
        /// The address.
        address: IpAddr,
        /// The prefix length in bits.
        prefix: u8,
    },
    /// The kernel has IPv6 switched off, but an IPv6 address was asked for.
    #[error(
        "IPv6 is switched off: set sysctl net.ipv6.conf.default.disable_ipv6 to 0 or use only IPv4 addresses"
    )]
    Ipv6Disabled,
    /// The MTU is smaller than IP allows. The caller is at fault.
    #[error("an MTU of {mtu} bytes is too small: IP needs {minimum}")]
    MtuTooSmall {
        /// The requested MTU, bytes.
        mtu: u16,
        /// The smallest allowed MTU, bytes.
        minimum: u16,
    },
    /// Not called within a tokio runtime. The caller is at fault.
    #[error("no tokio runtime here: create the device within one")]
    NoRuntime,
    /// The system refused a step for another reason.
    #[error("TUN device: cannot {step}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl TunError {
    /// Whether it may be otherwise in a minute: a device or an address that another process has may be free, and a driver loaded.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::DeviceMissing
                | Self::NameTaken(_)
                | Self::AddressInUse { .. }
                | Self::Ipv6Disabled
                | Self::System { .. }
        )
    }

    pub(super) fn system(step: &'static str, errno: Errno) -> Self {
        Self::at(step)(errno.into())
    }

    /// Turns the system's error at `step` into one of these.
    pub(super) fn at(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match errno(&source) {
            Some(Errno::EPERM | Errno::EACCES) => Self::Permission,
            _ => Self::System { step, source },
        }
    }

    /// Opening the driver, making the device.
    pub(super) fn from_creation(name: &str, error: io::Error) -> Self {
        match errno(&error) {
            Some(Errno::ENOENT | Errno::ENXIO | Errno::ENODEV) => Self::DeviceMissing,
            // Another process made it after the check.
            Some(Errno::EBUSY | Errno::EEXIST) => Self::NameTaken(name.to_owned()),
            _ => Self::at("create it")(error),
        }
    }

    /// Adding an address. The process has the permission at this step, so for IPv6 "access denied" means that
    /// IPv6 is switched off.
    pub(super) fn from_address(address: IpAddr, error: io::Error) -> Self {
        match errno(&error) {
            Some(Errno::EACCES | Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP) if address.is_ipv6() => {
                Self::Ipv6Disabled
            }
            Some(Errno::EEXIST) => Self::AddressInUse { address, device: "this one".to_owned() },
            _ => Self::at("add an address")(error),
        }
    }
}
