//! Links: what packets are sent through and received from.
//!
//! A packet is one whole IP packet as bytes, without any link-layer header.
//!
//! | module | what |
//! |---|---|
//! | [`path`] | one direction of a network path in memory: delay, rate, queue, loss, reordering, duplication, corruption, MTU. Sans-IO, virtual time, deterministic from one seed |
//! | [`link`] | the trait of everything packets can be sent through in real time |
//! | [`memory`] | two [`Link`]s joined by a pair of [`Path`]s that run in real time, or in virtual time |
//! | [`virtual_time`] | a clock that moves when everything waits |
//! | [`tun`] | a TUN device: the kernel of the same machine is the network; one without a runtime, in any network namespace (Linux, feature `tun`) |
//! | [`udp`] | TCP in UDP datagrams through sockets of the operating system, without privileges (feature `udp`) |
//! | [`xdp`] | a network card, beside the kernel: some ports of the host's own addresses (Linux, feature `xdp`) |
//! | `BusyPoll` | keeps the thread of any link awake for a while after each packet (features `tun`, `udp` and `xdp`) |
//! | [`pcap`] | pcapng files, and a tap that records any link into one (feature `pcap`) |

#[cfg(any(feature = "tun", feature = "udp", feature = "xdp"))]
mod busy;
pub mod link;
pub mod memory;
#[cfg(all(any(feature = "tun", feature = "xdp"), target_os = "linux"))]
#[cfg_attr(not(all(feature = "tun", feature = "xdp")), allow(dead_code, reason = "of one of the two"))]
mod netlink;
pub mod path;
#[cfg(feature = "pcap")]
pub mod pcap;
mod route;
#[cfg(all(feature = "tun", target_os = "linux"))]
pub mod tun;
#[cfg(feature = "udp")]
pub mod udp;
pub mod virtual_time;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub mod xdp;

#[cfg(any(feature = "tun", feature = "udp", feature = "xdp"))]
pub use busy::BusyPoll;
pub use link::{ComesHere, Link};
pub use memory::{MemoryLink, real_time_pair, virtual_time_pair};
pub use path::{Counters, Duplex, FilterVerdict, Path, PathConfig, PathError};
#[cfg(feature = "pcap")]
pub use pcap::{Direction, PcapTap, PcapWriter, PcapWriterError, Tapped};
pub use route::source_for;
#[cfg(all(feature = "tun", target_os = "linux"))]
pub use tun::{Tun, TunConfig, TunDevice, TunError, TunQueue};
#[cfg(feature = "udp")]
pub use udp::{SharedUdp, UdpLink};
pub use virtual_time::VirtualTime;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub use xdp::{Xdp, XdpConfig, XdpError, XdpQueue};
